"""Takes care of tools that fail again and again: wait, another model, escalation, end of the cycle.

``on_tool_error`` can neither switch models nor speak to the model, so the measures are spread: the
waits are there, the rest comes with the failed result in ``after_tool``. A tool's failures are
counted until it succeeds or a prompt opens another cycle. Calls of one turn that fail side by side
count as one failure, and no two measures are taken in one turn: the model must have had a chance.

Observers get ``recovery_retry`` when a wait is over, ``recovery_fallback``, ``recovery_escalated``
and ``recovery_failed``, the last two with the report. A plugin that chooses the model of each
request, as the model router does, may overrule the fallback.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeAlias

import msgspec

from cmdc_runtime import plugins
from cmdc_runtime.extensions.actions import Abort, Action, Emit, Intervene, SwitchModel
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import AfterTool, BeforePrompt, OnToolError
from cmdc_runtime.extensions.plugin import Plugin, hook

WAIT_MS_MAX: Final = 60_000
"""Of one wait: as long as the session itself waits at most between requests to a model."""
HOOK_TIMEOUT_S: Final = 2 * WAIT_MS_MAX / 1000
"""Of the hook that waits: far above the longest wait, so that a busy machine is no failure."""
ERROR_CHARS_MAX: Final = 1000
"""Of an error, in reports and in what the model reads."""

RecoveryMeasure: TypeAlias = Literal["fallback", "escalate", "abort"]


class Streak(msgspec.Struct, frozen=True, kw_only=True):
    """The failures of one tool without a success between them."""

    failures: int = 0
    before_turn: int = 0
    """How many there were before the turn of the latest."""
    turn: int = 0
    """The turn of the latest."""
    measures: int = 0
    """How many measures were taken."""
    measured_turn: int = 0
    """The turn of the last of them."""


class Recovery(Plugin):
    """Takes care of failing tools."""

    name = "recovery"
    priority = 350
    fail = "open"
    emits = ("recovery_escalated", "recovery_failed", "recovery_fallback", "recovery_retry")
    Config = plugins.Recovery

    class State(msgspec.Struct):
        """The tools that fail."""

        streaks: dict[str, Streak] = {}

    _wait: Callable[[float], Awaitable[None]] = staticmethod(asyncio.sleep)
    """Waits for so many seconds; a test puts another function here."""

    def before_prompt(
        self,
        event: BeforePrompt,  # noqa: ARG002 - the contract of the hook
        context: PluginContext,  # noqa: ARG002 - likewise
    ) -> None:
        """Begin anew: a person wants the session to go on."""
        self.state.streaks = {}

    @hook(timeout=HOOK_TIMEOUT_S)
    async def on_tool_error(self, event: OnToolError, context: PluginContext) -> Emit | None:
        """Count the failure, and wait before the next attempt, whoever makes it.

        Other calls' answers to this plugin wait meanwhile. An abort ends the wait.
        """
        known = self.state.streaks.get(event.name, Streak())
        streak = failed(known, context.turn, event.attempt)
        self.state.streaks[event.name] = streak
        if streak.failures == known.failures or streak.failures > self.config.max_retries:
            return None
        delay_ms = wait_ms(self.config.backoff_base_ms, streak.failures)
        await self._wait(delay_ms / 1000)
        emitted = {
            "tool": event.name,
            "call_id": event.call_id,
            "attempt": streak.failures,
            "max_retries": self.config.max_retries,
            "delay_ms": delay_ms,
            "error": event.error[:ERROR_CHARS_MAX],
        }
        return Emit("recovery_retry", emitted)

    def after_tool(self, event: AfterTool, context: PluginContext) -> list[Action]:
        """Take the next measure where a tool has failed too often, forget one that succeeded."""
        if not event.is_error:
            self.state.streaks.pop(event.name, None)
            return []
        streak = self.state.streaks.get(event.name)
        if streak is None or (measure := due(self.config, streak, context.turn)) is None:
            return []
        if measure == "abort":
            del self.state.streaks[event.name]
        else:
            self.state.streaks[event.name] = msgspec.structs.replace(
                streak, measures=streak.measures + 1, measured_turn=context.turn
            )
        return self._actions(measure, event, streak)

    def _actions(self, measure: RecoveryMeasure, event: AfterTool, streak: Streak) -> list[Action]:
        report = {
            "tool": event.name,
            "call_id": event.call_id,
            "failures": streak.failures,
            "measures": ["retry", *measures(self.config)][: streak.measures + 1],
            "error": event.result[:ERROR_CHARS_MAX],
        }
        match measure:
            case "fallback":
                model = self.config.fallback_model
                emitted = Emit("recovery_fallback", {**report, "model": model})
                return [SwitchModel(model), Intervene(_advice(event, streak)), emitted]
            case "escalate":
                return [Emit("recovery_escalated", report)]
            case "abort":
                return [Emit("recovery_failed", report), Abort(_reason(event, streak))]


def failed(streak: Streak, turn: int, attempt: int) -> Streak:
    """Return the streak with one more failure: a call's ``attempt``, from 1, in this turn.

    To count the same failure twice changes nothing.
    """
    before = streak.before_turn if turn == streak.turn else streak.failures
    return msgspec.structs.replace(
        streak,
        failures=max(streak.failures, before + attempt),
        before_turn=before,
        turn=turn,
    )


def wait_ms(base_ms: int, failures: int) -> int:
    """Return how long to wait after so many failures, from 1."""
    return min(base_ms << (failures - 1), WAIT_MS_MAX)


def measures(config: plugins.Recovery) -> tuple[RecoveryMeasure, ...]:
    """Return what is done when waiting has not helped, in its order."""
    fallback: tuple[RecoveryMeasure, ...] = () if config.fallback_model is None else ("fallback",)
    escalate: tuple[RecoveryMeasure, ...] = ("escalate",) if config.escalation_event else ()
    return (*fallback, *escalate, "abort")


def due(config: plugins.Recovery, streak: Streak, turn: int) -> RecoveryMeasure | None:
    """Return the measure to take now, at a call that has failed for good in this turn."""
    if streak.failures <= config.max_retries or (streak.measures and streak.measured_turn == turn):
        return None
    return measures(config)[streak.measures]


def _advice(event: AfterTool, streak: Streak) -> str:
    return (
        f"The tool {event.name!r} has failed {_times(streak)}; its last error was:\n"
        f"{event.result[:ERROR_CHARS_MAX]}\n\n"
        "Do not repeat the same call. Find out from the error what is wrong, and take another way:"
        " other arguments, another tool, or smaller steps. If there is none, say plainly what could"
        " not be done and what is needed for it."
    )


def _reason(event: AfterTool, streak: Streak) -> str:
    return (
        f"tool {event.name!r} failed {_times(streak)} and recovery did not help; its last"
        f" error: {event.result[:ERROR_CHARS_MAX]}"
    )


def _times(streak: Streak) -> str:
    return "once" if streak.failures == 1 else f"{streak.failures} times in a row"


create = Recovery
