"""Writes the journals of this folder with the daemon of the tree that it is run in.

Run it only to add the journal of a version that is about to change how records are made:
copy this file and ``code_of_before.py`` to ``/tmp``, run it there as ``python make.py NAME
[SESSION ...]``, and move what it wrote here. Sessions start again in the folder that they began in,
and their code names the file that it stood in, so it refuses any other folder; and it refuses to
write over a journal.
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
from cmdc_runtime.testing.daemon import DaemonProcess
from supervisor.adapters.journal.sqlite import JOURNAL_FILE
from supervisor.core.exits import DEATHS_MAX
from workers.core.omissions import fold, read_records
from workers.core.snapshot import STRIPPED, restore
from workers.core.state import Memory, Policy

HERE = Path(__file__).parent
ANYWHERE = Path("/tmp")
"""The folder that is there on any machine."""
CODE = "code_of_before"
"""A module beside this one, which agents import by its name."""
TURN_S = 20.0
LOOK_S = 0.05
LONG = 60
"""Prompts, of four records each: more than a snapshot is made after."""
SAID = 2
"""The step of rebuilding that takes the first answer."""
TODOS = [{"id": "1", "content": "Look around", "status": "pending"}]
TASK = {"description": "Look.", "subagent_type": "general-purpose"}


NOTES = """
import json, sys
TOOLS = [{"name": "note", "description": "Note it.", "inputSchema": {"type": "object"}}]
RESULTS = {
    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                   "serverInfo": {"name": "notes", "version": "1"}},
    "tools/list": {"tools": TOOLS},
    "tools/call": {"content": [{"type": "text", "text": "noted"}]},
}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {"jsonrpc": "2.0", "id": asked["id"]}
    if asked["method"] in RESULTS:
        answer["result"] = RESULTS[asked["method"]]
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    print(json.dumps(answer), flush=True)
"""
"""An MCP server with one tool, of nothing but the standard library."""


@cmdc.tool(needs_approval=True)
async def launch(code: int) -> str:
    """Launch it; a person must allow each launch."""
    return f"launched {code}"


@cmdc.tool(isolation="task")
async def sort_out(context: cmdc.Context, *, waits: bool = False) -> str:
    """Sort out what there is."""
    await context.session.keep(b"half")
    if waits:
        await context.session.ask_user("Go on?")
    await context.session.keep(b"")
    return "sorted"


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


class Clerk(cmdc.Plugin):
    """Adds to the system prompt, and asks a model for itself."""

    name = "clerk"

    async def before_prompt(self, event, context):
        """Keep a section, with what a model says of it."""
        said = await context.session.complete("What is to be known?")
        return cmdc.Emit("update_system_context", {"key": "Known", "text": said.text})


def forgetful(messages):
    """Fail, as a function of an application may."""
    raise ValueError(f"{len(messages)} messages are too many")


def no_numbers(text, _context):
    """Trip where an answer has a number."""
    return "it has a number" if any(one.isdigit() for one in text) else None


class Dying(DaemonProcess):
    """A daemon whose agents die where a session's plan says so."""

    def _environment(self):
        plans = self.state_dir.with_name("plans")
        plans.mkdir()
        return super()._environment() | {"CMDC_FAULTS": str(plans), "PYTHONPATH": str(HERE)}

    def has_die(self, session_id, step, times):
        """Have so many agents of a session die at this step of rebuilding it."""
        line = f"agent.rebuild.{step}:1=agent\n"
        plan = self.state_dir.with_name("plans") / f"{session_id}.plan"
        plan.write_text(line * times, encoding="utf-8")


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


def talk(client, model, _daemon):
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


def approvals(client, model, _daemon):
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


def interrupted(client, model, _daemon):
    """Steering, a queued prompt that is discarded, an abort; then the process dies and is back."""
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


def ordered(client, model, _daemon):
    """Orders of a plugin, which asks a model for itself, and a tool that is known by its name."""
    session = client.create_agent(
        session_id="ordered",
        model=model("Much.", calls("known", key="a"), default="Well."),
        tools=[f"{CODE}:known"],
        plugins=[Clerk],
    )
    session.run("Go.")


def reasoned(client, model, _daemon):
    """A run of a strategy, as a call of the model's."""
    session = client.create_agent(
        session_id="reasoned",
        model=model(calls("reason", question="Six times seven?"), default="Answer: 42"),
        tools=[cmdc.tools.Reason(strategies=["self_consistency"], max_parallel=1)],
    )
    session.run("Think.")


def resumed(client, model, _daemon):
    """A session that went on from a checkpoint with another model and another tool."""
    session = client.create_agent(session_id="first", model=model(default="One."), tools=[launch])
    session.run("Go.")
    session.checkpoint(label="there")
    session.stop()
    later = session.resume_session(
        new_id="resumed", model=model(default="Two."), tools=[extra], plugins=[Nudge]
    )
    later.run("Go on.")


def long(client, model, _daemon):
    """So much that a snapshot has most of it."""
    session = client.create_agent(session_id="long", model=model(default="Well."))
    for number in range(LONG):
        session.run(f"Prompt {number}.")


def poisoned(client, model, daemon):
    """A record that killed two agents is set aside."""
    session = client.create_agent(session_id="poisoned", model=model("One.", default="Two."))
    session.run("Go.")
    daemon.has_die("poisoned", SAID, DEATHS_MAX)
    os.kill(session.agent_pid(), signal.SIGKILL)
    session.run("Go on.")


def cut(client, model, _daemon):
    """An answer that an abort has cut off in the middle."""
    half = model(("Half of ", Hold(), "it."), default="Well.")
    session = client.create_agent(session_id="cut", model=half)
    stream = session.subscribe()
    session.prompt("Go.")
    while stream.get(TURN_S).event.kind != "message_delta":
        pass
    session.abort(reason="enough")
    half.release()
    until(lambda: session.status().state == "idle")


def served(client, model, _daemon):
    """An MCP server that is attached and called, another one that goes again; the process dies."""
    notes = cmdc.McpServer("notes", command=["python3", "-c", NOTES], timeout=TURN_S)
    session = client.create_agent(
        session_id="served", model=model(calls("mcp__notes__note"), default="Noted.")
    )
    session.attach_mcp_server(notes)
    session.attach_mcp_server(cmdc.McpServer("other", command=["python3"], timeout=TURN_S))
    session.detach_mcp_server("other")
    session.run("Note it.")
    pid = session.agent_pid()
    os.kill(pid, signal.SIGKILL)  # the next one has not started the server, as after a restart
    until(lambda: session.agent_pid() not in (None, pid))
    until(lambda: session.status().state == "idle")


def handed(client, model, _daemon):
    """A handoff that fails by its history, and one to an agent that then has the session."""
    clerk = cmdc.SubAgent("clerk", "Knows about money.", system_prompt="You are the clerk.")
    chief = cmdc.SubAgent("chief", "Decides.", system_prompt="You are the chief.")
    session = client.create_agent(
        session_id="handed",
        model=model(calls("transfer_to_chief"), calls("transfer_to_clerk"), default="Well."),
        handoffs=[clerk, cmdc.Handoff(chief, history=forgetful)],
    )
    session.run("Who decides?")
    session.run("Go on.")


def guarded(client, model, _daemon):
    """An answer that a guardrail has taken back, and one that it let pass."""
    session = client.create_agent(
        session_id="guarded",
        model=model("It is 42.", default="Well."),
        output_guardrails=[no_numbers],
    )
    with contextlib.suppress(cmdc.errors.GuardrailTripped):
        session.run("What is it?")
    session.run("Go on.")


def keeping(client, model, _daemon):
    """A call that keeps where it is, and then has that no more; another one that still does."""
    session = client.create_agent(
        session_id="keeping",
        model=model(calls("sort_out"), "Done.", calls("sort_out", waits=True)),
        tools=[sort_out],
    )
    session.run("Go.")
    session.prompt("Once more.")
    until(lambda: session.status().pending_questions)


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


def asked(journal, query, *values):
    """Return the rows that a journal has for a query; it is not written to."""
    with contextlib.closing(sqlite3.connect(f"file:{journal}?immutable=1", uri=True)) as found:
        return found.execute(query, values).fetchall()


def rows_of(journal, session_id, after=0):
    """Return the kind and the body of each record of a session behind a number, oldest first."""
    query = "SELECT kind, body FROM records WHERE session_id = ? AND seq > ? ORDER BY seq"
    return asked(journal, query, session_id, after)


def snapshot_of(journal, session_id):
    """Return the newest snapshot of a session with its number; 0 and b"" without one."""
    query = "SELECT seq, body FROM snapshots WHERE session_id = ? ORDER BY seq DESC LIMIT 1"
    return next(iter(asked(journal, query, session_id)), (0, b""))


def rebuilt(journal, session_id):
    """Return the memory that a session's snapshot and the records after it lead to, as data."""
    after, snapshot = snapshot_of(journal, session_id)
    records, _ = read_records(rows_of(journal, session_id, after), frozenset(), lambda _step: None)
    memory = restore(Memory(policy=Policy(session_id=session_id)), snapshot)
    memory, _ = fold(memory, records, lambda _step: None)
    plain = msgspec.to_builtins(memory, order="deterministic", enc_hook=str)
    return json.loads(msgspec.json.encode({name: plain[name] for name in plain.keys() - STRIPPED}))


PLAYS = {
    play.__name__: play
    for play in (
        *(talk, approvals, interrupted, ordered, reasoned, resumed, long, poisoned, cut),
        *(served, handed, guarded, keeping),
    )
}


def main(name, *sessions):
    """Play the sessions, all of them where none is named; end everything and keep the journal."""
    target = HERE / f"{name}.db"
    assert HERE == Path.cwd() == ANYWHERE, f"run it in {ANYWHERE}, as a copy there"
    assert not target.exists(), f"{target} is there already"
    daemon = Dying()
    played = sessions or tuple(PLAYS)
    with contextlib.ExitStack() as stack:
        stack.callback(daemon.close)
        client = stack.enter_context(cmdc.Client(daemon.address))

        def model(*steps, **more):
            return stack.enter_context(ScriptedModel(steps, **more))

        for one in played:
            PLAYS[one](client, model, daemon)
            print(one)
        says = {one: standing(client, one) for one in played}
        copy(daemon, target)
        for one in played:
            client.stop(one)
    made = {"sessions": says, "rebuilt": {one: rebuilt(target, one) for one in played}}
    text = json.dumps(made, indent=1, sort_keys=True)
    target.with_suffix(".json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
