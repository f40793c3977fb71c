"""Has the model reason by a chain strategy, and publishes its thoughts to observers.

What a strategy asks stands in ``cmdc_runtime.reasoning.strategies``: its first text is said after
the prompt, each further one when the model would end the cycle, so that its next answer builds on
the one before. Each text of the model is a thought. Events have the fields of a strategy's run, so
``ReasoningResult.of`` reads them too. What a thought took is what the session has used since the
one before: also requests that came to calls alone, and subagents of those.
``reasoning_done`` comes once, when the last phase is answered, or at the end of a cycle that did
not come that far; what other plugins have corrected after that is not in it.
"""

from typing import Literal

import msgspec

from cmdc_runtime import plugins
from cmdc_runtime.events import ReasoningDone, ReasoningThought
from cmdc_runtime.events.reasoning import TEXT_CHARS_MAX
from cmdc_runtime.extensions.actions import Emit, Intervene
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import AfterResponse, AfterTurn, BeforeFinish, BeforePrompt
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.ids import MessageId
from cmdc_runtime.messages import TokenUsage


class Reasoning(Plugin):
    """Asks for reasoning and publishes it."""

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
        used: TokenUsage | None = None
        """What the session had used at the last thought, or before the first; None: who wrote this
        state did not know."""
        runs: int = 0
        """How many cycles it has reasoned in, the running one included: its run is named so."""

    def before_prompt(
        self,
        event: BeforePrompt,
        context: PluginContext,
    ) -> Intervene | None:
        """Begin the strategy, where the prompt is long enough."""
        if len(event.text.strip()) < self.config.min_prompt_length:
            self.state = self.State(runs=self.state.runs)
            return None
        self.state = self.State(phase=1, used=context.usage, runs=self.state.runs + 1)
        return Intervene(self.config.phases[0])

    def after_response(
        self,
        event: AfterResponse,
        context: PluginContext,
    ) -> Emit | None:
        """Publish the text of the message, if it has one, as a thought; each message once."""
        state, message = self.state, event.message
        text = message.content.strip()
        if not state.phase or not text or message.id in state.thoughts:
            return None
        count = len(state.thoughts)
        usage = context.usage - (context.usage if state.used is None else state.used)
        state.used = context.usage
        state.thoughts = (*state.thoughts, message.id)
        return Emit(
            ReasoningThought(
                run_id=self._run_id(context),
                strategy=self.config.label or self.config.strategy,
                thought_id=f"t{count + 1}",
                parent_id=f"t{count}" if count else None,
                content=text[:TEXT_CHARS_MAX],
                usage=usage,
            )
        )

    def before_finish(
        self,
        event: BeforeFinish,  # noqa: ARG002 - the contract of the hook
        context: PluginContext,
    ) -> Intervene | Emit | None:
        """Go on to the next phase, or publish that the last one is answered."""
        phases, state = self.config.phases, self.state
        if not state.phase:
            return None
        if state.phase < len(phases):
            state.phase += 1
            return Intervene(phases[state.phase - 1])
        return self._done("done", context.last_assistant_reply, context)

    def after_turn(self, event: AfterTurn, context: PluginContext) -> Emit | None:
        """Publish that the cycle is over, where its last phase was not answered."""
        if not self.state.phase:
            return None
        if event.outcome == "aborted":
            return self._done("aborted", None, context)
        return self._done("done", context.last_assistant_reply, context)

    def _done(
        self, status: Literal["done", "aborted"], answer: str | None, context: PluginContext
    ) -> Emit:
        done = ReasoningDone(
            run_id=self._run_id(context),
            strategy=self.config.label or self.config.strategy,
            status=status,
            answer=None if answer is None else answer[:TEXT_CHARS_MAX],
        )
        self.state = self.State(runs=self.state.runs)
        return Emit(done)

    def _run_id(self, context: PluginContext) -> str:
        return f"{context.session_id}.{self.state.runs}"


create = Reasoning
