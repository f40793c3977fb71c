"""Pieces of a reply that are of another type, or in another form, than litellm reads."""

import pytest

from cmdc_runtime.extensions.provider import FailureKind, TextChunk, ThinkingChunk
from workers.core.assemble import assemble


def chunk(delta, finish=None):
    return {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(**members):
    """Return a reply that calls a tool."""
    function = {"name": "t", "arguments": "{}"}
    piece = {"index": 0, "id": "c1", "type": "function", "function": function} | members
    return [chunk({"tool_calls": [piece]}), chunk({}, "tool_calls")]


def block(start, delta):
    """Return Anthropic's beginning of a reply with one block."""
    return [
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_delta", "index": 0, "delta": delta},
    ]


def part(part):
    """Return Google's reply with one part."""
    content = {"role": "model", "parts": [part]}
    return [{"candidates": [{"content": content, "finishReason": "STOP", "index": 0}]}]


TEXT = {"type": "text", "text": ""}
USE = {"type": "tool_use", "id": "c", "name": "t", "input": {}}
JSON_OF = "input_json_delta"
WRONG = {
    "id int": ("openai", call(id=5), "id of a tool call is int, not str"),
    "id list": ("openai", call(id=["x"]), "id of a tool call is array, not str"),
    "index": ("openai", call(index="x"), "index of a tool call is str, not int"),
    "type": ("openai", call(type=1), "type of a tool call is int, not str"),
    "no function": ("openai", call(function=None), "function of a tool call is NoneType"),
    "name": ("openai", call(function={"name": 7}), "name of a tool call is int, not str"),
    "arguments": (
        "openai",
        call(function={"name": "t", "arguments": 5}),
        "arguments of a tool call is int, not str",
    ),
    "calls": ("openai", [chunk({"tool_calls": "x"})], "tool_calls of a delta is str, not array"),
    "a call": ("openai", [chunk({"tool_calls": ["x"]})], "a member of tool_calls is str"),
    "content": ("openai", [chunk({"content": 5})], "content of a delta is int, not str"),
    "true": ("openai", [chunk({"content": True})], "content of a delta is bool, not str"),
    "part": ("openai", [chunk({"content": [5]})], "text of a part of content is int, not str"),
    "image": (
        "openai",
        [chunk({"content": [{"type": "image_url"}]})],
        "text of a part of content is NoneType, not str",
    ),
    "thought": (
        "openai",
        [chunk({"reasoning_content": 7})],
        "reasoning_content of a delta is int, not str",
    ),
    "refusal": ("openai", [chunk({"refusal": {}})], "refusal of a delta is object, not str"),
    "delta": ("openai", [chunk([])], "delta of a choice is array, not object"),
    "finish": ("openai", [chunk({}, 5)], "finish_reason of a choice is int, not str"),
    "old call": ("openai", [chunk({"function_call": 5})], "function_call of a delta is int"),
    "no call": ("openai", [chunk({}, "tool_calls")], "it ends in tool_calls and has none"),
    "no old call": ("openai", [chunk({}, "function_call")], "it ends in tool_calls and has none"),
    "text of a block": (
        "anthropic",
        block(TEXT, {"type": "text_delta", "text": 5}),
        "text of a content block's delta is int, not str",
    ),
    "json of a block": (
        "anthropic",
        block(USE, {"type": JSON_OF, "partial_json": {}}),
        "partial_json of a content block's delta is object, not str",
    ),
    "id of a block": ("anthropic", block(USE | {"id": 5}, {}), "id of a content block is int"),
    "text of a part": ("gemini", part({"text": 5}), "text of a part is int, not str"),
    "name of a call": (
        "gemini",
        part({"functionCall": {"name": 5, "args": {}}}),
        "name of a function call is int, not str",
    ),
}


@pytest.mark.parametrize(("wire", "events", "reported"), WRONG.values(), ids=WRONG)
def test_a_field_of_another_type_is_reported_by_name(ask, raw, wire, events, reported):
    """It is no empty answer, and it would be the same if it was asked for again."""
    raw.stream(*events)
    _, failure = ask(raw, wire)

    assert failure is not None
    assert failure.kind == FailureKind.PERMANENT
    assert failure.reason.startswith(f"the provider's answer can't be read: {reported}")


def parted(*parts):
    return [chunk({"content": [*parts]}), chunk({}, "stop")]


def pieces(name, *texts):
    return [*(chunk({name: text}) for text in texts), chunk({}, "stop")]


TEXTS = {
    "parts": (parted({"type": "text", "text": "a"}, {"type": "text", "text": "b"}), "ab"),
    "texts": (parted("a", "b"), "ab"),
    "refusal": (pieces("refusal", "I ", "won't"), "I won't"),
    "pair": (pieces("content", "a\ud83d", "\ude00b"), "a😀b"),
    "pair alone": (pieces("content", "\ud83d", "\ude00"), "😀"),
    "half": (pieces("content", "a\ud83d", "b\ud83d"), "a�b�"),
}


@pytest.mark.parametrize(("events", "text"), TEXTS.values(), ids=TEXTS)
def test_text_in_another_form_is_the_answer(ask, raw, events, text):
    """Vendors send it in parts, as a refusal, or cut between the halves of a character."""
    raw.stream(*events)
    chunks, failure = ask(raw, "openai")

    assert failure is None
    assert "".join(one.text for one in chunks if isinstance(one, TextChunk)) == text


def test_a_thought_among_the_parts_is_no_text(ask, raw):
    """Mistral's models think so."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    raw.stream(*parted(thought, {"type": "text", "text": "a"}))
    chunks, failure = ask(raw, "openai")

    assert failure is None
    assert chunks[:2] == [ThinkingChunk(text="hm"), TextChunk(text="a")]


OLD = {"name": "t", "arguments": '{"a": '}
CALLS = {
    "older form": [
        chunk({"function_call": OLD}),
        chunk({"function_call": {"arguments": "1}"}}),
        chunk({}, "function_call"),
    ],
    "arguments as an object": call(function={"name": "t", "arguments": {"a": 1}}),
}


@pytest.mark.parametrize("events", CALLS.values(), ids=CALLS)
def test_a_call_in_another_form_is_a_call(ask, raw, events):
    """It has its name and its arguments."""
    raw.stream(*events)
    chunks, failure = ask(raw, "openai")
    reply = assemble(chunks, id_prefix="m")

    assert failure is None
    assert [(one.name, one.arguments) for one in reply.tool_calls] == [("t", {"a": 1})]
    assert reply.finish_reason == "tool_calls"


def test_a_pair_that_is_cut_in_arguments_is_one_character(ask, raw):
    """The pieces are one text before they are read."""
    first = {"index": 0, "id": "c", "function": {"name": "t", "arguments": '{"a": "\ud83d'}}
    last = {"index": 0, "function": {"arguments": '\ude00"}'}}
    raw.stream(*(chunk({"tool_calls": [one]}) for one in (first, last)), chunk({}, "tool_calls"))
    chunks, failure = ask(raw, "openai")

    assert failure is None
    assert assemble(chunks, id_prefix="m").tool_calls[0].arguments == {"a": "😀"}


def several(wire):
    """Return two answers to one request, each in pieces of its own, the second one first."""
    said = [(1, "I do not ", None), (0, "The capital ", None), (1, "know it.", "stop")]
    said += [(0, "is Paris.", None), (0, "", "stop")]
    if wire == "openai":
        return [
            {"id": "x", "choices": [chunk({"content": text}, finish)["choices"][0] | {"index": at}]}
            for at, text, finish in said
        ]
    pieces = [part({"text": text})[0]["candidates"][0] | {"index": at} for at, text, _ in said]
    for piece, (*_, finish) in zip(pieces, said, strict=True):
        piece["finishReason"] = finish and "STOP"
    return [{"candidates": [piece]} for piece in pieces]


@pytest.mark.parametrize("wire", ["openai", "gemini"])
@pytest.mark.parametrize("is_joined", [False, True], ids=["apart", "together"])
def test_of_several_answers_to_one_request_the_first_is_the_reply(ask, raw, wire, is_joined):
    """Whether or not several were asked for, and whichever ends first; they are never mixed."""
    events, name = several(wire), "choices" if wire == "openai" else "candidates"
    if is_joined:
        pairs = [(0, 1), (2, 3), (4,)]
        events = [{"id": "x", name: [events[at][name][0] for at in pair]} for pair in pairs]
    raw.stream(*events)
    chunks, failure = ask(raw, wire)
    reported = "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk))

    assert failure is None
    assert reported == "The capital is Paris."
