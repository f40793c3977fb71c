"""Requests as sessions make them, each generated from a number."""

import random

import msgspec

from cmdc_runtime.extensions.provider import ModelRequest, ToolSpec
from cmdc_runtime.message_parts import MessagePart
from cmdc_runtime.messages import Message, ToolCall

TEXTS = ["hi", "Was ist das? ä😀", "a\nb", "x " * 50, " padded "]
MARK = {"cache_control": {"type": "ephemeral"}}
BASE = "http://127.0.0.1:9/v1"
OBJECT = {"type": "object"}
WORD = {"type": "string", "description": "a word"}
NESTED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
PARAMETERS = (
    {"type": "object", "properties": {}},
    {"type": "object", "properties": {"path": WORD}, "required": ["path"]},
    {"type": "object", "properties": {"a": NESTED, "b": {"type": "array", "items": WORD}}},
    {
        "type": "object",
        "$defs": {"A": NESTED},
        "properties": {"x": {"$ref": "#/$defs/A"}, "y": {"anyOf": [WORD, {"type": "null"}]}},
        "additionalProperties": False,
    },
    {"type": "object", "properties": {"re": {"type": "string", "pattern": "^a+$"}}},
    {"type": "object", "properties": {"pattern": WORD, "by": {"patternProperties": {"^x": WORD}}}},
    {"type": "object", "properties": {"re": {"type": "string", "pattern": r"^\p{Lu}"}}},
    {"type": "object", "properties": {"x": WORD}, "anyOf": [{"required": ["x"]}]},
)
SCHEMAS = (
    {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    },
    {"type": "object", "properties": {"m": {"type": "object"}}},
    {
        "$ref": "#/$defs/A",
        "$defs": {
            "A": {"type": "object", "properties": {"b": {"$ref": "#/$defs/B"}, "c": WORD}},
            "B": {
                "title": "B",
                "type": ["object", "null"],
                "properties": {
                    "kind": {"enum": ["x", "y"]},
                    "at": {"type": "string", "format": "date-time"},
                    "many": {"type": "array", "items": {"anyOf": [WORD, {"type": "null"}]}},
                },
            },
        },
    },
    {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}},
    {"type": "object", "properties": {"n": {"type": "integer", "enum": ["a"]}}},
)
OPENAI = ("gpt-4o", "gpt-4o-mini", "gpt-4.1", "gpt-3.5-turbo", "gpt-4", "nobody-knows")
REASONING = ("o1", "o3", "o3-mini", "o4-mini", "gpt-5", "gpt-5.1", "gpt-5.4", "gpt-5-chat-latest")
OTHERS = (
    "groq:llama-3.3-70b-versatile",
    "groq:nobody",
    "openrouter:openai/gpt-4o",
    "openrouter:anthropic/claude-sonnet-4.5",
    "openrouter:nobody/knows",
    "hosted_vllm:nobody",
    "hosted_vllm:meta/llama",
    "lm_studio:nobody",
    "lm_studio:openai/gpt-oss-20b",
    "llamafile:nobody",
)
LOCAL = ("hosted_vllm", "lm_studio", "llamafile")
"""Servers of one's own: a request has their address."""
CLAUDES = ("claude-sonnet-4-5", "claude-haiku-4-5", "claude-opus-4-6", "claude-opus-5", "nobody-3")
PARTS = [
    MessagePart(media_type="image/png", digest="png", size=9),
    MessagePart(media_type="image/png", url="https://example.org/a.png", name="a.png"),
    MessagePart(media_type="image/*", url="https://example.org/a"),
    MessagePart(media_type="application/pdf", digest="pdf", size=6, name="a.pdf"),
    MessagePart(media_type="application/pdf", url="https://example.org/a.pdf"),
    MessagePart(media_type="text/csv", digest="text", size=2, name='"a".csv'),
    MessagePart(media_type="image/gif", digest="not here", size=2, name="lost"),
]
OPTIONS = {
    "temperature": [0, 0.3, 1],
    "top_p": [0.5],
    "stop": ["END", ["a", "b"]],
    "seed": [3],
    "user": ["somebody"],
    "presence_penalty": [0.1],
    "frequency_penalty": [0.1],
    "logit_bias": [{"50256": -100}],
    "max_completion_tokens": [7, 500],
    "max_tokens": [7, 500],
    "parallel_tool_calls": [False, True],
    "reasoning_effort": ["low", "high"],
    "service_tier": ["auto"],
    "store": [True],
    "prompt_cache_key": ["k"],
    "safety_identifier": ["s"],
    "extra_body": [{"chat_template_kwargs": {"x": True}}],
    "extra_headers": [{"x-team": "a"}],
    "organization": ["o"],
    "thinking": [{"type": "enabled", "budget_tokens": 2048}, {"type": "adaptive"}],
    "top_k": [5],
    "timeout": [5, 5.5],
}


def models():
    """Return the names of models that the corpus asks."""
    named = [f"openai:{one}" for one in (*OPENAI, *REASONING)]
    return [*named, *OTHERS, *(f"anthropic:{one}" for one in CLAUDES)]


def request_of(number, names=None):
    """Return the request of a number, the same each time; ``names`` are the models it may ask."""
    chance = random.Random(number)
    model = chance.choice(names or models())
    options = {"api_base": BASE} if model.startswith(LOCAL) else {}
    if chance.random() < 0.6:
        for name in chance.sample(sorted(OPTIONS), chance.randint(1, 3)):
            options[name] = chance.choice(OPTIONS[name])
    request = ModelRequest(
        model=model,
        system=chance.choice(["", "Be brief."]),
        system_metadata=chance.choice([{}, {}, MARK]),
        messages=conversation(chance),
        tools=tools(chance),
        max_tokens=chance.choice([None, None, 9, 4_000]),
        response_format=chance.choice([None, None, None, *SCHEMAS]),
        provider_opts=options,
    )
    return with_parts(request, random.Random(-number - 1))


def with_parts(request, chance):
    """Return a request of which a third has images and files, in every message of the user."""
    if chance.random() > 1 / 3:
        return request
    messages = tuple(
        msgspec.structs.replace(one, parts=parts_of(one, chance)) if one.role == "user" else one
        for one in request.messages
    )
    blobs = {"png": b"\x89PNG\r\n\x1a\n1", "pdf": b"%PDF-1", "text": "ä".encode()}
    return msgspec.structs.replace(request, messages=messages, blobs=blobs)


def parts_of(message, chance):
    """Return some of what a prompt can have beside its text."""
    at = chance.choice([0, len(message.content) // 2, len(message.content)])
    return tuple(
        msgspec.structs.replace(one, at=at) for one in chance.sample(PARTS, chance.randint(0, 3))
    )


def conversation(chance):
    """Return a history that ends where a model is asked."""
    messages = []
    for _ in range(chance.randint(1, 3)):
        messages.append(said("user", chance))
        if chance.random() < 0.5:
            messages += a_round(chance, len(messages))
        if chance.random() < 0.3:
            messages.append(said("assistant", chance))
    if messages[-1].role == "assistant":
        messages.append(said("user", chance))
    return tuple(messages)


def said(role, chance):
    """Return a message, which may be marked for a cache and, of a user, may be empty."""
    text = chance.choice([*TEXTS, ""] if role == "user" else TEXTS)
    return Message(role=role, content=text, metadata=chance.choice([{}, {}, {}, MARK]))


def a_round(chance, at):
    """Return calls of a model and their results."""
    calls = [
        ToolCall(call_id=f"call_{at}_{one}", name=f"tool_{one}", arguments={"path": "ä", "n": [1]})
        for one in range(chance.randint(1, 2))
    ]
    if chance.random() < 0.2:
        calls[0] = ToolCall(call_id=calls[0].call_id, name="tool_0", malformed='{"path')
    results = [
        Message.tool_result(
            one.call_id, chance.choice([*TEXTS, ""]), is_error=chance.random() < 0.2
        )
        for one in calls
    ]
    text = chance.choice(["", "Looking."])
    return [Message.assistant(text, tuple(calls), thinking=chance.choice([None, "hm"])), *results]


def tools(chance):
    """Return tools as sessions offer them."""
    count = chance.choice([0, 0, 1, 2])
    return tuple(
        ToolSpec(
            name=f"tool_{one}",
            description=chance.choice(["", "Does it."]),
            parameters=chance.choice(PARAMETERS),
        )
        for one in range(count)
    )
