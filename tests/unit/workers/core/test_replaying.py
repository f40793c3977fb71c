"""A journal is played step by step, up to where it was decided otherwise or does not say enough.

That every input is played as it was fed stands in ``test_causes.py``; whole lives, which are driven
at random, in ``tests/model/test_replaying.py``.
"""

from dataclasses import replace

import msgspec
import pytest

from workers.core.records import CodeTaken, Continued, SetAside
from workers.core.replaying import Difference, Entry, PlayedStep, Unplayable, play
from workers.core.state import State

BROKEN = SetAside(digest="5e94", what="said", why="it is too deep")


@pytest.fixture
def life(session):
    """A cycle of a prompt and an answer: one record, then three of one step."""
    return session.new().prompt("go", "p-1").answer("done")


def played(life, entries=None):
    """Return what comes of playing a session, or other entries in its place."""
    return list(play(life.first, life.entries if entries is None else entries))


def with_record(entries, at, record):
    """Return entries of which one has another record."""
    return [*entries[:at], replace(entries[at], record=record), *entries[at + 1 :]]


def with_cause(entries, at, **changed):
    """Return entries of which one says something else of what its step came of."""
    record = entries[at].record
    cause = msgspec.structs.replace(record.cause, **changed)
    return with_record(entries, at, msgspec.structs.replace(record, cause=cause))


def test_steps_are_shown_with_their_records(life):
    """And how the session stands after each."""
    prompt, answer = played(life)

    assert [len(step.entries) for step in (prompt, answer)] == [1, 3]
    assert [step.state for step in (prompt, answer)] == [State.RUNNING, State.IDLE]
    assert [step.input for step in (prompt, answer)] == ["order", "stream_ended"]
    assert [said.content for said in answer.memory.messages] == ["go", "done"]


def test_nothing_is_played_of_an_empty_journal(life):
    """A session that was only begun has decided nothing."""
    assert played(life, []) == []


# --- what a new process records before its first step --------------------------------------------

NEWS = {
    "options": (Continued(resumption="r-1", model="y:n"), lambda memory: memory.model == "y:n"),
    "tool_set_aside": (
        SetAside(digest="5e94", what="tool", name="odd"),
        lambda memory: "5e94" in memory.left_out,
    ),
    "code_taken": (
        CodeTaken(code={"5e94": {"shop": "77c1"}}),
        lambda memory: memory.code == {"5e94": {"shop": "77c1"}},
    ),
}


@pytest.mark.parametrize("name", NEWS)
@pytest.mark.parametrize("incarnation", [1, 2], ids=["fork", "restart"])
def test_what_a_new_process_begins_with_is_taken_as_it_is(life, name, incarnation):
    """It was not decided, so it stands for itself; a fork counts its processes from one again."""
    record, is_there = NEWS[name]
    news = [Entry(number, incarnation, record) for number in (5, 6)]
    *steps, first, second = played(life, [*life.entries, *news])

    assert [len(step.entries) for step in steps] == [1, 3]
    assert (first.entries, second.entries) == ((news[0],), (news[1],))
    assert (first.input, first.given, first.state) == (name, None, State.IDLE)
    assert is_there(first.memory)


@pytest.mark.parametrize("name", NEWS)
@pytest.mark.parametrize("is_fork", [True, False], ids=["fork", "restart"])
def test_a_process_that_begins_with_news_goes_on_with_the_cycle(session, name, is_fork):
    """What ran in the process before it is over, also where both have the same number."""
    number = 1 if is_fork else 2
    crashed = session.new().prompt("go", "p-1").crash()
    taken, recovery = crashed.entries
    news = Entry(2, number, NEWS[name][0])
    resumed = msgspec.structs.replace(recovery.record, incarnation=number)
    _, shown, again = played(crashed, [taken, news, Entry(3, number, resumed)])

    assert (shown.state, shown.input) == (State.IDLE, name)
    assert (again.state, again.input) == (State.RUNNING, "recovery")


# --- what can't be played ------------------------------------------------------------------------


@pytest.mark.parametrize("at", [1, 2, 3], ids=["first", "inner", "last"])
def test_a_record_that_is_set_aside_leaves_a_hole(life, at):
    """Whatever its place in its step: what was decided on it can't be decided without it."""
    entries = with_record(life.entries, at, BROKEN)
    *steps, found = played(life, entries)

    assert [type(step) for step in steps] == [PlayedStep]
    assert (type(found), found.number) == (Unplayable, entries[at].number)
    assert "set aside, a record of 'said': it is too deep" in found.why


def test_a_snapshot_that_is_set_aside_is_a_hole_behind_a_whole_step(life):
    """It is no record of the step before it."""
    last = Entry(5, 2, SetAside(digest="5e94", what="snapshot"))
    *steps, found = played(life, [*life.entries, last])

    assert [len(step.entries) for step in steps] == [1, 3]
    assert found.number == 5


def test_a_step_without_a_cause_is_named_by_its_number(life):
    """An older program did not write down what it came of, and nothing is guessed."""
    entries = with_record(
        life.entries, 1, msgspec.structs.replace(life.entries[1].record, cause=None)
    )
    bare = [replace(one, incarnation=2) for one in entries[1:]]
    (found,) = played(life, bare)

    assert (type(found), found.number) == (Unplayable, 2)
    assert "did not write down" in found.why


@pytest.mark.parametrize(
    ("at", "count", "why"),
    [
        (2, 2, "its step kept 3 records, and the journal has 2 of it"),
        (slice(2, 4), 1, "its step kept 3 records, and the journal has 1 of it"),
    ],
)
def test_a_step_with_a_record_less_is_not_whole(life, at, count, why):
    """Somebody has taken it out."""
    entries = life.entries
    del entries[at]
    *_, found = played(life, entries)

    assert len(entries) == 1 + count
    assert found == Unplayable(2, why)


def test_an_input_that_is_not_known_is_missed_at_its_step(life):
    """Nothing after it is played."""
    entries = with_cause(life.entries, 0, input="of_the_future")
    found = played(life, entries)

    assert found == [Unplayable(1, "this program knows no input 'of_the_future'")]


# --- what is decided otherwise -------------------------------------------------------------------


def test_the_first_record_that_is_another_one_is_the_difference(life):
    """With the one that is kept today; nothing after it is played."""
    said = life.entries[1].record
    edited = msgspec.structs.replace(said, message=msgspec.structs.replace(said.message, id="m-9"))
    begun, found = played(life, with_record(life.entries, 1, edited))

    assert isinstance(begun, PlayedStep)
    assert found == Difference(
        2,
        "stream_ended",
        life.taken[-1].given,
        msgspec.structs.replace(edited, cause=None),
        msgspec.structs.replace(said, cause=None),
    )


def test_a_record_that_is_kept_no_more_is_the_difference(life):
    """Today's step is over where it stood."""
    extra = replace(life.entries[-1], number=5)
    entries = [*with_cause(life.entries, 1, records=4), extra]
    *_, found = played(life, entries)

    assert (found.number, found.recorded, found.now) == (5, extra.record, None)


def test_a_record_that_is_kept_besides_is_the_difference(life):
    """It is reported at the last record of the step."""
    entries = with_cause(life.entries, 1, records=2)[:-1]
    *_, found = played(life, entries)

    assert (found.number, found.recorded, found.now) == (3, None, life.entries[-1].record)


def test_an_input_that_finds_the_session_elsewhere_is_the_difference(life):
    """What was recorded of it is recorded no more."""
    entries = with_cause(life.entries, 1, activity=None)  # its first chunk has not come
    _, found = played(life, entries)

    assert (found.number, found.input, found.now) == (2, "stream_ended", None)
    assert found.recorded == msgspec.structs.replace(entries[1].record, cause=None)
