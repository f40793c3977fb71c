"""Parameters of a tool: from a function's signature to JSON Schema, and arguments against both.

Schemas are valid in JSON Schema's draft 7 and in 2020-12, since a provider knows the one or the
other. What msgspec says in words of the newer one, ``in_both_drafts`` says in words of both: to
support one more keyword, add it there.

Types that msgspec does not know, those of pydantic, are taken in parameters and results:
``foreign_types`` knows them.
"""

import copy
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    Final,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import inspect as kinds

from cmdc_runtime.answer_schema import (
    PROBLEM_CHARS_MAX,
    PROBLEMS_MAX,
    UncheckableError,
    mismatches,
    reference_problem,
    values_problem,
)
from cmdc_runtime.content import File, Image
from cmdc_runtime.errors import InvalidTool
from cmdc_runtime.extensions.context import Context
from cmdc_runtime.foreign_types import (
    EMPTY,
    Parameter,
    Schema,
    UnheededError,
    adapted,
    enc_hook,
    method_of,
    schema_hook,
)
from cmdc_runtime.plain import TOO_DEEP, problem_of, reason_of

# --- results --------------------------------------------------------------------------------------

_SHOWN_AS_TEXT: Final = (bool, int, float, bytes, bytearray, memoryview, type(None))


_NO_MEDIA: Final = (
    "it is an image or a file, which models do not take as a result: return text, such as its path"
)


def text_of(value: object) -> str:
    """Return what the model reads of a tool's result.

    A text is itself and a plain number what Python writes; what has a form in JSON is that: dicts,
    lists, members of an Enum, instances of dataclasses, Structs and pydantic models. All else is
    its ``str()``, and so is what has two keys in one dict that JSON writes alike, as 1 and "1".

    Raises:
        ValueError: the model would read something else than what is there, as null for nan, or it
            is an image or a file, or nests without an end; the text says what of it and where.
        BaseException: whatever a class of the tool's own raises when it is asked for its text.
    """
    if any(isinstance(one, Image | File) for one in _parts_of(value)):
        raise ValueError(_NO_MEDIA)
    if type(value) in _SHOWN_AS_TEXT or isinstance(value, str):
        return _valid(str.__str__(value) if isinstance(value, str) else str(value))
    try:
        data = msgspec.to_builtins(value, enc_hook=enc_hook, str_keys=True)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _written(value)
    if (problem := problem_of(data)) is not None:
        raise ValueError(problem)
    body = msgspec.json.encode(data)
    return _written(value) if _loses_keys(value, body) else body.decode()


def _parts_of(value: object) -> Iterable[object]:
    return (value, *value) if isinstance(value, list | tuple) else (value,)


def _written(value: object) -> str:
    try:
        return _valid(str(value))
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error


def _loses_keys(value: object, body: bytes) -> bool:
    """Say whether keys of one dict in ``value`` fell together in ``body``, which is its JSON."""
    try:
        whole = msgspec.json.encode(value, enc_hook=_enc_hook_whole)
        if whole == body:
            return False
        json.loads(whole, object_pairs_hook=_distinct)
    except _KeysAlikeError:
        return True
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False
    return False


class _KeysAlikeError(Exception):
    """A dict has one key twice."""


def _distinct(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise _KeysAlikeError


def _enc_hook_whole(value: object) -> msgspec.Raw:
    written: str = method_of(type(value), "model_dump_json")(value)
    return msgspec.Raw(written.encode())


def _valid(text: str) -> str:
    if (problem := problem_of(text)) is not None:
        raise ValueError(problem)
    return text


# --- signatures and arguments ---------------------------------------------------------------------

Fields = tuple[Parameter, ...]

_KEYS: Final = (
    *(kinds.AnyType, kinds.StrType, kinds.IntType, kinds.FloatType, kinds.DecimalType),
    *(kinds.DateTimeType, kinds.DateType, kinds.TimeType, kinds.TimeDeltaType, kinds.UUIDType),
    *(kinds.BytesType, kinds.EnumType, kinds.LiteralType),
)
"""Kinds of keys that msgspec makes of the text that each key is in JSON."""
_WAY_OUT: Final = (
    "what JSON has a form for: a plain type, a dataclass, TypedDict, NamedTuple, msgspec.Struct,"
    " Enum or pydantic model; make anything else inside the tool"
)
_Factory: Final[type] = type(msgspec.field(default_factory=list))
_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_SECTION: Final = re.compile(r"(Args|Arguments|Parameters):\s*")
_ARGUMENT: Final = re.compile(r"(\w+)\s*(?:\([^)]*\))?:\s*(.*)")


@dataclass(frozen=True, slots=True)
class Signature:
    """What a model may give to a function, and which parameters take the ``Context``."""

    fields: Fields
    context_names: tuple[str, ...]


_OF_METHODS: Final = frozenset({"self", "cls"})


def signature_of(function: Callable[..., object]) -> Signature:
    """Return the parameters of ``function``, those annotated ``Context`` apart.

    Raises:
        InvalidTool: an annotation means nothing here, or more than msgspec would check, or a
            parameter has no name to a caller.
    """
    hints = _hints(function)
    fields: list[tuple[str, Any, Any]] = []
    context_names: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in _NAMED:
            raise InvalidTool(f"parameter {parameter}: a model gives arguments by name, one by one")
        if name not in hints and name in _OF_METHODS:
            raise InvalidTool(
                f"parameter {name!r} is a method's: write a function outside of the class that"
                " calls it, or a cmdc.Tool class with `execute`"
            )
        if name not in hints:
            raise InvalidTool(
                f"parameter {name!r} has no annotation: write its type, as in `{name}: str`;"
                " typing.Any takes whatever the model sends, cmdc.Context is filled in"
            )
        if _is_context(hints[name]):
            context_names.append(name)
            continue
        try:
            adapted(name, hints[name], parameter.default)
        except UnheededError as error:
            raise InvalidTool(
                f"parameter {name!r}: nothing would check {error}: write Annotated[..., "
                "msgspec.Meta(...)], or make it a field of a pydantic model"
            ) from error
        fields.append((name, hints[name], parameter.default))
    return Signature(tuple(fields), tuple(context_names))


def arguments_struct(fields: Fields) -> type[msgspec.Struct]:
    """Return the class that decodes and checks arguments; an unknown argument is an error.

    Raises:
        InvalidTool: msgspec knows no JSON for an annotation, or for the keys of a dict in it; the
            message names the parameter.
    """
    known = [_adapted(*field) for field in fields]
    for name, annotation, default in known:
        one = _struct([_field(name, annotation, default)])
        try:
            _components(one)
        except Exception as error:  # foreign classes may do anything
            reason = (reason_of(error).splitlines() or [type(error).__name__])[-1]
            raise InvalidTool(
                f"parameter {name!r} has no JSON Schema: {reason.rstrip('.')}: take {_WAY_OUT}"
            ) from error
        key = next(_unreachable_keys(kinds.type_info(one), set()), None)
        if key is not None:
            raise InvalidTool(
                f"parameter {name!r}: no text of JSON becomes a key of type {key}: take str, a"
                " number, an Enum, a date or a UUID for the keys of a dict, or a list of pairs"
            )
    return _struct([_field(*field) for field in known])


def _adapted(name: str, annotation: Any, default: Any) -> Parameter:
    try:
        return adapted(name, annotation, default)
    except UnheededError:  # a program of before has taken it: its session goes on
        return name, annotation, default


def _unreachable_keys(part: object, seen: set[int]) -> Iterator[str]:
    """Yield what the keys of dicts are that no call can bring, wherever they stand in a type."""
    if isinstance(part, tuple):
        for one in part:
            yield from _unreachable_keys(one, seen)
    if not isinstance(part, kinds.Type | kinds.Field) or id(part) in seen:
        return
    seen.add(id(part))
    if isinstance(part, kinds.DictType):
        key = part.key_type
        members: tuple[kinds.Type, ...] = (key,)
        if isinstance(key, kinds.UnionType):
            members = tuple(one for one in key.types if not isinstance(one, kinds.NoneType))
        yield from (_name_of(one) for one in members if not isinstance(one, _KEYS))
    for name in part.__struct_fields__:
        yield from _unreachable_keys(getattr(part, name), seen)


def _name_of(kind: kinds.Type) -> str:
    made = getattr(kind, "cls", None)
    return made.__name__ if made is not None else type(kind).__name__.removesuffix("Type").lower()


def schema_of(struct: type[msgspec.Struct], described: Mapping[str, str]) -> Schema:
    """Return the schema of ``struct``; ``described`` says what arguments mean, by name."""
    [reference], components = _components(struct)
    root = components.pop(reference["$ref"].rpartition("/")[2])
    root.pop("title", None)
    for name, schema in root["properties"].items():
        if name in described and "description" not in schema:
            root["properties"][name] = {**schema, "description": described[name]}
    if components:
        root["definitions"] = components
    hoisted: Schema = {}
    converted: Schema = in_both_drafts(_hoisted(root, hoisted))
    if hoisted:
        converted.setdefault("definitions", {}).update(in_both_drafts(hoisted))
    return converted


def unsendable(schema: object) -> str | None:
    """Say what of a tool's parameters can be sent to no provider, or None."""
    problem = values_problem(schema)
    if problem is None:
        return None
    return f"parameters{'' if problem.startswith('[') else ': '}{problem}"


def check_schema(schema: object) -> str | None:
    """Say what is wrong with a schema written by hand, or None."""
    import jsonschema  # noqa: PLC0415 - 100 ms, for hand-written schemas alone

    if not isinstance(schema, dict) or schema.get("type") != "object":
        return 'parameters must be a JSON Schema with "type": "object"'
    try:
        jsonschema.Draft7Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        return f"parameters are no JSON Schema draft 7: {error.message} at {error.json_path}"
    except (ValueError, OverflowError, RecursionError) as error:  # a pattern that re cannot take
        return f"parameters are no JSON Schema draft 7: {error}"
    problem = reference_problem(jsonschema.Draft7Validator, schema)
    return None if problem is None else f"parameters: the schema {problem}"


def problems_of(schema: Mapping[str, Any], arguments: object) -> list[str]:
    """Return what a schema written by hand has against ``arguments``, each with its place."""
    import jsonschema  # noqa: PLC0415 - 100 ms, for hand-written schemas alone

    try:
        found = mismatches(jsonschema.Draft7Validator, schema, arguments)
    except UncheckableError as error:
        return [f"the schema of this tool {error}"]
    lines = [f"{_clip(error.message)} - at `{error.json_path}`" for error in found[:PROBLEMS_MAX]]
    if len(found) > PROBLEMS_MAX:
        lines.append(f"and {len(found) - PROBLEMS_MAX} more")
    return lines


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """Return the first paragraph, and what an ``Args:`` section says about each argument."""
    lines = inspect.cleandoc(text or "").splitlines()
    paragraph = lines[: lines.index("")] if "" in lines else lines
    return " ".join(line.strip() for line in paragraph), _described(lines)


def _described(lines: list[str]) -> dict[str, str]:
    start = next((at for at, line in enumerate(lines) if _SECTION.fullmatch(line)), len(lines))
    described: dict[str, str] = {}
    name = ""
    margin: int | None = None
    for line in lines[start + 1 :]:
        indent = len(line) - len(line.lstrip())
        if not line.strip() or not indent:
            break
        margin = indent if margin is None else margin
        begun = _ARGUMENT.fullmatch(line.strip()) if indent == margin else None
        if begun:
            name, text = begun.groups()
            described[name] = text
        elif name:
            described[name] = f"{described[name]} {line.strip()}".strip()
    return described


def _hints(function: Callable[..., object]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise InvalidTool(
            f"an annotation means nothing at run time: {error}; import the name outside of"
            " `if TYPE_CHECKING`, at the top of the module"
        ) from error


def _is_context(annotation: object) -> bool:
    if get_origin(annotation) is Annotated:
        return _is_context(get_args(annotation)[0])
    return annotation is Context or Context in get_args(annotation)


def _struct(fields: list[tuple[str, Any] | tuple[str, Any, Any]]) -> type[msgspec.Struct]:
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)


def _field(
    name: str, annotation: object, default: object
) -> tuple[str, Any] | tuple[str, Any, Any]:
    if default is EMPTY:
        return name, annotation
    if isinstance(default, _Factory):
        return name, annotation, default
    if _is_json(default) and not (default and isinstance(default, list | dict | set | bytearray)):
        return name, annotation, default
    # msgspec wants a factory for what could be changed; what is no JSON is not shown to the model.
    return name, annotation, msgspec.field(default_factory=lambda: copy.deepcopy(default))


def _is_json(value: object) -> bool:
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False
    return True


def _components(struct: type[msgspec.Struct]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return msgspec.json.schema_components(
        [struct], ref_template="#/definitions/{name}", schema_hook=schema_hook
    )


def _hoisted(schema: Any, definitions: Schema) -> Any:  # Any: JSON at any depth
    """Return ``schema`` without the ``$defs`` inside, which are added to ``definitions``."""
    if isinstance(schema, list):
        return [_hoisted(one, definitions) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(inner := schema.get("$defs"), dict):
        definitions.update({name: _hoisted(one, definitions) for name, one in inner.items()})
        schema = {key: value for key, value in schema.items() if key != "$defs"}
    return {key: _hoisted(value, definitions) for key, value in schema.items()}


def in_both_drafts(schema: Any) -> Any:  # Any: JSON at any depth
    """Return a schema without a keyword that one of the drafts lacks, or takes for another.

    A list of items has no word that both know: each item is one of them, and a text has the order.
    Draft 7 ignores what stands beside a reference.
    """
    if isinstance(schema, list):
        return [in_both_drafts(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    converted = {key: in_both_drafts(value) for key, value in schema.items()}
    if isinstance(converted.get("$ref"), str) and len(converted) > 1:
        converted = {"allOf": [{"$ref": converted.pop("$ref")}], **converted}
    if isinstance(converted.get("prefixItems"), list):
        listed = converted.pop("prefixItems")
        kinds_of = [one for at, one in enumerate(listed) if one not in listed[:at]]
        converted["items"] = kinds_of[0] if len(kinds_of) == 1 else {"anyOf": kinds_of}
        converted["maxItems"] = len(listed)
        if len(kinds_of) > 1:
            order = f"Its items, in this order: {', '.join(map(_kind_in_words, listed))}."
            said = converted.get("description")
            converted["description"] = f"{said} {order}" if said else order
    return converted


def _kind_in_words(schema: Any) -> str:  # Any: JSON Schema
    """Return what an item is, in a word or two."""
    found = schema if isinstance(schema, dict) else {}
    if "$ref" in found:
        return str(found["$ref"]).rpartition("/")[2]
    if "anyOf" in found:
        return " or ".join(map(_kind_in_words, found["anyOf"]))
    return str(found.get("title") or found.get("type") or "any")


def _clip(text: str) -> str:
    return text if len(text) <= PROBLEM_CHARS_MAX else text[: PROBLEM_CHARS_MAX - 1] + "…"
