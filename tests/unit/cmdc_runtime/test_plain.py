"""What can be kept of values from outside, and how the rest is named."""

import functools
import math
import tracemalloc
from collections import deque
from pathlib import PurePosixPath

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.plain import (
    DEPTH_MAX,
    INT_MAX,
    INT_MIN,
    MISTYPED_CHARS_MAX,
    PACKED_DEPTH_MAX,
    SHOWN_BITS_MAX,
    SHOWN_CHARS_MAX,
    TOO_DEEP,
    copied,
    ends_of,
    is_data,
    json_problem,
    mended,
    nearest,
    nests_deeper,
    number_problem,
    own,
    packed_problem,
    problem_of,
    reason_of,
    short,
    shown,
    text_problem,
    unread_reason,
    whole_problem,
    without_controls,
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
        (["fine", {"a": "fine"}, [[1]], math.inf], "[3]: inf is not a finite number"),
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


def test_lists_and_dicts_are_counted(monkeypatch):
    """All that it holds, and not the values in them; the last that is taken is taken."""
    monkeypatch.setattr("cmdc_runtime.plain.VALUES_MAX", 3)

    assert problem_of([[], {"a": []}, 1, "text", None]) is None
    assert problem_of([[], {"a": []}, {}]) == "it has more than 3 lists and dicts"


@pytest.mark.parametrize(
    ("value", "levels"),
    [
        (7, 0),
        ([], 1),
        ({"a": 1}, 1),
        ([1, {"a": 2}, 3], 2),
        ({"a": [], "b": {"c": (1, {2})}}, 4),
        ([[], [[[]]], []], 4),
    ],
)
def test_levels_are_those_of_the_deepest_part(value, levels):
    """The outermost is the first, whatever stands beside the deepest."""
    assert not nests_deeper(value, levels)
    assert levels == 0 or nests_deeper(value, levels - 1)


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


def test_text_may_have_lines_and_as_many_characters_as_are_taken():
    """Unless it is asked to be one line."""
    assert text_problem("two\nlines!", chars_max=10) is None


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


def test_large_bounds_can_be_read():
    """Both ends of the range are in it."""
    assert number_problem(10_000_000, 1_000, 10_000_000) is None
    assert number_problem(1_000, 1_000, 10_000_000) is None
    assert number_problem(5, 1_000, 10_000_000) == "5 is not between 1,000 and 10,000,000"


def test_mended_text_is_valid():
    """Lone surrogates are replaced, the rest stays as it was."""
    assert mended("a\ud800b") == "a�b"
    assert mended("a😀b") == "a😀b"
    assert mended("\ude00a\ud83d" + "\ude00b\ud83d") == "�a😀b�"


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


FORMS = {
    "positive fixint": b"\x7f",
    "fixmap": b"\x8f" + b"\xa0\x00" * 15,
    "fixarray": b"\x9f" + b"\x00" * 15,
    "fixstr": b"\xbf" + b"s" * 31,
    "nil": b"\xc0",
    "false": b"\xc2",
    "true": b"\xc3",
    "bin 8": b"\xc4\x02" + b"\xff" * 2,
    "bin 16": b"\xc5\x01\x02" + b"\xff" * 258,
    "bin 32": b"\xc6\x00\x00\x01\x02" + b"\xff" * 258,
    "ext 8": b"\xc7\x02\x05" + b"\xff" * 2,
    "ext 16": b"\xc8\x01\x02\x05" + b"\xff" * 258,
    "ext 32": b"\xc9\x00\x00\x01\x02\x05" + b"\xff" * 258,
    "float 32": b"\xca" + b"\xc1" * 4,
    "float 64": b"\xcb" + b"\xc1" * 8,
    "uint 8": b"\xcc" + b"\xc1",
    "uint 16": b"\xcd" + b"\xc1" * 2,
    "uint 32": b"\xce" + b"\xc1" * 4,
    "uint 64": b"\xcf" + b"\xc1" * 8,
    "int 8": b"\xd0" + b"\xc1",
    "int 16": b"\xd1" + b"\xc1" * 2,
    "int 32": b"\xd2" + b"\xc1" * 4,
    "int 64": b"\xd3" + b"\xc1" * 8,
    "fixext 1": b"\xd4\x05" + b"\xc1",
    "fixext 2": b"\xd5\x05" + b"\xc1" * 2,
    "fixext 4": b"\xd6\x05" + b"\xc1" * 4,
    "fixext 8": b"\xd7\x05" + b"\xc1" * 8,
    "fixext 16": b"\xd8\x05" + b"\xc1" * 16,
    "str 8": b"\xd9\x02" + b"ss",
    "str 16": b"\xda\x01\x02" + b"s" * 258,
    "str 32": b"\xdb\x00\x00\x01\x02" + b"s" * 258,
    "array 16": b"\xdc\x00\x02" + b"\x00" * 2,
    "array 32": b"\xdd\x00\x00\x00\x02" + b"\x00" * 2,
    "map 16": b"\xde\x00\x02" + b"\x00" * 4,
    "map 32": b"\xdf\x00\x00\x00\x02" + b"\x00" * 4,
    "negative fixint": b"\xe0",
}


@pytest.mark.parametrize("name", FORMS)
def test_each_form_of_a_value_ends_where_it_says(name):
    """One byte less is cut, one more is too many; so for the first of its kind and the last."""
    packed = FORMS[name]
    several = b"\x92" + packed + b"\xff"

    assert packed_problem(packed, values_max=100) is None
    assert packed_problem(several, values_max=100) is None
    assert packed_problem(packed[:-1], values_max=100) is not None
    assert "does not end" in packed_problem(packed + b"\x00", values_max=100)


@pytest.mark.parametrize("first", [0x00, 0x80, 0x90, 0xA0])
def test_the_smallest_of_a_form_has_nothing_behind_it(first):
    """Zero, and what is empty."""
    assert packed_problem(bytes([first]), values_max=1) is None


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


def test_control_characters_are_replaced():
    """Nor anything else that moves a cursor, or has no UTF-8."""
    assert (
        without_controls("a\x1b[2J\nb\x9b\ud800 \u00e9") == "a\ufffd[2J\ufffdb\ufffd\ufffd \u00e9"
    )


class Point(msgspec.Struct):
    """What is copied as data."""

    x: object
    y: object = None


class Weight(float):
    """A number of a script's own class."""


def test_copy_is_what_is_read_back():
    """A Struct is a dict, a tuple a list, and nothing of the value is shared."""
    inner = [1, "a"]

    copy = copied(Point(x=(inner, {"k": b"v"})), 100)
    inner.append(2)

    assert copy == {"x": [[1, "a"], {"k": b"v"}], "y": None}


def test_copy_of_a_dict_is_another_dict():
    """With all that is in it."""
    value = {"a": [1], "b": {}}

    assert copied(value, 100) == value
    assert copied(value, 100) is not value


def test_a_struct_without_a_field_is_not_copied():
    """It was deleted, or never set."""
    point = Point(x=1)
    del point.x

    with pytest.raises(ValueError, match="'x' is unset"):
        copied(point, 100)


def test_copy_of_a_subclass_is_of_the_type():
    """MessagePack has no form for it: what comes is what it holds."""
    copy = copied([Weight(1)], 100)

    assert copy == [1.0]
    assert type(copy[0]) is float


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a": {1}}, "['a']: a set is no plain value"),
        (Point(x=[math.inf]), "['x'][0]: inf is not a finite number"),
        ("x" * 9, "it takes 10 bytes, more than 9"),
        (msgspec.Raw(msgspec.msgpack.encode(math.nan)), "nan is not a finite number"),
    ],
)
def test_what_would_come_back_as_something_else_is_not_copied(value, problem):
    """The text says what of it."""
    with pytest.raises(ValueError) as caught:
        copied(value, 9)

    assert str(caught.value).startswith(problem)


def test_copy_may_take_all_bytes_that_are_allowed():
    """The bound is inside."""
    assert copied("x" * 8, 9) == "x" * 8


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("text", "text"),
        ("x" * 10, "x" * 10),
        ("x" * 11, "x" * 9 + "…"),
        ({"a": [1]}, '{"a":[1]}'),
        ([object], """["<class …"""),
    ],
)
def test_value_is_shown_to_people(value, text):
    """As it is where it is text, else as JSON, and never longer than asked."""
    assert shown(value, 10) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("é", "'é'"),
        ("\u200b", "'\\u200b'"),
        ("x" * (SHOWN_CHARS_MAX - 2), "'" + "x" * (SHOWN_CHARS_MAX - 2) + "'"),
        ("x" * (SHOWN_CHARS_MAX - 1), "'" + "x" * (SHOWN_CHARS_MAX - 2) + "…"),
        (["x" * (SHOWN_CHARS_MAX - 3)], "['" + "x" * (SHOWN_CHARS_MAX - 3) + "…"),
        (2 ** (SHOWN_BITS_MAX - 1), str(2 ** (SHOWN_BITS_MAX - 1))[: SHOWN_CHARS_MAX - 1] + "…"),
        (2**SHOWN_BITS_MAX, "<a int>"),
    ],
)
def test_value_in_an_error_is_short(value, text):
    """It is cut at a bound, and what cannot be seen is written out."""
    assert short(value) == text


WRITTEN = [
    *(None, True, 5, 1.5, 1j, len, short, int, PurePosixPath("/a"), "it's", b"x", bytearray(b"x")),
    *([], [1, [2, {"a": (3,)}]], (), (1, 2), set(), {1}, frozenset(), frozenset({1}), {}, {"a": 1}),
]


@pytest.mark.parametrize("value", WRITTEN, ids=lambda one: getattr(one, "__name__", repr(one)))
def test_value_in_an_error_is_as_python_writes_it(value):
    """So it is known again."""
    assert short(value) == repr(value)


class Odd:
    """A value of a class with code of its own."""

    def __repr__(self):
        return "odd"


def test_value_of_a_strange_class_is_named_by_its_type():
    """Its own code may do anything, so it does not run."""
    assert short(Odd()) == "<a Odd>"
    assert short([Odd(), {Odd: deque([Odd()])}]) == f"[<a Odd>, {{{Odd!r}: <a deque>}}]"


MANY = 300_000
LARGE = "x" * (8 * MANY)
LARGE_VALUES = {
    "str": LARGE,
    "bytes": LARGE.encode(),
    "list": ["x"] * MANY,
    "dict": dict.fromkeys(range(MANY), "x"),
    "set": set(range(MANY)),
    "deep": functools.reduce(lambda inner, _: [inner], range(500), LARGE),
    "int": 1 << len(LARGE),
    "struct": msgspec.defstruct("Held", [("part", str)])(LARGE),
    "name": type("Of", (), {"part": LARGE})(),
    "routine": [LARGE].append,
}
LARGE_VALUES["itself"] = [LARGE_VALUES]
LARGE_VALUES["subclass"] = type("Own", (dict,), {})(LARGE_VALUES)
KILOBYTE = 1_000


@pytest.mark.parametrize("name", LARGE_VALUES)
def test_value_in_an_error_costs_the_same_however_large_it_is(name):
    """Of 2 MB of text, or of 300,000 parts, a line is made."""
    tracemalloc.start()
    text = short(LARGE_VALUES[name])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (len(text) <= SHOWN_CHARS_MAX, peak < 100 * KILOBYTE) == (True, True), (text, peak)


def _broken(*_args, **_given):
    raise RuntimeError("a stranger's method")


def foreign(base, *content):
    """Return a value of a subclass, of which no method works."""
    kept = {"__new__", "__init__", "__class__", "__getattribute__", "__init_subclass__"}
    methods = {name for name in dir(base) if callable(getattr(base, name))} - kept
    return type("Foreign", (base,), dict.fromkeys(methods, _broken))(*content)


HELD = ["text", 5, 1.5, b"x", bytearray(b"x"), {"a": 1}, [1], (1,), {1}, frozenset({1})]


@pytest.mark.parametrize("held", HELD, ids=repr)
def test_a_value_of_a_subclass_is_the_value_that_it_holds(held):
    """Whatever the methods of its class do: none runs."""
    value = foreign(type(held), held)

    assert (type(own(value)), own(value)) == (type(held), held)
    assert own(held) is held
    assert problem_of([value]) is None
    assert short(value) == short(held)


def test_what_a_subclass_says_of_itself_does_not_count():
    """What it holds is what its bytes are made of."""

    class Sly(dict):
        def items(self):
            return ()

        def __iter__(self):
            return iter(())

    assert problem_of(Sly(a=math.inf)) == "['a']: inf is not a finite number"
    assert nests_deeper(Sly(a=[[]]), 2)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("temprature", "temperature"),
        ("zzz", None),
        ("x" * MISTYPED_CHARS_MAX, "x" * MISTYPED_CHARS_MAX),
        ("x" * (MISTYPED_CHARS_MAX + 1), None),
    ],
)
def test_a_mistyped_name_is_like_one_that_is_known(name, found):
    """Unless it is so long that it is no name."""
    assert nearest(name, ["tokens", "temperature", "x" * MISTYPED_CHARS_MAX]) == found


@pytest.mark.parametrize(
    ("value", "is_it"), [([object()], True), (Weight(1), True), (None, False), (object(), False)]
)
def test_data_is_of_a_plain_type_whatever_its_parts_are(value, is_it):
    """Or of a subclass of one."""
    assert is_data(value) is is_it


def test_a_text_that_is_too_long_keeps_its_ends():
    """The way out stands at the end of many."""
    assert ends_of("x" * 100, 100) == "x" * 100
    assert ends_of("a" * 500 + "b" * 500, 40) == "a" * 27 + " … " + "b" * 10


def test_why_a_value_was_not_encoded_is_said_in_our_words():
    """Where there are some; an encoder's own are those of its library."""
    half = UnicodeEncodeError("utf-8", "a\ud800", 1, 2, "surrogates not allowed")

    assert reason_of(half) == "it is no valid UTF-8: half a surrogate pair (U+D800) at 1"
    assert reason_of(RecursionError("maximum recursion depth exceeded")) == TOO_DEEP
    assert [reason_of(TypeError("no")), reason_of(TypeError())] == ["no", "TypeError"]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a": [1, (2.5, None, True, "b")]}, None),
        ({"a": b""}, "['a']: a bytes is no plain value"),
        ({"a": bytearray()}, "['a']: a bytearray is no plain value"),
        ([{1}], "[0]: a set is no plain value"),
        ([math.nan], "[0]: nan is not a finite number"),
    ],
)
def test_what_json_has_no_form_for_is_said(value, problem):
    """Bytes and sets can be kept, and are no JSON."""
    assert json_problem(value) == problem


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (r'["\ud800"]', "[0]: it is no valid UTF-8: half a surrogate pair (U+D800) at 0"),
        ("[Infinity]", "[0]: inf is not a finite number"),
        ("[1", "cut"),
        ("1" * 5000, "cut"),
        ("[" * 99_999, "cut"),
        (r'["\ud83d\ude00"]', "cut"),
    ],
    ids=["half", "infinity", "cut", "digits", "stack", "pair"],
)
def test_why_a_text_is_no_json_is_said(text, reason):
    """Where the decoder names something else; else its words stand."""
    assert unread_reason(text, ValueError("cut")) == reason
    assert unread_reason(text, RecursionError("stack")) == TOO_DEEP
