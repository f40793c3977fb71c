"""From one recorded step to the next: the inputs between them that kept no record."""

from itertools import islice

import pytest

from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.messages import Message
from workers.core import replaying_paths
from workers.core.causes import where
from workers.core.inputs import CompactWanted, Consulted, FirstChunk, StreamFailed, Summarized
from workers.core.records import Where
from workers.core.replaying_paths import find_way
from workers.core.state import Memory, Point, State
from workers.core.verdict import Verdict

LONG = tuple(Message(id=f"old-{n}", role="user", content="old") for n in range(12))
AT_MS = 9


def long(session, **policy):
    """Return a running session whose conversation can be compacted."""
    return session.new(Memory(model="x:m", messages=LONG), **policy).prompt()


def busy(session, times, **policy):
    """Return a session whose request was tried again so often."""
    after = long(session, **policy)
    for _ in range(times):
        after = after.report(StreamFailed, FailureKind.TRANSIENT, "busy", AT_MS)
    return after


def batch(session, **policy):
    """Return a session with a long conversation whose batch runs; its first call has ended."""
    return long(session, **policy).call("read:a", "write:b").end("a").begin("b")


def overflow(before):
    """Return a session whose request was too long."""
    return before.report(StreamFailed, FailureKind.OVERFLOW, "too long", AT_MS)


def want(before):
    """Return a session of which a running call asks for a compaction."""
    return before.report(CompactWanted, "b", "b:compact", "")


HEARD = {"hooks": {"before_compact"}}
WAYS = {
    "none": (long, long),
    "a first chunk": (long, lambda s: long(s).report(FirstChunk)),
    "a retry": (long, lambda s: busy(s, 1)),
    "the last retry, with a chunk": (long, lambda s: busy(s, 3).report(FirstChunk)),
    "a chunk before a retry": (lambda s: long(s).report(FirstChunk), lambda s: busy(s, 1)),
    "a summary that is made": (long, lambda s: overflow(long(s))),
    "a summary after a retry": (long, lambda s: overflow(busy(s, 2))),
    "plugins that said nothing": (
        lambda s: s.new(hooks={"before_prompt"}).prompt(),
        lambda s: s.new().prompt(),
    ),
    "plugins asked of a request": (
        lambda s: s.new(hooks={"before_request"}).prompt(),
        lambda s: s.new().prompt().report(FirstChunk),
    ),
    "plugins asked of a summary": (
        lambda s: long(s, **HEARD),
        lambda s: overflow(long(s, **HEARD)),
    ),
    "plugins that are for a summary": (
        lambda s: overflow(long(s, **HEARD)),
        lambda s: overflow(long(s)),
    ),
    "a summary that a call wants": (batch, lambda s: want(batch(s))),
    "a call's summary that plugins hear of": (
        lambda s: batch(s, **HEARD),
        lambda s: want(batch(s, **HEARD)),
    ),
    "a call's summary that failed": (lambda s: want(batch(s)), batch),
    "a call's summary that plugins do not want": (
        lambda s: want(batch(s, **HEARD)),
        lambda s: want(batch(s, **HEARD)).report(Consulted, Verdict(skipped="p"), AT_MS),
    ),
}


@pytest.mark.parametrize("name", WAYS)
def test_a_silent_way_is_found(session, name):
    """It ends where the next recorded input found the session, with the same conversation."""
    begin, end = (make(session) for make in WAYS[name])
    wanted = where(end.memory)
    found = find_way(begin.memory, wanted, AT_MS)

    assert found.is_there is True
    assert where(found.memory) == wanted
    assert found.memory.messages == begin.memory.messages


def test_a_summary_by_size_that_failed_is_found(session):
    """The request is sent with what there is, as one that was made to fit."""
    small = {"window_of": lambda _model: 10}
    compacting = long(session, **small)
    wanted = Where("running", is_compacted=True)

    assert where(compacting.memory).trigger == "size"
    assert find_way(compacting.memory, wanted, AT_MS).is_there is True


UNREACHABLE = {
    "a cycle's beginning": (lambda s: s.new(), Where("running")),
    "a cycle's end": (long, Where("idle")),
    "an answer with calls": (lambda s: long(s).report(FirstChunk), Where("executing_tools")),
    "a batch's end": (batch, Where("running")),
    "more retries than there are": (lambda s: long(s, max_retries=1), Where("running", retries=2)),
    "a plugin that nobody has": (long, Where("running", Point.REQUEST.value)),
    "fewer retries": (lambda s: busy(s, 2), Where("running", retries=1)),
}


@pytest.mark.parametrize("name", UNREACHABLE)
def test_what_a_record_would_tell_is_no_silent_way(session, name):
    """The session stays where it was."""
    begin, wanted = UNREACHABLE[name][0](session), UNREACHABLE[name][1]

    assert find_way(begin.memory, wanted, AT_MS) == (begin.memory, False)


def test_a_summary_that_was_made_is_recorded(session):
    """What comes after it is not found from before it."""
    before = overflow(long(session))
    after = before.report(Summarized, "short", before.memory.usage, None, AT_MS)
    found = find_way(before.memory, where(after.memory), AT_MS)

    assert found.is_there is False


def test_no_more_places_are_looked_at_than_the_bound_says(session, monkeypatch):
    """A journal from elsewhere may name any number of retries."""
    begin = long(session, max_retries=10**9)
    wanted = Where("running", retries=30)
    around = replaying_paths._around
    looked = list(islice(around(begin.memory, 30, AT_MS), 200))
    place = next(n for n, here in enumerate(looked, 1) if where(here) == wanted)

    for bound in (place - 1, place):
        monkeypatch.setattr(replaying_paths, "PLACES_MAX", bound)
        found = find_way(begin.memory, wanted, AT_MS)
        assert found.is_there is (bound == place)
    assert len({where(here) for here in looked}) == len(looked)
    assert State.STREAMING in {here.state for here in looked}
