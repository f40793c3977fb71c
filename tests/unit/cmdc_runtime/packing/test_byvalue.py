"""What travels by value is the same at the other end, which here is this process."""

import dataclasses
import importlib
import pickle
import sys
import textwrap
import threading
import typing

import msgspec
import pytest

from cmdc_runtime.packing import byvalue

LOCK = threading.Lock()
BESIDE = """
    import dataclasses
    from typing import Annotated, NewType, TypedDict

    import msgspec

    LIMIT = 3

    class Base(msgspec.Struct, kw_only=True):
        a: int

    class Place(Base, frozen=True, rename="camel"):
        the_name: Annotated[str, msgspec.Meta(min_length=2)]
        tags: list[str] = []
        size: int = 1

        def twice(self):
            return 2 * self.size

    class Whole(msgspec.Struct, weakref=True, dict=True):
        number: int

        def __post_init__(self):
            self.twice = 2 * self.number

    class Plain(msgspec.Struct):
        number: int

    class Row(TypedDict, total=False):
        a: Annotated[int, msgspec.Meta(ge=0)]

    class LongRow(Row):
        b: int

    @dataclasses.dataclass
    class Odd:
        known: "int"
        unknown: "Unknown"

    Name = NewType("Name", str)

    def made_inside():
        return NewType("Inside", int)
"""


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """Return a module beside a script, which no other process can import."""
    (tmp_path / "beside.py").write_text(textwrap.dedent(BESIDE))
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("beside")
    del sys.modules["beside"]


def again(thing):
    """Return what is at the other end."""
    return pickle.loads(byvalue.dumps(thing))


def test_a_struct_is_made_again_with_all_that_it_says(beside):
    """Its own fields, defaults, bounds, names and methods; those of its base are its base's."""
    made = again(beside.Place)

    assert made is not beside.Place
    assert msgspec.convert({"a": 1, "theName": "ab"}, made) == made("ab", a=1)
    assert made("ab", [], 4, a=1).twice() == 8
    assert made("ab", a=1).tags is not made("ab", a=1).tags
    with pytest.raises(msgspec.ValidationError, match="length >= 2"):
        msgspec.convert({"a": 1, "theName": "a"}, made)
    with pytest.raises(TypeError, match="positional"):
        made("ab", [], 1, 2)
    with pytest.raises(AttributeError, match="immutable"):
        made("ab", a=1).size = 2


def test_a_struct_may_be_referred_to_and_looks_at_what_it_is_given(beside):
    """As its class says it; one that looks at nothing is asked nothing."""
    assert again(beside.Whole)(3).twice == 6
    assert again(beside.Plain)(3).number == 3
    assert "__post_init__" not in vars(again(beside.Plain))


def test_a_typed_dict_is_made_again_with_its_bounds(beside):
    """Also one with a base; which of its keys are needed is not forgotten."""
    made = again(beside.LongRow)

    assert made is not beside.LongRow
    assert msgspec.convert({"b": 1}, made) == {"b": 1}
    for wrong in ({"a": -1, "b": 1}, {"a": 1}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, made)


def test_a_module_that_is_used_as_a_whole_is_taken(beside):
    """With what it holds, and without what found it here."""
    made = again(lambda: beside)()

    assert made is not beside
    assert (made.LIMIT, made.Place("ab", a=1).the_name) == (3, "ab")
    assert made.__spec__ is made.__loader__ is None


def test_annotations_that_mean_nothing_here_stay_as_they_were_written(beside):
    """Their names may be known to type checkers only."""
    assert again(beside.Odd).__annotations__ == {"known": "int", "unknown": "Unknown"}


def test_a_new_type_is_made_again_where_no_import_finds_it(beside):
    """One of an installed module is itself."""
    inside = beside.made_inside()

    assert again(beside.Name) is not beside.Name
    assert again(inside) is not inside
    assert (again(inside).__qualname__, again(inside).__supertype__) == (inside.__qualname__, int)
    assert again(INSTALLED) is INSTALLED


INSTALLED = typing.NewType("INSTALLED", int)
INSTALLED.__module__ = "msgspec"


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """Have an installed module hold a new type."""
    monkeypatch.setattr(msgspec, "INSTALLED", INSTALLED, raising=False)


@pytest.mark.parametrize("thing", [type(None), dataclasses.MISSING, int, NotImplemented])
def test_what_every_process_has_is_itself(thing):
    """It is known by its identity."""
    assert again(thing) is thing
    assert again([thing])[0] is thing


def unset():
    """Return a function with a variable that is not set yet, and one that cannot travel."""
    lock = threading.Lock()

    def inner():
        return late, lock

    if lock.locked():
        late = 1
    return inner


def locked():
    """Use what cannot travel."""
    return LOCK


class Holder:
    """Has a method that uses what cannot travel."""

    def __init__(self):
        """Lock."""
        self.guard = threading.Lock()

    def use(self):
        """Use it."""
        return self.guard


def nested(levels):
    """Return a lock within so many lists."""
    value = threading.Lock()
    for _ in range(levels):
        value = [value]
    return value


def takes(*, guard=LOCK):
    """Have a default that cannot travel."""
    return guard


@pytest.mark.parametrize(
    ("thing", "way"),
    [
        (threading.Lock(), []),
        ([1, threading.Lock()], ["item 1 (_thread.lock)"]),
        (nested(3), ["item 0 (builtins.list)", "item 0 (builtins.list)", "item 0 (_thread.lock)"]),
        (nested(9), ["item 0 (builtins.list)"] * byvalue.CULPRIT_DEPTH_MAX),
        (unset(), ["closure variable 'lock' (_thread.lock)"]),
        (locked, ["global 'LOCK' (_thread.lock)"]),
        (takes, ["a default (builtins.dict)", "key 'guard' (_thread.lock)"]),
    ],
    ids=["itself", "a list", "lists", "too deep", "a variable", "a global", "a default"],
)
def test_the_way_to_what_cannot_travel_is_named(thing, way):
    """To the innermost part, as far as anybody would read."""
    assert byvalue.culprit(thing) == way
