"""Lives that were driven at random, crashes and all, are decided again as they were recorded.

``Recorded`` is a ``Life`` that writes down, as an agent does, what each step came of.
"""

from dataclasses import replace
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmdc_runtime.commands import SwitchModel
from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.messages import TokenUsage, ToolCall
from workers.core import causes, evolve, interrupt, replaying, results, snapshot
from workers.core.assemble import Reply
from workers.core.inputs import (
    FirstChunk,
    Result,
    RetryDue,
    StreamEnded,
    StreamFailed,
    TextArrived,
    ToolBegun,
    ToolReturned,
)
from workers.core.records import CycleEnded, MessageAdded, decode_record
from workers.core.state import State
from workers.core.step import Step, WriteRecord
from workers.core.tool_calls import close_call

from .conftest import KILLED, WINDOW, durable
from .test_recovery import POLICIES, abort, finish, histories, lived, policies, prompt

CELLS = {causes.name_of(kind): kind for kind in get_args(Result)}


@pytest.fixture(scope="session")
def recorded(life):
    """The class: ``recorded(...)`` is a new session whose records say what they came of."""

    class Recorded(life):
        def __init__(self, **policy):
            self.given, self.recorded, self.entries, self.rests = None, None, [], []
            self.states = {}  # in which steps that kept records began, by the first of these
            super().__init__(**policy)
            self.first = self.memory

        def give_order(self, order):
            self.given = order
            super().give_order(order)

        def feed(self, result):
            self.given = result
            super().feed(result)

        def resume(self, memory):
            self.given, self.recorded = causes.Restarted(KILLED, 7), None
            self.step = Step(memory)
            super().resume(memory)

        def take(self, step):
            self.keep(step)
            super().take(step)
            if self.state is State.IDLE and self.memory.cycle is None:
                self.rests.append((len(self.entries), snapshot.encode(self.memory)))

        def keep(self, step):
            kept = [effect.record for effect in step.effects if isinstance(effect, WriteRecord)]
            if not kept:
                return
            self.states[len(self.entries) + 1] = self.memory.state
            for record in causes.with_cause(kept, self.given, self.memory, self.recorded):
                number = len(self.entries) + 1
                body = msgspec.msgpack.encode(record)
                entry = replaying.Entry(number, self.incarnation, decode_record(body))
                self.entries.append(entry)
            self.recorded = step.memory

    return Recorded


def played(session, first=None, entries=None):
    """Return what comes of playing a recorded session again."""
    return list(replaying.play(first or session.first, entries or session.entries))


def otherwise(outcomes):
    """Return what is no step as it was recorded."""
    return [one for one in outcomes if not isinstance(one, replaying.PlayedStep)]


def boundaries(session):
    """Return how many entries there are after each step."""
    begins = [at for at, entry in enumerate(session.entries) if entry.record.cause]
    return [*begins[1:], len(session.entries)]


def cells_used(session):
    """Return the cells of the tables that kept records, each with the number of its first one."""
    found = {}
    for number, state in session.states.items():
        kind = CELLS.get(session.entries[number - 1].record.cause.input)
        if kind is not None:
            found.setdefault((state, kind), number)
    return found


@given(history=histories, policy=policies)
def test_a_life_is_decided_again_as_it_was_recorded(recorded, history, policy):
    """Also over crashes: every record is kept again, and the conversation is the same one."""
    session = lived(recorded, history, policy)
    outcomes = played(session)

    assert otherwise(outcomes) == []
    assert [one for step in outcomes for one in step.entries] == session.entries
    assert outcomes[-1].memory.messages == session.memory.messages
    assert durable(outcomes[-1].memory) == durable(session.memory)


@settings(max_examples=25)
@given(history=histories, policy=policies, data=st.data())
def test_a_crash_after_any_step_is_played_too(recorded, history, policy, data):
    """Whatever the journal had when the process died, its successor's decisions are found again."""
    before = lived(recorded, history, policy, stormy=False)
    cut = data.draw(st.sampled_from(boundaries(before)), label="records left")
    session = recorded(**POLICIES[policy])
    session.entries = before.entries[:cut]
    session.journal += before.journal[:cut]
    session.number = before.number
    session.resume(evolve.rebuild(session.memory, session.journal))
    finish(session)

    assert len(session.entries) >= cut
    assert otherwise(played(session)) == []


@settings(max_examples=25)
@given(history=histories, policy=policies)
def test_a_life_is_played_from_a_snapshot_on(recorded, history, policy):
    """From each rest on, without the records before it, as the journal keeps them."""
    session = lived(recorded, history, policy)
    for count, body in session.rests:
        left = session.entries[count:]
        first = snapshot.restore(session.first, body)
        outcomes = played(session, first, left) if left else []

        assert otherwise(outcomes) == []
        assert [one for step in outcomes for one in step.entries] == left


@settings(max_examples=25)
@given(history=histories, policy=policies)
def test_a_changed_cell_is_found_at_its_first_record(recorded, history, policy):
    """One cell of the tables at a time does nothing any more: the first record of it is missing."""
    session = lived(recorded, history, policy)
    for (state, kind), number in cells_used(session).items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(results.TRANSITIONS, (state, kind), _idle)
            found = otherwise(played(session))

        assert [(one.number, one.now) for one in found] == [(number, None)], (state, kind)


def _idle(_step, _given):
    pass


def chatty(recorded, calls=6, **policy):
    """Return a session in which the model makes the same call again and again."""
    session = recorded(**policy)
    prompt(session, 0)
    call = ToolCall(call_id="read-1", name="read", arguments={})
    for turn in range(calls):
        if session.state is State.IDLE:
            break
        asked = msgspec.structs.replace(call, call_id=f"read-{turn}")
        session.post(FirstChunk)
        session.post(StreamEnded, Reply("", None, (asked,), TokenUsage(), "stop"), 1)
        if session.state is State.EXECUTING_TOOLS:
            session.post(ToolBegun, asked.call_id, 5)
            session.post(ToolReturned, asked.call_id, True, "fine", 6)
    return session


LIMITS = {
    "loop_abort": ({"max_turns": 9}, {"loop_abort": 3}, ("said", 3, "tool_ended")),
    "loop_threshold": ({"max_turns": 9}, {"loop_threshold": 3}, ("tool_ended", 2, "tool_ended")),
    "max_turns": ({"max_turns": 9}, {"max_turns": 2}, ("tool_ended", 2, "cycle_ended")),
}


@pytest.mark.parametrize("name", LIMITS)
def test_another_limit_is_found_where_it_decides(recorded, name):
    """An earlier end of a loop, another notice of one, fewer turns: each at its own record."""
    policy, changed, (kind, nth, now) = LIMITS[name]
    session = chatty(recorded, **policy)
    first = msgspec.structs.replace(
        session.first, policy=msgspec.structs.replace(session.first.policy, **changed)
    )
    found = otherwise(played(session, first))
    same_kind = [one for one in session.entries if tag(one.record) == kind]

    assert [tag(one.now) for one in found] == [now]
    assert same_kind[nth - 1].number <= found[0].number <= same_kind[nth].number


def test_attempts_that_left_no_record_are_found_again(recorded):
    """A request was given up after its second failure; with more retries it would not be, yet."""
    session = recorded(max_retries=1)
    prompt(session, 0)
    for _ in range(2):
        session.post(StreamFailed, FailureKind.TRANSIENT, "busy", 1)
        session.post(RetryDue, 1)
    patient = msgspec.structs.replace(
        session.first, policy=msgspec.structs.replace(session.first.policy, max_retries=3)
    )
    (found,) = otherwise(played(session, patient))

    assert otherwise(played(session)) == []
    assert (found.recorded.reason, found.now) == ("busy", None)


def test_a_summary_that_failed_is_found_again(recorded):
    """Only the next overflow shows it: the request was not made to fit a second time."""
    session = recorded()
    session.order(SwitchModel(model="y:n"), "m")
    for _ in range(9):
        prompt(session, 0)
        if session.summary is None:
            session.post(FirstChunk)
            session.post(TextArrived, "long " * 20)
            used = TokenUsage(total_tokens=WINDOW)
            session.post(StreamEnded, Reply("", None, (), used, "stop"), 1)
            continue
        session.summarize(0)
        session.post(StreamFailed, FailureKind.OVERFLOW, "too long", 1)
        break
    last = session.entries[-1].record

    assert last.reason == "context_overflow"
    assert otherwise(played(session)) == []


def test_another_order_of_results_is_found(recorded, monkeypatch):
    """The results of calls that an abort ends are recorded in the order of the calls."""
    session = recorded()
    prompt(session, 0)
    session.answer(3)
    abort(session, 0)
    ended = [one for one in session.entries if tag(one.record) == "tool_ended"]

    def backwards(step, end_of):
        calls = step.memory.calls[::-1]
        for open_ in calls:
            close_call(step, open_, end_of(open_))

    monkeypatch.setattr(interrupt, "end_calls", backwards)
    found = otherwise(played(session))

    assert [one.number for one in found] == [ended[0].number]
    assert found[0].recorded == msgspec.structs.replace(ended[0].record, cause=None)
    assert found[0].now == msgspec.structs.replace(ended[-1].record, cause=None)


def edits(session):
    """Yield edited journals, each with the number of the record that was touched."""
    for at, entry in enumerate(session.entries):
        record = entry.record
        without = [*session.entries[:at], *session.entries[at + 1 :]]
        if record.cause is None:
            yield entry.number, without
        if isinstance(record, CycleEnded):
            edited = msgspec.structs.replace(record, outcome="failed", reason="it was edited")
            yield entry.number, _edited(session, at, edited)
        if isinstance(record, MessageAdded):
            message = msgspec.structs.replace(record.message, id="m-9999")
            edited = msgspec.structs.replace(record, message=message)
            yield entry.number, _edited(session, at, edited)


def _edited(session, at, record):
    entry = replace(session.entries[at], record=record)
    return [*session.entries[:at], entry, *session.entries[at + 1 :]]


@settings(max_examples=25)
@given(history=histories, policy=policies)
def test_an_edited_journal_is_caught(recorded, history, policy):
    """A record that was taken out of its step, or changed in what the machine decides, is found."""
    session = lived(recorded, history, policy)
    for number, entries in edits(session):
        found = otherwise(played(session, entries=entries))

        assert found, f"the edit of record {number} was not found"
        assert found[0].number <= number


def test_records_of_an_older_program_are_said_to_be_unplayable(recorded):
    """Without what a step came of nothing is guessed."""
    session = chatty(recorded)
    bare = [
        replace(one, record=msgspec.structs.replace(one.record, cause=None))
        for one in session.entries
    ]
    found = played(session, entries=bare)

    assert [type(one) for one in found] == [replaying.Unplayable]
    assert "did not write down" in found[0].why


def tag(record):
    """Return the kind of a record, None for no record."""
    return None if record is None else record.__struct_config__.tag
