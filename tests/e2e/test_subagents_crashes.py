"""A subagent's crash is a tool error of its parent; a parent's crash ends its subagents."""

import os
import signal

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.reasons import Shutdown
from cmdc_runtime.testing import Hold, Text, ToolCalls, ToolUse

TURN_S = 20.0
REAPED_S = 1.0
"""For the zygote to reap what has ended: its end is reported when the kernel reports it."""


def task(kind="scout", description="Look."):
    """A call that gives a task away."""
    return ToolUse("task", {"description": description, "subagent_type": kind})


def scout(model, **more):
    return cmdc.SubAgent("scout", "Looks at things.", model=model, **more)


def used(tokens):
    return TokenUsage(prompt_tokens=tokens, completion_tokens=0, total_tokens=tokens)


def results(request):
    """Return what a model read about the calls of its last answer."""
    messages = request["messages"]
    last = max(at for at, one in enumerate(messages) if one["role"] == "assistant")
    return [one["content"] for one in messages[last:] if one["role"] == "tool"]


def only(kind, envelopes):
    return [envelope.event for envelope in envelopes if isinstance(envelope.event, kind)]


def kill(pid):
    os.kill(pid, signal.SIGKILL)


class Ask(cmdc.Tool):
    """A tool that a person must allow."""

    name = "ask_first"
    description = "Does what one should ask for first."
    parameters = {"type": "object", "properties": {}}  # noqa: RUF012 - as the contract has it
    needs_approval = True

    def execute(self, args, context):
        return "done without asking"


# --- of a subagent --------------------------------------------------------------------------------


def test_crash_of_a_subagent_is_a_tool_error_and_nothing_more(agent, client, scripted, cycle_of):
    """Another subagent and the parent go on, in the processes that they have."""
    model = scripted(ToolCalls(task(), task(description="Feel.")), ToolCalls(task()), "done")
    below = scripted((Hold(), "one"), (Hold(), "one"), "two")
    session = agent(model, subagents=[scout(below)])
    stream = session.subscribe()
    pid = session.agent_pid()
    session.prompt("Go.")
    below.wait_held(TURN_S, count=2)
    kill(client.agent_pid(f"{session.id}.1"))
    below.wait_abandoned()
    below.release()
    found = cycle_of(stream)

    assert [event.ok for event in only(events.SubagentEnd, found)].count(False) == 1
    crashed, other = results(model.requests[1])
    assert "the subagent crashed: " in crashed
    assert "SIGKILL" in crashed
    assert other == "one"
    assert results(model.requests[2]) == ["two"]
    assert (session.agent_pid(), session.status().incarnation) == (pid, 1)
    below.assert_complete()


@pytest.mark.parametrize("given", [{}, {"reason": "not this one"}], ids=["bare", "reason"])
def test_subagent_that_a_person_stops_has_not_crashed(agent, client, scripted, cycle_of, given):
    """The parent's model and the stream hear of a stop, with the reason that was given."""
    model = scripted(ToolCalls(task()), "done")
    below = scripted((Hold(), "one"))
    session = agent(model, subagents=[scout(below)])
    stream = session.subscribe()
    session.prompt("Go.")
    below.wait_held(TURN_S)
    client.stop(f"{session.id}.1", **given)
    below.release()
    (end,) = only(events.SubagentEnd, cycle_of(stream))
    reported = ": ".join(["the subagent was stopped", *given.values()])

    assert (end.ok, end.text) == (False, reported)
    assert results(model.requests[-1]) == [f"Error: {reported}"]


def test_subagent_that_cannot_be_built_is_a_tool_error(agent, client, scripted, cycle_of):
    """A tool that is not installed is the subagent's problem; its type can't be started."""
    model = scripted(ToolCalls(task()), "done")
    session = agent(model, subagents=[scout(model, tools=["nowhere_at_all:tool"])])
    stream = session.subscribe()
    session.prompt("Go.")
    found = cycle_of(stream)
    (end,) = only(events.SubagentEnd, found)

    assert (end.ok, end.usage) == (False, TokenUsage())
    assert "the subagent did not start: " in results(model.requests[-1])[0]
    assert "nowhere_at_all" in results(model.requests[-1])[0]
    assert [one.session_id for one in client.list_sessions()] == [session.id]


def test_session_that_has_a_subagents_id_is_left_alone(agent, client, scripted):
    """Where an application took the id the task fails; that session is not ended or counted."""
    model = scripted(ToolCalls(task(), usage=used(1_000)), Text("done", usage=used(200)))
    session = agent(model, subagents=[scout(model)])
    other_model = scripted(Text("mine", usage=used(30)), "still here")
    other = agent(other_model, session_id=f"{session.id}.1")
    other.run("Go.", timeout=TURN_S)
    session.run("Go.", timeout=TURN_S)

    assert "is alive" in results(model.requests[-1])[0]
    assert session.status().total_tokens == 1_200
    assert other.run("Go on.", timeout=TURN_S).text == "still here"


def test_subagent_that_needs_a_person_says_so(agent, scripted):
    """Where its cycle may not wait, its task fails in place of ending half done."""
    model = scripted(ToolCalls(task()), "done")
    below = scripted(ToolCalls(ToolUse("ask_first", {})))
    asks = cmdc.plugins.HumanApproval(require_approval_for=["ask_first"], mode="block")
    session = agent(model, subagents=[scout(below, tools=[Ask()], plugins=[asks])])
    session.run("Go.", timeout=TURN_S)

    (reported,) = results(model.requests[-1])
    assert reported == "Error: the subagent may not call ask_first without a person's approval"


# --- of the parent --------------------------------------------------------------------------------


def test_crash_of_the_parent_ends_its_subagents_before_the_next_process(
    agent, client, scripted, cycle_of, cmdc_daemon
):
    """The call is uncertain to the model, and what the subagent used is counted."""
    model = scripted(ToolCalls(task(), usage=used(1_000)), Text("done", usage=used(200)))
    below = scripted(ToolCalls(task(), usage=used(30)), (Hold(), "never"))
    session = agent(model, subagents=[scout(below)])
    stream = session.subscribe()
    session.prompt("Go.")
    below.wait_held()
    child = f"{session.id}.1"
    monitor, process = client.monitor(child), psutil.Process(client.agent_pid(child))
    kill(session.agent_pid())
    found = cycle_of(stream)
    if not only(events.SubagentEnd, found):
        found += cycle_of(stream, ends=("subagent_end",))
    log = cmdc_daemon.log_text()
    starts = [line for line in log.splitlines() if "agent.started" in line and session.id in line]
    (ended,) = (line for line in log.splitlines() if "process.ended" in line and child in line)

    assert psutil.wait_procs([process], REAPED_S)[1] == []
    assert monitor.wait(TURN_S).reason == Shutdown(detail="the parent's process ended")
    assert log.index(ended) < log.index(starts[-1])
    assert "It may or may not have taken effect" in results(model.requests[-1])[0]
    (end,) = only(events.SubagentEnd, found)
    assert (end.child_session_id, end.ok) == (child, False)
    assert 30 + 30 < end.usage.total_tokens < 200  # the request that it died in counts about
    assert session.status().total_tokens == 1_200 + end.usage.total_tokens
    assert len(below.requests) == 2


def test_crashes_of_the_parent_count_a_subagent_once(agent, scripted, poll, cycle_of):
    """However often the parent dies while it counts, and whatever it had reported already."""
    model = scripted(ToolCalls(task(), usage=used(1_000)), default=Text("done", usage=used(200)))
    below = scripted(ToolCalls(task(), usage=used(30)), (Hold(), "never"))
    session = agent(model, subagents=[scout(below)], max_restarts=20, max_cycle_crashes=20)
    session.prompt("Go.")
    below.wait_held()
    for incarnation in range(2, 7):
        kill(session.agent_pid())
        assert poll(lambda: session.status().incarnation == incarnation)  # noqa: B023 - at once
        assert poll(session.agent_pid)
    assert poll(lambda: session.status().state == "idle")
    assert poll(lambda: session.status().total_tokens % 200)
    with session.subscribe(since=0) as past:
        found = cycle_of(past)
        if not only(events.SubagentEnd, found):
            found += cycle_of(past, ends=("subagent_end",))

    (end,) = only(events.SubagentEnd, found)
    assert 30 < end.usage.total_tokens < 200
    assert session.run("Next.", timeout=TURN_S).text == "done"
    assert session.status().total_tokens % 200 == end.usage.total_tokens


@pytest.mark.parametrize("restart", ["temporary", "transient"])
def test_crash_of_the_parent_leaves_nothing_behind(agent, client, scripted, restart, poll):
    """Whether another process follows or not, and if the next one gives up."""
    model, below = scripted(ToolCalls(task())), scripted((Hold(), "never"))
    session = agent(model, subagents=[scout(below)], restart=restart, max_restarts=0)
    session.prompt("Go.")
    below.wait_held()
    process = psutil.Process(client.agent_pid(f"{session.id}.1"))
    monitor = session.monitor()
    kill(session.agent_pid())

    assert monitor.wait(TURN_S).restarting is False
    assert poll(lambda: not process.is_running())
    assert poll(lambda: client.list_sessions() == [])
