"""One tool as it travels: by name where any process can import it, else as code.

An application never says which. Add a rule for what counts as importable to ``origin``, and one
for what can be turned into bytes to ``byvalue``.
"""

import re
import sys
from typing import Any, ClassVar, Final, Literal

import msgspec

from cmdc_runtime.errors import InvalidTool
from cmdc_runtime.extensions.tool import as_tool
from cmdc_runtime.packing.origin import reference_of

PACKED_BYTES_MAX: Final = 4 * 1024 * 1024
"""One tool's code; with it all tools of a session fit into a frame and the journal."""
REFERENCE: Final = re.compile(r"[a-z][a-z0-9_]{0,63}|[^\W\d][\w.]*:[^\W\d][\w.]*")
"""A built-in's short name, or ``module:qualname``."""


class Packed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool on its way; only a worker opens it."""

    kind: Literal["ref", "value"]
    label: str
    """What error messages call it: the tool's name where that is known."""
    ref: str | None = None
    """A short name or ``module:qualname``, if ``kind`` is "ref"."""
    data: bytes | None = None
    """A pickle if ``kind`` is "value", else a built-in's options as msgpack, if it has any."""
    python: tuple[int, int] | None = None
    """Who packed a value: byte code is good for one minor version of Python."""


class BuiltIn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A name for one of our own extensions, with its options as fields.

    ``cmdc_runtime.tools`` has one subclass for each built-in tool.
    """

    short_name: ClassVar[str]


def pack(thing: object, label: str) -> Packed:
    """Return ``thing`` ready to travel; ``label`` says where the caller found it, for errors.

    Takes what ``as_tool`` takes, and ``cmdc_runtime.tools`` and short names besides. A string is
    not looked up here: what it names may be installed only where the daemon runs.

    Raises:
        InvalidTool: it is no tool, or cannot travel; the message names the part and the way out.
    """
    try:
        if isinstance(thing, str):
            return _named(thing)
        if isinstance(thing, BuiltIn):
            return _built_in(thing)
        if isinstance(thing, type) and issubclass(thing, BuiltIn):
            return _built_in(_bare(thing))
        name = as_tool(thing).name
        reference = reference_of(thing)
        if reference is not None:
            return Packed(kind="ref", label=name, ref=reference)
        data = _by_value(thing, name)
    except InvalidTool as error:
        raise InvalidTool(f"{label}: {error}") from error
    return Packed(kind="value", label=name, data=data, python=sys.version_info[:2])


def _named(reference: str) -> Packed:
    if REFERENCE.fullmatch(reference) is None:
        raise InvalidTool(
            f'{reference!r} is no tool: give "module:name", or the short name of a built-in tool'
        )
    return Packed(kind="ref", label=reference, ref=reference)


def _bare(built_in: type[BuiltIn]) -> BuiltIn:
    try:
        return built_in()
    except TypeError as error:
        raise InvalidTool(f"{built_in.__name__} needs options: {error}") from error


def _built_in(built_in: BuiltIn) -> Packed:
    name = built_in.short_name
    try:
        options: dict[str, Any] = msgspec.to_builtins(built_in)  # Any: whatever the options are
        msgspec.convert(options, type(built_in))
    except (TypeError, msgspec.ValidationError) as error:
        raise InvalidTool(f"options of {type(built_in).__name__}: {error}") from error
    data = msgspec.msgpack.encode(options) if options else None
    return Packed(kind="ref", label=name, ref=name, data=data)


def _by_value(thing: object, name: str) -> bytes:
    from cmdc_runtime.packing import byvalue  # noqa: PLC0415 - loads cloudpickle

    try:
        data = byvalue.dumps(thing)
    except byvalue.LateImportError as error:
        raise InvalidTool(f"tool {name!r} cannot travel: {error}") from error
    except Exception as error:  # pickling runs any class's code
        where = " → ".join(byvalue.culprit(thing)) or "the tool itself"
        raise InvalidTool(
            f"tool {name!r} cannot travel, because of {where}: {error}; make it inside the tool"
            ' when it is called, or install the tool as a package and give "module:name"'
        ) from error
    if len(data) > PACKED_BYTES_MAX:
        raise InvalidTool(
            f"tool {name!r} takes {len(data):,} bytes with all that it uses, more than"
            f" {PACKED_BYTES_MAX:,}: read large data inside the tool when it is called"
        )
    return data
