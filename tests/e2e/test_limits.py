"""What bounds a session: turns, loops, tokens and costs; each ends a cycle and no session."""

import os
import signal
import threading
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.testing import Hold, Text, ToolCalls, ToolUse

TURN_S = 20.0
PRICED = "openai/gpt-4"
"""A model whose price and window litellm's table knows: 30 and 60 dollars a million tokens."""
PROMPT_USD, COMPLETION_USD = 30e-6, 60e-6
USED = TokenUsage(prompt_tokens=500, completion_tokens=100)
ANSWER = "That is all."


@cmdc.tool(effects="read")
def look(at: str) -> str:
    """Look at something."""
    return f"nothing new at {at}"


@cmdc.tool(effects="read")
def glance(log: str, *, context: cmdc.Context) -> str:
    """Note who looks; the first process waits for its end at the third time."""
    with Path(log).open("a") as file:
        file.write(f"{context.incarnation} ")
    if context.incarnation == 1 and len(logged(log)) == 3:
        threading.Event().wait()
    return "nothing new"


def logged(path):
    return Path(path).read_text().split() if Path(path).exists() else []


def looks(*places, **more):
    """Return one answer for each place that looks there."""
    return [ToolCalls(ToolUse("look", {"at": place}), **more) for place in places]


def run_through(session, cycle_of, text="Go."):
    """Send one prompt and return the events of its cycle."""
    stream = session.subscribe()
    session.prompt(text)
    found = [envelope.event for envelope in cycle_of(stream)]
    stream.close()
    return found


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


def loops_of(events):
    return [(heard.type, heard.name, heard.count) for heard in of(cmdc.events.LoopDetected, events)]


def last_message(model, request=-1):
    """Return the last message of a request."""
    return model.requests[request]["messages"][-1]


def check_conversation(request):
    """Check that every call of a request has its one result, right behind it."""
    messages = request["messages"]
    for place, message in enumerate(messages):
        for offset, call in enumerate(message.get("tool_calls") or (), 1):
            answer = messages[place + offset]
            assert (answer["role"], answer["tool_call_id"]) == ("tool", call["id"])


# --- turns --------------------------------------------------------------------------------------


def test_turns_are_counted_for_each_cycle(agent, scripted, cycle_of):
    """A cycle that used up its turns is aborted; the next prompt has all of them again."""
    model = scripted(*looks("a", "b"), *looks("c"), ANSWER)
    session = agent(model, tools=[look], max_turns=2)
    events = run_through(session, cycle_of)

    assert events[-1].reason == "max_turns_exceeded"
    assert session.status().state == "idle"
    with pytest.raises(cmdc.AgentAborted, match="max_turns_exceeded"):
        session.collect_reply()
    assert session.run("On.", timeout=TURN_S).text == ANSWER
    check_conversation(model.requests[-1])
    model.assert_complete()


def test_prompts_that_wait_follow_a_cycle_without_turns(agent, scripted):
    """The limit ends its own cycle only."""
    model = scripted((Hold(), *looks("a")), ANSWER)
    session = agent(model, tools=[look], max_turns=1)
    session.prompt("One.")
    model.wait_held()
    session.prompt("Two.")
    model.release()

    assert session.collect_reply(timeout=TURN_S) == ANSWER


# --- loops --------------------------------------------------------------------------------------


def test_a_repeated_call_is_reported_to_the_model(agent, scripted, cycle_of):
    """At the third equal call; it is made all the same, and its result says what it is."""
    model = scripted(*looks("a", "a", "a"), ANSWER)
    session = agent(model, tools=[look])
    events = run_through(session, cycle_of)
    results = of(cmdc.events.ToolExecutionEnd, events)
    second, third = last_message(model, 2), last_message(model, 3)

    assert loops_of(events) == [("repeat", "look", 3)]
    assert second["content"] == "nothing new at a"
    assert third["role"] == "tool"
    assert third["content"].startswith("nothing new at a\n\nNotice: ")
    assert "call number 3 of `look` in a row" in third["content"]
    assert [ended.ok for ended in results] == [True, True, True]
    assert events[-1].kind == "agent_end"


def test_two_calls_in_turn_are_reported_to_the_model(agent, scripted, cycle_of):
    """A, B, A, B, A, B is a loop as much as A, A, A."""
    model = scripted(*looks(*"ababab"), ANSWER)
    session = agent(model, tools=[look])
    events = run_through(session, cycle_of)

    assert loops_of(events) == [("cycle", "look", 3)]
    assert "in turn 3 times over" in last_message(model)["content"]
    assert "Notice" not in last_message(model, -2)["content"]


def test_a_loop_that_goes_on_ends_the_cycle(agent, scripted, cycle_of):
    """The fifth equal call is not made; the session goes on with the next prompt."""
    model = scripted(*looks(*"aaaaa"), ANSWER)
    session = agent(model, tools=[look])
    events = run_through(session, cycle_of)

    assert loops_of(events) == [("repeat", "look", count) for count in (3, 4, 5)]
    assert (events[-1].kind, events[-1].reason) == ("agent_abort", "loop_detected")
    assert len(of(cmdc.events.ToolExecutionStart, events)) == 4
    assert "not made" in session.messages()[-1].content
    with pytest.raises(cmdc.AgentAborted, match="loop_detected"):
        session.collect_reply()
    assert session.run("On.", timeout=TURN_S).text == ANSWER
    check_conversation(model.requests[-1])
    model.assert_complete()


def test_equal_calls_of_one_batch_count_once(agent, scripted, cycle_of):
    """Six at once are one step of a loop: they run, and the third such batch is reported."""
    batches = [ToolCalls(*[ToolUse("look", {"at": "a"})] * 6) for _ in range(3)]
    session = agent(scripted(*batches, ANSWER), tools=[look])
    events = run_through(session, cycle_of)
    results = [message.content for message in session.messages() if message.role == "tool_result"]
    ended = [event for event in events if event.kind == "tool_execution_end"]

    assert loops_of(events) == [("repeat", "look", 3)]
    assert len(ended) == len(results) == 18
    assert not any("Notice" in result for result in results[:12])
    assert any("Notice" in result for result in results[12:])


def test_a_tool_may_be_exempt(agent, scripted, cycle_of):
    """Nobody is notified of calls that are meant to be repeated."""
    model = scripted(*looks(*"aaaaaa"), ANSWER)
    session = agent(model, tools=[look], loop_exempt_tools=["look"])
    events = run_through(session, cycle_of)

    assert loops_of(events) == []
    assert session.collect_reply() == ANSWER


def test_a_new_prompt_starts_afresh(agent, scripted, cycle_of):
    """What was called for the prompt before is no part of a loop."""
    model = scripted(*looks("a", "a"), ANSWER, *looks("a", "a"), ANSWER)
    session = agent(model, tools=[look])
    events = [*run_through(session, cycle_of), *run_through(session, cycle_of, "Once more.")]

    assert loops_of(events) == []
    model.assert_complete()


def test_a_loop_outlives_its_process(agent, scripted, cycle_of, tmp_path, poll):
    """After a kill amid the third call its result has the notice, and the count goes on."""
    log = str(tmp_path / "log")
    model = scripted(*[ToolCalls(ToolUse("glance", {"log": log}))] * 5, ANSWER)
    session = agent(model, tools=[glance])
    stream = session.subscribe()
    session.prompt("Go.")
    assert poll(lambda: len(logged(log)) == 3)
    os.kill(session.agent_pid(), signal.SIGKILL)
    events = [envelope.event for envelope in cycle_of(stream)]
    results = [message.content for message in session.messages() if message.role == "tool_result"]

    assert logged(log) == ["1", "1", "1", "2", "2"]
    assert loops_of(events) == [("repeat", "glance", count) for count in (3, 4, 5)]
    assert ["Notice" in result for result in results] == [False, False, True, True, False]
    assert events[-1].reason == "loop_detected"


# --- tokens and costs ---------------------------------------------------------------------------


def test_a_request_beyond_the_tokens_is_not_sent(agent, scripted, cycle_of):
    """It is refused before, by what it is going to take, and so is every later one."""
    model = scripted(Text(ANSWER, usage=USED), default="too much")
    session = agent(model, max_total_tokens=1200, max_tokens=100)
    assert session.run("One.", timeout=TURN_S).usage.total_tokens == 600
    events = run_through(session, cycle_of, "Two.")

    assert (events[-1].kind, events[-1].reason) == ("agent_abort", "max_total_tokens_exceeded")
    with pytest.raises(cmdc.AgentAborted, match="max_total_tokens_exceeded"):
        session.run("Three.", timeout=TURN_S)
    assert len(model.requests) == 1
    assert session.status().total_tokens == 600


def test_a_cycle_ends_between_its_turns_when_the_tokens_do(agent, scripted, cycle_of):
    """The calls of the last answer are still made, and their results are in the conversation."""
    model = scripted(*looks("a", usage=USED), default="too much")
    session = agent(model, tools=[look], max_total_tokens=1200, max_tokens=100)
    events = run_through(session, cycle_of)

    assert events[-1].reason == "max_total_tokens_exceeded"
    assert session.messages()[-1].content == "nothing new at a"
    assert len(model.requests) == 1


def test_a_request_that_fits_is_sent(agent, scripted):
    """The limit may be used up to its end."""
    model = scripted(Text(ANSWER, usage=USED), Text(ANSWER, usage=USED))
    session = agent(model, max_total_tokens=1350, max_tokens=100)
    session.run("One.", timeout=TURN_S)

    assert session.run("Two.", timeout=TURN_S).text == ANSWER
    model.assert_complete()


def test_a_request_beyond_the_cost_is_not_sent(agent, scripted, cycle_of):
    """It is priced before it is made, and what was answered is priced by what it took."""
    model = scripted(Text(ANSWER, usage=USED), default="too much")
    cost_usd = USED.prompt_tokens * PROMPT_USD + USED.completion_tokens * COMPLETION_USD
    _, opts = model.model_source()
    session = agent(PRICED, provider_opts=opts, max_cost_usd=2 * cost_usd, max_tokens=100)
    first = session.run("One.", timeout=TURN_S)
    events = run_through(session, cycle_of, "Two.")

    assert first.usage.cost_usd == pytest.approx(cost_usd)
    assert (events[-1].kind, events[-1].reason) == ("agent_abort", "max_cost_usd_exceeded")
    assert len(model.requests) == 1
    assert session.status().cost_usd == pytest.approx(cost_usd)


def test_what_was_spent_outlives_the_process(agent, scripted, cycle_of, poll):
    """A kill gives nobody a second budget."""
    model = scripted(Text(ANSWER, usage=USED), default="too much")
    session = agent(model, max_total_tokens=1200, max_tokens=100)
    session.run("One.", timeout=TURN_S)
    os.kill(session.agent_pid(), signal.SIGKILL)
    assert poll(lambda: session.status().incarnation == 2)
    events = run_through(session, cycle_of, "Two.")

    assert events[-1].reason == "max_total_tokens_exceeded"
    assert len(model.requests) == 1


def test_an_unknown_price_blocks_nothing(agent, scripted):
    """A cost that nobody knows is None, and counts as nothing, which is reported once."""
    model = scripted(*[Text(ANSWER, usage=USED)] * 3)
    session = agent(model, max_cost_usd=1e-9)
    replies = [session.run(text, timeout=TURN_S) for text in ("One.", "Two.", "Three.")]
    kinds = ["cost_unknown", "agent_end"]
    with session.subscribe(since=0, types=kinds) as stream:
        heard = [stream.get(TURN_S).event.kind for _ in range(4)]

    assert heard == ["cost_unknown", *["agent_end"] * 3]
    assert [reply.usage.cost_usd for reply in replies] == [None, None, None]
    assert session.status().cost_usd is None
    model.assert_complete()


class Purse(cmdc.Plugin):
    """Publishes what a plugin knows of the cost before each request."""

    def before_request(self, event, context):
        """Publish it."""
        return cmdc.Emit("purse", {"cost_usd": context.cost_usd, "is_priced": context.is_priced})


def purse(events):
    """Return what was published of the cost, with the type that it has."""
    heard = [
        event.payload for event in of(cmdc.events.PluginEvent, events) if event.name == "purse"
    ]
    return [(type(one["cost_usd"]), one["cost_usd"], one["is_priced"]) for one in heard]


def test_a_plugin_sees_a_cost_that_it_can_count_with(agent, scripted, cycle_of):
    """It is a number, also where nothing is known; whether it says all is a field of its own."""
    cost_usd = USED.prompt_tokens * PROMPT_USD + USED.completion_tokens * COMPLETION_USD
    _, opts = scripted(*[Text(ANSWER, usage=USED)] * 2).model_source()
    priced = agent(PRICED, provider_opts=opts, plugins=[Purse])
    unpriced = agent(scripted(*[Text(ANSWER, usage=USED)] * 2), plugins=[Purse])
    heard = [run_through(one, cycle_of) for one in (priced, priced, unpriced, unpriced)]

    assert [seen for events in heard for seen in purse(events)] == [
        (float, 0.0, True),
        (float, pytest.approx(cost_usd), True),
        (float, 0.0, False),
        (float, 0.0, False),
    ]


@pytest.mark.parametrize(
    ("unpriced", "end"), [("abort", "agent_abort"), ("free", "agent_end")], ids=str
)
def test_a_guard_of_costs_asks_no_model_without_a_price(agent, scripted, cycle_of, unpriced, end):
    """Unless it may be free: a limit that nobody can keep is said, and the model is named."""
    model = scripted(default=Text(ANSWER, usage=USED))
    guard = cmdc.plugins.CostGuard(max_cost_usd=1.0, unpriced=unpriced)
    session = agent(model, plugins=[guard])
    *_, last = run_through(session, cycle_of)

    assert (last.kind, len(model.requests)) == (end, int(unpriced == "free"))
    if unpriced == "abort":
        assert f"{session.status().model} has no known price" in last.reason
