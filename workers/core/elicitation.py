"""What an MCP server asks the user: as a question, and its answer as the server takes it.

A server asks for a form: named values of plain types. The user gets one question with all of them,
and ``user_respond`` sends a dict of them, or one value where there is one.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Action = Literal["accept", "decline", "cancel"]

FIELDS_MAX: Final = 50
"""Values of one form; one with more is refused."""
_WORDS: Final[Mapping[str, Action]] = {"decline": "decline", "no": "decline", "cancel": "cancel"}
_NUMBERS: Final = ("integer", "number")
_FITTING: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_TRUTHS: Final = {"true": True, "yes": True, "false": False, "no": False}


@dataclass(frozen=True, slots=True)
class Question:
    """What the user is asked, and what there is to choose from."""

    text: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answered:
    """What the server gets."""

    action: Action
    content: dict[str, Any] = field(default_factory=dict)  # Any: values of a form


def question(server: str, message: str, schema: Mapping[str, Any]) -> Question:
    """Return the question of a form (Any: a JSON Schema)."""
    fields = _fields(schema)
    lines = [f"The MCP server {server!r} asks: {message}"]
    lines += [f"- {name}: {_described(one)}" for name, one in fields.items()]
    options: tuple[str, ...] = () if fields else ("accept", "decline")
    if len(fields) == 1:
        (only,) = fields.values()
        options = ("true", "false") if only.get("type") == "boolean" else _choices(only)
    return Question("\n".join(lines), options)


def url_question(server: str, message: str, url: str) -> Question:
    """Return the question whether the user has done at an address what the server asks for."""
    text = f"The MCP server {server!r} asks: {message}\nOpen {url}, and accept when that is done."
    return Question(text, ("accept", "decline"))


# Any, here and below: whatever the application sent.
def answered(response: Any, schema: Mapping[str, Any] | None) -> Answered:
    """Return what an answer of the user means; ``schema`` None: nothing was to be filled in.

    Raises:
        ValueError: it does not fit; the text says why.
    """
    if response is None:
        return Answered("cancel")
    fields = _fields(schema or {})
    word = response.strip().lower() if isinstance(response, str) else ""
    is_truth = [one.get("type") for one in fields.values()] == ["boolean"]
    if word in _WORDS and not (is_truth and word in _TRUTHS):
        return Answered(_WORDS[word])
    if not fields:
        return Answered("accept")
    values = _values(response, fields)
    if unknown := values.keys() - fields.keys():
        raise ValueError(f"it has {', '.join(sorted(map(str, unknown)))}, which nobody asks for")
    content = {name: _typed(name, value, fields[name]) for name, value in values.items()}
    required = (schema or {}).get("required") or ()
    if missing := [name for name in required if name in fields and name not in content]:
        raise ValueError(f"{', '.join(missing)} is missing")
    return Answered("accept", content)


def _fields(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    given = schema.get("properties")
    fields = dict(given) if isinstance(given, Mapping) else {}
    if len(fields) > FIELDS_MAX:
        raise ValueError(f"a form has at most {FIELDS_MAX} values, this one {len(fields)}")
    return {name: one if isinstance(one, Mapping) else {} for name, one in fields.items()}


def _described(one: Mapping[str, Any]) -> str:
    said = one.get("description") or one.get("title") or one.get("type") or "a value"
    choices = _choices(one)
    return f"{said} ({', '.join(choices)})" if choices else str(said)


def _choices(one: Mapping[str, Any]) -> tuple[str, ...]:
    given = one.get("enum")
    if isinstance(given, list | tuple):
        return tuple(map(str, given))
    titled = one.get("oneOf")
    if isinstance(titled, list | tuple):
        return tuple(str(part["const"]) for part in titled if "const" in part)
    return ()


def _values(response: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(response, Mapping):
        return dict(response)
    if len(fields) == 1:
        return dict.fromkeys(fields, response)
    try:
        read = json.loads(response)
    except (TypeError, ValueError):
        read = None
    if isinstance(read, dict):
        return read
    raise ValueError(f"it is no dict of {', '.join(fields)}")


def _typed(name: str, value: Any, one: Mapping[str, Any]) -> Any:
    """Return a value of the type that its field asks for, of a text too."""
    kind = one.get("type", "string")
    if isinstance(value, str) and kind == "boolean" and value.strip().lower() in _TRUTHS:
        return _TRUTHS[value.strip().lower()]
    if isinstance(value, str) and kind in _NUMBERS:
        value = _number(value, kind)
    fitting = _FITTING.get(kind, (object,))
    if not isinstance(value, fitting) or (isinstance(value, bool) and kind in _NUMBERS):
        raise ValueError(f"{name}: expected {kind}, got {type(value).__name__}")
    choices = _choices(one)
    if choices and str(value) not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(choices)}")
    return value


def _number(text: str, kind: str) -> Any:
    try:
        return int(text) if kind == "integer" else float(text)
    except ValueError:
        return text
