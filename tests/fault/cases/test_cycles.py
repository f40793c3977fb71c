"""One prompt read to its end, and the events of its calls, while agent and daemon are killed."""

import os
import signal
import threading
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.testing import Hold, Text, ToolCalls, ToolUse
from tests.fault.conftest import poll_for

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 60.0
ANSWER = "Forty-two, and here is why it is not forty-three."
STARTED, BLOCKED, ENDED = "tool_execution_start", "tool_blocked", "tool_execution_end"


@cmdc.tool(effects="read")
def stay(path: str) -> str:
    """Wait for ever, unless it is not the first time."""
    with Path(path).open("a") as file:
        file.write("x")
    if Path(path).read_text() == "x":
        threading.Event().wait()
    return "left"


@cmdc.tool(effects="write")
def stay_writing(path: str) -> str:
    """Wait for ever."""
    with Path(path).open("a") as file:
        file.write("x")
    threading.Event().wait()
    return "never"


@pytest.fixture
def killer(place, audit):
    """Kill an agent, its daemon, or both; the next daemon is there when this returns."""

    def kill(session, who):
        pid = session.agent_pid()
        if "daemon" in who:
            audit.daemon_died = True
            place.kill()
        if "agent" in who:
            os.kill(pid, signal.SIGKILL)
        if "daemon" in who:
            place.start()

    return kill


WHO = [["agent"], ["daemon"], ["agent", "daemon"]]


@pytest.mark.fault_case("F93")
@pytest.mark.parametrize("who", WHO, ids="-".join)
def test_the_pieces_of_an_answer_add_up(killer, agent, scripted, who):
    """Whoever dies amid it: what was said is not said again, and nothing of it is missing."""
    half = (Text(ANSWER[:20], chunk_chars=4), Hold(), ANSWER[20:])
    model = scripted(half, ANSWER)
    session = agent(model)
    incoming = session.stream("Go.", timeout=TURN_S)
    found = next(incoming)
    while found != ANSWER[:20]:
        found += next(incoming)
    model.wait_held()
    killer(session, who)
    if "agent" not in who:
        model.release()

    assert found + "".join(incoming) == ANSWER
    assert session.collect_reply(timeout=TURN_S) == ANSWER


@pytest.mark.fault_case("F93")
@pytest.mark.parametrize("who", WHO, ids="-".join)
def test_calls_are_reported_twice(killer, agent, scripted, tmp_path, who):
    """Whoever dies amid them: each call has its one start and its one end, read to the cycle's."""
    again, once = tmp_path / "again", tmp_path / "once"
    calls = ToolCalls(
        ToolUse("stay", {"path": str(again)}), ToolUse("stay_writing", {"path": str(once)})
    )
    session = agent(scripted(calls, default="next"), tools=[stay, stay_writing])
    incoming, seen = session.stream_events("Go.", timeout=TURN_S), []
    while dict(Counter(e.kind for e in seen if e.kind == STARTED)) != {STARTED: 2}:
        seen.append(next(incoming))
    assert poll_for(lambda: again.exists() and once.exists())
    killer(session, who)
    if who == ["daemon"]:
        session.abort()
    ended = list(incoming)
    session.run("And?", timeout=TURN_S)
    with session.subscribe(since=0) as stream:
        last, heard = session.last_index(), []
        while not heard or heard[-1].index < last:
            heard.append(stream.get(TURN_S))
    kinds = defaultdict(list)
    for envelope in heard:
        if envelope.event.kind in {STARTED, BLOCKED, ENDED}:
            kinds[envelope.event.call_id].append(envelope.event.kind)

    assert isinstance(ended[-1], events.AgentAbort if who == ["daemon"] else events.AgentEnd)
    assert list(kinds.values()) == [[STARTED, ENDED]] * 2
