"""A plugin that answers at any hook with whatever the hook allows, as its seed says."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

import msgspec

import cmdc_runtime as cmdc
from cmdc_runtime.extensions.actions import (
    MATRIX,
    Abort,
    Action,
    Actions,
    BlockTool,
    Emit,
    Intervene,
    ReplaceToolResult,
    Ruling,
    Skip,
)
from cmdc_runtime.extensions.hooks import AnyHook, SessionStart
from cmdc_runtime.extensions.plugin_context import PluginContext
from scripts.soak.chance import dice

SHARE: Final = 0.05
"""Of hooks that get an answer."""
CRASH_SHARE: Final = 0.05
"""Of answers that are an exception instead."""

_MAKERS: Final[Mapping[type[Action], Callable[[str], Action]]] = {
    Intervene: Intervene,
    Abort: Abort,
    Skip: lambda _word: Skip(),
    BlockTool: BlockTool,
    ReplaceToolResult: ReplaceToolResult,
    Emit: lambda word: Emit("meddled", {"word": word}),
}


class Meddler(cmdc.Plugin):
    """Draws by its seed and by how often it was asked, which it remembers across crashes."""

    class Config(msgspec.Struct, frozen=True):
        """Its options."""

        seed: int

    class State(msgspec.Struct):
        """What it remembers."""

        asked: int = 0

    def handle_event(self, event: AnyHook, context: PluginContext) -> Actions:
        """Answer, most of the time with nothing."""
        self.state.asked += 1
        # The kind and the turn too: an answer that crashes takes the count back with it.
        moment = (event.kind, context.turn, self.state.asked)
        draw = dice(self.config.seed, context.session_id, "hook", *moment)
        # A session that a plugin ends as it starts would be over, and not be a soak.
        if isinstance(event, SessionStart) or draw.random() > SHARE:
            return None
        return _drawn(draw, event.kind)


def _drawn(draw: Random, kind: str) -> Actions:
    if draw.random() < CRASH_SHARE:
        raise RuntimeError("the plugin has a bug")
    allowed = [make for action, make in _MAKERS.items() if MATRIX[kind, action] is Ruling.TAKEN]
    return draw.choice(allowed)(f"meddled at {kind}") if allowed else None
