"""Has each answer reviewed before its cycle ends, by the model itself or by somebody else.

Idle, then reviewing from the first ``before_finish`` on, then done: an approval, or so many reviews
that no more are allowed. A cycle that is done is not reviewed again; the next prompt begins anew.

A model that reviews itself does so in the conversation. It either corrects its answer, and gives it
in full, or approves it. Since the last message of a cycle is its reply, an approval is followed by
one more request, which has the answer given once more. So the reply is always a whole answer, with
any ``reviewer_prompt`` and with a ``response_format`` too, for one short request and the tokens of
the answer. Somebody else reviews apart from the conversation, and an approved answer stays the last
message. A review that fails for its own reasons does not keep anybody waiting: the answer passes.

Observers get ``reflection_started``, then ``reflection_passed``, ``reflection_failed`` with the
feedback, or ``reflection_forced`` with the reason; events of somebody else's review come together.
"""

import asyncio
import re
from collections.abc import Mapping
from functools import cache
from typing import Final, Literal, TypeAlias

import msgspec

from cmdc_runtime import plugins
from cmdc_runtime.extensions.actions import Action, Emit, Intervene
from cmdc_runtime.extensions.context import PluginCallError, PluginContext
from cmdc_runtime.extensions.hooks import AfterResponse, BeforeFinish, BeforePrompt
from cmdc_runtime.extensions.plugin import Plugin, hook
from workers.builtin.plugins._conversation import latest_request

# --- what reviewers are asked, and say ------------------------------------------------------------

Mode: TypeAlias = Literal["self", "model", "subagent"]
"""Who reviews."""
REVIEWED_CHARS_MAX: Final = 100_000
"""Of a request and of an answer that somebody else reviews; the rest is left out, and said so."""
VERDICT_CHARS_MAX: Final = 20_000
"""Of a reviewer's reply, from its beginning; what comes later is neither searched nor published."""

RESTATE: Final = (
    "The review is passed. Now give your final answer once more, complete and unchanged, as the"
    " only thing that the user will read: no word about the review."
)
_ELSE: Final[Mapping[Mode, str]] = {
    "self": (
        "Otherwise correct the answer: do the work that is missing, with tools where they help, and"
        " give the corrected answer in full, as the user will read it."
    ),
    "model": "Otherwise say only what is wrong, and what has to change.",
    "subagent": "Otherwise say only what is wrong, and what has to change.",
}
"""What a reviewer does who does not approve."""
_DECORATION: Final = " \t*_#>`~\"'.,:;!()[]-–—"  # noqa: RUF001 - dashes that models write


def mode_of(config: plugins.Reflection) -> Mode:
    """Return who reviews."""
    if config.reviewer_subagent:
        return "subagent"
    return "self" if config.reviewer_model is None else "model"


def instructions(config: plugins.Reflection) -> str:
    """Return what the reviewer is asked: to look, at what, how to approve, and what to do else."""
    mode = mode_of(config)
    parts = [config.reviewer_prompt]
    if config.criteria:
        parts.append(
            "It must meet these criteria:\n" + "\n".join(f"- {one}" for one in config.criteria)
        )
    if config.pass_pattern is None:
        parts.append(
            f"If the answer is good as it is, reply with {config.pass_signal} and nothing else."
            f" {_ELSE[mode]} Do not write {config.pass_signal} in that case."
        )
    else:
        parts.append(
            f"Unless the answer is good as it is: {_ELSE[mode].removeprefix('Otherwise ')}"
        )
    return "\n\n".join(parts)


def reviewed(context: PluginContext) -> str:
    """Return the request and the answer, for somebody who has not seen the conversation."""
    place = latest_request(context.messages)
    request = "" if place is None else context.messages[place].content
    answer = context.last_assistant_reply or ""
    return f"<request>\n{_cut(request)}\n</request>\n\n<answer>\n{_cut(answer)}\n</answer>"


def corrections(feedback: str) -> str:
    """Return what the model reads when somebody else has not approved its answer."""
    return (
        f"A reviewer has read your answer, and wants it changed:\n\n{feedback}\n\n"
        "Correct the answer: do the work that is missing, with tools where they help, and give the"
        " corrected answer in full, as the user will read it, with no word about the review."
    )


def approves(config: plugins.Reflection, reply: str) -> bool:
    """Say whether a reviewer's reply is an approval."""
    text = reply[:VERDICT_CHARS_MAX]
    if (pattern := config.pass_pattern) is not None:
        return _compiled(pattern).search(text) is not None
    signal = _bare(config.pass_signal.casefold()) or config.pass_signal.casefold().strip()
    folded = text.casefold()
    if any(signal in {line.strip(), _bare(line)} for line in folded.splitlines()):
        return True
    return re.match(rf"{re.escape(signal)}(?!\w)", folded.lstrip(_DECORATION + "\r\n")) is not None


def _bare(line: str) -> str:
    return line.strip(_DECORATION)


def _cut(text: str) -> str:
    if len(text) <= REVIEWED_CHARS_MAX:
        return text
    return f"{text[:REVIEWED_CHARS_MAX]}\n[cut here: {len(text)} characters in all]"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


# --- the plugin -----------------------------------------------------------------------------------

REVIEW_TIMEOUT_S: Final = 600.0
"""Of one review by somebody else: a subagent may take a while."""
HOOK_TIMEOUT_S: Final = REVIEW_TIMEOUT_S + 60.0
ERROR_CHARS_MAX: Final = 1000

ReflectionPhase: TypeAlias = Literal["idle", "reviewing", "restating", "done"]


class Reflection(Plugin):
    """Reviews answers."""

    name = "reflection"
    priority = 400
    fail = "open"
    emits = ("reflection_failed", "reflection_forced", "reflection_passed", "reflection_started")
    Config = plugins.Reflection

    class State(msgspec.Struct):
        """Where the running cycle is."""

        phase: ReflectionPhase = "idle"
        reviews: int = 0

    def before_prompt(
        self,
        event: BeforePrompt,  # noqa: ARG002 - the contract of the hook
        context: PluginContext,  # noqa: ARG002 - likewise
    ) -> None:
        """Begin anew."""
        self.state = self.State()

    @hook(timeout=HOOK_TIMEOUT_S)
    async def before_finish(
        self,
        event: BeforeFinish,  # noqa: ARG002 - the contract of the hook
        context: PluginContext,
    ) -> list[Action]:
        """Have the answer reviewed, unless the cycle is done."""
        state = self.state
        if state.phase in {"restating", "done"}:
            state.phase = "done"
            return []
        if state.reviews >= self.config.reviews_max:
            return [self._force("max_reviews")]
        state.phase, state.reviews = "reviewing", state.reviews + 1
        started = self._event("reflection_started")
        if mode_of(self.config) == "self":
            return [started, Intervene(instructions(self.config))]
        return [started, *await self._judged(context)]

    def after_response(
        self,
        event: AfterResponse,
        context: PluginContext,  # noqa: ARG002 - the contract of the hook
    ) -> list[Action]:
        """Take the model's verdict on its own answer; a message that calls tools is none yet."""
        state, message = self.state, event.message
        if mode_of(self.config) != "self" or message.tool_calls:
            return []
        if state.phase == "restating":
            state.phase = "done"
        if state.phase != "reviewing":
            return []
        if approves(self.config, message.content):
            state.phase = "restating"
            return [self._event("reflection_passed"), Intervene(RESTATE)]
        return [self._failed(message.content)]

    async def _judged(self, context: PluginContext) -> list[Action]:
        """Return what follows from somebody else's review."""
        try:
            async with asyncio.timeout(REVIEW_TIMEOUT_S):
                verdict = await self._verdict(context)
        except TimeoutError:
            return [self._force("reviewer_failed", f"no verdict within {REVIEW_TIMEOUT_S:g} s")]
        except PluginCallError as error:
            return [self._force("reviewer_failed", str(error)[:ERROR_CHARS_MAX])]
        if approves(self.config, verdict):
            self.state.phase = "done"
            return [self._event("reflection_passed")]
        return [self._failed(verdict), Intervene(corrections(verdict[:VERDICT_CHARS_MAX]))]

    async def _verdict(self, context: PluginContext) -> str:
        config, session = self.config, context.session
        if session is None:
            raise PluginCallError("there is no session to ask")
        asked, text = instructions(config), reviewed(context)
        if mode_of(config) == "subagent":
            return await session.delegate(f"{asked}\n\n{text}", config.reviewer_subagent)
        completion = await session.complete(
            text,
            system=asked,
            model=config.reviewer_model,
            provider_opts=config.reviewer_provider_opts,
        )
        return completion.text

    def _force(self, reason: str, error: str | None = None) -> Emit:
        self.state.phase = "done"
        why = {"reason": reason} if error is None else {"reason": reason, "error": error}
        return self._event("reflection_forced", **why)

    def _failed(self, verdict: str) -> Emit:
        return self._event("reflection_failed", feedback=verdict[:VERDICT_CHARS_MAX])

    def _event(self, name: str, **more: str) -> Emit:
        payload = {
            "review": self.state.reviews,
            "max_reviews": self.config.reviews_max,
            "mode": mode_of(self.config),
        }
        return Emit(name, payload | more)


create = Reflection
