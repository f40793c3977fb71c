"""What subagents use is counted once, in their parent's status and cycle, however they end."""

import os
import signal

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.testing import Error, Hold, Text, ToolCalls, ToolUse

TURN_S = 20.0
PRICED = "openai/gpt-4o-mini"
"""A model that litellm's table has a price of: 0.15 and 0.60 USD for a million tokens."""
MILLION = 1_000_000
CUT = 32
"""What a request counts with that is ended before its answer: 30 tokens so far, and what a tool
said since."""
CRASHED = 30 + 256
"""As above where its process was killed, with an answer of a usual length."""


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


def used(prompt, completion=0):
    return TokenUsage(
        prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion
    )


def counts(usage):
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens


def smells(tokens):
    """An answer with a call; what it used is reported when the call begins."""
    return ToolCalls(ToolUse("smell", {}), usage=used(tokens))


@cmdc.tool(effects="read")
def smell() -> str:
    """Smell."""
    return "roses"


def test_usage_and_cost_are_added_to_the_parents(agent, scripted, cycle_of):
    """The cycle's end, the reply and the status have both together; the events keep them apart."""
    model = scripted(
        ToolCalls(task(), usage=used(1_000, 100)), Text("done", usage=used(2_000, 200))
    )
    below = scripted(smells(MILLION), Text("seen", usage=used(MILLION, MILLION)))
    own = scout(PRICED, provider_opts=below.model_source()[1])
    session = agent(model, tools=[smell], subagents=[own])
    stream = session.subscribe()
    session.prompt("Go.")
    found = cycle_of(stream)
    (end,) = only(events.SubagentEnd, found)
    status = session.status()

    assert counts(end.usage) == (2 * MILLION, MILLION, 3 * MILLION)
    assert round(end.usage.cost_usd, 6) == 0.9
    total = (2 * MILLION + 3_000, MILLION + 300, 3 * MILLION + 3_300)
    assert counts(found[-1].event.usage) == total
    assert counts(status.token_usage) == total
    assert status.total_tokens == total[-1]
    assert (status.cost_usd, status.turns) == (end.usage.cost_usd, 2)


def test_usage_of_every_level_is_counted(agent, scripted, cycle_of):
    """A subagent's usage has that of its own subagents in it."""
    model = scripted(
        ToolCalls(task(), usage=used(1)),
        ToolCalls(task("general-purpose"), usage=used(20)),
        Text("deep", usage=used(300)),
        Text("deeper", usage=used(4_000)),
        Text("done", usage=used(50_000)),
    )
    session = agent(model, subagents=[scout(None)], max_depth=2)
    stream = session.subscribe()
    session.prompt("Go.")
    found = cycle_of(stream)

    (end,) = only(events.SubagentEnd, found)
    assert end.usage.total_tokens == 4_320
    assert found[-1].event.usage.total_tokens == 54_321
    assert session.status().total_tokens == 54_321


def test_usage_of_a_subagent_that_crashed_is_counted(agent, client, scripted):
    """What it used up to its last answer is in its events, the request that it died in about."""
    model = scripted(ToolCalls(task(), usage=used(1_000)), Text("done", usage=used(200)))
    below = scripted(smells(30), (Hold(), "never"))
    session = agent(model, tools=[smell], subagents=[scout(below)])
    session.prompt("Go.")
    below.wait_held()
    os.kill(client.agent_pid(f"{session.id}.1"), signal.SIGKILL)
    session.collect_reply(timeout=TURN_S)

    assert "the subagent crashed: " in results(model.requests[-1])[0]
    assert session.status().total_tokens == 1_230 + CRASHED


def test_usage_does_not_depend_on_the_ring_of_events(agent, scripted):
    """With no event kept in memory the journal says what a subagent used."""
    model = scripted(ToolCalls(task(), usage=used(1_000)), Text("done", usage=used(200)))
    below = scripted(smells(30), Text("seen " * 500, usage=used(4)))
    session = agent(model, tools=[smell], subagents=[scout(below)], event_buffer_size=0)

    assert session.run("Go.", timeout=TURN_S).usage.total_tokens == 1_234


def test_usage_of_a_subagent_that_failed_is_counted(agent, scripted):
    """A provider's error ends a subagent's cycle, and not the parent's."""
    model = scripted(ToolCalls(task(), usage=used(1_000)), Text("done", usage=used(200)))
    below = scripted(smells(30), Error(400, "no such river"))
    session = agent(model, tools=[smell], subagents=[scout(below)])
    reply = session.run("Go.", timeout=TURN_S)

    (reported,) = results(model.requests[-1])
    assert "the subagent's cycle failed: " in reported
    assert "no such river" in reported
    assert reply.usage.total_tokens == 1_230


def test_usage_of_a_subagent_that_was_aborted_is_counted(agent, client, scripted):
    """An abort of the subagent itself is the parent's tool error."""
    model = scripted(ToolCalls(task(), usage=used(1_000)), Text("done", usage=used(200)))
    below = scripted(smells(30), (Hold(), "never"))
    session = agent(model, tools=[smell], subagents=[scout(below)])
    session.prompt("Go.")
    below.wait_held()
    client.abort(f"{session.id}.1", reason="enough of this")
    session.collect_reply(timeout=TURN_S)

    assert "the subagent's cycle was aborted: enough of this" in results(model.requests[-1])[0]
    assert session.status().total_tokens == 1_230 + CUT


def test_usage_of_what_an_abort_ended_is_counted(agent, scripted, cycle_of, poll):
    """The cycle is over before its subagent is counted; the session's status has it then."""
    model = scripted(ToolCalls(task(), usage=used(1_000)), Text("next", usage=used(200)))
    below = scripted(smells(30), (Hold(), "never"))
    session = agent(model, tools=[smell], subagents=[scout(below)])
    stream = session.subscribe()
    session.prompt("Go.")
    below.wait_held()
    session.abort()
    cycle_of(stream)

    assert poll(lambda: session.status().total_tokens == 1_030 + CUT)
    assert session.run("Next.", timeout=TURN_S).usage.total_tokens == 200
    assert session.status().total_tokens == 1_230 + CUT


def test_usage_of_a_level_below_one_that_crashed_is_counted(agent, client, scripted):
    """Who should have counted it is gone, so it is counted by the next one above."""
    model = scripted(
        ToolCalls(task(), usage=used(1_000)),
        ToolCalls(task("general-purpose"), usage=used(200)),
        smells(30),
        (Hold(), "never"),
        Text("done", usage=used(4)),
    )
    session = agent(model, tools=[smell], subagents=[scout(None)], max_depth=2)
    session.prompt("Go.")
    model.wait_held()
    os.kill(client.agent_pid(f"{session.id}.1"), signal.SIGKILL)
    session.collect_reply(timeout=TURN_S)

    assert session.status().total_tokens == 1_234 + CUT


def test_usage_of_a_cut_off_subtree_is_counted_by_the_next_process(agent, scripted, cycle_of, poll):
    """A crash of the session ends everything below it; each level is counted, once."""
    model = scripted(
        ToolCalls(task(), usage=used(1_000)),
        ToolCalls(task("general-purpose"), usage=used(200)),
        smells(30),
        (Hold(), "never"),
        Text("done", usage=used(4)),
    )
    session = agent(model, tools=[smell], subagents=[scout(None)], max_depth=2)
    stream = session.subscribe()
    session.prompt("Go.")
    model.wait_held()
    os.kill(session.agent_pid(), signal.SIGKILL)
    cycle = cycle_of(stream)
    reported = (len(model.requests), [one.event for one in cycle])
    assert poll(lambda: session.status().total_tokens == 1_234 + CUT), (session.status(), reported)
    os.kill(session.agent_pid(), signal.SIGKILL)
    assert poll(lambda: (session.status().incarnation, session.status().state) == (3, "idle"))
    with session.subscribe(since=0) as past:
        found = cycle_of(past, ends=("agent_recovered",)) + cycle_of(
            past, ends=("agent_recovered",)
        )

    assert [one.event.incarnation for one in found if one.event.kind == "agent_recovered"] == [2, 3]
    assert session.status().total_tokens == 1_234 + CUT
    (end,) = only(events.SubagentEnd, found)
    assert (end.ok, end.usage.total_tokens) == (False, 230 + CUT)
    assert "may or may not have taken effect" in results(model.requests[-1])[0]
