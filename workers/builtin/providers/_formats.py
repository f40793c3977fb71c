"""Replies by a JSON Schema: what may be asked of whom, and how.

OpenAI's strict mode, Anthropic's and Google's structured outputs each take a part of JSON Schema.
Where a vendor would refuse the schema, or litellm would bend it so that another question is asked,
the reply is asked for as the call of a tool with that schema (``_answer_call``); a model that can't
be made to call one reads it in the system prompt. The kernel checks every reply anyway.
"""

import re
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Final

import msgspec

from cmdc_runtime.extensions.provider import ModelRequest
from workers.builtin.providers._facts import ModelFacts, is_claude

Schema = Mapping[str, object]

REPLY_NAME: Final = "reply"
GEMINI_BOTH_SINCE: Final = 3
"""The first generation of Gemini that takes tools and a schema in one request."""
INSTRUCTION: Final = (
    "Your final answer is one JSON value and nothing else: no prose around it, no code fence."
    " It must be valid by this JSON Schema:\n"
)

_GEMINI: Final = re.compile(r"gemini-(\d+)")
_STRICT_KEYS: Final = frozenset(
    (
        *("type", "enum", "const", "title", "description", "anyOf", "$ref", "$defs"),
        *("properties", "required", "additionalProperties", "items", "minItems", "maxItems"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("pattern", "format"),
    )
)
"""What OpenAI's strict mode knows; any other keyword makes it refuse the request."""
_STRICT_FORMATS: Final = frozenset(
    (None, "date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
)
_NARROWING_KEYS: Final = frozenset(("type", "anyOf", "$ref", "enum", "const"))
"""A part with none of these allows anything, which strict mode does not."""
_LOCAL_REF: Final = "#/$defs/"
_NO_ROOT: Final = frozenset(("anyOf", "oneOf", "allOf", "not", "enum", "$ref"))
"""What no vendor takes at the root of a tool's parameters."""
_WHOLE_SCHEMAS: Final = frozenset({"openai", "anthropic"})
"""Who takes a tool's parameters that refer to themselves; for others litellm unrolls them."""


class Way(Enum):
    """How a model is asked for a reply by a schema."""

    PARAMETER = auto()
    """The vendor holds the reply to it."""
    TOOL = auto()
    """The reply is the call of a tool."""
    WORDS = auto()
    """The system prompt has it."""


def way_of(request: ModelRequest, facts: ModelFacts) -> Way | None:
    """Return how a model of ``facts`` is asked for the reply's schema; None: there is none."""
    schema = request.response_format
    if schema is None:
        return None
    if is_sent(schema, facts, has_tools=bool(request.tools)):
        return Way.PARAMETER
    takes_call = facts.forces_calls and not _thinks(request.provider_opts, facts)
    return Way.TOOL if takes_call and _fits_a_tool(schema, facts) else Way.WORDS


def _thinks(options: Schema, facts: ModelFacts) -> bool:
    """Say whether thoughts are asked for: who thinks before can't be made to call a tool."""
    thinking = options.get("thinking")
    is_off = isinstance(thinking, Mapping) and thinking.get("type") == "disabled"
    has_effort = is_claude(facts) and options.get("reasoning_effort") is not None
    return has_effort or (thinking is not None and not is_off)


def _fits_a_tool(schema: Schema, facts: ModelFacts) -> bool:
    root = rooted(schema)
    is_object = root.get("type") == "object" and _NO_ROOT.isdisjoint(root)
    return is_object and (facts.provider in _WHOLE_SCHEMAS or not _is_recursive(schema))


def response_format(schema: Schema) -> dict[str, object]:
    """Return OpenAI's ``response_format`` for ``schema``, strict where the schema allows it."""
    root = rooted(schema)
    described = {"name": REPLY_NAME, "schema": root, "strict": is_strict(root)}
    return {"type": "json_schema", "json_schema": described}


def with_instruction(system: str, schema: Schema) -> str:
    """Return a system prompt that asks for ``schema`` in words."""
    asked = INSTRUCTION + msgspec.json.encode(schema).decode()
    return f"{system}\n\n{asked}" if system else asked


def is_sent(schema: Schema, facts: ModelFacts, *, has_tools: bool) -> bool:
    """Say whether a model gets ``schema`` as a parameter; else it is asked in words."""
    if not facts.takes_response_format or (facts.is_listed and not facts.keeps_to_schemas):
        return False
    if is_claude(facts):
        # Without binding the decoder, litellm forces a call of a made-up tool, so that no real one
        # is ever called. With it, litellm closes every object and cannot unroll recursion.
        return facts.decodes_by_schema and not _has_map(schema) and not _is_recursive(schema)
    gemini = _GEMINI.search(facts.model_id)
    return not (gemini and has_tools and int(gemini[1]) < GEMINI_BOTH_SINCE)


def rooted(schema: Schema) -> dict[str, object]:
    """Return ``schema`` with an object at its root where that is a reference.

    msgspec puts every class among the definitions; vendors want to see ``type`` at the root.
    """
    definitions = schema.get("$defs")
    root = dict(schema)
    for _ in range(len(definitions) if isinstance(definitions, Mapping) else 0):
        target = _target(root.get("$ref"), definitions)
        if target is None:
            break
        del root["$ref"]
        root = {**target, **root}
    return root


def is_strict(schema: Schema) -> bool:
    """Say whether OpenAI's strict mode takes ``schema``: closed objects, nothing optional."""
    return schema.get("type") == "object" and _is_strict(schema)


def _is_strict(part: Schema) -> bool:
    return (
        part.keys() <= _STRICT_KEYS
        and not part.keys().isdisjoint(_NARROWING_KEYS)
        and part.get("format") in _STRICT_FORMATS
        and (not _is_a("object", part) or _is_closed(part))
        and (not _is_a("array", part) or "items" in part)
        and all(_is_strict(inner) for inner in _parts(part))
    )


def _is_a(kind: str, part: Schema) -> bool:
    kinds = part.get("type")
    return kind in kinds if isinstance(kinds, list | tuple) else kinds == kind


def _is_closed(part: Schema) -> bool:
    names, required = part.get("properties", {}), part.get("required", ())
    return (
        part.get("additionalProperties") is False
        and isinstance(names, Mapping)
        and isinstance(required, list | tuple)
        and names.keys() == set(required)
        and all(isinstance(inner, Mapping) for inner in names.values())
    )


def _has_map(part: Schema) -> bool:
    # An object of names that the schema does not know: closing it would leave it empty.
    is_map = _is_a("object", part) and (
        not part.get("properties") or bool(part.get("additionalProperties"))
    )
    return is_map or any(_has_map(inner) for inner in _parts(part))


def _is_recursive(schema: Schema) -> bool:
    definitions = schema.get("$defs")
    uses = {
        f"{_LOCAL_REF}{name}": set(_refs(part))
        for name, part in (definitions.items() if isinstance(definitions, Mapping) else ())
        if isinstance(part, Mapping)
    }
    if not uses.keys() >= set(_refs(schema)):
        return True  # to the root, or to a place that only the vendor could look up
    # What refers to nothing that is left is no part of a circle; repeat until nothing changes.
    while leaves := {ref for ref, used in uses.items() if not used & uses.keys()}:
        for ref in leaves:
            del uses[ref]
    return bool(uses)


def _refs(part: Schema) -> Iterator[str]:
    ref = part.get("$ref")
    if isinstance(ref, str):
        yield ref
    for inner in _parts(part):
        yield from _refs(inner)


def _parts(part: Schema) -> Iterator[Schema]:
    """Yield the schemas right inside a schema."""
    for key in ("properties", "$defs"):
        named = part.get(key)
        if isinstance(named, Mapping):
            yield from (inner for inner in named.values() if isinstance(inner, Mapping))
    for key in ("anyOf", "allOf", "oneOf", "prefixItems"):
        listed = part.get(key)
        if isinstance(listed, list | tuple):
            yield from (inner for inner in listed if isinstance(inner, Mapping))
    for key in ("items", "additionalProperties"):
        single = part.get(key)
        if isinstance(single, Mapping):
            yield single


def _target(ref: object, definitions: object) -> Schema | None:
    if not isinstance(ref, str) or not isinstance(definitions, Mapping):
        return None
    found = definitions.get(ref.removeprefix(_LOCAL_REF))
    return found if isinstance(found, Mapping) else None
