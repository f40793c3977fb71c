"""The books of a session: what is lost, doubled or out of its order is found."""

import pytest

from cmdc_runtime import events
from cmdc_runtime.ids import CallId, CommandId, EventIndex, Incarnation, MessageId, SessionId
from cmdc_runtime.messages import Message, TokenUsage, ToolCall
from cmdc_runtime.process import DAEMON_RESTARTED
from cmdc_runtime.reasons import Normal, Other
from scripts.soak.ledger import PROBLEMS_MAX, Ledger
from scripts.soak.tools import NOTED
from scripts.soak.wrongs import Problem, Wrong

ONE, TWO = CommandId("c-1"), CommandId("c-2")


def received(command_id=ONE, *, queued=False):
    return events.PromptReceived(text="Go.", queued=queued, command_id=command_id)


def started(command_id=ONE):
    return events.AgentStart(command_id=command_id)


def ended(command_id=ONE):
    return events.AgentEnd(messages=(), usage=TokenUsage(), command_id=command_id)


def aborted(command_id=ONE):
    return events.AgentAbort(command_id=command_id)


def dropped(command_id=TWO):
    return events.PromptDropped(text="Go.", command_id=command_id)


def steered(ref=TWO, status="queued"):
    return events.SteeringReceived(ref=ref, status=status, text="Rather.")


def applied(count):
    return events.SteeringApplied(count=count)


def said(text):
    return events.MessageDelta(delta=text)


def answered(text="", *call_ids):
    calls = tuple(ToolCall(call_id=CallId(id_), name="look") for id_ in call_ids)
    message = Message(id=MessageId("m-1"), role="assistant", content=text, tool_calls=calls)
    return events.ResponseComplete(message=message)


def begun(call_id):
    return events.ToolExecutionStart(name="look", call_id=CallId(call_id), args={})


def below():
    return events.SubagentEnd(
        call_id=CallId("a"),
        child_session_id=SessionId("s.1"),
        ok=True,
        text="",
        usage=TokenUsage(),
    )


def thought(run_id="r"):
    return events.ReasoningThought(run_id=run_id, strategy="s", thought_id="b1", content="")


def done(call_id):
    return events.ToolExecutionEnd(name="look", call_id=CallId(call_id), ok=True, text="")


def killed(call_id):
    return events.ToolKilled(name="look", call_id=CallId(call_id), reason="aborted")


def blocked(call_id):
    return events.ToolBlocked(name="look", call_id=CallId(call_id), reason="aborted")


def asked(ref="a"):
    return events.AskUser(session_id=SessionId("s"), question="Which?", options=(), ref=ref)


def heard(ref="a"):
    return events.UserResponded(session_id=SessionId("s"), ref=ref, response="this")


def books(*happened, accepted=(), first=1):
    ledger = Ledger()
    for index, event in enumerate(happened, first):
        envelope = events.Envelope(
            session_id=SessionId("s"), index=EventIndex(index), at_ms=0, event=event
        )
        ledger.feed(envelope)
    ledger.close(list(accepted))
    return ledger


REQUEST = events.RequestStart(model="m", messages=1)
CYCLE = (received(), started(), REQUEST, said("He"), said("y"), answered("Hey"), ended())
CALLS = (received(), started(), REQUEST, answered("", "a", "b"), begun("a"), done("a"))
OVER = (begun("b"), killed("b"), done("b"))
GUIDED = (*CALLS, steered(), *OVER, applied(1), REQUEST, answered(), ended())
QUEUED = (received(), started(), received(TWO, queued=True))


@pytest.mark.parametrize(
    ("happened", "accepted"),
    [
        (CYCLE, [ONE]),
        ((*CALLS, begun("b"), aborted(), killed("b"), done("b")), [ONE]),
        ((*CALLS, aborted(), blocked("b"), done("b")), [ONE]),
        (GUIDED, [ONE, TWO]),
        ((*QUEUED, ended(), started(TWO), ended(TWO)), [ONE, TWO]),
        ((*QUEUED, steered("s"), aborted(), dropped("s"), dropped(TWO)), [ONE, TWO, "s"]),
        ((received(), started(), steered(), ended(), applied(1), started(TWO), ended(TWO)), [TWO]),
        ((*CYCLE, events.AgentAbort()), []),
        ((received(), started(), REQUEST, said("x"), events.StreamReset(), *CYCLE[2:]), [ONE]),
        ((received(), started(), steered(status="rejected"), asked(), heard(), ended()), [ONE]),
        ((*CYCLE[:2], below(), thought(), thought("q"), ended()), [ONE]),
    ],
)
def test_what_is_in_order_is_not_complained_of(happened, accepted):
    """However a cycle goes, each thing that began has its one end."""
    found = books(*happened, accepted=accepted)

    assert found.problems == []
    assert found.is_at_rest


@pytest.mark.parametrize(
    ("happened", "problem"),
    [
        ((events.EventsLost(first=1, last=1),), "events 1 to 1 were lost"),
        ((*CYCLE, received()), "prompt c-1 was received twice"),
        ((*CYCLE, started()), "the cycle of c-1 starts twice"),
        ((*QUEUED, started(TWO)), "the cycle of c-2 starts in that of c-1"),
        ((*CYCLE, ended()), "the cycle of c-1 ends twice"),
        ((*CYCLE, ended()), "the cycle of c-1 ends, and that of None runs"),
        ((received(), started(), events.AgentAbort()), "an abort names no cycle"),
        ((received(), received(TWO), started(TWO), ended(TWO)), "c-2 starts before c-1"),
        ((received(), started()), "the cycle of c-1 has no end"),
        (QUEUED, "prompt c-2 has neither a cycle nor a drop"),
        ((*CYCLE, dropped(ONE)), "c-1 is dropped after its end or its start"),
        ((*CYCLE[:2], steered()), "1 steerings were neither received nor dropped"),
        ((*CYCLE[:2], steered(), steered()), "steering c-2 was received twice"),
        ((*CYCLE[:2], applied(1)), "more steerings were read or dropped than were received"),
        ((*CYCLE, said("x")), "message_delta at index 8 outside of every cycle"),
        ((*CYCLE[:4], REQUEST), "no event discards the answer so far"),
        ((*CYCLE[:4], answered("Hey")), "the pieces of answer m-1 do not add up to it"),
        ((*CALLS, done("a")), "tool_execution_end of call a, which is not open"),
        ((*CALLS, killed("c")), "tool_killed of call c, which is not open"),
        ((*CALLS, begun("a")), "tool_execution_start of call a, which is not to begin"),
        ((*CALLS, *OVER[:2], blocked("b")), "tool_blocked of call b, which is not to begin"),
        ((*CALLS, done("b")), "tool_execution_end of call b, which is not open"),
        ((*CALLS, begun("b"), aborted()), "call b has no end"),
        ((*CALLS, answered()), "call b has no end"),
        ((*CYCLE[:2], heard()), "question a is answered twice, or was never asked"),
        ((*CYCLE[:2], asked(), heard(), heard()), "question a is answered twice"),
        ((*CYCLE[:2], below(), below()), "subagent s.1 ends twice: it is paid twice"),
        ((*CYCLE[:2], thought(), thought()), "thought b1 of run r comes twice"),
    ],
)
def test_what_is_out_of_order_is_reported(happened, problem):
    """Each rule names the thing and what is wrong with it."""
    found = books(*happened)

    assert any(problem in one.text for one in found.problems), found.problems


@pytest.mark.parametrize(
    ("happened", "problem"),
    [
        ((), "command c-1 was accepted and no event says so"),
        ((received(),), "command c-1 was accepted and has no end"),
    ],
)
def test_what_was_accepted_is_looked_for(happened, problem):
    """A client that has a receipt has an end to hear of."""
    assert Problem(Wrong.PROMPT, problem) in books(*happened, accepted=[ONE]).problems


def test_indexes_follow_each_other():
    """A gap, or a repeat, is named by both indexes."""
    assert books(received(), first=3).problems[0] == (Wrong.INDEX, "index 3 follows 0")


RECOVERED = events.AgentRecovered(incarnation=Incarnation(2), reason=Normal(), resumed="stream")


def with_a_loss(*after):
    """Return the books of a cycle whose middle is reported lost, after the daemon has died once."""
    ledger = Ledger()
    ledger.jumps_allowed = 1
    lost = events.EventsLost(first=5, last=9)
    for index, event in [*enumerate(CYCLE[:4], 1), (9, lost), *enumerate(after, 10)]:
        envelope = events.Envelope(
            session_id=SessionId("s"), index=EventIndex(index), at_ms=0, event=event
        )
        ledger.feed(envelope)
    return ledger


def test_a_loss_that_is_reported_is_none_where_daemon_and_agent_have_died():
    """Once for each death of the daemon; what was lost of an answer is not asked for."""
    ledger = with_a_loss(RECOVERED, answered("Hey"), ended())

    assert (ledger.problems, ledger.jumps_allowed) == ([], 0)


def test_what_the_journal_had_of_a_dead_process_comes_behind_its_loss():
    """And before the indexes that are passed over for the next one: it is one jump."""
    passed_over = events.EventsLost(first=12, last=12)

    ledger = with_a_loss(answered("Hey"), ended(), passed_over, RECOVERED)

    assert (ledger.problems, ledger.jumps_allowed) == ([], 0)


@pytest.mark.parametrize(
    "after", [(said("y"), answered("Hey"), ended()), (answered("Hey"), ended())]
)
def test_an_agent_that_lives_on_loses_nothing(after):
    """It was adopted, so it has its events, those that the journal has not among them."""
    ledger = with_a_loss(*after)
    ledger.close([])

    (problem,) = ledger.problems
    assert problem.kind is Wrong.INDEX
    assert "of a process that lives on" in problem.text


def noted(call_id):
    return events.PluginEvent(name=NOTED, payload=f"{call_id} is over.")


def test_what_a_plugin_says_of_a_call_is_for_the_model():
    """Unless the call is over by then: it comes too late, and is for no other cycle."""
    in_time = (*CALLS, begun("b"), noted("b"), done("b"), noted("a"), ended())
    late = (received(TWO), started(TWO), noted("b"), ended(TWO))

    assert books(*in_time, *late).notes == ["b is over."]


def test_a_cycle_that_was_given_up_is_counted():
    """By the reason of its abort."""
    given_up = events.AgentAbort(reason="crashed(killed)", command_id=ONE)

    assert books(*CYCLE[:2], given_up).given_up == 1


def test_an_echo_is_not_reported_for_ever():
    """The first problems are kept, and so is the end of the story."""
    found = books(*CYCLE, *[said(str(n)) for n in range(100)])

    assert len(found.problems) == PROBLEMS_MAX
    assert (found.tail[-1].event, found.counts["events"]) == (said("99"), 107)


def recovered(incarnation, resumed="stream", reason=None):
    return events.AgentRecovered(
        incarnation=Incarnation(incarnation), reason=reason or Normal(), resumed=resumed
    )


def test_a_cycle_that_goes_on_after_too_many_crashes_is_found():
    """As often as it may cost a process it is given up; a daemon's restart is not its fault."""
    daemons = Other(detail=DAEMON_RESTARTED)
    well = Ledger(2)
    bad = Ledger(2)
    first = (received(), started(), recovered(2))
    for index, event in enumerate((*first, recovered(3, reason=daemons)), 1):
        well.feed(events.Envelope(session_id=SessionId("s"), index=index, at_ms=1, event=event))
    for index, event in enumerate((*first, recovered(3)), 1):
        bad.feed(events.Envelope(session_id=SessionId("s"), index=index, at_ms=1, event=event))

    assert well.problems == []
    assert "goes on after 2 crashes" in str(bad.problems[0])


def test_a_run_of_reasoning_that_gains_thoughts_may_go_on():
    """Its deaths are counted anew with each; one that failed is none."""
    came = events.ReasoningThought(run_id="c@1", strategy="tree", thought_id="b1", content="42")
    lost = events.ReasoningThought(
        run_id="c@1", strategy="tree", thought_id="b2", content="", error="it died"
    )
    first = (received(), started(), recovered(2))

    def problems(between):
        return str(books(*first, between, recovered(3)).problems)

    assert "goes on after 2 crashes" not in problems(came)
    assert "goes on after 2 crashes" in problems(lost)


def test_a_question_that_was_answered_or_refused_is_not_asked_again():
    """It waits for its one answer, whoever dies meanwhile; until then each process may ask it."""
    asked = events.AskUser(session_id=SessionId("s"), question="?", options=(), ref="q")
    answer = events.UserResponded(session_id=SessionId("s"), ref="q", response="yes")
    waits, answered, refused = Ledger(), Ledger(), Ledger()
    refused.refused.add("q")
    for books, happened in ((waits, (asked, asked)), (answered, (asked, answer, asked))):
        for index, event in enumerate((received(), started(), *happened), 1):
            books.feed(
                events.Envelope(session_id=SessionId("s"), index=index, at_ms=1, event=event)
            )
    for index, event in enumerate((received(), started(), asked), 1):
        refused.feed(events.Envelope(session_id=SessionId("s"), index=index, at_ms=1, event=event))

    assert waits.problems == []
    assert "asked again after its answer" in str(answered.problems[0])
    assert "its answer was refused" in str(refused.problems[0])
