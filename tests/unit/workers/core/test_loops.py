"""Loops are found in the tail of the calls, by hashes that only equal calls share."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.core.loops import (
    HASHES_MAX,
    Loop,
    detect,
    fingerprint,
    notice,
    remember,
    verdict,
)

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.binary(), inner, max_size=3)
    ),
    max_leaves=10,
)
ARGUMENTS = st.dictionaries(st.text(max_size=3), VALUES, max_size=4)
MIXED = {
    "float": float("nan"),
    "bytes": b"\x00",
    "int": 2**20_000,
    "set": {"one", "two", "three"},
    "ext": msgspec.msgpack.Ext(1, b"x"),
    "time": datetime(2024, 1, 1, tzinfo=UTC),
    "keys": {1: "a", "1": "b", b"1": "c", None: "d"},
}


def turned(value):
    """Return an equal value with the keys of each mapping the other way round."""
    if isinstance(value, dict):
        return {key: turned(value[key]) for key in reversed(value)}
    return [turned(item) for item in value] if isinstance(value, list) else value


@settings(derandomize=True)
@given(ARGUMENTS)
def test_the_order_of_the_keys_does_not_matter(arguments):
    """A model that writes the same arguments in another order makes the same call."""
    assert fingerprint("t", turned(arguments), None) == fingerprint("t", arguments, None)


@settings(derandomize=True)
@given(ARGUMENTS, ARGUMENTS)
def test_only_equal_arguments_share_a_hash(one, other):
    """The hash is equal exactly where the arguments are, NaN being equal to itself."""
    equal = repr(turned_up(one)) == repr(turned_up(other))

    assert (fingerprint("t", one, None) == fingerprint("t", other, None)) == equal


def turned_up(value):
    """Return the value with sorted keys, so that equal ones have one repr."""
    if isinstance(value, dict):
        return {key: turned_up(value[key]) for key in sorted(value, key=repr)}
    return [turned_up(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", {}, None), ("b", {}, None)),
        (("a", {}, None), ("a", {}, "")),
        (("a", {}, "{x"), ("a", {}, "{y")),
        (("a", {"x": 1}, None), ("a", {"x": "1"}, None)),
        (("a", {"x": 1}, None), ("a", {"x": True}, None)),
        (("a", {"x": "b"}, None), ("a", {"x": b"b"}, None)),
        (("a", {"x": [1, [2]]}, None), ("a", {"x": [[1], 2]}, None)),
        (("a", {"x": {"y": 1}}, None), ("a", {"x": {}, "y": 1}, None)),
        (("a", {"x": {}}, None), ("a", {"x": []}, None)),
        (("ab", {}, "c"), ("a", {}, "bc")),
        (("a", {"x": "\ud800"}, None), ("a", {"x": "?"}, None)),
    ],
)
def test_calls_that_differ_have_different_hashes(one, other):
    """The name, the arguments with their types and shape, and the raw text all count."""
    assert fingerprint(*one) != fingerprint(*other)


def test_a_tuple_is_a_list():
    """The journal gives a list back where a tuple was written."""
    assert fingerprint("t", {"x": (1, 2)}, None) == fingerprint("t", {"x": [1, 2]}, None)


def test_arguments_may_be_nested_beyond_the_stack():
    """What a decoder let through is hashed, however deep it is."""
    deep = []
    for _ in range(100_000):
        deep = [deep]

    assert fingerprint("t", {"x": deep}, None) == fingerprint("t", {"x": deep}, None)


def test_a_hash_is_the_same_in_every_process():
    """An agent that was restarted goes on counting; Python's own hashes are salted."""
    assert fingerprint("t", MIXED, None) == "5e94dc8a6afbef1f"


def test_the_latest_hashes_are_kept():
    """What is older than the bound is forgotten, also when many come at once."""
    seen = tuple(str(n) for n in range(HASHES_MAX))

    assert remember((), ["a", "b"]) == ("a", "b")
    assert remember(seen, ["x", "y"]) == (*seen[2:], "x", "y")
    assert remember(("old",), seen) == seen


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        ("", None),
        ("a", None),
        ("ab", None),
        ("aba", None),
        ("abcabc", None),
        ("aa", ("repeat", 2)),
        ("baaa", ("repeat", 3)),
        ("aaab", None),
        ("abab", ("cycle", 2)),
        ("ababa", ("cycle", 2)),
        ("xababab", ("cycle", 3)),
        ("aabab", ("cycle", 2)),
        ("ababb", ("repeat", 2)),
        ("abacab", None),
        ("a" * HASHES_MAX, ("repeat", HASHES_MAX)),
        ("ab" * 10, ("cycle", 10)),
    ],
)
def test_loops_are_found_at_the_end(calls, found):
    """Only what the latest calls are in counts, and once is no loop."""
    assert detect(tuple(calls)) == found


@settings(derandomize=True, max_examples=300)
@given(st.text("abc", max_size=HASHES_MAX))
def test_counts_are_those_of_the_text(calls):
    """The count is the largest n for which the tail is the pattern n times over."""
    repeats = max((n for n in range(2, 21) if calls.endswith(calls[-1:] * n)), default=0)
    cycles = max((n for n in range(2, 11) if calls.endswith(calls[-2:] * n)), default=0)
    expected = None
    if calls and repeats:
        expected = ("repeat", repeats)
    elif calls and cycles:
        expected = ("cycle", cycles)

    assert detect(tuple(calls)) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [(2, "go_on"), (3, "notice"), (4, "notice"), (5, "abort"), (20, "abort")],
)
def test_a_loop_is_first_reported_and_then_ended(count, expected):
    """The two limits are reached, not exceeded."""
    assert verdict(count, threshold=3, abort=5) == expected


@pytest.mark.parametrize(
    ("kind", "says"), [("repeat", "number 4 of `read_file`"), ("cycle", "in turn 4 times")]
)
def test_the_model_reads_what_it_repeats(kind, says):
    """The text names the tool and the count, and what to do."""
    text = notice(Loop(kind, "read_file", 4))

    assert says in text
    assert "`read_file`" in text
    assert "try another way" in text
