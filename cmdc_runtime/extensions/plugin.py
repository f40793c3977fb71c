"""Plugins: code that is asked at fixed points of a session and may change what happens next.

A subclass of ``Plugin`` writes a method for each hook it wants, or one ``handle_event``
for all of them. What an application gives as a plugin comes in by ``admission.as_plugin``. Options
are held against the fields of ``Config``: every problem is reported at once, each with its option.

To add a rule for all plugins, add it to ``admission``.
"""

import inspect
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import islice
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
)

import msgspec

from cmdc_runtime.checked_struct import Checked, misfit, no_such
from cmdc_runtime.errors import PROBLEMS_MAX, InvalidOptions
from cmdc_runtime.events import Event
from cmdc_runtime.events.base import Level
from cmdc_runtime.extensions.actions import Actions, may_stop
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import (
    HOOKS,
    AfterResponse,
    AfterTool,
    AfterToolBatch,
    AfterTurn,
    AnyHook,
    BeforeCompact,
    BeforeFinish,
    BeforePrompt,
    BeforeRequest,
    BeforeSteering,
    BeforeTool,
    OnToolError,
    SessionEnd,
    SessionStart,
)
from cmdc_runtime.plain import kept_numbers_problem, short
from cmdc_runtime.reasons import snake

# --- options against their fields -----------------------------------------------------------------

_S = TypeVar("_S", bound=msgspec.Struct)


def config_of(
    plugin: str,
    config: type[msgspec.Struct],
    given: Mapping[str, Any],  # Any: options as they come
) -> msgspec.Struct:
    """Return the options of ``plugin`` as its ``config`` says, defaults filled in.

    Raises:
        InvalidOptions: options are missing, unknown or wrong; it names each.
    """
    return made(f"plugin {plugin!r}", config, given, config)


def made(
    owner: str,
    config: type[msgspec.Struct],
    given: Mapping[str, Any],  # Any: options as they come
    make: Callable[..., _S],
) -> _S:
    """Return what ``make`` returns for the options of ``owner``, converted to ``config``'s types.

    What the types of the fields convert to is taken: a list is as good as a set or a tuple. A
    number in them is finite and of 64 bits, as everywhere.

    Raises:
        InvalidOptions: options are missing, unknown or wrong, or ``make`` refuses them together.
    """
    try:
        fields = {field.name: field for field in msgspec.structs.fields(config)}
    except (NameError, TypeError) as error:
        raise InvalidOptions([f"{owner}: its Config cannot be read: {error}"]) from error
    strangers = islice((name for name in given if name not in fields), PROBLEMS_MAX)
    problems = [f"{owner}: {no_such(name, [*fields], 'option')}" for name in strangers]
    values = {}
    for name, field in fields.items():
        if name not in given:
            if field.required:
                problems.append(f"{owner}: option {name!r} is missing")
            continue
        if (problem := kept_numbers_problem(given[name])) is not None:
            place = problem if problem.startswith("[") else f": {problem}"
            problems.append(f"{owner}: option {name!r}{place}")
            continue
        try:
            values[name] = msgspec.convert(given[name], field.type)
        except (TypeError, ValueError) as error:  # a ValidationError is one
            why = misfit(str(error), field.type, given[name], name)
            problems.append(f"{owner}: option {name!r}: {why}")
    if problems:
        raise InvalidOptions(problems)
    try:
        return make(**values)
    except InvalidOptions:
        raise
    except Exception as error:  # its __post_init__ refused them together
        raise InvalidOptions([f"{owner}: {error}"]) from error


# --- plugins --------------------------------------------------------------------------------------

Fail: TypeAlias = Literal["open", "closed", "disable"]
"""What a failure of the plugin means, be it an exception, a timeout or an answer that can't be: the
session goes on without it, the cycle is aborted where the hook allows it, or the plugin is not
asked again in this process."""
HookAnswer: TypeAlias = Actions | Awaitable[Actions]
"""What a method of a plugin returns: an ``async def`` is as good as a ``def``."""
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultedTypeVar

    # Any: who does not say what it is has it inside of the class.
    ConfigT = DefaultedTypeVar("ConfigT", default=Any)
    StateT = DefaultedTypeVar("StateT", default=Any)
else:
    ConfigT = TypeVar("ConfigT")
    StateT = TypeVar("StateT")
Method = TypeVar("Method", bound=Callable[..., Any])  # Any: a method of any hook

PRIORITY_DEFAULT: Final = 500
PRIORITY_MAX: Final = 1000
HOOK_TIMEOUT_S_MAX: Final = 3600.0
"""The session waits for a hook; who needs more time does it elsewhere."""
HANDLE_EVENT: Final = "handle_event"
OBSERVE: Final = "observe"
FILTER_OUTPUT: Final = "filter_output"
_SETTINGS: Final = "__cmdc_hook__"


class HookSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What ``@hook`` says about one method."""

    tools: frozenset[str] | None = None
    """None is every tool."""
    timeout_s: float | None = None
    """None is the default of the pipeline."""


_NO_SETTINGS: Final = HookSettings()


class NoOptions(msgspec.Struct, frozen=True):
    """The ``Config`` of a plugin without options."""


class NoState(msgspec.Struct):
    """The ``State`` of a plugin that remembers nothing."""


Channel: TypeAlias = Literal["text", "thinking"]
"""What of an answer a text is: what the model says, or what it thinks."""


class TextFilter(Protocol):
    """Changes the text of one answer while it streams, before anybody sees it.

    It runs in the session's own loop for each piece, so it must be quick. An error in it, and what
    is no text, ends the cycle if the plugin fails closed; else the rest of the answer passes as it
    is. One that lets nothing more pass says so by an attribute ``has_ended``, which is True from
    then on: no more of the answer is shown, nor the status or the title that it stands in.
    """

    def feed(self, text: str) -> str:
        """Take the next piece and return what may be shown now; the rest is kept for later."""

    def close(self) -> str:
        """Return what is left to show: the answer is complete."""


class PipelineRun(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """All plugins of a session were asked at one hook; only ``observe`` gets it, no subscriber."""

    level: ClassVar[Level] = "debug"
    content_fields: ClassVar[tuple[str, ...]] = ()

    hook: str
    duration_ms: float
    plugins: int
    """How many were asked."""
    halted_by: str | None = None
    """The plugin that kept later ones from being asked."""
    crashed: tuple[str, ...] = ()
    """Those that failed."""
    ignored: tuple[tuple[str, str], ...] = ()
    """Plugin and kind of each action that the hook does not take."""


Observed: TypeAlias = Event | PipelineRun
"""What ``observe`` gets."""


class _Unsaid:
    """The policy of a plugin that says nothing about it."""

    def __get__(self, plugin: "Plugin | None", owner: "type[Plugin]") -> Fail:
        """Return what a failure means of a plugin of this class."""
        return "closed" if _may_stop(owner) else "open"


_declared: Final[set[str]] = set()
"""What the plugin classes of this process say that they emit."""


def declared_events() -> frozenset[str]:
    """Return the names in ``emits`` of all plugin classes of this process."""
    return frozenset(_declared)


def _arguments_of(kind: type) -> dict[str, type[msgspec.Struct]]:
    """Return what a class gives for ``Plugin[...]``, by attribute; names of classes say nothing."""
    given: dict[str, type[msgspec.Struct]] = {}
    for base in vars(kind).get("__orig_bases__", ()):
        if get_origin(base) is Plugin:
            pairs = zip(("Config", "State"), get_args(base), strict=True)
            given |= {
                name: one
                for name, one in pairs
                if isinstance(one, type) and issubclass(one, msgspec.Struct)
            }
    return given


class Plugin(Generic[ConfigT, StateT]):
    """Base of all plugins.

    ``class Guard(Plugin[Options, Memory])`` has these two as its ``Config`` and its ``State``, and
    type checkers know ``self.config`` and ``self.state`` by them. They may as well stand inside of
    the class, under these names; then the two are ``Any`` to a type checker, unless
    ``config: Config`` and ``state: State`` stand below them.

    Each method below is a hook. It runs while the session waits at that point: a ``def`` in a
    thread of its own, an ``async def`` as part of the session's task, where it must not block. One
    instance serves one session, and its methods never run at the same time. Plugins are asked by
    ``priority``, small first; what the hook allows is the table in
    ``cmdc_runtime.extensions.hooks``. A method that raises, returns something else or takes too
    long counts as ``Continue``, its changes of ``state`` are undone, observers are notified by
    ``PluginCrashed``, and ``fail`` says what follows. The hook and the context are read-only.
    """

    name: str = ""
    """1 to 64 of ``a-z 0-9 _ -``, unique within a session: the class name in snake_case unless the
    class sets it; it is not inherited."""
    priority: int = PRIORITY_DEFAULT
    """1 to 1000, small first; equal ones are asked in the order of the options."""
    fail: Fail = _Unsaid()  # type: ignore[assignment]  # what is read of it is a Fail
    """What a failure means; unless the class says so, "closed" for a guard, "open" for any other.

    A guard is a plugin that may answer ``Abort`` or ``BlockTool`` where a hook takes it: a method
    whose return annotation admits one, or that has no annotation; and one that has answered so.
    """

    Config: ClassVar[type[msgspec.Struct]] = NoOptions
    """The options, as fields: ``class Config(msgspec.Struct, frozen=True)``."""
    State: ClassVar[type[msgspec.Struct]] = NoState
    """What the plugin remembers, as fields with defaults: ``class State(msgspec.Struct)``. It
    outlives a crash."""

    emits: ClassVar[tuple[str, ...]] = ()
    """Names of the events that it emits, for people, the reference and ``subscribe(types=…)``;
    nothing else checks it."""

    config: ConfigT
    """An instance of ``Config``."""
    state: StateT
    """An instance of ``State``."""

    if not TYPE_CHECKING:  # who checks types knows that both have a default

        def __class_getitem__(cls, given: Any) -> Any:  # Any: types, or their names
            """Return the class with its ``Config``, and its ``State`` if that is given too."""
            both = given if isinstance(given, tuple) else (given, Any)
            return super().__class_getitem__(both)

    def __init_subclass__(cls, **arguments: Any) -> None:  # Any: whatever a base class takes
        """Name the class."""
        super().__init_subclass__(**arguments)
        for attribute, given in _arguments_of(cls).items():
            if attribute not in vars(cls):
                setattr(cls, attribute, given)
        if "name" not in vars(cls):
            cls.name = snake(cls.__name__)
        said: object = cls.emits
        if isinstance(said, Iterable):
            _declared.update(name for name in said if isinstance(name, str))

    def __init__(self, **config: Any) -> None:  # Any: options as they come
        """Check the options and start with a new state.

        Raises:
            InvalidOptions: options are missing, unknown or wrong; it names each.
        """
        made: Any = config_of(self.name, self.Config, config)  # Any: the class's own, as below
        self.config = made
        remembered: Any = self.State()
        self.state = remembered

    def handle_event(self, event: AnyHook, context: PluginContext) -> HookAnswer:
        """Answer to any hook; unless overridden, the method of that hook does."""
        answer: HookAnswer = getattr(self, event.kind)(event, context)
        return answer

    def session_start(self, event: SessionStart, context: PluginContext) -> HookAnswer:
        """Answer when the process is ready, before the first prompt; again after each crash."""

    def session_end(self, event: SessionEnd, context: PluginContext) -> HookAnswer:
        """Hear that the session ends normally; not asked when its process crashes."""

    def after_turn(self, event: AfterTurn, context: PluginContext) -> HookAnswer:
        """Take how a cycle ended, after its last event and before the next one."""

    def before_prompt(self, event: BeforePrompt, context: PluginContext) -> HookAnswer:
        """Answer before a prompt opens its cycle."""

    def before_request(self, event: BeforeRequest, context: PluginContext) -> HookAnswer:
        """Answer before each request, after the history is repaired."""

    def after_response(self, event: AfterResponse, context: PluginContext) -> HookAnswer:
        """Answer to the model's message, before its tools run or the cycle ends."""

    def before_tool(self, event: BeforeTool, context: PluginContext) -> HookAnswer:
        """Answer before one call runs, its arguments checked."""

    def on_tool_error(self, event: OnToolError, context: PluginContext) -> HookAnswer:
        """Answer to each failure of a call, before it is tried again."""

    def after_tool(self, event: AfterTool, context: PluginContext) -> HookAnswer:
        """Answer to the result of one call, before the model sees it."""

    def after_tool_batch(self, event: AfterToolBatch, context: PluginContext) -> HookAnswer:
        """Answer when all calls of a message have results, before the next request."""

    def before_finish(self, event: BeforeFinish, context: PluginContext) -> HookAnswer:
        """Answer when the model asks for no tool, before the cycle ends."""

    def before_compact(self, event: BeforeCompact, context: PluginContext) -> HookAnswer:
        """Answer before the conversation is compacted; ``Skip`` prevents it."""

    def before_steering(self, event: BeforeSteering, context: PluginContext) -> HookAnswer:
        """Answer before a text is queued as steering; ``Abort`` refuses it."""

    def observe(self, event: Observed, context: PluginContext) -> Awaitable[None] | None:
        """Hear of an event that the session has published; no hook, nothing waits for it.

        Events come in their order, a little after subscribers see them. A plugin that cannot keep
        up misses some, and the log says how many. It may neither answer nor change ``state``.
        """

    def filter_output(self, channel: Channel, context: PluginContext) -> TextFilter | None:  # noqa: ARG002 - for subclasses
        """Return a new filter for one answer's texts of ``channel``, None to let them pass.

        ``context`` is the same object for all filters of one answer; each ``<status>`` and
        ``<title>`` in it has a filter of its own.
        """
        return None


def hook(
    *, tools: Iterable[str] | None = None, timeout: float | None = None
) -> Callable[[Method], Method]:
    """Narrow a method: it gets only calls of ``tools``, and has ``timeout`` seconds.

    ``tools`` is for ``before_tool``, ``on_tool_error``, ``after_tool`` and ``handle_event``.

    Raises:
        InvalidOptions: these settings can't be.
    """
    problems = []
    names = None if tools is None or isinstance(tools, str) else list(tools)
    if isinstance(tools, str) or not all(name and isinstance(name, str) for name in names or ()):
        problems.append(f"@hook: tools must be a list of names, got {short(tools)}")
    if timeout is not None and not _is_timeout(timeout):
        problems.append(
            f"@hook: timeout must be seconds, above 0 and up to {HOOK_TIMEOUT_S_MAX:g},"
            f" got {short(timeout)}"
        )
    if problems:
        raise InvalidOptions(problems)
    settings = HookSettings(
        tools=None if names is None else frozenset(names),
        timeout_s=None if timeout is None else float(timeout),
    )

    def narrow(method: Method) -> Method:
        setattr(method, _SETTINGS, settings)
        return method

    return narrow


def hooks_of(plugin: Plugin) -> frozenset[str]:
    """Return the hooks of a plugin: those with a method of its own, or all by one method."""
    if _is_own(plugin, HANDLE_EVENT):
        return frozenset(HOOKS)
    return frozenset(kind for kind in HOOKS if _is_own(plugin, kind))


def declares_fail(plugin: Plugin) -> bool:
    """Say whether a plugin's own classes say what a failure of it means."""
    return not isinstance(inspect.getattr_static(type(plugin), "fail"), _Unsaid)


def _may_stop(plugin: type[Plugin]) -> bool:
    if getattr(plugin, HANDLE_EVENT) is not getattr(Plugin, HANDLE_EVENT):
        return may_stop(HOOKS, getattr(plugin, HANDLE_EVENT))
    own = ((kind, getattr(plugin, kind)) for kind in HOOKS)
    return any(
        may_stop((kind,), method) for kind, method in own if method is not getattr(Plugin, kind)
    )


def observes(plugin: Plugin) -> bool:
    """Say whether a plugin gets published events."""
    return _is_own(plugin, OBSERVE)


def filters_output(plugin: Plugin) -> bool:
    """Say whether a plugin may change what the model says."""
    return _is_own(plugin, FILTER_OUTPUT)


def settings_of(plugin: Plugin, kind: str) -> HookSettings:
    """Return what ``@hook`` says about the method for ``kind``."""
    methods = (getattr(plugin, name) for name in (kind, HANDLE_EVENT))
    found = (decorated(method) for method in methods)
    return next((settings for settings in found if settings is not None), _NO_SETTINGS)


def decorated(method: object) -> HookSettings | None:
    """Return what ``@hook`` says about a method, None where it has no such decorator."""
    settings: HookSettings | None = getattr(method, _SETTINGS, None)
    return settings


def is_async(plugin: Plugin, kind: str) -> bool:
    """Say whether ``handle_event`` makes a coroutine of ``kind`` without running code for long."""
    name = HANDLE_EVENT if _is_own(plugin, HANDLE_EVENT) else kind
    return inspect.iscoroutinefunction(getattr(plugin, name))


def _is_own(plugin: Plugin, method: str) -> bool:
    return getattr(type(plugin), method) is not getattr(Plugin, method)


def _is_timeout(seconds: Any) -> bool:  # Any: whatever a stranger wrote
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return is_number and math.isfinite(seconds) and 0 < seconds <= HOOK_TIMEOUT_S_MAX
