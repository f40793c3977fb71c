"""What a caller says of a checkpoint: kept as it was given, or refused by name."""

import datetime as dt
from enum import IntEnum, StrEnum

import msgspec
import pytest

from cmdc_runtime.checkpoints import (
    CheckpointFacts,
    checkpoint_facts,
    encode_facts,
    facts_problem,
    listed_snapshot,
    movable,
    snapshot_of,
)
from cmdc_runtime.errors import CheckpointUnreadable, UsageError
from tests.sent import sent


class Text(str):
    """A str of an application's own."""

    __slots__ = ()


class Number(int):
    """An int of an application's own."""


class Share(float):
    """A float of an application's own."""


class Table(dict):
    """A dict of an application's own."""


class Row(list):
    """A list of an application's own."""


class Kind(StrEnum):
    """A word of an application's own."""

    GOOD = "good"


class Level(IntEnum):
    """A number of an application's own."""

    HIGH = 3


OWN = {
    "str": (Text("x"), "x"),
    "int": (Number(7), 7),
    "float": (Share(0.5), 0.5),
    "dict": (Table(a=Text("x")), {"a": "x"}),
    "list": (Row([Number(1)]), [1]),
    "key": ({Text("k"): 1}, {"k": 1}),
    "StrEnum": (Kind.GOOD, "good"),
    "IntEnum": (Level.HIGH, 3),
}
CHANGING = {
    "tuple": (1, 2),
    "set": {1},
    "frozenset": frozenset({1}),
    "bytearray": bytearray(b"x"),
    "date": dt.date(2026, 1, 1),
    "Raw": msgspec.Raw(b"\x01"),
    "object": object(),
}


def facts_of(packed):
    return CheckpointFacts(
        session_id="s", checkpoint_id="c", label="l", saved_ms=1, schema_version=1, metadata=packed
    )


def kept(metadata):
    """Return metadata as they are read back."""
    made = encode_facts(checkpoint_facts(None, metadata).metadata, ())
    return snapshot_of(facts_of(made)).metadata


@pytest.mark.parametrize("place", ["own", "in a dict", "in a list"])
@pytest.mark.parametrize(("given", "value"), OWN.values(), ids=OWN)
def test_values_of_own_classes_are_what_they_hold(given, value, place):
    """In metadata as in the reason of an abort, wherever they lie."""
    around = {"own": lambda one: one, "in a dict": lambda one: {"a": one}}
    wrap = around.get(place, lambda one: [[one]])

    assert kept({"v": wrap(given)}) == {"v": wrap(value)}
    assert sent.abort(reason=wrap(given)).reason == wrap(value)


def test_labels_and_metadata_of_own_classes():
    """They arrive as plain ones."""
    wish = checkpoint_facts(Text("before"), Table({Text("n"): 1}))

    assert (type(wish.label), wish.label) == (str, "before")
    assert (type(wish.metadata), wish.metadata) == (dict, {"n": 1})
    assert type(next(iter(wish.metadata))) is str


@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: [{"b": one}]], ids=["own", "nested"])
@pytest.mark.parametrize("value", CHANGING.values(), ids=CHANGING)
def test_what_would_come_back_as_something_else_is_refused_by_name(value, wrap):
    """With its place."""
    with pytest.raises(UsageError, match=rf"metadata: \['v'\].*{type(value).__name__}"):
        checkpoint_facts(None, {"v": wrap(value)})


def test_what_is_plain_comes_back():
    """As ever."""
    given = {"a": [1, 2.5, None, True, "x", b"y", {"b": []}]}

    assert kept(given) == given


@pytest.mark.parametrize(
    "packed", [b"", b"\xc1", b"\x2a", b"\x81\xa8metadata\xc0", b"\x81\xa8metadata\x81\xa1\xff\x01"]
)
def test_metadata_that_are_none_are_not_kept_and_hide_no_checkpoint(packed):
    """A list says why they cannot be read, and a file keeps what they are."""
    facts = facts_of(packed)
    with pytest.raises(CheckpointUnreadable):
        snapshot_of(facts)
    listed = listed_snapshot(facts)

    assert "metadata: " in facts_problem(facts, b"")
    assert (listed.checkpoint_id, listed.label, listed.metadata) == ("c", "l", {})
    assert "its metadata cannot be read: " in listed.problem
    assert facts_problem(movable(facts), b"") is None
    assert listed_snapshot(movable(facts)).metadata == {"unreadable": packed}


def test_what_is_sound_is_listed_and_moved_as_it_is():
    """Without a problem."""
    facts = facts_of(encode_facts({"n": 1}, ("a",)))

    assert listed_snapshot(facts) == snapshot_of(facts)
    assert listed_snapshot(facts).problem is None
    assert movable(facts) is facts


def test_metadata_that_may_be_read_and_not_kept_move_as_bytes():
    """Of an older program, which let them nest deeper."""
    deep = []
    for _ in range(900):
        deep = [deep]
    facts = facts_of(encode_facts({"d": deep}, ()))

    assert listed_snapshot(facts).problem is None
    assert "metadata: it nests" in facts_problem(facts, b"")
    assert facts_problem(movable(facts), b"") is None
