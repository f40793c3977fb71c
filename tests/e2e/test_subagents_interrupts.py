"""What an abort, a steering and a stop of the parent do to subagents at work."""

import asyncio

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


def read_until(stream, kind):
    """Return the envelopes up to the first event of ``kind``."""
    found = [stream.get(TURN_S)]
    while not isinstance(found[-1].event, kind):
        found.append(stream.get(TURN_S))
    return found


@cmdc.tool(effects="read")
def smell() -> str:
    """Smell."""
    return "roses"


@cmdc.tool(effects="write")
async def wait_for_ever() -> str:
    """Wait as a task."""
    await asyncio.Event().wait()
    return "never"


@pytest.fixture
def processes_of(client):
    """Return the processes of sessions, given by their ids."""

    def find(*session_ids):
        return [psutil.Process(client.agent_pid(one)) for one in session_ids]

    return find


# --- abort ----------------------------------------------------------------------------------------


def test_abort_ends_the_subagents_that_the_cycle_waits_for(
    agent, client, scripted, cycle_of, processes_of
):
    """The parent is idle at once; the processes are gone when their end is reported."""
    model, below = scripted(ToolCalls(task(), task()), "next"), scripted(*[(Hold(), "never")] * 2)
    session = agent(model, subagents=[scout(below)])
    stream = session.subscribe()
    session.prompt("Go.")
    below.wait_held(TURN_S, count=2)
    processes = processes_of(f"{session.id}.1", f"{session.id}.2")
    session.abort(reason="enough")
    found = cycle_of(stream)
    messages = session.messages()
    ends = [read_until(stream, events.SubagentEnd)[-1].event for _ in processes]

    assert found[-1].event.reason == "enough"
    assert psutil.wait_procs(processes, REAPED_S)[1] == []
    assert [(end.ok, end.text) for end in ends] == [(False, "the subagent was ended")] * 2
    below.wait_abandoned(2)
    assert session.messages() == messages  # what is late changes nothing
    assert [one.session_id for one in client.list_sessions()] == [session.id]
    assert session.run("Next.", timeout=TURN_S).text == "next"
    model.assert_complete()


def test_abort_ends_the_levels_below_too(agent, scripted, processes_of, poll):
    """A subagent's own subagents end with it."""
    model = scripted(ToolCalls(task()), ToolCalls(task("general-purpose")), (Hold(), "never"))
    session = agent(model, subagents=[scout(None)], max_depth=2)
    session.prompt("Go.")
    model.wait_held()
    processes = processes_of(f"{session.id}.1", f"{session.id}.1.1")
    session.abort()

    assert poll(lambda: not any(process.is_running() for process in processes))
    model.wait_abandoned()


def test_abort_while_a_subagent_starts_leaves_none_behind(agent, client, scripted, cycle_of, poll):
    """Whenever an abort comes between the call and the subagent's first request."""
    model, below = scripted(default=ToolCalls(task())), scripted(default=(Hold(), "never"))
    session = agent(model, subagents=[scout(below)])
    stream = session.subscribe()
    for kind in (events.ToolCalls, events.ToolExecutionStart, events.SubagentStart) * 2:
        session.prompt("Go.")
        read_until(stream, kind)
        session.abort()
        cycle_of(stream)

    alone = [session.id]
    assert poll(lambda: [one.session_id for one in client.list_sessions()] == alone)


def test_abort_may_leave_subagents_to_themselves(agent, client, scripted, cycle_of):
    """Without ``children`` they run to their end; nobody reads their answer, but it is counted."""
    model = scripted(ToolCalls(task(), usage=used(1_000)), Text("next", usage=used(200)))
    below = scripted((Hold(), Text("seen", usage=used(30))))
    session = agent(model, subagents=[scout(below)])
    stream = session.subscribe()
    session.prompt("Go.")
    below.wait_held()
    session.abort(children=False)
    cycle_of(stream)
    messages = session.messages()
    state = client.status(f"{session.id}.1").state
    reply = session.run("Next.", timeout=TURN_S)
    below.release()
    end = read_until(stream, events.SubagentEnd)[-1].event

    assert state == "running"
    assert "may still have run to its end" in messages[-1].content
    assert reply.text == "next"
    assert (end.ok, end.text, end.usage.total_tokens) == (True, "seen", 30)
    assert session.messages()[: len(messages)] == messages
    assert session.status().total_tokens == 1_230
    assert "seen" not in [message.content for message in session.messages()]


def test_subagents_left_to_themselves_hold_nothing_up(agent, scripted, cycle_of):
    """The calls that waited for them are over, so the next cycle's calls have their room."""
    model = scripted(ToolCalls(task()), ToolCalls(ToolUse("smell", {})), "next")
    below = scripted((Hold(), "seen"))
    session = agent(model, tools=[smell], subagents=[scout(below)], max_parallel_tools=1)
    stream = session.subscribe()
    session.prompt("Go.")
    below.wait_held()
    session.abort(children=False)
    cycle_of(stream)
    text = session.run("Next.", timeout=TURN_S).text
    below.release()

    assert text == "next"
    assert results(model.requests[-1]) == ["roses"]


# --- steer ----------------------------------------------------------------------------------------


def test_steering_leaves_subagents_alone(agent, scripted, cycle_of):
    """It ends what else runs, and is given to the model when the subagent is done."""
    calls = ToolCalls(task(), ToolUse("wait_for_ever", {}))
    model, below = scripted(calls, "done"), scripted((Hold(), "seen"))
    session = agent(model, tools=[wait_for_ever], subagents=[scout(below)])
    stream = session.subscribe()
    session.prompt("Go.")
    below.wait_held()
    session.steer("Hurry.")
    killed = read_until(stream, events.ToolKilled)[-1].event
    below.release()
    cycle_of(stream)

    assert killed.name == "wait_for_ever"
    seen, ended = results(model.requests[-1])
    assert (seen, "something to say" in ended) == ("seen", True)
    assert model.requests[-1]["messages"][-1]["content"] == "Hurry."


def test_steering_of_the_whole_tree_ends_subagents(agent, scripted, cycle_of, processes_of, poll):
    """The model hears the steering at once, and that the task was not finished."""
    model, below = scripted(ToolCalls(task()), "done"), scripted((Hold(), "never"))
    session = agent(model, subagents=[scout(below)])
    stream = session.subscribe()
    session.prompt("Go.")
    below.wait_held()
    processes = processes_of(f"{session.id}.1")
    session.steer("Stop looking.", scope="tree")
    found = cycle_of(stream)

    assert [event.name for event in only(events.ToolKilled, found)] == ["task"]
    assert "something to say" in results(model.requests[-1])[0]
    assert model.requests[-1]["messages"][-1]["content"] == "Stop looking."
    assert poll(lambda: not any(process.is_running() for process in processes))
    below.wait_abandoned()


# --- stop and groups ------------------------------------------------------------------------------


def test_stop_of_the_parent_ends_its_subagents(agent, client, scripted, processes_of):
    """When ``stop`` returns, no process of any level is left."""
    model = scripted(ToolCalls(task()), ToolCalls(task("general-purpose")), (Hold(), "never"))
    session = agent(model, subagents=[scout(None)], max_depth=2)
    session.prompt("Go.")
    model.wait_held()
    ids = [session.id, f"{session.id}.1", f"{session.id}.1.1"]
    processes = processes_of(*ids)
    monitors = [client.monitor(one) for one in ids[1:]]
    session.stop()

    assert psutil.wait_procs(processes, REAPED_S)[1] == []
    ended = Shutdown(detail="the parent's process ended")
    assert [monitor.wait(TURN_S).reason for monitor in monitors] == [ended] * 2
    assert client.list_sessions() == []


def test_group_hears_its_subagents_from_their_first_event(agent, client, scripted, tmp_path):
    """A subagent joins its parent's group, and leaves it when its task is done."""
    group = f"group of {tmp_path}"
    model = scripted(ToolCalls(task()), "done")
    below = scripted(default="seen")
    session = agent(model, subagents=[scout(below)], group_id=group)
    stream = client.subscribe_group(group)
    session.prompt("Go.")
    found = [stream.get(TURN_S)]
    while not (found[-1].session_id == session.id and found[-1].event.kind == "agent_end"):
        found.append(stream.get(TURN_S))
    child = [one for one in found if one.session_id == f"{session.id}.1"]

    assert {one.session_id for one in found} == {session.id, f"{session.id}.1"}
    assert [one.index for one in child] == [*range(1, len(child) + 1)]
    assert [child[0].event.kind, child[-1].event.kind] == ["prompt_received", "agent_end"]
