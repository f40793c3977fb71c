"""One tool or plugin as it travels: by name where any process can import it, else as code.

An application never says which. Add a rule for what counts as importable to ``origin``, and one
for what can be turned into bytes to ``byvalue``.
"""

import re
import sys
from collections.abc import Mapping
from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from cmdc_runtime.errors import InvalidOptions, InvalidTool
from cmdc_runtime.extensions.admission import as_plugin
from cmdc_runtime.extensions.configuration import made
from cmdc_runtime.extensions.tool import as_tool
from cmdc_runtime.packing.origin import reference_of
from cmdc_runtime.parcels import Packed
from cmdc_runtime.plain import short

PACKED_BYTES_MAX: Final = 4 * 1024 * 1024
"""One tool's or plugin's code; with it all of a session fit into a frame and the journal."""
REFERENCE: Final = re.compile(r"[a-z][a-z0-9_]{0,63}|[^\W\d][\w.]*:[^\W\d][\w.]*")
"""A built-in's short name, or ``module:qualname``."""
FUNCTION_KEY: Final = "$function"
"""The one key of a dict that stands for a function among the options of a built-in."""
Function: TypeAlias = Any
"""The type of an option that is a function, or the ``"module:name"`` of one."""
_PAIR: Final = 2


class BuiltIn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A name for one of our own extensions, with its options as fields.

    ``cmdc_runtime.tools`` has one subclass for each built-in tool, ``cmdc_runtime.plugins`` one for
    each built-in plugin.
    """

    short_name: ClassVar[str]


class _Checked(msgspec.StructMeta):
    """Checks the options of a plugin where they are written."""

    def __call__(self, **options: Any) -> Any:  # Any: options as they come, and the class's own
        """Return the reference.

        Raises:
            InvalidOptions: options are missing, unknown or wrong; it names each.
        """
        config: Any = self  # Any: a class that is made by this metaclass
        return made(f"plugin {config.short_name!r}", config, options, super().__call__)


class BuiltInPlugin(BuiltIn, frozen=True, kw_only=True, omit_defaults=True, metaclass=_Checked):
    """A name for a built-in plugin; it is at the same time the plugin's ``Config``."""

    short_name: ClassVar[str]


class _CannotTravelError(Exception):
    """The thing can't be packed; the text says why, and the way out."""


def pack(thing: object, label: str) -> Packed:
    """Return ``thing`` ready to travel; ``label`` says where the caller found it, for errors.

    Takes what ``as_tool`` takes, and ``cmdc_runtime.tools`` and short names besides. A string is
    not looked up here: what it names may be installed only where the daemon runs.

    Raises:
        InvalidTool: it is no tool, or cannot travel; the message names the part and the way out.
    """
    try:
        packed = _by_name(thing, "tool")
        if packed is not None:
            return packed
        name = as_tool(thing).name
        return _by_reference(thing, name) or _by_value(thing, name, "tool")
    except (InvalidTool, _CannotTravelError) as error:
        raise InvalidTool(f"{label}: {error}") from error


def pack_plugin(thing: object, label: str) -> Packed:
    """Return a plugin ready to travel; ``label`` says where the caller found it, for errors.

    Takes what ``as_plugin`` takes, and ``cmdc_runtime.plugins`` and short names besides. Options
    of a class travel beside it where MessagePack takes them; an instance travels as it is.

    Raises:
        InvalidOptions: it is no plugin, breaks the contract or cannot travel; it names all of it.
    """
    try:
        packed = _by_name(thing, "plugin")
        if packed is not None:
            return packed
        if isinstance(thing, tuple) and len(thing) == _PAIR and isinstance(thing[1], Mapping):
            return _with_options(*thing)
        name = as_plugin(thing).name
        return _by_reference(thing, name) or _by_value(thing, name, "plugin")
    except _CannotTravelError as error:
        raise InvalidOptions([f"{label}: {error}"]) from error
    except InvalidOptions as error:
        raise InvalidOptions([f"{label}: {problem}" for problem in error.problems]) from error


def pack_function(thing: object, label: str) -> Packed:
    """Return a function ready to travel; ``label`` says where the caller found it, for errors.

    A string is the ``module:name`` of one, and is not looked up here.

    Raises:
        InvalidOptions: it cannot travel; the message names the part and the way out.
    """
    try:
        if isinstance(thing, str):
            return _named(thing, "function")
        name = getattr(thing, "__name__", type(thing).__name__)
        return _by_reference(thing, name) or _by_value(thing, name, "function")
    except _CannotTravelError as error:
        raise InvalidOptions([f"{label}: {error}"]) from error


def _with_options(thing: object, options: Mapping[str, Any]) -> Packed:
    """Return a plugin class, given as anything that stands for one, with its options."""
    if isinstance(thing, type) and issubclass(thing, BuiltIn):
        return _built_in(_made(thing, options))
    if isinstance(thing, str):
        data = _encoded(options)
        if data is None:
            raise _CannotTravelError(
                f"options of {short(thing)} must be numbers, strings, lists or dicts:"
                f" {short(options)}"
            )
        return msgspec.structs.replace(_named(thing, "plugin"), data=data)
    name = as_plugin((thing, options)).name
    packed, data = _by_reference(thing, name), _encoded(options)
    if packed is None or data is None:
        return _by_value((thing, dict(options)), name, "plugin")
    return msgspec.structs.replace(packed, data=data)


def _encoded(options: Mapping[str, Any]) -> bytes | None:
    """Return options as they travel, None where MessagePack does not take them."""
    try:
        return msgspec.msgpack.encode(dict(options))
    except (TypeError, ValueError, OverflowError):
        return None


def _by_name(thing: object, noun: str) -> Packed | None:
    """Return what is a name already, or stands for one of ours."""
    if isinstance(thing, str):
        return _named(thing, noun)
    if isinstance(thing, BuiltIn):
        return _built_in(thing)
    if isinstance(thing, type) and issubclass(thing, BuiltIn):
        return _built_in(_made(thing, {}))
    return None


def _named(reference: str, noun: str) -> Packed:
    if REFERENCE.fullmatch(reference) is None:
        raise _CannotTravelError(
            f'{reference!r} is no {noun}: give "module:name", or the short name of a built-in'
            f" {noun}"
        )
    return Packed(kind="ref", label=reference, ref=reference)


# Any: options as they come.
def _made(built_in: type[BuiltIn], options: Mapping[str, Any]) -> BuiltIn:
    try:
        return built_in(**options)
    except TypeError as error:  # a tool; a plugin says by itself what is wrong
        what = "options do not fit" if options else "needs options"
        raise _CannotTravelError(f"{built_in.__name__} {what}: {error}") from error


def _built_in(built_in: BuiltIn) -> Packed:
    name = built_in.short_name
    try:
        # Any: whatever the options are.
        options: dict[str, Any] = msgspec.to_builtins(built_in, enc_hook=_function)
        msgspec.convert(options, type(built_in))
    except (TypeError, msgspec.ValidationError) as error:
        raise _CannotTravelError(f"options of {type(built_in).__name__}: {error}") from error
    data = msgspec.msgpack.encode(options) if options else None
    return Packed(kind="ref", label=name, ref=name, data=data)


def _function(thing: object) -> dict[str, Any]:  # Any: a parcel
    """Return a function among the options of a built-in as it travels."""
    if not callable(thing):
        raise TypeError(f"{type(thing).__name__} is no option: {short(thing)}")
    name = getattr(thing, "__name__", type(thing).__name__)
    packed = _by_reference(thing, name) or _by_value(thing, name, "function")
    return {FUNCTION_KEY: msgspec.structs.asdict(packed)}


def _by_reference(thing: object, name: str) -> Packed | None:
    reference = reference_of(thing)
    return None if reference is None else Packed(kind="ref", label=name, ref=reference)


def _by_value(thing: object, name: str, noun: str) -> Packed:
    from cmdc_runtime.packing import byvalue  # noqa: PLC0415 - loads cloudpickle

    try:
        data = byvalue.dumps(thing)
    except byvalue.LateImportError as error:
        raise _CannotTravelError(f"{noun} {name!r} cannot travel: {error}") from error
    except Exception as error:  # pickling runs any class's code
        where = " → ".join(byvalue.culprit(thing)) or f"the {noun} itself"
        raise _CannotTravelError(
            f"{noun} {name!r} cannot travel, because of {where}: {error}; make it inside the"
            f' {noun} when it is called, or install the {noun} as a package and give "module:name"'
        ) from error
    if len(data) > PACKED_BYTES_MAX:
        raise _CannotTravelError(
            f"{noun} {name!r} takes {len(data):,} bytes with all that it uses, more than"
            f" {PACKED_BYTES_MAX:,}: read large data inside the {noun} when it is called"
        )
    return Packed(kind="value", label=name, data=data, python=sys.version_info[:2])
