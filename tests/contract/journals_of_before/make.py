"""Writes the journals of this folder with the daemon of the tree that it is run in.

Run it only to add the journal of a version that is about to change how records are made:
copy this file to ``/tmp``, run it there as ``python make.py NAME``, and move what it wrote
here: sessions start again in the folder that they began in, which must be there on any machine. It
refuses to write over one.
"""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from pathlib import Path

import msgspec

import cmdc_runtime as cmdc
from cmdc_runtime.testing import Hold, ScriptedModel, ToolCalls, ToolUse
from cmdc_runtime.testing.fixtures import DaemonProcess
from supervisor.adapters.journal.sqlite import JOURNAL_FILE
from workers.core.rebuild import replay
from workers.core.records import decode_record
from workers.core.snapshot import STRIPPED
from workers.core.state import Memory, Policy

SESSIONS = ("approvals", "interrupted", "talk")
HERE = Path(__file__).parent
TURN_S = 20.0
LOOK_S = 0.05
TODOS = [{"id": "1", "content": "Look around", "status": "pending"}]
TASK = {"description": "Look.", "subagent_type": "general-purpose"}


@cmdc.tool(needs_approval=True)
async def launch(code: int) -> str:
    """Launch it; a person must allow each launch."""
    return f"launched {code}"


@cmdc.tool(effects="read")
async def extra() -> str:
    """Do something more."""
    return "more"


class Nudge(cmdc.Plugin):
    """Says something before the first request, changes todos, and counts requests."""

    name = "nudge"

    class State(msgspec.Struct):
        """How many requests there were."""

        requests: int = 0

    def before_request(self, event, context):
        """Count a request."""
        self.state.requests += 1
        return cmdc.Intervene("Be brief.") if self.state.requests == 1 else None


def until(condition):
    """Wait for a condition of a session."""
    deadline, never = time.monotonic() + TURN_S, threading.Event()
    while not (found := condition()):
        assert time.monotonic() < deadline, "it took too long"
        never.wait(LOOK_S)
    return found


def calls(name, **args):
    """Return an answer that makes one call."""
    return ToolCalls(ToolUse(name, args))


def talk(client, model):
    """Todos, a question, a subagent, tools and a model that change, a plugin."""
    steps = (calls("write_todos", todos=TODOS), calls("ask_user", question="Which?"), "Thanks.")
    below = model("Looked.")
    talker = model(*steps, calls("task", **TASK), "Done.", default="Well.")
    session = client.create_agent(
        session_id="talk",
        model=talker,
        tools=["write_todos", "ask_user", "compact_conversation"],
        plugins=[Nudge],
        subagents=[cmdc.SubAgent("general-purpose", "Does it.", model=below)],
    )
    stream = session.subscribe()
    session.prompt("Go.")
    while (event := stream.get(TURN_S).event).kind != "ask_user":
        pass
    session.user_respond(event.ref, "the red one")
    session.collect_reply()
    session.run("Look.")
    session.attach_tool(extra)
    session.detach_tool("extra")
    session.attach_plugin(("cost_guard", {"max_cost_usd": 5.0}))
    session.detach_plugin("cost_guard")
    session.switch_model(model(calls("compact_conversation", reason="long"), default="Switched."))
    session.run("Who are you?")


def approvals(client, model):
    """One call that was allowed, one that was rejected, one that waits still."""
    one = [calls("launch", code=number) for number in (1, 1, 2)]
    session = client.create_agent(
        session_id="approvals",
        model=model(one[0], "Blocked.", one[1], "Launched.", one[2], default="Waits."),
        tools=[launch],
    )
    session.prompt("Launch 1.")
    (first,) = until(lambda: session.status().pending_approvals)
    until(lambda: session.status().state == "idle")
    session.approve(first)
    for _ in range(4):
        session.run("Go on.")
        if session.status().pending_approvals:
            break


def interrupted(client, model):
    """Guidance, a queued prompt that is discarded, an abort; then the process dies and is back."""
    held = model((Hold(), "One."), default="Two.")
    session = client.create_agent(session_id="interrupted", model=held)
    session.prompt("Go.")
    held.wait_held()
    session.prompt("And then?")
    session.steer("Rather not.")
    session.abort(reason="enough", clear_queue=True)
    held.release()
    until(lambda: session.status().state == "idle")
    held_again = model((Hold(), "Three."), default="Four.")
    session.switch_model(held_again)
    session.prompt("Again.")
    held_again.wait_held()
    pid = session.agent_pid()
    os.kill(pid, signal.SIGKILL)
    until(lambda: session.agent_pid() not in (None, pid))
    held_again.release()
    until(lambda: session.status().state == "idle" and session.status().incarnation > 1)


def standing(client, session_id):
    """Return what a session says of itself that its records decide."""
    status, messages = client.status(session_id), client.messages(session_id)
    names = ("turns", "total_tokens", "model", "queued_prompts", "pending_approvals")
    return {
        "status": json.loads(msgspec.json.encode({one: getattr(status, one) for one in names})),
        "messages": [[one.role, one.content, one.call_id] for one in messages],
    }


def copy(daemon, target):
    """Copy what a daemon has written to one file; meanwhile it stands still."""
    with tempfile.TemporaryDirectory() as folder:
        os.kill(daemon.pid, signal.SIGSTOP)
        try:
            for path in daemon.state_dir.glob(f"{JOURNAL_FILE}*"):
                shutil.copy(path, folder)
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
        with contextlib.closing(sqlite3.connect(Path(folder) / JOURNAL_FILE)) as found:
            found.execute("VACUUM INTO ?", (str(target),))


def records_of(journal, session_id):
    """Return the records that a journal has of a session, oldest first."""
    with contextlib.closing(sqlite3.connect(f"file:{journal}?immutable=1", uri=True)) as found:
        query = "SELECT body FROM records WHERE session_id = ? ORDER BY seq"
        return [decode_record(body) for (body,) in found.execute(query, (session_id,))]


def rebuilt(journal, session_id):
    """Return the memory that the records of a session lead to, as plain data."""
    records = records_of(journal, session_id)
    memory = replay(Memory(policy=Policy(session_id=session_id)), records)
    plain = msgspec.to_builtins(memory, order="deterministic", enc_hook=str)
    return json.loads(msgspec.json.encode({name: plain[name] for name in plain.keys() - STRIPPED}))


def main(name):
    """Play the sessions, end everything by SIGKILL and keep the journal."""
    target = HERE / f"{name}.db"
    assert not target.exists(), f"{target} is there already"
    daemon = DaemonProcess()
    with contextlib.ExitStack() as stack:
        stack.callback(daemon.close)
        client = stack.enter_context(cmdc.Client(daemon.address))

        def model(*steps, **more):
            return stack.enter_context(ScriptedModel(steps, **more))

        for play in (talk, approvals, interrupted):
            play(client, model)
            print(play.__name__)
        says = {one: standing(client, one) for one in SESSIONS}
        copy(daemon, target)
        for one in SESSIONS:
            client.stop(one)
    made = {"sessions": says, "rebuilt": {one: rebuilt(target, one) for one in SESSIONS}}
    text = json.dumps(made, indent=1, sort_keys=True)
    target.with_suffix(".json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
