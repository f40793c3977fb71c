"""Has the model reason by a chain strategy, and tells observers its thoughts.

What a strategy asks stands in ``cmdc_runtime.plugins.reasoning``: its first text is said after the
prompt, each further one when the model would end the cycle, so that its next answer builds on the
one before. Each text of the model is a thought. ``reasoning_done`` comes once, when the last phase
is answered, or at the end of a cycle that did not come that far; what other plugins have corrected
after that is not in it. Its thoughts are those that the conversation still holds: one that a
compaction took away was told before.
"""

from typing import Final, Literal

import msgspec

from cmdc_runtime import plugins
from cmdc_runtime.extensions.actions import Emit, Intervene
from cmdc_runtime.extensions.hooks import AfterResponse, AfterTurn, BeforeFinish, BeforePrompt
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.extensions.plugin_context import PluginContext
from cmdc_runtime.ids import MessageId

DONE_CHARS_MAX: Final = 100_000
"""Of all thoughts in ``reasoning_done``, and of the answer: with both it fits into an event."""
THOUGHT_CHARS_MAX: Final = 100_000
"""Of one thought as it is told; the message itself has all of it."""


class Reasoning(Plugin):
    """Asks for reasoning and tells it."""

    name = "reasoning"
    priority = 210
    emits = ("reasoning_done", "reasoning_thought")
    Config = plugins.Reasoning

    class State(msgspec.Struct):
        """How far the running cycle is."""

        phase: int = 0
        """How many texts of the strategy were said; 0 where it does not reason."""
        thoughts: tuple[MessageId, ...] = ()
        """The messages that are the thoughts."""

    def before_prompt(
        self,
        event: BeforePrompt,
        context: PluginContext,  # noqa: ARG002 - the contract of the hook
    ) -> Intervene | None:
        """Begin the strategy, where the prompt is long enough."""
        if len(event.text.strip()) < self.config.min_prompt_length:
            self.state = self.State()
            return None
        self.state = self.State(phase=1)
        return Intervene(self.config.phases[0])

    def after_response(
        self,
        event: AfterResponse,
        context: PluginContext,  # noqa: ARG002 - the contract of the hook
    ) -> Emit | None:
        """Tell the text of the message, if it has one, as a thought; each message once."""
        state, message = self.state, event.message
        text = message.content.strip()
        if not state.phase or not text or message.id in state.thoughts:
            return None
        told = {
            "strategy": self.config.strategy,
            "thought": text[:THOUGHT_CHARS_MAX],
            "index": len(state.thoughts),
        }
        state.thoughts = (*state.thoughts, message.id)
        return Emit("reasoning_thought", told)

    def before_finish(
        self,
        event: BeforeFinish,  # noqa: ARG002 - the contract of the hook
        context: PluginContext,
    ) -> Intervene | Emit | None:
        """Go on to the next phase, or tell that the last one is answered."""
        phases, state = self.config.phases, self.state
        if not state.phase:
            return None
        if state.phase < len(phases):
            state.phase += 1
            return Intervene(phases[state.phase - 1])
        return self._done("done", context.last_assistant_reply, context)

    def after_turn(self, event: AfterTurn, context: PluginContext) -> Emit | None:
        """Tell that the cycle is over, where its last phase was not answered."""
        if not self.state.phase:
            return None
        if event.outcome == "aborted":
            return self._done("aborted", None, context)
        return self._done("done", context.last_assistant_reply, context)

    def _done(
        self, status: Literal["done", "aborted"], answer: str | None, context: PluginContext
    ) -> Emit:
        texts = {message.id: message.content.strip() for message in context.messages}
        thoughts = [texts[thought] for thought in self.state.thoughts if thought in texts]
        told = {
            "strategy": self.config.strategy,
            "status": status,
            "answer": None if answer is None else answer[:DONE_CHARS_MAX],
            "thoughts": _bounded(thoughts),
        }
        self.state = self.State()
        return Emit("reasoning_done", told)


def _bounded(thoughts: list[str]) -> list[str]:
    """Return the thoughts, each cut so that all of them together are not too long."""
    each = DONE_CHARS_MAX // max(1, len(thoughts))
    return [thought[:each] for thought in thoughts]


create = Reasoning
