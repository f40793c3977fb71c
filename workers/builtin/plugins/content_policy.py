"""Judges the latest message of a user before a request is made with it.

Each message is judged once, so that the rounds of a cycle's tools cost no further judgement. One
that is refused ends its cycle, and stays in the conversation; later requests are made without it,
since a model would else read it with the next message. A judge that fails, takes too long or says
nothing readable leaves the message unjudged: it passes and observers are told, or the cycle ends,
as ``fail_open`` says. No event has the message itself.
"""

import asyncio
import inspect
from typing import Any, Final, Literal, TypeAlias

import msgspec

from cmdc_runtime import plugins
from cmdc_runtime.extensions.actions import Abort, Emit, ReplaceMessages
from cmdc_runtime.extensions.hooks import BeforeRequest
from cmdc_runtime.extensions.plugin import Plugin, hook
from cmdc_runtime.extensions.plugin_context import PluginCallError, PluginContext
from cmdc_runtime.extensions.tool import resolve
from cmdc_runtime.messages import Message
from cmdc_runtime.plugins.content_policy import JUDGE_TIMEOUT_S_MAX, Verdict
from workers.builtin.plugins._conversation import latest_request
from workers.builtin.plugins._judging import (
    SCHEMA,
    UnreadableVerdictError,
    question_of,
    task_of,
    told_by_function,
    told_by_model,
)
from workers.builtin.plugins._subversion import Heuristic

VIOLATED: Final = "content_policy_violated"
UNJUDGED: Final = "content_policy_unjudged"
JUDGED_CHARS_MAX: Final = 200_000
"""Of a message that a model judges; a longer one stays unjudged, since a part tells nothing."""
ERROR_CHARS_MAX: Final = 500
STRAYS_MAX: Final = 4
"""Runs of a ``judge_fn`` that are still under way after their time; with more, it is not asked."""
REFUSED_MAX: Final = 256
"""Messages that are remembered as refused, the latest ones."""
_SUMMARY: Final = "compacted"
"""Key of the metadata of the message that stands for those of a compaction."""

_Answer: TypeAlias = list[Emit | Abort | ReplaceMessages]
Judge: TypeAlias = Literal["judge_fn", "judge_model", "heuristic"]


class _UnjudgedError(Exception):
    """A judge failed; the text says how."""


_TELLING: Final = (PluginCallError, UnreadableVerdictError)


class ContentPolicy(Plugin):
    """Ends the cycle of a message that is against the policy."""

    name = "content_policy"
    priority = 90
    Config = plugins.ContentPolicy
    emits = (VIOLATED, UNJUDGED)

    class State(msgspec.Struct):
        """What became of messages."""

        judged: str = ""
        """The latest one that passed."""
        refused: tuple[str, ...] = ()

    def __init__(self, **config: Any) -> None:  # Any: options as they come
        """Get ready for every judge that the options name.

        Raises:
            InvalidOptions: options are unknown or wrong.
            ImportError, AttributeError, TypeError: ``judge_fn`` names no function.
        """
        super().__init__(**config)
        self.fail = "open" if self.config.fail_open else "closed"
        self._judge_fn = _function(self.config.judge_fn)
        self._heuristic = Heuristic(self.config.competitor_keywords)
        self._task = task_of(self.config)
        self._strays: list[asyncio.Future[Any]] = []  # Any: what a user's function returns

    @hook(timeout=JUDGE_TIMEOUT_S_MAX + 30)
    async def before_request(self, event: BeforeRequest, context: PluginContext) -> _Answer:
        """Judge the latest message of the user, if it was not judged before."""
        message = _latest(event)
        if message is None or message.id == self.state.judged:
            return self._without_refused(event)
        if message.id in self.state.refused:
            return [Abort("content policy: the message was refused before")]
        about = {"judged_by": self._judge, "message_id": message.id}
        try:
            verdict = await self._verdict(message.content, context)
        except _UnjudgedError as error:
            why = str(error)[:ERROR_CHARS_MAX]
            told = Emit(UNJUDGED, {**about, "reason": why})
            if not self.config.fail_open:
                self._refuse(message)
                return [told, Abort(f"content policy: the message could not be judged: {why}")]
            self.state.judged = message.id
            return [told, *self._without_refused(event)]
        if verdict.compliance_status == "compliant":
            self.state.judged = message.id
            return self._without_refused(event)
        self._refuse(message)
        told = Emit(VIOLATED, {**about, **msgspec.structs.asdict(verdict)})
        return [told, Abort(_reason(verdict))]

    def _refuse(self, message: Message) -> None:
        self.state.refused = (*self.state.refused, message.id)[-REFUSED_MAX:]

    def _without_refused(self, event: BeforeRequest) -> _Answer:
        kept = [message for message in event.messages if message.id not in self.state.refused]
        return [ReplaceMessages(kept)] if len(kept) < len(event.messages) else []

    @property
    def _judge(self) -> Judge:
        if self._judge_fn is not None:
            return "judge_fn"
        return "heuristic" if self.config.judge_model is None else "judge_model"

    async def _verdict(self, text: str, context: PluginContext) -> Verdict:
        """Return what the judge says.

        Raises:
            _UnjudgedError: it says nothing.
        """
        bound = asyncio.timeout(self.config.judge_timeout)
        try:
            async with bound:
                return await self._ask(text, context)
        except _UnjudgedError:
            raise
        except Exception as error:  # a user's function may raise anything
            if bound.expired():
                raise _UnjudgedError(
                    f"the judge took longer than {self.config.judge_timeout:g} s"
                ) from error
            kind = "" if isinstance(error, _TELLING) else f"{type(error).__name__}: "
            raise _UnjudgedError(f"{kind}{error}") from error

    async def _ask(self, text: str, context: PluginContext) -> Verdict:
        match self._judge:
            case "judge_fn":
                return told_by_function(await self._call(text, context))
            case "judge_model":
                return await self._consult(text, context)
            case "heuristic":
                return await asyncio.to_thread(self._heuristic.judge, text)

    async def _consult(self, text: str, context: PluginContext) -> Verdict:
        if len(text) > JUDGED_CHARS_MAX:
            raise _UnjudgedError(
                f"the message has {len(text)} characters, more than the {JUDGED_CHARS_MAX} that a"
                " model is asked about"
            )
        if context.session is None:
            raise _UnjudgedError("there is no session that could ask judge_model")
        completion = await context.session.complete(
            question_of(text),
            system=self._task,
            model=self.config.judge_model,
            provider_opts=dict(self.config.judge_provider_opts),
            response_format=SCHEMA,
        )
        return told_by_model(completion.text)

    async def _call(self, text: str, context: PluginContext) -> object:
        """Return what ``judge_fn`` returns; it runs in a thread unless it is async."""
        if inspect.iscoroutinefunction(self._judge_fn):
            return await self._judge_fn(text, context)
        self._strays = [stray for stray in self._strays if not stray.done()]
        if len(self._strays) > STRAYS_MAX:
            raise _UnjudgedError(f"{len(self._strays)} earlier runs of judge_fn have not returned")
        run = asyncio.get_running_loop().run_in_executor(None, self._judge_fn, text, context)
        run.add_done_callback(_look_at)
        self._strays.append(run)
        await asyncio.wait({run})  # unlike an await of the run, it can be left
        answer = run.result()
        return await answer if inspect.isawaitable(answer) else answer


def _latest(event: BeforeRequest) -> Message | None:
    """Return the latest message that a user wrote."""
    place = latest_request(event.messages)
    message = None if place is None else event.messages[place]
    return None if message is None or _SUMMARY in message.metadata else message


def _reason(verdict: Verdict) -> str:
    policies = ", ".join(verdict.triggered_policies) or "not compliant"
    return ": ".join(
        part for part in ("content policy", policies, verdict.evaluation_summary) if part
    )


def _look_at(run: "asyncio.Future[Any]") -> None:  # Any: as above
    """Take note of an error that nobody waits for any more."""
    if not run.cancelled():
        run.exception()


# Any, twice: a user's function, or its name.
def _function(given: Any) -> Any:
    found = resolve(given) if isinstance(given, str) else given
    if found is not None and not callable(found):
        raise TypeError(f"judge_fn must be a function, got {found!r}")
    return found


create = ContentPolicy
