"""What is written down of an input with the records of its step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.commands import Prompt
from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.reasons import Signal
from workers.core import causes
from workers.core.inputs import FirstChunk, Order, StreamFailed, ToolReturned
from workers.core.records import CycleEnded, CycleStarted, ToolEnded, Where, decode_record
from workers.core.replaying import reread
from workers.core.state import Memory, State

STARTED = CycleStarted(command_id="p-1", text="go", at_ms=5)
ENDED = CycleEnded(command_id="p-1", outcome="failed", reason="why")


def test_the_first_record_of_a_step_has_the_cause_of_all(session):
    """The name of the input, what it is about, when it came, where it found the machine."""
    order = Order("p-1", Prompt(text="go"), at_ms=5)
    at_rest = session.new()
    first, second = causes.with_cause([STARTED, ENDED], order, at_rest.state, at_rest.memory)
    cause = reread(first).cause

    assert (cause.input, cause.ref, cause.at_ms, cause.records) == ("order", "p-1", 5, 2)
    assert cause.where == Where("idle")
    assert second == ENDED


def test_a_step_without_a_record_has_no_cause():
    """Nothing is written down then."""
    assert causes.with_cause([], FirstChunk(1), State.RUNNING, Memory()) == []


def test_an_input_that_the_table_does_not_know_is_named_all_the_same():
    """An agent does not end for it; who replays is told."""
    (first,) = causes.with_cause([ENDED], FirstChunk(1), State.RUNNING, Memory())

    assert (first.cause.input, first.cause.facts) == ("first_chunk", {})


def test_a_failure_is_told_with_its_kind(session):
    """The record has its reason alone, and not after how many attempts."""
    streaming = session.at(State.STREAMING)
    failed = StreamFailed(1, FailureKind.PERMANENT, "why", 8)
    (first,) = causes.with_cause([ENDED], failed, streaming.state, streaming.memory)

    assert reread(first).cause.facts == {"kind": "permanent", "reason": "why"}
    assert first.cause.where.state == "streaming"


def test_a_crash_is_told_with_its_reason():
    """It decides whether the cycle is to blame."""
    recovery = causes.Recovery(Signal(number=9, name="SIGKILL"), 8)
    (first,) = causes.with_cause([ENDED], recovery, State.IDLE, Memory())

    assert first.cause.facts["reason"]["name"] == "SIGKILL"


def test_a_text_that_a_record_has_is_not_repeated(session):
    """Its place in the record is enough."""
    running = session.at(State.EXECUTING_TOOLS).begin("a").end("a")
    (ended,) = running.records(ToolEnded)
    returned = ToolReturned(1, "a", ok=True, text="of a", at_ms=10)
    (first,) = causes.with_cause([ended], returned, running.state, running.memory)

    assert first.cause.facts == {"text": [0, 4]}


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
