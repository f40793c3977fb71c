"""Turns what travelled back into the extensions that it was: the one place that unpickles.

``read_file`` means ``create`` in ``workers.builtin.tools.read_file``, ``cost_guard`` that in
``workers.builtin.plugins.cost_guard``; ``module:name`` is what it says. There is no list of
built-ins to keep: a new module in such a folder is a new name.

What packed code has by value never changes. One by reference names a module, and an upgrade of the
application may put other code under that name while the session has no process. So the first
process that opens it writes down a digest of each module that came along (``Code``); a later one
compares the files with these before it imports any of them. Built-ins are a part of this program,
which answers for its own upgrades. Installed packages that an application's code only uses are not
looked at, nor is what a module imports after it was opened.
"""

import functools
import hashlib
import io
import os
import pickle
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec

import cmdc_runtime
from cmdc_runtime import foreign
from cmdc_runtime.errors import InvalidTool, SandboxUnavailable
from cmdc_runtime.extensions.admission import as_plugin, as_sandbox, as_strategy
from cmdc_runtime.extensions.checkpoint_backend import CheckpointBackend, check_is_backend
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.extensions.provider import Provider, as_provider
from cmdc_runtime.extensions.reasoning import ReasoningStrategy
from cmdc_runtime.extensions.sandbox import LOCAL_SANDBOX, Sandbox, SandboxPlace
from cmdc_runtime.extensions.tool import Tool, as_tool, resolve
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.packed_code import Packed, digest_of
from cmdc_runtime.packing import FUNCTION_KEY, STRATEGY_KEY, packed_in
from cmdc_runtime.packing.origin import companions
from cmdc_runtime.subagent import CLIENT_TOOL, STRATEGY_TOOL, TRANSFER_TOOL
from workers.builtin import plugins as built_in_plugins
from workers.builtin import providers as built_in_providers
from workers.builtin import reasoning as built_in_strategies
from workers.builtin import sandboxes as built_in_sandboxes
from workers.builtin import tools as built_in_tools

# --- tools, strategies, providers, functions ------------------------------------------------------

PROVIDERS: Final = built_in_providers.__name__
_NAMED_MAX: Final = 3
"""Modules in an error's text."""


class _Named(Protocol):
    """A tool or a plugin."""

    name: str


_Loaded = TypeVar("_Loaded", bound=_Named)
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class CodeKind:
    """One kind of extension: what it is called, and where the built-in ones are."""

    noun: str
    built_in: ModuleType


TOOLS: Final = CodeKind("tool", built_in_tools)
STRATEGIES: Final = CodeKind("strategy", built_in_strategies)
SANDBOXES: Final = CodeKind("sandbox", built_in_sandboxes)
_UNNAMED: Final = (CLIENT_TOOL, TRANSFER_TOOL)
"""Built-in tools that stand for what an application gives, and that it does not name."""
_LOCAL: Final = Packed(kind="ref", label=LOCAL_SANDBOX, ref=LOCAL_SANDBOX)


class LoadError(Exception):
    """An extension cannot be made here; the message names it, the module and what is missing."""

    def __init__(self, label: str, message: str, noun: str = TOOLS.noun) -> None:
        """Keep both parts; together they are the message."""
        self.label = label
        self.message = message
        # A session's own strategy is an option, and travels as a tool's packed code.
        what = label if label == STRATEGY_TOOL else f"{noun} {label!r} cannot be loaded"
        super().__init__(f"{what}: {message}")


class UnknownNameError(LookupError):
    """No built-in has this short name here; the message says which there are."""


class CodeChangedError(LoadError):
    """The code under the name of packed code is not the one that the session took."""

    def __init__(self, packed: Packed, modules: list[str], noun: str) -> None:
        """Name at most ``_NAMED_MAX`` of ``modules``."""
        named = ", ".join(modules[:_NAMED_MAX]) + (", …" if len(modules) > _NAMED_MAX else "")
        super().__init__(
            packed.label,
            f"its code has changed since the session took it ({named}); put the old code back, or"
            ' resume the session with code="latest"',
            noun,
        )


def load_tools(all_packed: Iterable[Packed]) -> tuple[Tool, ...]:
    """Return the tools in their order, each checked.

    Raises:
        LoadError: one cannot be loaded, is no tool, or has the name of an earlier one.
    """
    return load_all(all_packed, TOOLS, _as_own_tool)


def _as_own_tool(thing: object) -> Tool:
    tool = as_tool(thing)
    if tool.where == "client":
        raise InvalidTool(
            f"tool {tool.name!r} runs in the program that attaches it: give the tool, not its name"
        )
    return tool


def load_strategy(packed: Packed) -> ReasoningStrategy:
    """Return a new strategy, checked; one serves one run.

    Raises:
        LoadError: it cannot be loaded, or is no strategy.
    """
    [loaded] = load_all([packed], STRATEGIES, as_strategy)
    return loaded


def open_sandbox(packed: Packed | None, place: SandboxPlace) -> Sandbox:
    """Return a new sandbox that serves ``place``; without packed code it is the built-in Local.

    Raises:
        LoadError: it cannot be loaded, is no sandbox, or failed to begin.
        SandboxUnavailable: what it needs is not here.
    """
    given = packed or _LOCAL
    # A built-in one keeps the contract by its tests; to check it is half of the time to open it.
    admit = _as_it_is if given.is_built_in else as_sandbox
    [sandbox] = load_all([given], SANDBOXES, admit)
    try:
        foreign.call(lambda: sandbox.begin(place))
    except ForeignError as failed:
        if isinstance(failed.error, SandboxUnavailable):
            raise failed.error from failed
        raise LoadError(given.label, _explain(failed.error), SANDBOXES.noun) from failed
    return sandbox


def _as_it_is(thing: object) -> Sandbox:
    assert isinstance(thing, Sandbox)  # noqa: S101 - a built-in's create() returns nothing else
    return thing


def load_all(
    all_packed: Iterable[Packed], kind: CodeKind, admit: Callable[[object], _Loaded]
) -> tuple[_Loaded, ...]:
    """Return what was packed in its order, each as ``admit`` returns it.

    Raises:
        LoadError: one cannot be loaded, is not admitted, or has the name of an earlier one.
    """
    loaded: dict[str, _Loaded] = {}
    for packed in all_packed:
        one = _load(packed, kind, admit)
        if one.name in loaded:
            problem = f"another {kind.noun} is named {one.name!r} too"
            raise LoadError(packed.label, problem, kind.noun)
        loaded[one.name] = one
    return tuple(loaded.values())


@dataclass(slots=True)
class _Held(Generic[_Value]):
    name: str
    value: _Value


def load_provider(name: str) -> Provider:
    """Return a new provider: ``litellm`` means ``create`` in ``workers.builtin.providers.litellm``.

    Raises:
        LoadError: there is none of this name, or it can't be made here.
    """
    try:
        created: Provider = resolve(f"{PROVIDERS}.{name}:create")()  # type: ignore[operator]
    except (ImportError, AttributeError) as error:
        raise LoadError(name, _explain(error), "provider") from error
    return created


def load_own_provider(packed: Packed) -> Provider:
    """Return the provider that an application has given.

    Raises:
        LoadError: it can't be loaded, or is none.
    """
    kind = CodeKind("provider", built_in_tools)
    return _load(packed, kind, lambda thing: _Held("", as_provider(thing))).value


def load_checkpoint_backend(packed: Packed) -> CheckpointBackend | type[CheckpointBackend]:
    """Return the checkpoint backend that an application has given, or the class that makes it.

    Raises:
        LoadError: it can't be loaded, or is none.
    """
    return _load(packed, CodeKind("checkpoint backend", built_in_tools), _as_backend).value


def _as_backend(
    thing: Any,  # Any: it is checked here
) -> _Held[CheckpointBackend | type[CheckpointBackend]]:
    check_is_backend(thing)
    return _Held("", thing)


def load_function(packed: Packed, noun: str) -> Callable[..., Any]:  # Any: the caller knows
    """Return the function that was packed; ``noun`` is what error messages call it.

    Raises:
        LoadError: it can't be loaded, or can't be called.
    """
    return _load(packed, CodeKind(noun, built_in_tools), _as_function).value


def _as_function(thing: object) -> _Held[Callable[..., Any]]:  # Any: the caller knows
    if not callable(thing):
        raise TypeError(f"{type(thing).__name__} can't be called")
    return _Held(getattr(thing, "__name__", ""), thing)


def _load(packed: Packed, kind: CodeKind, admit: Callable[[object], _Loaded]) -> _Loaded:
    _check_python(packed, kind)
    try:
        modules = foreign.call(lambda: changed(packed))
        if not modules:
            return foreign.call(lambda: admit(_unpack(packed, kind)))
    except ForeignError as failed:  # foreign code runs here, and may even call sys.exit()
        raise LoadError(packed.label, _explain(failed.error), kind.noun) from failed
    raise CodeChangedError(packed, modules, kind.noun)


class _Opener(pickle.Unpickler):
    """Finds what is public of ours in the package that hands it on, if its module has gone."""

    def find_class(self, module_name: str, global_name: str) -> Any:  # Any: as the base says
        """Return a class or a function; sessions may be older than the place where it stands."""
        package, dot, _ = module_name.rpartition(".")
        try:
            return super().find_class(module_name, global_name)
        except (AttributeError, ModuleNotFoundError):
            if not dot or not module_name.startswith(f"{cmdc_runtime.__name__}."):
                raise
        return self.find_class(package, global_name)


def _unpack(packed: Packed, kind: CodeKind) -> object:
    if packed.kind == "value":
        return _Opener(io.BytesIO(packed.data or b"")).load()
    reference = packed.ref or ""
    given: dict[str, Any] = msgspec.msgpack.decode(packed.data) if packed.data else {}
    options = {name: _opened(value, kind) for name, value in given.items()}
    if ":" in reference:
        found = resolve(reference)
        return (found, options) if options else found
    names = _built_in_names(kind)
    if reference in _UNNAMED and kind is TOOLS:
        reference = f"_{reference}"
    elif reference not in names:
        known = ", ".join(sorted(names))
        raise UnknownNameError(f"there is no built-in {kind.noun} {reference!r}, only {known}")
    # Any: create() of a built-in, with arguments of its own.
    create: Any = resolve(f"{kind.built_in.__name__}.{reference}:create")
    created: object = create(**options)
    return created


def _opened(value: object, kind: CodeKind) -> object:
    """Return an option, with all that travelled in it, however deep it stands.

    A function is there as itself, a strategy as what makes a new one.
    """
    if isinstance(value, list):
        return [_opened(one, kind) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {STRATEGY_KEY}:
        return partial(load_strategy, msgspec.convert(value[STRATEGY_KEY], Packed))
    if value.keys() != {FUNCTION_KEY}:
        return {name: _opened(inner, kind) for name, inner in value.items()}
    packed = msgspec.convert(value[FUNCTION_KEY], Packed)
    _check_python(packed, kind)
    return _unpack(packed, kind)


@functools.cache
def _built_in_names(kind: CodeKind) -> frozenset[str]:
    found = pkgutil.iter_modules(kind.built_in.__path__)
    return frozenset(module.name for module in found if not module.name.startswith("_"))


def _check_python(packed: Packed, kind: CodeKind) -> None:
    here = sys.version_info[:2]
    if packed.python is not None and packed.python != here:
        raise LoadError(
            packed.label,
            f"its code was packed by Python {packed.python[0]}.{packed.python[1]}, and agents run"
            f" {here[0]}.{here[1]}: use the daemon's version, or install the {kind.noun} as a"
            ' package there and give "module:name"',
            kind.noun,
        )


def _explain(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"{foreign.text_of(error)}; install it where the daemon runs"
    if isinstance(error, ImportError | AttributeError):
        return f"{foreign.text_of(error)}; is another version installed where the daemon runs?"
    if isinstance(error, LoadError | UnknownNameError):  # of what travelled among its options
        return str(error)
    if isinstance(error, SystemExit):
        return f"its code called sys.exit({foreign.text_of(error)})"
    return foreign.summary_of(error)


# --- code that changed ----------------------------------------------------------------------------

MODULES_MAX: Final = 1_000
"""Modules of one packed code that are read: the first ones by name. More is no agent's code."""

Modules: TypeAlias = Mapping[str, str]
"""Digests of modules by their names."""

_DIGEST_BYTES: Final = 8


@dataclass(slots=True)
class Code:
    """The code behind one session's packed code, each known by its digest.

    ``known`` is what earlier processes took. ``is_latest``: whatever is there now is taken.
    ``news`` is what has still to be recorded.
    """

    known: dict[str, Modules] = field(default_factory=dict)
    is_latest: bool = False
    news: dict[str, dict[str, str]] = field(default_factory=dict)

    def wanted(self, packed: Packed) -> Packed:
        """Return packed code with the digests that it must have, none where any will do."""
        if self.is_latest:
            return msgspec.structs.replace(packed, code={})
        known = self.known.get(digest_of(packed), packed.code)
        return msgspec.structs.replace(packed, code=dict(known))

    def take(self, wanted: Packed) -> Packed:
        """Return packed code, which was opened, with its digests; new code is remembered."""
        if wanted.code:
            return wanted
        opened = with_code(wanted)
        name = digest_of(opened)
        if opened.code != self.known.get(name, {}):
            self.known[name] = self.news[name] = opened.code
        return opened


def with_code(packed: Packed) -> Packed:
    """Return packed code, which has just been opened, with the digests of its modules."""
    names = {name for one in _modules_of(packed) for name in companions(one)}
    found = {name: _digest(_loaded_spec(name)) for name in sorted(names)[:MODULES_MAX]}
    code = {name: digest for name, digest in found.items() if digest}
    return msgspec.structs.replace(packed, code=code)


def changed(packed: Packed) -> list[str]:
    """Return the modules of packed code that are other ones now, or gone; imports none."""
    specs: dict[str, ModuleSpec | None] = {}
    return [name for name, digest in packed.code.items() if _digest(_spec(name, specs)) != digest]


def _modules_of(packed: Packed) -> Iterator[str]:
    """Yield the modules that are named by packed code, or by one among its options."""
    if packed.kind == "value":
        return
    module, colon, _ = (packed.ref or "").partition(":")
    if colon:
        yield module
    for one in packed_in(packed):
        yield from _modules_of(one)


def _loaded_spec(name: str) -> ModuleSpec | None:
    spec: ModuleSpec | None = getattr(sys.modules.get(name), "__spec__", None)
    return spec


def _spec(name: str, known: dict[str, ModuleSpec | None]) -> ModuleSpec | None:
    """Return where a module would be imported from, as ``importlib`` finds it; imports nothing."""
    if name not in known:
        parent, path = name.rpartition(".")[0], None
        above = _spec(parent, known) if parent else None
        if above is not None:
            path = above.submodule_search_locations
        is_findable = not parent or path is not None
        finders = sys.meta_path if is_findable else []
        specs = (_found(finder, name, path) for finder in finders)
        known[name] = next((spec for spec in specs if spec is not None), None)
    return known[name]


def _found(finder: Any, name: str, path: Iterable[str] | None) -> ModuleSpec | None:
    """Return what one finder says (Any: it may be anybody's)."""
    try:
        found: ModuleSpec | None = finder.find_spec(name, path)
    except KeyError:  # a namespace in another, which looks for the one above among what is imported
        folder = name.rpartition(".")[2]
        found = ModuleSpec(name, None, is_package=True)
        places = (os.path.join(one, folder) for one in path or ())  # noqa: PTH118 - as importlib
        found.submodule_search_locations = [one for one in places if Path(one).is_dir()]
    return found


def _digest(spec: ModuleSpec | None) -> str:
    """Return the digest of a module's file, empty where it has none that can be read."""
    read = getattr(None if spec is None else spec.loader, "get_data", None)
    if spec is None or spec.origin is None or read is None:
        return ""
    try:
        data = read(spec.origin)
    except Exception:  # noqa: BLE001 - a loader may be anybody's
        return ""
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()


# --- plugins --------------------------------------------------------------------------------------

PLUGINS: Final = CodeKind("plugin", built_in_plugins)


def load_plugins(all_packed: Iterable[Packed]) -> tuple[Plugin, ...]:
    """Return new plugins in their order, each checked.

    Raises:
        LoadError: one cannot be loaded, is no plugin, or has the name of an earlier one.
    """
    return load_all(all_packed, PLUGINS, as_plugin)
