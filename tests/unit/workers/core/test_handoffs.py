"""Handoffs in the tables: asked for by a call, made behind its batch, as one record."""

import pytest
from msgspec.structs import replace

from cmdc_runtime import events
from cmdc_runtime.commands import Abort, Steer
from cmdc_runtime.messages import Message
from cmdc_runtime.packed_code import Packed
from workers.core import evolve, handoffs, snapshot
from workers.core.inputs import HistoryFiltered
from workers.core.records import HandedOff, HandoffFailed
from workers.core.state import AgentFacts, HandingOver, Memory, State, ToolFacts
from workers.core.step import CallModel, CancelModel, ExchangeTools, FilterHistory

SAID = Message(id="m-1", role="user", content="go")


def tool(name, ref="own"):
    return ToolFacts(name, True, "task", Packed(kind="ref", label=name, ref=ref))


def way(name):
    return tool(f"transfer_to_{name}", "transfer")


READ, WRITE, PAY = tool("read"), tool("write"), tool("pay")
MAIN = AgentFacts("main", is_own=True, transfers=(way("b"), way("c")))
B = AgentFacts("b", tools=(PAY,), transfers=(way("main"), way("c")), model="y:n")
C = AgentFacts("c", transfers=(way("main"), way("b")))


def named(tools):
    return [one.name for one in tools]


def begun(session, b=B, **memory):
    """Return a session whose model has asked to hand over to b."""
    first = Memory(
        **{
            "model": "x:m",
            "provider_opts": {"api_key": "k"},
            "tools": (READ, WRITE, way("b"), way("c")),
            **memory,
        }
    )
    return session.new(first, agents=(MAIN, b, C)).prompt().call("transfer_to_b:t").begin("t")


def test_the_record_has_all_that_the_next_agent_has(session):
    """What follows is its first request; nothing of it is left to another record."""
    after = begun(session).end("t")
    [record] = after.records(HandedOff)
    [event] = after.events(events.HandedOff)
    memory = after.memory

    assert (record.to, record.model, record.provider_opts) == ("b", "y:n", {})
    assert (
        named(record.tools) == named(memory.tools) == ["pay", "transfer_to_main", "transfer_to_c"]
    )
    assert (memory.agent, memory.acting, memory.handoff) == ("b", B, None)
    assert named(memory.own_parts.tools) == ["read", "write", "transfer_to_b", "transfer_to_c"]
    assert (event.from_, event.to, event.call_id, event.tools) == (
        "main",
        "b",
        "t",
        ("pay", *event.tools[1:]),
    )
    assert after.of(ExchangeTools) == [
        ExchangeTools(memory.tools, memory.own_parts.tools, takes_servers=False)
    ]
    assert after.of(CallModel)[0].model == "y:n"


def test_what_is_rebuilt_is_who_acts(session):
    """By the records, and by a snapshot."""
    after = begun(session).end("t")
    known = after.rebuilt()

    assert (known.agent, known.tools, known.model) == ("b", after.memory.tools, "y:n")
    assert snapshot.restore(Memory(), snapshot.encode(known)).own_parts == after.memory.own_parts


def test_an_agent_without_tools_has_those_of_the_session(session):
    """With ways to all others in the place of its own, also when another one handed over."""
    at_b = begun(session).end("t")
    after = at_b.call("transfer_to_c:u").begin("u").end("u")

    assert named(after.memory.tools) == ["read", "write", "transfer_to_main", "transfer_to_b"]
    assert (after.memory.model, after.memory.provider_opts) == ("x:m", {"api_key": "k"})
    assert after.of(ExchangeTools)[0].takes_servers


def test_the_own_agent_comes_back_with_what_it_had(session):
    """And nothing is put by any more."""
    at_b = begun(session).end("t")
    after = at_b.call("transfer_to_main:u").begin("u").end("u")

    assert after.memory.tools == begun(session).memory.tools
    assert (after.memory.agent, after.memory.own_parts, after.memory.model) == ("", None, "x:m")
    assert after.events(events.HandedOff)[0].from_ == "b"


@pytest.mark.parametrize(
    ("model", "given", "opts"),
    [
        (None, None, {"api_key": "k"}),
        ("x:other", None, {"api_key": "k"}),
        ("y:n", None, {}),
        ("y:n", {"seed": 1}, {"seed": 1}),
    ],
)
def test_a_key_goes_to_no_other_provider(session, model, given, opts):
    """As with subagents."""
    after = begun(session, replace(B, model=model, provider_opts=given)).end("t")

    assert after.memory.provider_opts == opts


def test_it_waits_for_the_calls_beside_it(session):
    """They are of the tools of who asked; a second way is an error."""
    asked = begun(session).memory
    both = session.new(Memory(model="x:m", tools=asked.tools), agents=(MAIN, B, C)).prompt()
    both = both.call("transfer_to_b:t", "read:r", "transfer_to_c:u").begin("t", "r", "u")
    half = both.end("t", "u")
    done = half.end("r")

    assert (half.records(HandedOff), half.memory.agent) == ([], "")
    assert half.memory.handoff.to == "b"
    assert done.memory.agent == "b"
    assert [one.is_error for one in done.memory.messages if one.role == "tool_result"] == [
        False, False, True,
    ]  # fmt: skip


def test_what_a_person_allowed_of_a_tool_stays_where_the_tool_stays(session):
    """Another tool of the same name is another tool."""
    allowed = frozenset({("read", ""), ("pay", "")})
    c = begun(session, C, always_approved=allowed)
    at_c = replace(c.memory, policy=replace(c.memory.policy, agents=(MAIN, replace(C, name="b"))))
    after = c.remembering(at_c).end("t")

    assert after.memory.always_approved == {("read", "")}


def test_the_agent_that_acts_is_no_target(session):
    """The tool is not there; one that kept its name from before is refused."""
    at_b = begun(session).end("t")
    odd = at_b.remembering(replace(at_b.memory, tools=(*at_b.memory.tools, way("b"))))
    after = odd.call("transfer_to_b:u").begin("u").end("u")

    assert after.records(HandedOff) == []
    assert "b is who acts already" in after.memory.messages[-1].content


def test_a_prompt_is_handed_over_so_often_and_no_more(session):
    """The next prompt begins to count anew, in a new process too."""
    now, way_to = begun(session), ("main", "b")
    for number in range(handoffs.HANDOFFS_PER_PROMPT):
        last = now.end(f"t{number}" if number else "t")
        now = last.call(f"transfer_to_{way_to[number % 2]}:t{number + 1}").begin(f"t{number + 1}")
    refused = now.end(f"t{handoffs.HANDOFFS_PER_PROMPT}")

    assert last.memory.cycle.handoffs == last.rebuilt().cycle.handoffs == 8
    assert refused.records(HandedOff) == []
    assert "handed over 8 times" in refused.memory.messages[-1].content
    assert refused.answer().prompt("more", "p-2").memory.cycle.handoffs == 0


# --- what the next agent sees ---------------------------------------------------------------------


def test_the_user_alone_is_heard_where_nothing_else_is_to_be_seen(session):
    """Steering counts, too, and what was said before the cycle does not."""
    blind = replace(B, sees_all=False)
    first = Memory(model="x:m", tools=(READ, way("b")), messages=(SAID,))
    guided = session.new(first, agents=(MAIN, blind)).prompt("owe", "p-1")
    guided = guided.give(Steer(text="left"), "s-1").call("read:r").begin("r").end("r")
    after = guided.call("transfer_to_b:t").begin("t").end("t")

    assert [one.content for one in after.memory.messages] == ["owe", "left"]
    assert len({one.id for one in after.answer().memory.messages}) == 3
    assert after.memory.context is None


def test_a_function_is_waited_for_and_asked_once(session):
    """What it left is in the record: a process that comes later does not ask it."""
    waits = begun(session, replace(B, has_filter=True)).end("t")
    [asked] = waits.of(FilterHistory)
    after = waits.post(HistoryFiltered(asked.work, "b", (Message.user("short"),), 12))
    crashed = after.crash()

    assert (waits.state, waits.memory.activity) == (State.RUNNING, HandingOver("b"))
    assert asked.work == waits.memory.work == begun(session).memory.work + 1
    assert [one.role for one in asked.messages] == ["user", "assistant", "tool_result"]
    assert [one.content for one in after.memory.messages] == ["short"]
    assert after.of(CallModel)[0].messages == after.memory.messages
    assert crashed.of(FilterHistory) == []
    assert crashed.of(CallModel)[0].messages == after.memory.messages


def test_a_process_that_dies_before_the_record_asks_again(session):
    """The call has ended, and its handoff is still to be made."""
    waits = begun(session, replace(B, has_filter=True)).end("t")
    again = waits.crash()

    assert again.of(FilterHistory)[0].messages == waits.of(FilterHistory)[0].messages
    assert begun(session).end("t").taken[-1].records[-1].to == "b"


@pytest.mark.parametrize(
    ("left", "problem", "why"),
    [
        (None, "failed: ValueError", "failed: ValueError"),
        ((), "", "left no message"),
        ((Message.assistant("So."),), "", "left an answer as the last message"),
    ],
)
def test_a_history_that_cannot_be_leaves_who_acts(session, left, problem, why):
    """The result of the call says so to the model, and is the same in a new process."""
    waits = begun(session, replace(B, has_filter=True)).end("t")
    after = waits.report(HistoryFiltered, "b", left, 12, problem)
    result = after.memory.messages[-1]

    assert why in after.records(HandoffFailed)[0].why
    assert why in after.events(events.HandoffFailed)[0].reason
    assert (result.is_error, why in result.content) == (True, True)
    assert (after.memory.agent, after.rebuilt().messages) == ("", after.memory.messages)
    assert after.of(CallModel)


def test_calls_and_results_of_a_history_belong_together(session):
    """What a function has torn apart is mended, and an id that is there twice is given once."""
    waits = begun(session, replace(B, has_filter=True)).end("t")
    seen = waits.of(FilterHistory)[0].messages
    torn = (seen[1], replace(seen[0], content="again"), seen[0])
    after = waits.report(HistoryFiltered, "b", torn, 12)

    assert [one.role for one in after.memory.messages] == [
        "assistant", "tool_result", "user", "user",
    ]  # fmt: skip
    fresh = f"m-{len(seen)}-handoff-"
    ids = [one.id for one in after.memory.messages]
    assert ids == [seen[1].id, ids[1], seen[0].id, f"{fresh}3"]
    assert after.memory.messages[2].content == "again"


# --- what comes between ---------------------------------------------------------------------------


def test_an_abort_is_the_end_of_a_handoff(session):
    """The conversation does not say that it was made, and what the function says is late."""
    waits = begun(session, replace(B, has_filter=True)).end("t")
    aborted = waits.give(Abort(reason="why"), "a-1")
    late = aborted.post(HistoryFiltered(waits.memory.work, "b", (SAID,), 12))
    result = next(one for one in aborted.memory.messages if one.role == "tool_result")

    assert aborted.of(CancelModel)
    assert result.content == "Error: the handoff was not made: the cycle ended before"
    assert (aborted.memory.handoff, aborted.memory.agent) == (None, "")
    assert aborted.rebuilt().messages == aborted.memory.messages
    assert late.is_unchanged(aborted)


def test_an_agent_that_is_no_more_there_is_no_target(session):
    """A new process may have other options."""
    waits = begun(session, replace(B, has_filter=True)).end("t")
    gone = replace(waits.memory, policy=replace(waits.memory.policy, agents=(MAIN,)))
    after = waits.remembering(gone).report(HistoryFiltered, "b", (SAID,), 12)

    assert "no agent 'b'" in after.records(HandoffFailed)[0].why
    again = evolve.evolve(gone, HandoffFailed(why="gone"))
    assert again.handoff is None


def test_an_agent_that_goes_before_the_batch_has_ended_is_no_target(session):
    """The call says so to the model, which is asked at once."""
    first = Memory(model="x:m", tools=(READ, way("b")))
    both = session.new(first, agents=(MAIN, B, C)).prompt()
    half = both.call("transfer_to_b:t", "read:r").begin("t", "r").end("t")
    gone = replace(half.memory, policy=replace(half.memory.policy, agents=(MAIN,)))
    after = half.remembering(gone).end("r")

    assert "no agent 'b'" in after.records(HandoffFailed)[0].why
    assert [one.is_error for one in after.memory.messages[-2:]] == [True, False]
    assert after.of(CallModel)


def test_other_tools_hand_nothing_over(session):
    """Whatever they are called: only the built-in is a way to an agent."""
    own = tool("transfer_to_b")
    first = Memory(model="x:m", tools=(own,))
    called = session.new(first, agents=(MAIN, B, C)).prompt().call("transfer_to_b:t").begin("t")

    assert called.end("t").records(HandedOff) == []
