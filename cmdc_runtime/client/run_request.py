"""A run of a strategy as ``Runner.run`` is asked for it, and what its events come to."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias, TypedDict, TypeVar

import msgspec

from cmdc_runtime import reasoning
from cmdc_runtime.client.arguments import SessionLike
from cmdc_runtime.errors import AgentAborted, InvalidOptions
from cmdc_runtime.events import AgentAbort, AgentError, Event, PromptDropped, ReasoningDone
from cmdc_runtime.ids import new_command_id
from cmdc_runtime.messages import OpeningCall
from cmdc_runtime.options import Options, parse
from cmdc_runtime.packing import BuiltInStrategy
from cmdc_runtime.plain import short, shown
from cmdc_runtime.reasoning.limits import Reason
from cmdc_runtime.reasoning.result import ReasoningEvent, ReasoningResult, failed
from cmdc_runtime.reasoning.strategies import check_scorers
from cmdc_runtime.reasons import LINE_CHARS_MAX
from cmdc_runtime.spec import refused_parts

ENDED: Final = "the runner was ended"
"""The reason of a cycle's end whose runner was left early."""
RUN_END_S: Final = 60.0
"""For the branches of a run to end whose cycle was aborted: its end comes after theirs."""
REST_S: Final = 60.0
"""Until the process of a session is given up that was made for a run, where its client is gone: it
is what ends the session. A run goes on to its own end before that."""
CRASHED: Final = "crashed("
"""What the reason of a cycle begins with that was given up since processes died of it."""
_CHILDREN_DEFAULT: Final = Options().max_children
_PAIR: Final = 2
_OWN: Final = "reasoning_strategy"
_PLACE: Final = re.compile(r"^strategies\[0\]")

OnEvent: TypeAlias = Callable[[ReasoningEvent], Any]  # Any: an awaitable, or nothing of interest


class RunOptions(TypedDict, total=False):
    """What ``Runner.run`` takes besides the strategy and the question."""

    session: SessionLike | None
    """Where the run belongs to; None: a session that is made for it, and ends with it. That of a
    client that is killed or closed ends its run, and hibernates: after a minute, or as
    ``hibernate_after`` says."""
    options: Options | Mapping[str, Any] | None  # Any: see ``Options``
    """Of the session that is made."""
    model: object
    """Of the session that is made, over ``options``."""
    max_steps: int
    max_parallel: int
    max_revisions: int
    budget_usd: float | None
    budget_tokens: int | None
    timeout: float | None
    """These six bound the run, as ``cmdc.reasoning.RunLimits`` says."""
    score: object
    """The strategy's option of this name: a function, or its ``"module:name"``."""
    on_event: OnEvent | None
    """Called with each event of the run, by who runs it; what it raises ends the run."""


Method = TypeVar("Method", bound=Callable[..., Any])  # Any: a method of any arguments
_DEFAULTS: Final = {one.name: one.default for one in msgspec.structs.fields(reasoning.RunLimits)}


def spelled(method: Method) -> Method:
    """Have whoever looks at a method's signature see each keyword of ``RunOptions``."""
    found = inspect.signature(method)
    *named, given = found.parameters.values()
    keywords = [
        given.replace(
            name=name,
            kind=inspect.Parameter.KEYWORD_ONLY,
            default=_DEFAULTS.get(name),
            annotation=hint,
        )
        for name, hint in RunOptions.__annotations__.items()
    ]
    vars(method)["__signature__"] = found.replace(parameters=[*named, *keywords])
    return method


class RunRequest:
    """One run as it was asked for, checked."""

    def __init__(
        self, strategy: object, given: RunOptions, client: tuple[object, type] | None = None
    ) -> None:
        """Take what ``Runner.run`` was given; ``client`` with the class that it has to be of.

        Raises:
            InvalidOptions: ``problems`` has one line for each wrong argument.

        """
        left: dict[str, Any] = dict(given)  # Any: as they come
        self.session: Any = left.pop("session", None)
        self.on_event: OnEvent | None = left.pop("on_event", None)
        self._options: Any = left.pop("options", None)  # Any, here and below: checked later
        self._model: Any = left.pop("model", None)
        problems = self._problems()
        if client is not None and not isinstance(client[0], client[1] | None):
            problems.append(f"client: expected a {client[1].__name__}, got {short(client[0])}")
        score = left.pop("score", None)
        try:
            strategy = strategy if score is None else with_score(strategy, score)
        except InvalidOptions as error:
            problems += error.problems
        wrong = sorted(left.keys() - _DEFAULTS.keys())
        problems += [f"{name}: Runner.run takes no such argument" for name in wrong]
        bounds = {name: value for name, value in left.items() if name in _DEFAULTS}
        self._tool = Reason(strategies=[strategy], **bounds)
        problems += self._refused_by_tool()
        if problems:
            raise InvalidOptions(sorted({*problems, *self._refused_by_session()}))

    def _problems(self) -> list[str]:
        """Return what is wrong with the arguments that are neither the session's nor the run's."""
        found = []
        if self.session is not None and (self._options, self._model) != (None, None):
            found.append("session: takes neither options nor model: it has its own")
        if not isinstance(self._options, Options | Mapping | None):
            found.append(f"options: expected Options or a dict, got {short(self._options)}")
            self._options = None
        base = self._options
        own = base.get(_OWN) if isinstance(base, Mapping) else getattr(base, _OWN, None)
        if own is not None:
            found.append(f"options: {_OWN}: it would never run: give it as the strategy")
        listener: Any = self.on_event  # Any: as it came
        if not (listener is None or callable(listener)):
            found.append(f"on_event: expected a function, got {short(listener)}")
        return found

    def _refused_by_tool(self) -> list[str]:
        """Return what is wrong with the strategy, and with what bounds its run."""
        try:
            self._tool.to_options()
        except InvalidOptions as error:
            return [_PLACE.sub("strategy", problem) for problem in error.problems]
        return []

    def _refused_by_session(self) -> list[str]:
        """Return what is wrong with the options of the session that would be made."""
        if self.session is not None:
            return []
        base, options = self.definition()
        try:
            refused = refused_parts(parse(base, options | {"reasoning_strategy": None}))
        except InvalidOptions as error:
            return list(error.problems)
        return refused

    def definition(self) -> tuple[Options | None, dict[str, Any]]:  # Any: see ``Options``
        """Return what the session is to be made of."""
        base, given = (
            (self._options, {})
            if self._options is None or isinstance(self._options, Options)
            else (None, dict(self._options))
        )
        if self._model is not None:
            given["model"] = self._model
        children = given.get("max_children", (base or Options()).max_children)
        parallel: Any = self._tool.max_parallel  # Any: checked when it is packed
        if children == _CHILDREN_DEFAULT and isinstance(parallel, int) and parallel > children:
            given["max_children"] = parallel
        if given.get("hibernate_after", (base or Options()).hibernate_after) is None:
            given["hibernate_after"] = REST_S
        has_past = bool(given.get("messages", (base or Options()).messages))
        tool = msgspec.structs.replace(self._tool, fork=has_past)
        return base, given | {"reasoning_strategy": tool}

    def guest(self) -> tuple[Reason, OpeningCall]:
        """Return the tool to be lent to a session, under a name of its own, and its call."""
        name = f"reason-{new_command_id()}"[:64]
        tool = msgspec.structs.replace(self._tool, name=name, fork=True)
        return tool, OpeningCall(name=name, text_as="question")


def result_of(found: Iterable[Event]) -> ReasoningResult:
    """Return what the run of a cycle came to, of the cycle's events.

    Raises:
        AgentAborted: the prompt was dropped before the run began.
    """
    events = list(found)
    result = ReasoningResult.of(one for one in events if isinstance(one, ReasoningEvent))
    if result.status != "running":
        return result
    frame = [one for one in events if not isinstance(one, ReasoningEvent)]
    match frame[-1] if frame else None:
        case AgentAbort(reason=str() as reason) if reason.startswith(CRASHED):
            return failed(result, reason)
        case AgentAbort(reason=reason):  # before it had any event, or without an event of its end
            why = shown(reason, LINE_CHARS_MAX) or "aborted"
            return msgspec.structs.replace(result, status="aborted", reason=why)
        case AgentError(reason=reason):
            return failed(result, reason)
        case PromptDropped():
            raise AgentAborted("dropped")
        case _:
            return failed(result, "the cycle ended without a run")


def cut_run(found: Iterable[Event]) -> str | None:
    """Return the run that a cycle's events show without its end; None: there is none."""
    events = [one for one in found if isinstance(one, ReasoningEvent)]
    return None if not events or isinstance(events[-1], ReasoningDone) else events[-1].run_id


def run_length(found: Iterable[Event]) -> int:
    """Return how many of a cycle's events are of its run."""
    return sum(isinstance(one, ReasoningEvent) for one in found)


def with_score(strategy: object, score: object) -> object:
    """Return a strategy whose option ``score`` is set.

    Raises:
        InvalidOptions: it takes none, or ``score`` names a model.
    """
    try:
        check_scorers(score, None)
    except ValueError as error:
        raise InvalidOptions([str(error)]) from error
    if isinstance(strategy, BuiltInStrategy):
        if "score" not in strategy.__struct_fields__:
            raise InvalidOptions([f"score: strategy {strategy.short_name!r} takes none"])
        return msgspec.structs.replace(strategy, score=score)
    if isinstance(strategy, tuple) and len(strategy) == _PAIR and isinstance(strategy[1], Mapping):
        return strategy[0], {**strategy[1], "score": score}
    if isinstance(strategy, str) and ":" not in strategy:
        known = {one.short_name: one for one in vars(reasoning).values() if _is_built_in(one)}
        return known.get(strategy, strategy), {"score": score}
    if isinstance(strategy, str | type):
        return strategy, {"score": score}
    raise InvalidOptions([f"score: give it to the strategy itself: {short(strategy)} is made"])


def _is_built_in(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, BuiltInStrategy)
