"""What can be kept of values from outside, and how the rest is named."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.plain import (
    DEPTH_MAX,
    INT_MAX,
    INT_MIN,
    PACKED_DEPTH_MAX,
    SHOWN_CHARS_MAX,
    mended,
    number_problem,
    one_line,
    packed_problem,
    problem_of,
    text_problem,
    whole_problem,
)

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.binary(max_size=5)
    | st.text(st.characters(), max_size=5)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(LEAVES.filter(lambda key: not isinstance(key, bytes)), inner, max_size=3)
    ),
    max_leaves=10,
)


def nested(levels):
    value = []
    for _ in range(levels - 1):
        value = [value]
    return value


def listed(value):
    """Return the value with a list for each tuple."""
    if isinstance(value, dict):
        return {key: listed(one) for key, one in value.items()}
    return [listed(one) for one in value] if isinstance(value, list | tuple) else value


@given(VALUES)
def test_what_has_no_problem_is_kept_and_read_back(value):
    """A plain value comes back from MessagePack equal, but for tuples, and JSON takes it."""
    if problem_of(value) is not None:
        return

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(value)) == listed(value)
    msgspec.json.encode(value)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a": [1, {"b": 2**64}]}, "['a'][1]['b']: it is an integer beyond 64 bits"),
        (-(2**63) - 1, "it is an integer beyond 64 bits"),
        ([math.inf], "[0]: inf is not a finite number"),
        ({"a": math.nan}, "['a']: nan is not a finite number"),
        (["\ud800"], "[0]: it is no valid UTF-8: half a surrogate pair (U+D800) at 0"),
        ({"x\udfff": 1}, "a key of it: it is no valid UTF-8: half a surrogate pair (U+DFFF) at 1"),
        ({"a": {1: 2}}, "['a']: a key is of type int, and only str can be kept"),
        ([object()], "[0]: a object is no plain value"),
    ],
)
def test_a_problem_names_its_place(value, problem):
    """The text says where in the value it is, and what is wrong there."""
    assert problem_of(value) == problem


def test_bounds_are_inside():
    """The largest numbers and the deepest nesting are taken; one more is not."""
    assert problem_of([INT_MIN, INT_MAX, nested(DEPTH_MAX - 1)]) is None
    assert problem_of(nested(DEPTH_MAX)) is None
    assert problem_of(nested(DEPTH_MAX + 1)) == f"it nests more than {DEPTH_MAX} levels deep"


@pytest.mark.parametrize("kind", [list, dict], ids=["lists", "dicts"])
def test_depth_exhausts_no_stack(kind):
    """A value that was made to exhaust the stack is a problem like another."""
    value = kind()
    for _ in range(100_000):
        value = [value] if kind is list else {"k" * 100: value}

    assert problem_of(value) == f"it nests more than {DEPTH_MAX} levels deep"
    while value:  # freed level by level, as the interpreter's own recursion would not
        value = value.pop() if kind is list else value.popitem()[1]


def test_a_place_is_short():
    """A long key does not make a long error."""
    problem = problem_of({"k" * 10_000: {"l" * 10_000: math.inf}})

    assert len(problem) < SHOWN_CHARS_MAX + 40


@pytest.mark.parametrize(
    ("text", "one_line", "problem"),
    [
        ("fine\n", False, None),
        (7, False, "expected a str, got int"),
        ("x" * 11, False, "it has 11 characters, at most 10 are taken"),
        ("a\udc80", False, "it is no valid UTF-8: half a surrogate pair (U+DC80) at 1"),
        ("a\x1b[2J", True, "it has the control character U+001B at 1"),
        ("a\n", True, "it has the control character U+000A at 1"),
    ],
)
def test_text(text, one_line, problem):
    """A text is bounded, valid and, where it is shown in a line, free of control characters."""
    assert text_problem(text, chars_max=10, one_line=one_line) == problem


@pytest.mark.parametrize(
    ("number", "problem"),
    [
        (5, None),
        (0.5, None),
        (True, "expected a number, got bool"),
        ("5", "expected a number, got str"),
        (math.inf, "inf is not a finite number"),
        (math.nan, "nan is not a finite number"),
        (1e300, "1e+300 is not between 0 and 10"),
        pytest.param(10**5000, "the integer is not between 0 and 10", id="5001 digits"),
        (-1, "-1 is not between 0 and 10"),
    ],
)
def test_numbers(number, problem):
    """A number is finite and in its range, and saying that it is not cannot fail."""
    assert number_problem(number, 0, 10) == problem


def test_mended_text_is_valid():
    """Lone surrogates are replaced, the rest stays as it was."""
    assert mended("a\ud800b") == "a�b"
    assert mended("a😀b") == "a😀b"


@given(st.binary(max_size=40))
def test_what_is_packed_is_judged_as_its_decoder_judges_it(data):
    """No byte of a value is passed over, and none beyond it is read."""
    problem = packed_problem(data, values_max=1_000)
    try:
        msgspec.msgpack.decode(data, type=msgspec.Raw)
        is_whole = True
    except msgspec.DecodeError:
        is_whole = False

    assert is_whole or problem is not None
    if problem is not None and is_whole:
        assert "UTF-8" in problem


@given(VALUES)
def test_what_has_no_problem_has_none_when_it_is_packed(value):
    """What one side may send, the other one takes."""
    if problem_of(value) is None:
        assert packed_problem(msgspec.msgpack.encode(value), values_max=1_000) is None


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x91" * (PACKED_DEPTH_MAX + 1) + b"\xc0", "nests more than 96 levels deep"),
        (b"\xdd\xff\xff\xff\xff", "it is cut"),
        (b"\xa2\xff\xfe", "text in it, at byte 1, is no valid UTF-8"),
        (b"\xc1", "byte 0 begins no value"),
        (b"\xc0\xc0", "does not end where its value does"),
        (b"\xdc\x00\x64" + b"\x00" * 100, "more than 100 values"),
        (b"", "it is cut"),
    ],
)
def test_what_is_wrong_with_a_packed_value_is_said(data, problem):
    """Depth, length, text and count, without decoding any of it."""
    assert problem in packed_problem(data, values_max=100)


def test_a_packed_value_may_nest_as_deep_as_its_bound():
    """The last level that is taken is taken."""
    assert packed_problem(b"\x91" * PACKED_DEPTH_MAX + b"\xc0", values_max=100) is None
    assert packed_problem(msgspec.Raw(b"\x80"), values_max=1) is None


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (5, None),
        (True, "expected an int, got bool"),
        ("5", "expected an int, got str"),
        (1.0, "expected an int, got float"),
        (-1, "-1 is not between 0 and 9"),
        (2**70, "the integer is not between 0 and 9"),
    ],
)
def test_an_integer_stays_within_its_range(value, problem):
    """A float is none, and neither is a bool."""
    assert whole_problem(value, 0, 9) == problem


def test_one_line_has_no_control_characters():
    """Nor anything else that moves a cursor, or has no UTF-8."""
    assert one_line("a\x1b[2J\nb\x9b\ud800 \u00e9") == "a\ufffd[2J\ufffdb\ufffd\ufffd \u00e9"
