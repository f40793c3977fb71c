"""``cmdc replay`` of real sessions: what was decided is decided again, and an edit is found."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client.engine import ClientEngine
from cmdc_runtime.testing import Error, Hold, Text, ToolCalls, ToolUse
from workers.core.records import decode_record

pytestmark = pytest.mark.process

CMDC = Path(sys.executable).with_name("cmdc")
PLAYER = (sys.executable, "-P", "-m", "workers.replay")
RUN_S = 60.0
TURN_S = 20.0


@cmdc.tool(needs_approval=True)
async def launch(code: int) -> str:
    """Launch it; a person must allow each launch."""
    return f"launched {code}"


@cmdc.tool(effects="write")
def change(log: str, *, context: cmdc.Context) -> str:
    """Note who changes something; the first process then waits for its end."""
    with Path(log).open("a") as file:
        file.write(f"{context.incarnation} ")
    if context.incarnation == 1:
        threading.Event().wait()
    return "changed"


class Nudge(cmdc.Plugin):
    """Has something to say before the first request, and counts all of them."""

    class State(msgspec.Struct):
        """How many there were."""

        requests: int = 0

    def before_request(self, event, context):
        """Count a request."""
        self.state.requests += 1
        return cmdc.Intervene("Be brief.") if self.state.requests == 1 else None


def replay(session, client_address, *more):
    """Run ``cmdc replay`` to its end."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("CMDC_")}
    return subprocess.run(
        [CMDC, "replay", session.id, *more],
        env=ours | {"CMDC_ADDRESS": str(client_address)},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def kill_when(session, path, poll):
    """Kill the agent when its tool has noted that it runs."""
    assert poll(path.exists)
    os.kill(session.agent_pid(), signal.SIGKILL)


def lived(agent, scripted, tmp_path, poll):
    """Return a session with tools, a crash within one, an approval, a retry and an abort."""
    log = tmp_path / "log"
    model = scripted(
        ToolCalls(ToolUse("change", {"log": str(log)}), text="I change it."),
        Error(503, "busy"),
        "It may have changed.",
        ToolCalls(ToolUse("launch", {"code": 7})),
        ToolCalls(ToolUse("launch", {"code": 7})),
        "Launched.",
        (Text("I go on and on", chunk_chars=4), Hold(), "never"),
        "Well.",
    )
    session = agent(
        model, tools=[launch, change], plugins=[Nudge()], retry_base_delay=0.01, max_retries=2
    )
    session.prompt("Change it.")
    kill_when(session, log, poll)
    assert session.collect_reply(timeout=TURN_S) == "It may have changed."
    wanted = session.subscribe(types=["approval_required"])
    session.prompt("Launch.")
    approval = wanted.get(TURN_S).event
    session.collect_reply(timeout=TURN_S)
    session.approve(approval.id)
    assert session.collect_reply(timeout=TURN_S) == "Launched."
    session.prompt("Tell me more.")
    model.wait_held()
    session.steer("Stop soon.")
    session.abort(reason="enough")
    assert session.run("Still there?", timeout=TURN_S).text == "Well."
    return session


def test_a_session_with_a_crash_an_approval_and_an_abort_replays_the_same(
    agent, scripted, tmp_path, poll, cmdc_daemon
):
    """Each record is kept again; a line for each step, and how the session stands after it."""
    session = lived(agent, scripted, tmp_path, poll)
    done = replay(session, cmdc_daemon.address, "--json")
    printed = lines(done.stdout)
    inputs = {one["input"] for one in printed if one["kind"] == "step"}

    assert done.returncode == 0, (printed[-2:], done.stderr)
    assert {"order", "recovery", "tool_begun", "tool_returned", "stream_ended"} <= inputs
    assert printed[-1]["records"] == printed[-1]["of"] > 0
    assert printed[-2]["stands"]["state"] == "idle"
    assert printed[-2]["stands"]["tokens"] == session.status().total_tokens
    assert (
        f"{printed[-1]['records']} records, the same" in replay(session, cmdc_daemon.address).stdout
    )


def test_an_edited_journal_is_found_by_the_player(agent, scripted, cmdc_daemon):
    """Where a cycle is said to have ended otherwise, both ends are shown, and the status is 1."""
    session = agent(scripted("Yes."))
    session.run("Hi.", timeout=TURN_S)
    with contextlib.closing(ClientEngine(cmdc_daemon.address)) as engine:
        past = engine.call(engine.exchange.past(session.id))
    last = past.records[-1]
    ended = decode_record(last.body)
    edited = last.__class__(
        last.seq,
        last.incarnation,
        last.kind,
        msgspec.msgpack.encode(msgspec.structs.replace(ended, outcome="failed", reason="edited")),
    )
    past = msgspec.structs.replace(past, records=(*past.records[:-1], edited))
    done = subprocess.run(
        PLAYER, input=msgspec.msgpack.encode(past), capture_output=True, timeout=RUN_S, check=False
    )
    found = [one for one in lines(done.stdout.decode()) if one["kind"] == "difference"]

    assert done.returncode == 1
    assert [(one["number"], one["input"]) for one in found] == [(last.seq, "stream_ended")]
    assert (found[0]["recorded"]["reason"], found[0]["now"]["outcome"]) == ("edited", "finished")


def test_a_fork_goes_on_from_the_record_that_was_named(agent, client, scripted, cmdc_daemon):
    """Up to there all is shown; the new session has that conversation, the old one its own."""
    session = agent(scripted("One.", "Two.", "Three."))
    session.run("First.", timeout=TURN_S)
    steps = lines(replay(session, cmdc_daemon.address, "--json").stdout)[:-1]
    session.run("Second.", timeout=TURN_S)
    more = ("--until", str(steps[-1]["last"]), "--fork", "--json")
    done = replay(session, cmdc_daemon.address, *more)
    printed = lines(done.stdout)
    with cmdc.Session(printed[-1]["session_id"], client) as fork:
        said = [one.content for one in fork.messages() if one.role != "system"]
        answer = fork.run("And now?", timeout=TURN_S).text

    assert (done.returncode, printed[:-2]) == (0, steps), done.stderr
    assert printed[-2]["state"]["state"] == "idle"
    assert [one["content"] for one in printed[-2]["state"]["messages"]] == ["First.", "One."]
    assert (said, answer) == (["First.", "One."], "Three.")
    assert [one.content for one in session.messages()][-2:] == ["Second.", "Two."]
    assert client.list_checkpoints(session) == []


def test_a_session_that_never_was_cannot_be_replayed(cmdc_daemon):
    """It is named, and the status says so."""

    class Nobody:
        id = "nobody"

    done = replay(Nobody, cmdc_daemon.address)

    assert (done.returncode, done.stdout) == (1, "")
    assert "'nobody' was ever seen here" in done.stderr
