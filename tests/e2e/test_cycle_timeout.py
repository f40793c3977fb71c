"""``cycle_timeout``: a cycle that takes too long is aborted, whatever it does."""

import os
import signal
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.testing import Delay, Error, Hold, Text, ToolCalls, ToolUse

pytestmark = pytest.mark.process

TURN_S = 20.0
SOON_S = 0.5
"""A limit that nothing has to be done within."""
LIMIT_S = 2.0
"""A limit that calls must begin within, and the next cycle end: the machine may be busy."""
LATE_S = 0.8
"""Of ``LIMIT_S``; what has gone by when the process is killed."""
SLACK_S = 0.1
"""A cycle begins before its first event is published, and both are given in whole milliseconds."""
HALF = "The first half of it, "


@cmdc.tool
def burn(log: str) -> str:
    """Note the process and burn its processor for ever."""
    Path(log).write_text(str(os.getpid()))
    while True:
        sum(range(10_000))


def took_s(envelopes):
    """Return how long a cycle took by its own events, up to its end."""
    begun = next(one.at_ms for one in envelopes if one.event.kind == "agent_start")
    return (envelopes[-1].at_ms - begun) / 1000


STATES = {
    "running": ((Hold(), "never"),),
    "streaming": ((Text(HALF), Hold(), "never"),),
    "retrying": (Error(500, "busy"),),
}


@pytest.mark.parametrize("steps", STATES.values(), ids=STATES)
def test_a_request_that_takes_for_ever_is_ended(agent, scripted, cycle_of, steps):
    """Before the first byte, in mid-stream and between attempts; who waits gets the reason."""
    model = scripted(*steps)
    session = agent(model, cycle_timeout=SOON_S, retry_base_delay=60.0)
    stream = session.subscribe()
    session.prompt("Go.")
    with pytest.raises(cmdc.AgentAborted) as caught:
        session.collect_reply(timeout=TURN_S)
    found = cycle_of(stream)

    assert caught.value.reason == "cycle_timeout"
    assert (found[-1].event.kind, found[-1].event.reason) == ("agent_abort", "cycle_timeout")
    assert took_s(found) >= SOON_S - SLACK_S
    assert session.status().state == "idle"
    model.assert_complete()


def test_calls_and_subagents_end_and_the_next_prompt_has_its_turn(
    agent, scripted, cycle_of, poll, tmp_path
):
    """A call that never yields is gone, and so is the subagent that another one waits for."""
    log = tmp_path / "log"
    calls = ToolUse("burn", {"log": str(log)}), ToolUse("task", {"description": "Look."})
    model, below = scripted(ToolCalls(*calls), "next"), scripted((Hold(), "never"))
    scout = cmdc.SubAgent("general-purpose", "Looks at things.", model=below)
    session = agent(model, tools=[burn], subagents=[scout], cycle_timeout=LIMIT_S)
    stream = session.subscribe()
    session.prompt("Go.")
    queued = session.prompt("Next.")
    below.wait_held()
    assert poll(lambda: log.exists() and log.read_text())
    left = [int(log.read_text()), session.client.agent_pid(f"{session.id}.1")]
    processes = [psutil.Process(pid) for pid in left]
    found = cycle_of(stream)
    _, alive = psutil.wait_procs(processes, TURN_S)

    assert found[-1].event.reason == "cycle_timeout"
    assert alive == []
    assert queued.queued
    assert session.collect_reply(timeout=TURN_S) == "next"
    roles = [message["role"] for message in model.requests[-1]["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "user"]
    # The process is gone before its session is: what it has left is looked after in between.
    assert poll(lambda: [one.session_id for one in session.client.list_sessions()] == [session.id])
    model.assert_complete()


def test_a_crash_gives_no_time_anew(agent, scripted, cycle_of):
    """The next process goes on for what was left of the time, and ends the cycle then."""
    held = (Hold(), "never")
    model = scripted((Delay(LATE_S), *held), held)
    session = agent(model, cycle_timeout=LIMIT_S)
    stream = session.subscribe()
    session.prompt("Go.")
    model.wait_held()
    os.kill(session.agent_pid(), signal.SIGKILL)
    found = cycle_of(stream)
    recovered = next(one for one in found if isinstance(one.event, events.AgentRecovered))

    assert recovered.event.resumed == "stream"
    assert (found[-1].event.kind, found[-1].event.reason) == ("agent_abort", "cycle_timeout")
    assert took_s(found) >= LIMIT_S - SLACK_S
    assert (found[-1].at_ms - recovered.at_ms) / 1000 < LIMIT_S
    assert session.status().incarnation == 2
    model.assert_complete()
