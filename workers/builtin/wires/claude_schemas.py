"""A JSON Schema for a reply as Claude is sent it: without references, each object closed.

Only what needs no more than that is taken. Bounds of numbers and lengths its vendor refuses; what
is made of them, and of a schema that is odd, is litellm's affair.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from cmdc_runtime.plain import DEPTH_MAX

Schema = Mapping[str, object]

NODES_MAX: Final = 1_000
"""Of a schema without references, which can be far longer than with them; servers take less."""
BETA: Final = "structured-outputs-2025-11-13"
"""What the header has to name."""
_SAME: Final = frozenset(
    (
        *("type", "title", "description", "default", "enum", "const", "required"),
        *("format", "pattern", "additionalProperties"),
    )
)
_REF: Final = "$ref"
_DEFINITIONS: Final = "$defs"
_LOCAL: Final = "#/$defs/"


class _UnfitError(Exception):
    pass


def sent_schema(schema: Schema) -> dict[str, object] | None:
    """Return ``schema``, which has no circle in it, as it is sent; None where it is litellm's."""
    definitions = schema.get(_DEFINITIONS)
    root = {name: one for name, one in schema.items() if name != _DEFINITIONS}
    try:
        return _Reader(definitions if isinstance(definitions, Mapping) else {}).closed(root)
    except _UnfitError:
        return None


class _Reader:
    def __init__(self, definitions: Schema) -> None:
        self._definitions = definitions
        self._left = NODES_MAX

    def closed(self, part: object, depth: int = 0) -> dict[str, object]:
        """Return a part with all that is in it; raises _UnfitError."""
        if not isinstance(part, Mapping) or self._left <= 0 or depth > DEPTH_MAX:
            raise _UnfitError
        self._left -= 1
        if _REF in part:
            return self.closed(self._target(part), depth + 1)
        if "enum" in part and "type" in part:  # one that does not fit the other is put right
            raise _UnfitError
        found = {name: self._member(name, one, depth + 1) for name, one in part.items()}
        if _is_object(part.get("type")):
            found["additionalProperties"] = False
        return found

    def _target(self, part: Schema) -> object:
        name = part[_REF]
        if len(part) > 1 or not isinstance(name, str) or not name.startswith(_LOCAL):
            raise _UnfitError
        return self._definitions.get(name.removeprefix(_LOCAL))

    def _member(self, name: str, one: object, depth: int) -> object:
        if name == "properties" and isinstance(one, Mapping):
            return {key: self.closed(inner, depth) for key, inner in one.items()}
        if name == "anyOf" and isinstance(one, list | tuple):
            return [self.closed(inner, depth) for inner in one]
        if name == "items":
            return self.closed(one, depth)
        if name not in _SAME or (name == "additionalProperties" and one is not False):
            raise _UnfitError
        return one


def _is_object(kind: object) -> bool:
    kinds: Sequence[object] = kind if isinstance(kind, list | tuple) else (kind,)
    return "object" in kinds
