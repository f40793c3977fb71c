"""Chunks add up to a reply."""

import json
import math
import re
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.extensions.provider import (
    Chunk,
    FailureKind,
    FinishChunk,
    ProviderError,
    TextChunk,
    ThinkingChunk,
    ToolCallChunk,
    UsageChunk,
)
from cmdc_runtime.messages import TokenUsage, ToolCall
from cmdc_runtime.plain import INT_MAX, INT_MIN
from workers.core.assemble import (
    CALL_ID_CHARS_MAX,
    CHUNKS,
    COST_USD_MAX,
    FINISH_CHARS_MAX,
    NAME_CHARS_MAX,
    TOKENS_MAX,
    Reply,
    assemble,
    credible,
    fit,
    read_arguments,
    usage_problem,
)


def call(index, arguments="", call_id=None, name=None):
    return ToolCallChunk(index=index, call_id=call_id, name=name, arguments=arguments)


def calls_of(*chunks):
    return assemble(chunks, id_prefix="m").tool_calls


def test_a_whole_reply_has_every_part():
    """Text and thinking are joined apart; usage and finish are kept."""
    usage = TokenUsage(prompt_tokens=3, completion_tokens=2, total_tokens=5)
    chunks = [
        ThinkingChunk(text="h"),
        ThinkingChunk(text="m"),
        TextChunk(text="Hel"),
        TextChunk(text="lo"),
        call(0, call_id="c1", name="read"),
        call(0, '{"path":'),
        call(0, ' "a"}'),
        UsageChunk(usage=usage),
        FinishChunk(reason="tool_calls"),
    ]

    assert assemble(chunks, id_prefix="m") == Reply(
        text="Hello",
        thinking="hm",
        tool_calls=(ToolCall(call_id="c1", name="read", arguments={"path": "a"}),),
        usage=usage,
        finish_reason="tool_calls",
    )


def test_a_broken_off_reply_is_what_came():
    """Nothing, or a part, is a reply without usage and finish."""
    assert assemble([], id_prefix="m") == Reply("", None, (), None, None)
    assert assemble([TextChunk(text="He")], id_prefix="m") == Reply("He", None, (), None, None)


def test_interleaved_calls_are_kept_apart():
    """Fragments belong to the call of their index, in the order of the first pieces."""
    calls = calls_of(
        call(1, call_id="b", name="two"),
        call(0, call_id="a", name="one"),
        call(1, '{"n":'),
        call(0, '{"n":1}'),
        call(1, "2}"),
    )

    assert [(c.call_id, c.name, c.arguments) for c in calls] == [
        ("b", "two", {"n": 2}),
        ("a", "one", {"n": 1}),
    ]


def test_a_new_id_on_the_same_index_is_a_new_call():
    """Servers that send every call with index 0 lose none."""
    calls = calls_of(
        call(0, "{}", call_id="a", name="one"),
        call(0, '{"n":', call_id="b", name="two"),
        call(0, "2}", call_id="b"),
    )

    assert [(c.call_id, c.name, c.arguments) for c in calls] == [
        ("a", "one", {}),
        ("b", "two", {"n": 2}),
    ]


def test_a_whole_call_is_followed_by_the_next_one():
    """Some servers number all calls 0, and give them no ids; some say the name with each piece."""
    chunks = [
        ToolCallChunk(index=0, name="add", arguments='{"a": 1}'),
        ToolCallChunk(index=0, name="mul", arguments='{"b": '),
        ToolCallChunk(index=0, name="mul", arguments="2}"),
        ToolCallChunk(index=0, name="mul"),
    ]
    found = assemble(chunks, id_prefix="x").tool_calls

    assert [(one.name, one.arguments) for one in found] == [("add", {"a": 1}), ("mul", {"b": 2})]


@pytest.mark.parametrize("raw", ["", "  \n"])
@pytest.mark.parametrize("reason", ["length", "content_filter", "stop"])
def test_arguments_that_a_cut_reply_has_not_come_to_are_none(raw, reason):
    """An answer that was cut off amid a call is no call without arguments."""
    chunks = [ToolCallChunk(index=0, name="wipe", arguments=raw), FinishChunk(reason=reason)]
    (found,) = assemble(chunks, id_prefix="x").tool_calls

    assert found.malformed == (None if reason == "stop" else "")


def test_arguments_that_came_before_the_cut_are_kept():
    """They are whole."""
    chunks = [ToolCallChunk(index=0, name="a", arguments="{}"), FinishChunk(reason="length")]
    (found,) = assemble(chunks, id_prefix="x").tool_calls

    assert (found.arguments, found.malformed) == ({}, None)


def test_a_call_alone_without_an_id_gets_one():
    """Most answers have a single call."""
    assert [one.call_id for one in calls_of(call(0, name="a"))] == ["m-1"]


def test_missing_and_repeated_ids_are_replaced():
    """Every call has an id of its own, none that another call brought."""
    calls = calls_of(
        call(0, name="a"),
        call(1, name="b", call_id="m-1"),
        call(2, name="c", call_id="m-1"),
        call(3, name="d", call_id=""),
    )

    assert [c.call_id for c in calls] == ["m-2", "m-1", "m-3", "m-4"]


NO_OBJECTS = {
    "cut": '{"a":',
    "array": "[1]",
    "null": "null",
    "number": "3",
    "more": '{"a":1} and so on',
    "python": "{'a': 1}",
    "escaped surrogate": '{"a":"\\ud800"}',
    "deep": '{"a":' * 9999 + "1" + "}" * 9999,
    "deeper than is kept": '{"a":' * 65 + "1" + "}" * 65,
    "large integer": '{"a":[18446744073709551616]}',
    "low integer": '{"a":-9223372036854775809}',
    "not a number": '{"a":NaN}',
    "infinity": '{"a":-Infinity}',
    "large number": '{"a":1e999}',
}


@pytest.mark.parametrize("raw", NO_OBJECTS.values(), ids=NO_OBJECTS)
def test_arguments_that_are_no_json_object_are_kept_as_written(raw):
    """The raw text is what the tool runner shows to the model."""
    (found,) = calls_of(call(0, raw, call_id="a", name="x"))

    assert (found.arguments, found.malformed) == ({}, raw)
    with pytest.raises(ValueError, match=r"\w"):
        read_arguments(raw)


PROBLEMS = {
    '{"a":[18446744073709551616]}': "['a'][0]: it is an integer beyond 64 bits",
    '{"n":["\\ud800"]}': (
        "it is no JSON object: ['n'][0]: it is no valid UTF-8: half a surrogate pair (U+D800) at 0"
    ),
    '{"\\udc00": 1}': (
        "it is no JSON object: a key of it: it is no valid UTF-8: half a surrogate pair (U+DC00)"
        " at 0"
    ),
    '{"n": NaN}': "it is no JSON object: ['n']: nan is not a finite number",
    '{"n": -1e999}': "it is no JSON object: ['n']: -inf is not a finite number",
    '{"n": ': "it is no JSON object: Input data was truncated",
    '{"a":' * 65 + "1" + "}" * 65: "it nests more than 64 levels deep",
    '{"a":' * 9999 + "1" + "}" * 9999: "it nests more than 64 levels deep",
}


WRONG = ("integer", "half", "half a key", "nan", "inf", "cut", "depth", "stack")


@pytest.mark.parametrize(("raw", "problem"), PROBLEMS.items(), ids=WRONG)
def test_what_is_wrong_with_arguments_is_said(raw, problem):
    """The model can send others."""
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
        read_arguments(raw)


def test_texts_are_mended():
    """Half of a surrogate pair has no place in a record."""
    half = "\ud800"
    reply = assemble(
        [
            TextChunk(text=f"a{half}"),
            ThinkingChunk(text=f"b{half}"),
            call(0, f'{{"c": "{half}"}}', call_id="c1", name=f"d{half}"),
            FinishChunk(reason=f"e{half}" + "x" * 999),
        ],
        id_prefix="m",
    )

    assert (reply.text, reply.thinking) == ("a\ufffd", "b\ufffd")
    assert reply.tool_calls == (ToolCall(call_id="c1", name="d\ufffd", arguments={"c": "\ufffd"}),)
    assert reply.finish_reason == "e\ufffd" + "x" * (FINISH_CHARS_MAX - 2)


BAD_IDS = {
    "control": "a\x1b[2Jb",
    "line": "a\nb",
    "surrogate": "a\ud800",
    "large": "a" * (CALL_ID_CHARS_MAX + 1),
}


@pytest.mark.parametrize("bad", BAD_IDS.values(), ids=BAD_IDS)
def test_ids_that_cannot_be_kept_are_replaced(bad):
    """The call is made, and its result goes back under the id that it has got."""
    calls = calls_of(
        call(0, '{"n":', call_id=bad, name="x"), call(0, "1}", call_id=bad), call(1, call_id="c")
    )

    assert [(c.call_id, c.arguments) for c in calls] == [("m-1", {"n": 1}), ("c", {})]


def test_names_are_one_short_line():
    """They are shown to people, and stand in records."""
    (found,) = calls_of(call(0, name="a\x1b\n" + "b" * NAME_CHARS_MAX, call_id="c"))

    assert found.name == "a\ufffd\ufffd" + "b" * (NAME_CHARS_MAX - 3)


WILD = {
    "large": {"prompt_tokens": 2**70},
    "more than can be": {"total_tokens": TOKENS_MAX + 1},
    "negative": {"completion_tokens": -1},
    "float": {"cached_tokens": math.nan},
    "truth": {"total_tokens": True},
    "free of sense": {"cost_usd": math.inf},
    "no price": {"cost_usd": math.nan},
    "paid back": {"cost_usd": -0.01},
}


@pytest.mark.parametrize("wild", WILD.values(), ids=WILD)
def test_a_usage_that_cannot_be_is_unknown(wild):
    """It would be journaled, summed up, and held against a budget."""
    usage = TokenUsage(**wild)
    reply = assemble([UsageChunk(usage=usage), FinishChunk(reason="stop")], id_prefix="m")

    assert credible(usage) is None
    assert usage_problem(usage).split(":")[0] in TokenUsage.__struct_fields__
    assert reply.usage is None


def test_a_usage_may_be_nothing_and_as_much_as_there_can_be():
    """Each number has its own bound; a cost has another than a count."""
    nothing = TokenUsage(prompt_tokens=0, completion_tokens=0, total_tokens=0, cost_usd=0.0)
    most = TokenUsage(total_tokens=TOKENS_MAX, cost_usd=COST_USD_MAX)

    assert (credible(nothing), credible(most)) == (nothing, most)
    assert usage_problem(TokenUsage(cost_usd=2 * COST_USD_MAX)).startswith("cost_usd: ")
    assert usage_problem(TokenUsage(cost_usd=-1.0)).startswith("cost_usd: ")


@pytest.mark.parametrize("raw", ["", "  \n", "{}"])
def test_no_arguments_are_an_empty_object(raw):
    """Models leave out the arguments of tools that take none."""
    (found,) = calls_of(call(0, raw, call_id="a", name="x"))

    assert (found.arguments, found.malformed) == ({}, None)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(INT_MIN, INT_MAX)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@given(
    st.lists(
        st.dictionaries(st.text("abc", min_size=1), json_values, max_size=3),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 7),
)
def test_any_split_of_the_arguments_gives_them_back(all_arguments, size):
    """However small the fragments and however mixed the calls, no argument is lost."""
    texts = [json.dumps(arguments) for arguments in all_arguments]
    heads = [call(n, call_id=f"c{n}", name=f"t{n}") for n in range(len(texts))]
    pieces = [
        (start, call(n, text[start : start + size]))
        for n, text in enumerate(texts)
        for start in range(0, len(text), size)
    ]
    mixed = [piece for _, piece in sorted(pieces, key=lambda pair: pair[0])]

    assert [c.arguments for c in calls_of(*heads, *mixed)] == all_arguments


GOOD = [
    TextChunk(text="a"),
    ThinkingChunk(text="a"),
    call(0, "{}", "c1", "read"),
    UsageChunk(usage=TokenUsage()),
    FinishChunk(reason="stop"),
]


def test_every_chunk_and_each_field_of_it_is_checked():
    """A new one has its row."""
    assert set(CHUNKS) == set(get_args(Chunk))
    assert {kind: set(fields) for kind, fields in CHUNKS.items()} == {
        kind: set(kind.__struct_fields__) for kind in CHUNKS
    }
    assert [fit(one) for one in GOOD] == GOOD


@pytest.mark.parametrize(
    ("chunk", "name"),
    [(one, name) for one in GOOD for name in type(one).__struct_fields__],
    ids=lambda one: one if isinstance(one, str) else type(one).__name__,
)
@pytest.mark.parametrize("value", [1.5, ["a"], b"a", {"a": 1}])
def test_a_field_of_another_type_is_the_providers_failure(chunk, name, value):
    """Some servers send a number where a text should be; asking again would bring it again."""
    with pytest.raises(ProviderError, match=f"{name} of a {type(chunk).__name__}") as caught:
        fit(msgspec.structs.replace(chunk, **{name: value}))

    assert caught.value.kind is FailureKind.PERMANENT


@pytest.mark.parametrize("other", [None, "text", {"text": "a"}, TokenUsage()])
def test_what_is_no_chunk_is_refused(other):
    """A provider is anybody's code."""
    with pytest.raises(ProviderError, match="is no chunk of a reply"):
        fit(other)


def test_an_id_of_an_earlier_call_is_given_anew():
    """Some servers count from 0 in each answer; an id that is made is no earlier one either."""
    chunks = [call(0, call_id="call_0", name="a"), call(1, call_id="c", name="b"), call(2)]
    reply = assemble(chunks, id_prefix="m", used={"call_0", "m-1"})

    assert [one.call_id for one in reply.tool_calls] == ["m-2", "c", "m-3"]
