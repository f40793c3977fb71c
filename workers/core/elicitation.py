"""What an MCP server asks the user: as a question, and its answer as the server takes it.

A server asks for a form: named values of plain types. The user gets one question with all of them,
and ``user_respond`` sends a dict of them, or one value where there is one. What each may be is for
``form_fields`` to say.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from workers.core import form_fields
from workers.core.form_fields import TRUTHS

Action = Literal["accept", "decline", "cancel"]

FIELDS_MAX: Final = 50
"""Values of one form; one with more is refused."""
_WORDS: Final[Mapping[str, Action]] = {"decline": "decline", "no": "decline", "cancel": "cancel"}


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
    lines += [f"- {name}: {form_fields.described(one)}" for name, one in fields.items()]
    options: tuple[str, ...] = () if fields else ("accept", "decline")
    if len(fields) == 1:
        (only,) = fields.values()
        options = (
            ("true", "false") if only.get("type") == "boolean" else tuple(form_fields.choices(only))
        )
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
    if word in _WORDS and not (is_truth and word in TRUTHS):
        return Answered(_WORDS[word])
    if not fields:
        return Answered("accept")
    values = _values(response, fields)
    if unknown := values.keys() - fields.keys():
        raise ValueError(f"it has {', '.join(sorted(map(str, unknown)))}, which nobody asks for")
    content = {name: form_fields.typed(name, value, fields[name]) for name, value in values.items()}
    required = (schema or {}).get("required")
    needed = required if isinstance(required, list | tuple) else ()
    if missing := [name for name in fields if name in needed and name not in content]:
        raise ValueError(f"{', '.join(missing)} is missing")
    return Answered("accept", content)


def _fields(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    given = schema.get("properties")
    fields = dict(given) if isinstance(given, Mapping) else {}
    if len(fields) > FIELDS_MAX:
        raise ValueError(f"a form has at most {FIELDS_MAX} values, this one {len(fields)}")
    return {name: one if isinstance(one, Mapping) else {} for name, one in fields.items()}


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
