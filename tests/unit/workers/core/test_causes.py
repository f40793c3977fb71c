"""What is written down of an input with the records of its step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.commands import Prompt, Steer
from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.reasons import Signal
from workers.core import causes
from workers.core.inputs import (
    Consulted,
    FirstChunk,
    Order,
    PluginDelegated,
    SteeringJudged,
    StreamFailed,
    SubagentWanted,
    Summarized,
    SummaryFailed,
    ToolRefused,
    ToolReturned,
)
from workers.core.records import (
    Compacted,
    CycleEnded,
    CycleStarted,
    ToolEnded,
    Where,
    decode_record,
)
from workers.core.replaying import reread
from workers.core.state import Compacting, Consulting, Memory, Point, State, Summarizing
from workers.core.verdict import Aborted, Verdict

STARTED = CycleStarted(command_id="p-1", text="go", at_ms=5)
ENDED = CycleEnded(command_id="p-1", outcome="failed", reason="why")


def test_the_first_record_of_a_step_has_the_cause_of_all(session):
    """The name of the input, what it is about, when it came, where it found the machine."""
    order = Order("p-1", Prompt(text="go"), at_ms=5)
    at_rest = session.new()
    first, second = causes.with_cause([STARTED, ENDED], order, at_rest.memory)
    cause = reread(first).cause

    assert (cause.input, cause.ref, cause.at_ms, cause.records) == ("order", "p-1", 5, 2)
    assert cause.where == Where("idle")
    assert second == ENDED


def test_a_step_without_a_record_has_no_cause():
    """Nothing is written down then."""
    assert causes.with_cause([], FirstChunk(1), Memory()) == []


def test_an_input_that_the_table_does_not_know_is_named_all_the_same():
    """An agent does not end for it; who replays is told."""
    (first,) = causes.with_cause([ENDED], FirstChunk(1), Memory())

    assert (first.cause.input, first.cause.facts) == ("first_chunk", {})
    assert (first.cause.ref, first.cause.at_ms) == ("", 0)


def test_a_failure_is_told_with_its_kind(session):
    """The record has its reason alone, and not after how many attempts."""
    streaming = session.at(State.STREAMING)
    failed = StreamFailed(1, FailureKind.PERMANENT, "why", 8)
    (first,) = causes.with_cause([ENDED], failed, streaming.memory)

    assert reread(first).cause.facts == {"kind": "permanent", "reason": "why"}
    assert first.cause.where.state == "streaming"


def test_a_crash_is_told_with_its_reason():
    """It decides whether the cycle is to blame."""
    recovery = causes.Recovery(Signal(number=9, name="SIGKILL"), 8)
    (first,) = causes.with_cause([ENDED], recovery, Memory())

    assert first.cause.facts["reason"]["name"] == "SIGKILL"


def test_a_text_that_a_record_has_is_not_repeated(session):
    """Its place in the record is enough."""
    running = session.at(State.EXECUTING_TOOLS).begin("a").end("a")
    (ended,) = running.records(ToolEnded)
    returned = ToolReturned(1, "a", ok=True, text="of a", at_ms=10)
    (first,) = causes.with_cause([ended], returned, running.memory)

    assert first.cause.facts == {"text": [0, 4]}


def test_where_a_summary_is_under_way_its_reason_is_told():
    """By itself, or while plugins are asked about it."""
    compacting = Compacting(2, "overflow")
    waits = Consulting(Point.COMPACT, compacting)

    assert causes.where(Memory()).trigger == ""
    assert causes.where(Memory(activity=Summarizing(compacting))).trigger == "overflow"
    assert causes.where(Memory(activity=waits)).trigger == "overflow"


@given(before=st.text(), text=st.text(), after=st.text())
def test_a_quoted_text_comes_back(before, text, after):
    """Whatever the kernel put around it, and also where it is not there at all."""
    content = before + text + after

    assert causes.unquote(causes.quote(text, content), content) == text
    assert causes.unquote(causes.quote(f"{text}x", text), text) == f"{text}x"


@pytest.mark.parametrize("body", [b"\x82\xa6record\xabcycle_ended\xaacommand_id\xa1p"])
def test_a_record_of_an_older_program_has_no_cause(body):
    """It can be read as before."""
    with_outcome = b"\x83" + body[1:] + b"\xa7outcome\xa6failed"

    assert decode_record(with_outcome).cause is None


def facts_of(given_, *kept):
    """Return what is told of an input that no record of its step tells."""
    (first, *_) = causes.with_cause([*kept, ENDED], given_, Memory())
    return first.cause.facts


def test_of_a_summary_is_told_where_it_stands_or_what_it_says():
    """The record of it may come behind others, and there may be none."""
    made = Message(id="m-9", role="user", content="before: short")
    compacted = Compacted(evicted=2, summary=made, usage=TokenUsage())
    summary = Summarized(1, " short ", TokenUsage(), None, 5)

    assert facts_of(summary, STARTED, compacted) == {"text": [8, 5]}
    assert facts_of(summary, STARTED) == {"text": "short"}


@pytest.mark.parametrize(
    ("given_", "facts"),
    [
        (SummaryFailed(1, "too long", 5), {"reason": "too long"}),
        (ToolRefused(1, "a", "not now", 5), {"why": "not now"}),
        (SubagentWanted(1, "a", "r", "scout", "look"), {"type": "scout"}),
        (PluginDelegated("audit", "r", "scout", "look"), {"type": "scout"}),
        (Consulted(1, Verdict(), 5), {}),
        (Consulted(1, Verdict(skipped="audit"), 5), {"skipped": "audit"}),
        (Consulted(1, Verdict(abort=Aborted("audit", "no")), 5), {"abort": ["audit", "no"]}),
    ],
)
def test_what_no_record_tells_of_an_input_is_told(given_, facts):
    """A replay could not be told apart from another life without it."""
    assert facts_of(given_) == facts


def test_of_guidance_is_told_what_plugins_said_of_it():
    """And when the order for it came."""
    order, command = Order("c", Steer(text="left"), at_ms=7), Steer(text="left")
    verdicts = [Verdict(), Verdict(interventions=("right",)), Verdict(abort=Aborted("a", "no"))]
    told = [facts_of(SteeringJudged(order, command, verdict)) for verdict in verdicts]

    assert told == [{}, {"said": ["right"]}, {"abort": ["a", "no"]}]
