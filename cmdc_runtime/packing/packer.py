"""An extension as it travels: by name where any process can import it, else as code.

An application never says which. Add a rule for what counts as importable to ``origin``, and one
for what can be turned into bytes to ``byvalue``.
"""

import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.errors import InvalidOptions, InvalidTool
from cmdc_runtime.extensions.admission import as_plugin, as_sandbox, as_strategy
from cmdc_runtime.extensions.plugin import Plugin, made
from cmdc_runtime.extensions.reasoning import ReasoningStrategy
from cmdc_runtime.extensions.sandbox import Sandbox
from cmdc_runtime.extensions.tool import Tool, as_tool
from cmdc_runtime.foreign import summary_of
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.packing import client_tools
from cmdc_runtime.packing.captured import CapturedStateWarning, warn_of_captured
from cmdc_runtime.packing.origin import reference_of
from cmdc_runtime.plain import (
    MISTYPED_CHARS_MAX,
    kept_numbers_problem,
    nearest,
    problem_of,
    short,
)
from cmdc_runtime.reasons import snake
from cmdc_runtime.redaction import printed, printed_fields

PACKED_BYTES_MAX: Final = 4 * 1024 * 1024
"""One tool's or plugin's code; with it all of a session fit into a frame and the journal."""
REFERENCE: Final = re.compile(r"[a-z][a-z0-9_]{0,63}|[^\W\d][\w.]*:[^\W\d][\w.]*")
"""A built-in's short name, or ``module:qualname``."""
FUNCTION_KEY: Final = "$function"
"""The one key of a dict that stands for a function among the options of a built-in."""
STRATEGY_KEY: Final = "$strategy"
"""The one key of a dict that stands for a strategy among the options of a built-in."""
Function: TypeAlias = Any
"""The type of an option that is a function, or the ``"module:name"`` of one."""
_PACKED_KEYS: Final = (FUNCTION_KEY, STRATEGY_KEY)
_PAIR: Final = 2
_MODULES: Final[Mapping[str, str]] = {
    "plugin": "cmdc_runtime.plugins",
    "sandbox": "cmdc_runtime.sandbox",
    "strategy": "cmdc_runtime.reasoning",
    "tool": "cmdc_runtime.tools",
}
"""Where the built-in extensions of each noun are. They stand on this module, and are loaded when
somebody names one."""
_Admit: TypeAlias = Callable[[object], Plugin | ReasoningStrategy | Sandbox]


class BuiltIn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, metaclass=Checked):
    """A name for one of our own extensions, with its options as fields.

    ``cmdc_runtime.tools`` has one subclass for each built-in tool, ``cmdc_runtime.plugins`` one for
    each built-in plugin, ``cmdc_runtime.reasoning`` one for each strategy, ``cmdc_runtime.sandbox``
    one for each sandbox.
    """

    __repr__ = printed
    __rich_repr__ = printed_fields

    short_name: ClassVar[str]

    def to_options(self) -> dict[str, Any]:  # Any: whatever the options are
        """Return the options as they travel.

        Raises:
            TypeError: one of them cannot.
        """
        options: dict[str, Any] = msgspec.to_builtins(self, enc_hook=_function)
        msgspec.convert(options, type(self))
        return options


class _Checked(Checked):
    """Checks the options of a plugin or a strategy where they are written."""

    # Any: options as they come, and the class's own.
    def __call__(self, *places: Any, **options: Any) -> Any:
        """Return the reference.

        Raises:
            InvalidOptions: options are missing, unknown or wrong; it names each.
        """
        config: Any = self  # Any: a class that is made by this metaclass
        owner = f"{config.noun} {config.short_name!r}"
        if places:
            raise InvalidOptions([f"{owner}: options are given by name, not {short(places[0])}"])
        # Not as any struct: ``made`` says whose options they are.
        return made(owner, config, options, super(Checked, self).__call__)


class BuiltInPlugin(BuiltIn, frozen=True, kw_only=True, omit_defaults=True, metaclass=_Checked):
    """A name for a built-in plugin; it is at the same time the plugin's ``Config``."""

    noun: ClassVar[str] = "plugin"
    short_name: ClassVar[str]


class BuiltInStrategy(BuiltIn, frozen=True, kw_only=True, omit_defaults=True, metaclass=_Checked):
    """A name for a built-in strategy; it is at the same time the strategy's ``Config``."""

    noun: ClassVar[str] = "strategy"
    short_name: ClassVar[str]


class BuiltInSandbox(BuiltIn, frozen=True, kw_only=True, omit_defaults=True, metaclass=_Checked):
    """A name for a built-in sandbox, with its options as fields."""

    noun: ClassVar[str] = "sandbox"
    short_name: ClassVar[str]


_STAYS: Final = '; with @cmdc.tool(where="client") it stays in this program'


class _CannotTravelError(Exception):
    """The thing can't be packed; the text says why, and the way out."""


def pack(thing: object, label: str) -> Packed:
    """Return ``thing`` ready to travel; ``label`` says where the caller found it, for errors.

    Takes what ``as_tool`` takes, and ``cmdc_runtime.tools`` and short names besides. A short name
    is that of a built-in; ``module:name`` is not looked up here, since what it names may be
    installed only where the daemon runs.

    Raises:
        InvalidTool: it is no tool, or cannot travel; the message names the part and the way out.
    """
    try:
        packed = _by_name(thing, "tool")
        if packed is not None:
            return packed
        admitted = as_tool(thing)
        if admitted.where == "client":
            return client_tools.pack(admitted)
        return _by_reference(thing, admitted.name) or _as_code(thing, admitted)
    except CapturedStateWarning:  # as an error, where a program has made warnings of it
        raise
    except (InvalidTool, _CannotTravelError) as error:
        raise InvalidTool(f"{label}: {error}") from error
    except Exception as error:
        raise InvalidTool(f"{label}: {_failed(thing, error)}") from error


def _as_code(thing: object, tool: Tool) -> Packed:
    warn_of_captured(tool)
    return _by_value(thing, tool.name, "tool")


def pack_plugin(thing: object, label: str) -> Packed:
    """Return a plugin ready to travel; ``label`` says where the caller found it, for errors.

    Takes what ``as_plugin`` takes, and ``cmdc_runtime.plugins`` and short names besides. Options
    of a class travel beside it where MessagePack takes them; an instance travels as it is.

    Raises:
        InvalidOptions: it is no plugin, breaks the contract or cannot travel; it names all of it.
    """
    return _pack_extension(thing, label, "plugin", as_plugin)


def pack_strategy(thing: object, label: str) -> Packed:
    """Return a reasoning strategy ready to travel, as ``pack_plugin`` does a plugin.

    Raises:
        InvalidOptions: it is no strategy, breaks the contract or cannot travel.
    """
    return _pack_extension(thing, label, "strategy", as_strategy)


def pack_sandbox(thing: object, label: str) -> Packed:
    """Return a sandbox ready to travel, as ``pack_plugin`` does a plugin.

    Raises:
        InvalidOptions: it is no sandbox, breaks the contract or cannot travel.
    """
    return _pack_extension(thing, label, "sandbox", as_sandbox)


def strategy_option(thing: object, label: str) -> dict[str, Any]:  # Any: packed code
    """Return a strategy as it travels among the options of a built-in.

    Raises:
        InvalidOptions: as for ``pack_strategy``.
    """
    return {STRATEGY_KEY: msgspec.structs.asdict(pack_strategy(thing, label))}


def brings_code(packed: Packed) -> bool:
    """Say whether packed code, or any among its options, is by value."""
    return packed.kind == "value" or any(map(brings_code, packed_in(packed)))


def packed_in(packed: Packed) -> Iterator[Packed]:
    """Yield the packed functions and strategies among the options of one by reference."""
    if packed.kind == "ref" and packed.data:
        yield from _packed_among(msgspec.msgpack.decode(packed.data))


def _packed_among(value: Any) -> Iterator[Packed]:  # Any: options, and packed code among them
    if isinstance(value, dict) and len(value) == 1 and not value.keys().isdisjoint(_PACKED_KEYS):
        with suppress(msgspec.ValidationError):  # an option of somebody's own, named like ours
            yield msgspec.convert(next(iter(value.values())), Packed)
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _packed_among(inner)


def _pack_extension(thing: object, label: str, noun: str, admit: _Admit) -> Packed:
    try:
        packed = _by_name(thing, noun)
        if packed is not None:
            return packed
        if isinstance(thing, tuple) and len(thing) == _PAIR and isinstance(thing[1], Mapping):
            return _with_options(*thing, noun=noun, admit=admit)
        name = admit(thing).name
        return _by_reference(thing, name) or _by_value(thing, name, noun)
    except _CannotTravelError as error:
        raise InvalidOptions([f"{label}: {error}"]) from error
    except InvalidOptions as error:
        raise InvalidOptions([f"{label}: {problem}" for problem in error.problems]) from error
    except Exception as error:
        raise InvalidOptions([f"{label}: {_failed(thing, error)}"]) from error


def pack_function(thing: object, label: str, noun: str = "function") -> Packed:
    """Return a function ready to travel; ``label`` says where the caller found it, for errors.

    A string is the ``module:name`` of one, and is not looked up here. What else travels as one
    does, a class or an object, has another ``noun``.

    Raises:
        InvalidOptions: it cannot travel; the message names the part and the way out.
    """
    try:
        if isinstance(thing, str):
            return _named(thing, noun)
        name = getattr(thing, "__name__", type(thing).__name__)
        return _by_reference(thing, name) or _by_value(thing, name, noun)
    except _CannotTravelError as error:
        raise InvalidOptions([f"{label}: {error}"]) from error
    except Exception as error:
        raise InvalidOptions([f"{label}: {_failed(thing, error)}"]) from error


def _failed(thing: object, error: Exception) -> str:
    """Return the text for a look at a thing that runs into code of its own, which fails."""
    return f"{short(thing)} can't be looked at: {summary_of(error)}"


def _with_options(
    thing: object,
    options: Mapping[str, Any],  # Any: options as they come
    *,
    noun: str,
    admit: _Admit,
) -> Packed:
    """Return an extension's class, given as anything that stands for one, with its options."""
    if isinstance(thing, type) and issubclass(thing, BuiltIn):
        return _built_in(_made(thing, options))
    if isinstance(thing, str):
        named = _named(thing, noun)
        if (ours := _ours(thing, noun)) is not None:
            return _built_in(_made(ours, options))
        return msgspec.structs.replace(named, data=_data_of(thing, options))
    name = admit((thing, options)).name
    packed, data = _by_reference(thing, name), _encoded(options)
    if packed is None or data is None:
        return _by_value((thing, dict(options)), name, noun)
    return msgspec.structs.replace(packed, data=data)


def _data_of(
    reference: str,
    options: Mapping[str, Any],  # Any: options as they come
) -> bytes:
    """Return the options of what is named as they travel, as plain data."""
    problem, data = kept_numbers_problem(options), _encoded(options)
    if problem is None and data is None:
        found = problem_of(options) or "they cannot travel"
        problem = f"{found}; give numbers, strings, lists or dicts"
    if problem is not None or data is None:
        place = f"{problem}" if f"{problem}".startswith("[") else f": {problem}"
        raise _CannotTravelError(f"options of {short(reference)}{place}")
    return data


def _encoded(options: Mapping[str, Any]) -> bytes | None:
    """Return options as they travel, None where MessagePack does not take them."""
    try:
        return msgspec.msgpack.encode(dict(options))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def _by_name(thing: object, noun: str) -> Packed | None:
    """Return what is a name already, or stands for one of ours."""
    if isinstance(thing, str):
        named = _named(thing, noun)
        if (ours := _ours(thing, noun)) is None:
            return named
        made_bare = _made(ours, {})
        return named if _is_short(thing) else _built_in(made_bare)
    if isinstance(thing, BuiltIn):
        return _built_in(thing)
    if isinstance(thing, type) and issubclass(thing, BuiltIn):
        return _built_in(_made(thing, {}))
    return None


def _named(reference: str, noun: str) -> Packed:
    if REFERENCE.fullmatch(reference) is None:
        raise _CannotTravelError(
            f'{short(reference)} is no {noun}: give "module:name", or the short name of a built-in'
            f" {noun}{_hint(reference, noun)}"
        )
    return Packed(kind="ref", label=reference, ref=reference)


def _is_short(reference: str) -> bool:
    """Say whether it is the short name of a built-in, which is known before anything is started."""
    return ":" not in reference


def _ours(reference: str, noun: str) -> type[BuiltIn] | None:
    """Return the built-in extension of a short name, or of ``module:Class`` in our own modules.

    None: it names somebody else's, which is looked up where the daemon runs.
    """
    module, _, name = reference.rpartition(":")
    home = _MODULES.get(noun, "")
    if module and module != home and not module.startswith(f"{home}."):
        return None
    known = {one.__name__: one for one in built_ins(noun).values()} if module else built_ins(noun)
    if (found := known.get(name)) is None:
        offered = _offered(known)
        near = nearest(name, offered)
        hint = f"only {', '.join(sorted(offered))}" if near is None else f"did you mean {near}?"
        raise _CannotTravelError(f"there is no built-in {noun} {short(reference)}, {hint}")
    return found


def _offered(known: Mapping[str, type[BuiltIn]]) -> list[str]:
    """Return the names that may be meant by a wrong one: not those of bases of others."""
    bases = {base for one in known.values() for base in one.__mro__[1:]}
    return [name for name, one in known.items() if one not in bases]


def _hint(reference: str, noun: str) -> str:
    """Return which short name may be meant by what is none, as that of its class."""
    words = snake(re.sub(r"\W+", "_", reference[:MISTYPED_CHARS_MAX]))
    near = nearest(words, _offered(built_ins(noun))) if noun in _MODULES else None
    return "" if near is None else f"; did you mean {near}?"


@cache
def built_ins(noun: str) -> Mapping[str, type[BuiltIn]]:
    """Return the built-in extensions of a noun of ``_MODULES`` by their short names."""
    names = vars(importlib.import_module(_MODULES[noun]))
    kinds = (one for one in names.values() if isinstance(one, type) and issubclass(one, BuiltIn))
    return {one.short_name: one for one in kinds if "short_name" in vars(one)}


# Any: options as they come.
def _made(built_in: type[BuiltIn], options: Mapping[str, Any]) -> BuiltIn:
    try:
        return built_in(**options)
    except InvalidOptions as error:
        if isinstance(built_in, _Checked):  # a plugin or a strategy says whose options they are
            raise
        what = "options do not fit" if options else "needs options"
        raise _CannotTravelError(
            f"{built_in.__name__} {what}: {'; '.join(error.problems)}"
        ) from error


def _built_in(built_in: BuiltIn) -> Packed:
    name = built_in.short_name
    try:
        options = built_in.to_options()
    except InvalidOptions as error:
        raise _CannotTravelError("; ".join(error.problems)) from error
    except (TypeError, msgspec.ValidationError) as error:
        raise _CannotTravelError(f"options of {type(built_in).__name__}: {error}") from error
    data = msgspec.msgpack.encode(options) if options else None
    return Packed(kind="ref", label=name, ref=name, data=data)


def _function(thing: object) -> dict[str, Any]:  # Any: packed code
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
            f"{_STAYS if noun == 'tool' else ''}"
        ) from error
    if len(data) > PACKED_BYTES_MAX:
        raise _CannotTravelError(
            f"{noun} {name!r} takes {len(data):,} bytes with all that it uses, more than"
            f" {PACKED_BYTES_MAX:,}: read large data inside the {noun} when it is called"
        )
    return Packed(kind="value", label=name, data=data, python=sys.version_info[:2])
