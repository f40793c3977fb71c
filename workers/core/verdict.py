"""What all plugins together say at one hook: their answers, folded by the tables of actions.

``MATRIX`` says what the hook takes and ``COMPOSITION`` what several answers amount to; neither is
repeated here. To add an action: its field below and its line in ``_FIELDS``.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from cmdc_runtime.extensions.actions import (
    COMPOSITION,
    KERNEL_EMITS,
    MATRIX,
    Abort,
    Action,
    BlockTool,
    Composition,
    Emit,
    Intervene,
    ReplaceMessages,
    ReplaceToolArgs,
    ReplaceToolResult,
    RequireApproval,
    Skip,
    SwitchModel,
)
from cmdc_runtime.extensions.hooks import BeforeTool, Ruling, kind_of
from cmdc_runtime.extensions.plugin import Fail
from cmdc_runtime.messages import Message
from cmdc_runtime.reasons import snake
from cmdc_runtime.user_values import shown

_REQUIRE_APPROVAL: Final = snake(RequireApproval.__name__)
OPT_OUT: Final = "_no_user_data"
"""A payload with this key gets no ``user_data``."""


@dataclass(frozen=True, slots=True)
class Reaction:
    """What one plugin made of one hook: its actions, sealed, or the error that it ended with."""

    plugin: str
    actions: tuple[Action, ...] = ()
    error: str | None = None
    fail: Fail = "open"
    """What the plugin wants an error to mean."""


@dataclass(frozen=True, slots=True)
class Aborted:
    """Which plugin wants the cycle to end, and why."""

    plugin: str
    reason: Any  # Any: plain data of the plugin


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the kernel has to do; nothing, unless a field says so. An abort outranks the rest."""

    interventions: tuple[str, ...] = ()
    abort: Aborted | None = None
    skipped: str | None = None
    """The plugin that said ``Skip``; before a compaction it means that there shall be none."""
    blocked: str | None = None
    """Why the call may not run."""
    args: dict[str, Any] | None = None  # Any: whatever the tool takes
    result: tuple[str, bool | None] | None = None
    """What the model reads of the call, and whether that is an error, None where it stays."""
    messages: tuple[Message, ...] | None = None
    model: tuple[str, dict[str, Any] | None] | None = None  # Any: whatever the provider takes
    """A model and its provider's options, None where those stay."""
    approval: RequireApproval | None = None
    """The call may run only when a person has approved it: as the first plugin that asks says."""
    emitted: tuple[tuple[str, Any], ...] = ()  # Any: a plugin's own
    """Names and payloads, in the order of the plugins."""
    crashed: tuple[tuple[str, str, str], ...] = ()
    """Plugin, hook and error of each that failed."""
    ignored: tuple[tuple[str, str], ...] = ()
    """Plugin and kind of each action that the hook does not carry out."""
    states: tuple[tuple[str, bytes], ...] = ()
    """The plugins whose state is another one now, with that state."""

    @property
    def text(self) -> str:
        """What to say to the model, empty if nothing."""
        return "\n\n".join(self.interventions)


# Any, three times: an action's own class, and a value of the field's own type.
_FIELDS: Final[Mapping[type[Action], tuple[str, Callable[[str, Any], Any]]]] = {
    Intervene: ("interventions", lambda _, action: (action.text,)),
    Abort: ("abort", lambda plugin, action: Aborted(plugin, action.reason)),
    Skip: ("skipped", lambda plugin, _: plugin),
    BlockTool: ("blocked", lambda _, action: action.reason),
    ReplaceToolArgs: ("args", lambda _, action: action.args),
    ReplaceToolResult: ("result", lambda _, action: (action.result, action.is_error)),
    Emit: ("emitted", lambda _, action: _events(action)),
    SwitchModel: ("model", lambda _, action: (action.model, action.provider_opts)),
    ReplaceMessages: ("messages", lambda _, action: tuple(action.messages)),
}
"""Where each action goes, and what it is there; ``Continue`` goes nowhere."""


def fold(hook: str, reactions: Iterable[Reaction]) -> Verdict:
    """Return what ``reactions`` amount to, in the order in which the plugins were asked.

    Those after one that stops are not looked at. Of one reaction all actions count; where two of
    them stop, both are set. A failure aborts where its plugin says so and the hook allows it.
    """
    verdict = Verdict()
    for reaction in reactions:
        verdict = _with(verdict, hook, reaction)
        if stops(hook, reaction):
            break
    return verdict


def stops(hook: str, reaction: Reaction) -> bool:
    """Say whether no further plugin is asked."""
    return any(
        COMPOSITION[type(action)] is Composition.STOP
        for action in _actions(hook, reaction)
        if MATRIX[hook, type(action)] is Ruling.TAKEN
    )


def with_user_data(
    emitted: Iterable[tuple[str, Any]], user_data: Mapping[str, Any]
) -> tuple[tuple[str, Any], ...]:
    """Return events with ``user_data`` in each payload that is a dict and does not decline it."""
    return tuple((name, _merged(name, payload, user_data)) for name, payload in emitted)


def merges_of(action: Action) -> int:
    """Return how many events of an action are merged with the session's ``user_data``."""
    if not isinstance(action, Emit):
        return 0
    return sum(_is_merged(name, payload) for name, payload in action.events())


def _with(verdict: Verdict, hook: str, reaction: Reaction) -> Verdict:
    if reaction.error is not None:
        crash = (reaction.plugin, hook, reaction.error)
        verdict = replace(verdict, crashed=(*verdict.crashed, crash))
    for action in _actions(hook, reaction):
        verdict = _with_action(verdict, hook, reaction.plugin, action)
    return verdict


def _actions(hook: str, reaction: Reaction) -> tuple[Action, ...]:
    """Return the actions of a reaction, for a failure those that its plugin wants it to mean."""
    if reaction.error is None:
        return reaction.actions
    if reaction.fail != "closed" or MATRIX[hook, Abort] is not Ruling.TAKEN:
        return ()
    return (Abort(f"plugin {reaction.plugin} failed at {hook}: {reaction.error}"),)


def _with_action(verdict: Verdict, hook: str, plugin: str, action: Action) -> Verdict:
    if MATRIX[hook, type(action)] is not Ruling.TAKEN:
        return replace(verdict, ignored=(*verdict.ignored, (plugin, action.kind)))
    composition = COMPOSITION[type(action)]
    if composition is Composition.PASS:
        return verdict
    if isinstance(action, Emit):
        verdict = _with_approval(verdict, hook, plugin, action.events())
    name, value_of = _FIELDS[type(action)]
    value = value_of(plugin, action)
    if composition is Composition.COLLECT:
        value = getattr(verdict, name) + value
    return replace(verdict, **{name: value})


# Any: payloads.
def _with_approval(
    verdict: Verdict, hook: str, plugin: str, events: tuple[tuple[str, Any], ...]
) -> Verdict:
    """Return the verdict with the approval that one of ``events`` asks for; the first one counts.

    It can be asked for where one call is about to run, and nowhere else.
    """
    for name, payload in events:
        if name != _REQUIRE_APPROVAL:
            continue
        if hook != kind_of(BeforeTool):
            verdict = replace(verdict, ignored=(*verdict.ignored, (plugin, name)))
        elif verdict.approval is None:
            verdict = replace(verdict, approval=msgspec.convert(payload, RequireApproval))
    return verdict


def _events(emit: Emit) -> tuple[tuple[str, Any], ...]:  # Any: payloads
    return tuple(event for event in emit.events() if event[0] != _REQUIRE_APPROVAL)


def _is_merged(name: str, payload: object) -> bool:
    return isinstance(payload, dict) and name not in KERNEL_EMITS and OPT_OUT not in payload


# Any: a plugin's own payload.
def _merged(name: str, payload: Any, user_data: Mapping[str, Any]) -> Any:
    if not isinstance(payload, dict) or name in KERNEL_EMITS:
        return payload
    if OPT_OUT in payload:
        return {key: value for key, value in payload.items() if key != OPT_OUT}
    is_merged = user_data and _is_merged(name, payload)
    return {**payload, "user_data": shown(dict(user_data))} if is_merged else payload
