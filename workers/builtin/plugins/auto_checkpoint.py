"""Saves the session's state by itself, and removes what is too old or too much.

What happened is seen as an observer, when the session has it in its state; at the end of a
cycle and of the session as a hook, so that the save is done before the next one begins. The
checkpoints there are, and not a state of the plugin, say what it has saved: nothing is forgotten by
a crash between a save and the word of it.

Observers get ``auto_checkpoint_saved`` with the id, the trigger and the number of those removed.
"""

import time
from collections.abc import Sequence
from typing import Final

import msgspec
import structlog

from cmdc_runtime import plugins
from cmdc_runtime.checkpoints import Snapshot
from cmdc_runtime.events import PluginEvent, ToolExecutionEnd
from cmdc_runtime.extensions.actions import Emit
from cmdc_runtime.extensions.context import PluginCallError, PluginContext
from cmdc_runtime.extensions.hooks import AfterTurn, SessionEnd
from cmdc_runtime.extensions.plugin import Observed, PipelineRun, Plugin
from cmdc_runtime.plugins.conversation import SESSION_END

log = structlog.get_logger()

MADE_BY: Final = "auto_checkpoint"
"""Value of the metadata ``made_by``: what this plugin has saved, and may remove."""
REMOVED_MAX: Final = 20
"""At one save; the next ones remove the rest."""


class AutoCheckpoint(Plugin):
    """Saves at its triggers; late, when others have said what they have to."""

    name = "auto_checkpoint"
    priority = 980
    fail = "open"
    emits = ("auto_checkpoint_saved",)
    Config = plugins.AutoCheckpoint

    class State(msgspec.Struct):
        """The turns that the session had at its last checkpoint for turns."""

        saved_at_turn: int = 0

    async def after_turn(self, event: AfterTurn, context: PluginContext) -> Emit | None:  # noqa: ARG002 - what counts is in the context
        """Save when there were turns enough since the last time."""
        every = self.config.every_n_turns
        if not every or context.turn - self.state.saved_at_turn < every:
            return None
        saved = await self._saved("turns", context)
        if saved is not None:
            self.state.saved_at_turn = context.turn
        return saved

    async def session_end(self, event: SessionEnd, context: PluginContext) -> Emit | None:  # noqa: ARG002 - it says nothing
        """Save the last state."""
        if SESSION_END not in self.config.on_events:
            return None
        return await self._saved(SESSION_END, context)

    async def observe(self, event: Observed, context: PluginContext) -> None:
        """Save after a tool or at an event that the options name."""
        trigger = self._trigger(event)
        if trigger is None or context.session is None:
            return
        saved = await self._saved(trigger, context)
        if saved is not None:
            await context.session.emit(saved)

    def _trigger(self, event: Observed) -> str | None:
        if isinstance(event, ToolExecutionEnd) and event.name in self.config.on_tools:
            return f"tool:{event.name}"
        if isinstance(event, PipelineRun) or _is_own(event):
            return None
        return event.kind if event.kind in self.config.on_events else None

    async def _saved(self, trigger: str, context: PluginContext) -> Emit | None:
        session = context.session
        if session is None:
            log.warning("auto_checkpoint.failed", trigger=trigger, problem="there is no session")
            return None
        try:
            made = await session.checkpoint(
                f"auto: {trigger}", {"made_by": MADE_BY, "trigger": trigger}
            )
            gone = self._surplus(await session.checkpoints(), time.time())
            for one in gone:
                await session.delete_checkpoint(one.checkpoint_id)
        except PluginCallError as error:
            log.warning("auto_checkpoint.failed", trigger=trigger, problem=str(error))
            return None
        payload = {"checkpoint_id": made.checkpoint_id, "trigger": trigger, "removed": len(gone)}
        return Emit("auto_checkpoint_saved", {**payload, "saved_at_ms": made.saved_at_ms})

    def _surplus(self, known: Sequence[Snapshot], now_s: float) -> list[Snapshot]:
        """Return what is to be removed of ``known``, newest first: the oldest of it first."""
        own = [one for one in known if one.metadata.get("made_by") == MADE_BY]
        oldest_ms = (now_s - self.config.ttl_seconds) * 1000
        gone = [
            one
            for at, one in enumerate(own)
            if at >= self.config.max_checkpoints or one.saved_at_ms < oldest_ms
        ]
        return gone[::-1][:REMOVED_MAX]


def _is_own(event: Observed) -> bool:
    return isinstance(event, PluginEvent) and event.name == "auto_checkpoint_saved"


create = AutoCheckpoint
