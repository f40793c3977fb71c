"""What a caller says of a checkpoint: kept as it was given, or refused by name."""

import datetime as dt
from enum import IntEnum, StrEnum

import msgspec
import pytest

from cmdc_runtime.checkpoints import CheckpointFacts, checkpoint_facts, encode_facts, snapshot_of
from cmdc_runtime.errors import UsageError
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


def kept(metadata):
    """Return metadata as they are read back."""
    made = encode_facts(checkpoint_facts(None, metadata).metadata, ())
    facts = CheckpointFacts(
        session_id="s", checkpoint_id="c", label=None, saved_ms=1, schema_version=1, metadata=made
    )
    return snapshot_of(facts).metadata


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
