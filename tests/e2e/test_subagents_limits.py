"""Subagents are limited in depth, breadth and number, and share their parent's budget."""

import os
import signal

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.testing import Hold, Text, ToolCalls, ToolUse

TURN_S = 20.0
PRICED = "openai/gpt-4o-mini"
"""A model that litellm's table has a price of: 0.15 USD for a million tokens of a prompt."""
MILLION = 1_000_000


def task(kind="scout", description="Look."):
    """A call that gives a task away."""
    return ToolUse("task", {"description": description, "subagent_type": kind})


def scout(model, **more):
    return cmdc.SubAgent("scout", "Looks at things.", model=model, **more)


def only(kind, envelopes):
    return [envelope.event for envelope in envelopes if isinstance(envelope.event, kind)]


def results(request):
    """Return what a model read about the calls of its last answer."""
    messages = request["messages"]
    last = max(at for at, one in enumerate(messages) if one["role"] == "assistant")
    return [one["content"] for one in messages[last:] if one["role"] == "tool"]


def names(request):
    return sorted(tool["function"]["name"] for tool in request.get("tools", ()))


def used(tokens):
    return TokenUsage(prompt_tokens=tokens, completion_tokens=0, total_tokens=tokens)


def priced(model):
    """Return options that reach a scripted model under a name that has a price."""
    return {"model": PRICED, "provider_opts": model.model_source()[1]}


@cmdc.tool(effects="read")
def smell() -> str:
    """Smell."""
    return "roses"


# --- depth ----------------------------------------------------------------------------------------


def test_subagent_of_the_lowest_level_has_no_task_tool(agent, client, scripted, cycle_of):
    """By default that is the first level below the session; a forced call is an unknown tool."""
    model = scripted(ToolCalls(task()), "done")
    below = scripted(ToolCalls(task()), (Hold(), "alone"))
    session = agent(model, tools=[smell], subagents=[scout(below)])
    session.prompt("Go.")
    below.wait_held()
    stream = client.subscribe(f"{session.id}.1", since=0)
    below.release()
    found = cycle_of(stream)
    session.collect_reply(timeout=TURN_S)

    assert names(below.requests[0]) == ["smell"]
    assert [event.name for event in only(events.ToolCallUnknown, found)] == ["task"]
    assert "there is no tool named 'task'" in results(below.requests[1])[0]
    assert results(model.requests[-1]) == ["alone"]


def test_session_of_depth_0_has_no_task_tool(agent, scripted, cycle_of):
    """With ``max_depth`` 0 there are no subagents; a forced call is an unknown tool."""
    model = scripted(ToolCalls(task()), "done")
    session = agent(model, tools=[smell], max_depth=0)
    stream = session.subscribe()
    session.prompt("Go.")
    found = cycle_of(stream)

    assert names(model.requests[0]) == ["smell"]
    assert len(only(events.ToolCallUnknown, found)) == 1


def test_task_tool_that_is_attached_later_gives_no_more_depth(agent, scripted):
    """Where a session may start no subagents it is refused."""
    session = agent(scripted(), max_depth=0)
    with pytest.raises(cmdc.InvalidTool, match="task: it starts sessions, and max_depth"):
        session.attach_tool(cmdc.tools.Task)
    with pytest.raises(cmdc.ToolValidationFailed, match="max_depth"):
        session.attach_tools([cmdc.tools.Reason(strategies=["adaptive"])])


def test_subagents_of_subagents(agent, client, scripted):
    """With ``max_depth`` 2 the tree has two levels below the session, and no third one."""
    model = scripted(
        ToolCalls(task()),  # of the session
        ToolCalls(task("general-purpose", "Deeper.")),  # of its subagent
        (Hold(), "deep"),  # of that one's
        "deeper",
        "done",
    )
    session = agent(model, tools=[smell], subagents=[scout(None)], max_depth=2)
    session.prompt("Go.")
    model.wait_held()
    statuses = [client.status(f"{session.id}{suffix}") for suffix in ("", ".1", ".1.1")]
    model.release()

    assert session.collect_reply(timeout=TURN_S) == "done"
    parents = [status.parent_id for status in statuses]
    assert parents == [None, session.id, f"{session.id}.1"]
    assert len({status.pid for status in statuses}) == 3
    offered = [names(request) for request in model.requests]
    assert offered[:3] == [["smell", "task"], ["smell", "task"], ["smell"]]
    assert results(model.requests[3]) == ["deep"]
    assert results(model.requests[4]) == ["deeper"]


# --- breadth and number ---------------------------------------------------------------------------


def test_more_than_max_children_at_a_time_are_refused(agent, scripted):
    """A call beyond ``max_children`` is an error at once; the others go on."""
    first = [task(description=f"Look at {what}.") for what in ("hills", "trees", "birds")]
    model = scripted(ToolCalls(*first), ToolCalls(task()), "done")
    below = scripted((Hold(), "seen"), (Hold(), "seen"), "seen again")
    session = agent(model, subagents=[scout(below)], max_children=2)
    session.prompt("Go.")
    below.wait_held(TURN_S, count=2)
    below.release(2)
    session.collect_reply(timeout=TURN_S)
    reported = results(model.requests[1])

    assert reported[:2] == ["seen"] * 2
    assert "max_children: 2 run already" in reported[2]
    assert results(model.requests[2]) == ["seen again"]
    below.assert_complete()


def test_max_spawns_is_of_the_sessions_life(agent, scripted, poll):
    """The number is counted across cycles, and across a crash of the parent."""
    model = scripted(ToolCalls(task()), "1", ToolCalls(task(), task()), "2", default="3")
    below = scripted(default="seen")
    session = agent(model, subagents=[scout(below)], max_spawns=2)
    session.run("Go.", timeout=TURN_S)
    os.kill(session.agent_pid(), signal.SIGKILL)
    assert poll(lambda: (session.status().incarnation, session.status().state) == (2, "idle"))
    session.run("Go.", timeout=TURN_S)
    reported = results(model.requests[-1])

    assert max(reported) == "seen"
    assert "max_spawns: 2 were started in this session, and that is all" in min(reported)
    assert len(below.requests) == 2


# --- budget ---------------------------------------------------------------------------------------


def test_subagent_may_spend_its_share_of_the_tokens(agent, scripted):
    """What is left is parted between parent and subagent; its share spent, a subagent ends."""
    model = scripted(ToolCalls(task(), usage=used(1_000)), Text("done", usage=used(500)))
    below = scripted(ToolCalls(ToolUse("smell", {}), usage=used(4_400)))
    session = agent(model, tools=[smell], subagents=[scout(below)], max_total_tokens=10_000)
    reply = session.run("Go.", timeout=TURN_S)

    assert "max_total_tokens_exceeded" in results(model.requests[-1])[0]
    assert reply.usage.total_tokens == 5_900
    assert session.status().total_tokens == 5_900
    below.assert_complete()


def test_subagents_of_one_answer_have_equal_shares(agent, scripted):
    """What one answer asks for is granted to all its calls, whichever of them comes first."""
    model = scripted(ToolCalls(task(), task(), usage=used(1_000)), Text("done", usage=used(0)))
    below = scripted(
        # Each has 3000 of the 9000 that are left: too little for a second request.
        *[(Hold(), ToolCalls(ToolUse("smell", {}), usage=used(2_800)))] * 2
    )
    session = agent(model, tools=[smell], subagents=[scout(below)], max_total_tokens=10_000)
    session.prompt("Go.")
    below.wait_held(TURN_S, count=2)
    below.release(2)
    session.collect_reply(timeout=TURN_S)

    reported = results(model.requests[-1])
    assert ["max_total_tokens_exceeded" in text for text in reported] == [True, True]
    below.assert_complete()


def test_what_subagents_have_spent_is_gone_for_their_parent(agent, scripted, cycle_of):
    """The limit holds for the session with everything below it."""
    model = scripted(ToolCalls(task(), usage=used(1_000)))
    below = scripted(Text("seen", usage=used(9_500)))  # more than was granted: an estimate's error
    session = agent(model, subagents=[scout(below)], max_total_tokens=10_000)
    stream = session.subscribe()
    session.prompt("Go.")
    found = cycle_of(stream)

    assert found[-1].event.reason == "max_total_tokens_exceeded"
    model.assert_complete()


def test_subagent_may_spend_its_share_of_the_money(agent, scripted):
    """Costs are limited as tokens are, and added to those of the parent."""
    model = scripted(ToolCalls(task(), usage=used(0)), Text("done", usage=used(MILLION)))
    below = scripted(ToolCalls(ToolUse("smell", {}), usage=used(4 * MILLION)))
    session = agent(
        **priced(model),
        tools=[smell],
        subagents=[scout(PRICED, provider_opts=below.model_source()[1])],
        max_cost_usd=1.0,
    )
    reply = session.run("Go.", timeout=TURN_S)

    assert "max_cost_usd_exceeded" in results(model.requests[-1])[0]
    assert round(reply.usage.cost_usd, 6) == 0.75
    assert round(session.status().cost_usd, 6) == 0.75
    below.assert_complete()
