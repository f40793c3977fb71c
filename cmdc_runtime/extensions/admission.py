"""What an application gave as a plugin, strategy or sandbox, as one that keeps the contract.

One that breaks it is refused before its session starts, with everything that is wrong in one
error. To add a rule for all plugins, add it to ``_problems``; for all strategies, to
``_strategy_problems``.
"""

import copy
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar, get_args

import msgspec

from cmdc_runtime.callables import call_problem, yield_problem
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.extensions.actions import MATRIX, annotated
from cmdc_runtime.extensions.backend import Backend
from cmdc_runtime.extensions.backend_sandbox import BackendSandbox
from cmdc_runtime.extensions.hooks import HOOKS, TOOL_HOOKS, Ruling
from cmdc_runtime.extensions.plugin import (
    FILTER_OUTPUT,
    HANDLE_EVENT,
    OBSERVE,
    PRIORITY_MAX,
    Fail,
    Plugin,
    decorated,
    filters_output,
    hooks_of,
    observes,
)
from cmdc_runtime.extensions.reasoning import ReasoningStrategy
from cmdc_runtime.extensions.sandbox import Sandbox
from cmdc_runtime.extensions.tool import resolve
from cmdc_runtime.plain import nearest, short

_NAME: Final = re.compile(r"[a-z0-9_-]{1,64}")
_PAIR: Final = 2
_HOOK_LIKENESS: Final = 0.8
"""Of a method's name to a hook's from which on it is taken for a mistyped one."""
_ABOUT_TOOLS: Final = {*TOOL_HOOKS, HANDLE_EVENT}
_Base = TypeVar("_Base", Plugin, ReasoningStrategy, Sandbox)
_NOUNS: Final[Mapping[type, str]] = {
    Plugin: "plugin",
    ReasoningStrategy: "strategy",
    Sandbox: "sandbox",
}
_FORMS: Final[Mapping[str, tuple[str, str]]] = {
    "plugin": ("cmdc.Plugin", "cmdc.plugins"),
    "strategy": ("cmdc.ReasoningStrategy", "cmdc.reasoning"),
    "sandbox": ("cmdc.Sandbox", "cmdc.sandbox"),
}
"""The base that is to be subclassed, and where ours are."""


def as_plugin(candidate: object) -> Plugin:
    """Return the plugin that ``candidate`` is, has as a class, or names as ``"module:Class"``.

    A class, or its name, may come with options: ``(Guard, {"denied": ["curl"]})``.

    Raises:
        InvalidOptions: it is none, its options are wrong, or it breaks the contract; it names the
            plugin and all that has to change.
    """
    plugin = _instance(candidate, Plugin)
    _refuse(f"plugin {short(plugin.name)}", _problems(plugin))
    return plugin


def as_strategy(candidate: object) -> ReasoningStrategy:
    """Return the strategy that ``candidate`` is, has as a class, or names as ``"module:Class"``.

    A class, or its name, may come with options: ``(Mine, {"depth": 3})``.

    Raises:
        InvalidOptions: as for ``as_plugin``.
    """
    strategy = _instance(candidate, ReasoningStrategy)
    _refuse(f"strategy {short(strategy.name)}", _strategy_problems(strategy))
    return strategy


def as_sandbox(candidate: object) -> Sandbox:
    """Return the sandbox that ``candidate`` is, has as a class, or names as ``"module:Class"``.

    A class, or its name, may come with options: ``(Mine, {"image": "debian"})``. A ``Backend`` in
    any of these forms is a sandbox as well: tools read and write what it keeps.

    Raises:
        InvalidOptions: as for ``as_plugin``.
    """
    if (backend := _backend_of(candidate)) is not None:
        return BackendSandbox(backend)
    sandbox = _instance(candidate, Sandbox)  # type: ignore[type-abstract]  # none is made of it
    _refuse(f"sandbox {short(sandbox.name)}", _sandbox_problems(sandbox))
    return sandbox


def _backend_of(candidate: object) -> Backend | None:
    """Return the backend that something is, or names or describes as a sandbox."""
    thing, options = _parted(candidate, "sandbox")
    found = _named(thing, "sandbox") if isinstance(thing, str) else thing
    if isinstance(found, Backend):
        if options is not None:
            raise InvalidOptions(["the backend is an instance and takes no options"])
        return found
    if not (isinstance(found, type) and issubclass(found, Backend)):
        return None
    try:
        return found(**(options or {}))
    except InvalidOptions:
        raise
    except Exception as error:  # its constructor is a stranger's code
        name = short(found.__qualname__)
        raise InvalidOptions(
            [f"backend {name} cannot be made: {type(error).__name__}: {error}"]
        ) from error


def _instance(candidate: object, base: type[_Base]) -> _Base:
    noun = _NOUNS[base]
    thing, options = _parted(candidate, noun)
    found = _named(thing, noun) if isinstance(thing, str) else thing
    if isinstance(found, base):
        if options is not None:
            raise InvalidOptions(
                [f"{noun} {short(found.name)} is an instance and takes no options"]
            )
        return found
    if isinstance(found, type) and issubclass(found, base):
        return _made(found, options or {}, noun)
    raise InvalidOptions([f"{short(thing)} is no {noun}: {_forms(noun)}"])


def _refuse(what: str, problems: Iterator[str]) -> None:
    found = [f"{what}: {problem}" for problem in problems]
    if found:
        raise InvalidOptions(found)


def _forms(noun: str) -> str:
    base, ours = _FORMS[noun]
    return (
        f"give a {base} class or instance, (class, {{option: value}}),"
        f' "module:Class", or one of {ours}'
    )


# Any: options as they come.
def _parted(candidate: object, noun: str) -> tuple[object, Mapping[str, Any] | None]:
    if not isinstance(candidate, tuple):
        return candidate, None
    if len(candidate) != _PAIR or not isinstance(candidate[1], Mapping):
        raise InvalidOptions([f"{short(candidate)} is no {noun}: {_forms(noun)}"])
    return candidate


def _named(reference: str, noun: str) -> object:
    if not all(reference.partition(":")):
        raise InvalidOptions([f"{short(reference)} is no {noun}: {_forms(noun)}"])
    try:
        return resolve(reference)
    except (ImportError, AttributeError) as error:
        raise InvalidOptions([f"{noun} {short(reference)}: {error}"]) from error


# Any: options as they come.
def _made(extension: type[_Base], options: Mapping[str, Any], noun: str) -> _Base:
    try:
        return extension(**options)
    except InvalidOptions:
        raise
    except Exception as error:  # its constructor is a stranger's code
        raise InvalidOptions(
            [f"{noun} {short(extension.name)} cannot be made: {type(error).__name__}: {error}"]
        ) from error


def _strategy_problems(strategy: ReasoningStrategy) -> Iterator[str]:
    """Yield every way in which a strategy breaks the contract."""
    given: Any = strategy  # Any: its attributes are what a stranger wrote
    if not isinstance(given.name, str) or not _NAME.fullmatch(given.name):
        yield f"name must be 1 to 64 of a-z 0-9 _ -, got {short(given.name)}"
    for method in ("init", "step", "aggregate", "early", "best"):
        if not callable(found := getattr(strategy, method)):
            yield f"{method} must be a method, got {short(found)}"
        elif inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found):
            yield f"{method} must not be async: what takes time is a branch"
    if getattr(type(strategy), "step") is getattr(ReasoningStrategy, "step"):  # noqa: B009 - as data
        yield "it has no method step"


def _sandbox_problems(sandbox: Sandbox) -> Iterator[str]:
    """Yield every way in which a sandbox breaks the contract."""
    given: Any = sandbox  # Any: its attributes are what a stranger wrote
    if not isinstance(given.name, str) or not _NAME.fullmatch(given.name):
        yield f"name must be 1 to 64 of a-z 0-9 _ -, got {short(given.name)}"
    if not isinstance(given.confines, bool):
        yield f"confines must be True or False, got {short(given.confines)}"
    for method in sorted(Sandbox.__abstractmethods__):
        found = getattr(sandbox, method)
        is_async = inspect.iscoroutinefunction(found)
        if not callable(found):
            yield f"{method} must be a method, got {short(found)}"
        elif is_async != inspect.iscoroutinefunction(getattr(Sandbox, method)):
            yield f"{method} must {'not ' if is_async else ''}be async"


def _problems(plugin: Plugin) -> Iterator[str]:
    """Yield every way in which a plugin breaks the contract."""
    given: Any = plugin  # Any: its attributes are what a stranger wrote
    if not isinstance(given.name, str) or not _NAME.fullmatch(given.name):
        yield f"name must be 1 to 64 of a-z 0-9 _ -, got {short(given.name)}"
    if not _is_priority(given.priority):
        yield f"priority must be 1 to {PRIORITY_MAX}, got {short(given.priority)}"
    if given.fail not in get_args(Fail):
        yield f"fail must be one of {get_args(Fail)}, got {short(given.fail)}"
    if not (hooks_of(plugin) or observes(plugin) or filters_output(plugin)):
        yield (
            f"it has no method named as a hook: {', '.join(HOOKS)};"
            f" nor {OBSERVE} or {FILTER_OUTPUT}"
        )
    yield from _mistyped(type(plugin))
    if not hasattr(plugin, "config") or not hasattr(plugin, "state"):
        yield "its __init__ must call super().__init__(**config)"
    else:
        yield from _state_problems(plugin)
    yield from _method_problems(plugin)
    yield from _call_problems(plugin)


def _call_problems(plugin: Plugin) -> Iterator[str]:
    """Yield the methods that the session could not call, or whose body would never run."""
    for name in (*HOOKS, HANDLE_EVENT, OBSERVE, FILTER_OUTPUT):
        if getattr(type(plugin), name) is getattr(Plugin, name):
            continue
        given, method = ("event", "context"), getattr(plugin, name)
        if name == FILTER_OUTPUT:
            given = ("channel", "context")
            if inspect.iscoroutinefunction(method):
                yield f"{name} must not be async: it returns a filter at once"
        if not callable(method):
            yield f"{name} must be a method, got {short(method)}"
        elif (problem := call_problem(method, *given)) is not None:
            yield f"{name} {problem}"
        elif (problem := yield_problem(method)) is not None:
            yield f"{name}: {problem}"


def _mistyped(kind: type[Plugin]) -> Iterator[str]:
    """Yield the methods that take what a hook does, under a name that is nearly one.

    They would never be called. A helper of another name, or with an underscore before it, is none.
    """
    known = (*HOOKS, OBSERVE, FILTER_OUTPUT, HANDLE_EVENT)
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if name.startswith("_") or name in known or hasattr(Plugin, name):
            continue
        near = nearest(name.lower(), known, _HOOK_LIKENESS)
        if near is not None and _takes(method, near):
            yield f"{name} is no hook; did you mean {near}? A helper is called _{name}"


def _takes(method: Callable[..., object], hook: str) -> bool:
    """Say whether a method takes as many arguments as a hook, be it wrongly named."""
    try:
        given, wanted = inspect.signature(method), inspect.signature(getattr(Plugin, hook))
    except (TypeError, ValueError):
        return False
    return len(given.parameters) == len(wanted.parameters)


def _is_priority(value: Any) -> bool:  # Any: what a stranger wrote
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= PRIORITY_MAX


def _state_problems(plugin: Plugin) -> Iterator[str]:
    """Yield why the state could not be kept, or not be taken back."""
    try:
        plugin.State()
        if not isinstance(plugin.state, plugin.State):
            yield f"state must be a State, got {type(plugin.state).__name__}"
        msgspec.msgpack.decode(msgspec.msgpack.encode(plugin.state), type=plugin.State)
        copy.copy(plugin)
    except Exception as error:  # noqa: BLE001 - its classes are a stranger's code
        yield f"its State must be fields with defaults that MessagePack takes: {error}"


def _method_problems(plugin: Plugin) -> Iterator[str]:
    for name, method in inspect.getmembers(type(plugin), callable):
        settings = decorated(method)
        if settings is not None and name not in {*HOOKS, HANDLE_EVENT}:
            yield f"{name} has @hook and is no hook"
        elif settings is not None and settings.tools is not None and name not in _ABOUT_TOOLS:
            yield f"{name} is not about a tool, so @hook takes no tools there"
        if name in HOOKS:
            yield from (
                f"{name} does not take {action.__name__}"
                for action in annotated(method) or ()
                if MATRIX.get((name, action)) is Ruling.REFUSED
            )
