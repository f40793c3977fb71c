"""Asks a model once, apart from the conversation: for a summary, or for a plugin.

One question has the retries that a request of its own would have; what goes wrong is one
``ProviderError``. What every attempt used is counted, the failed ones too.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from cmdc_runtime import foreign
from cmdc_runtime.extensions.provider import (
    FailureKind,
    FinishChunk,
    ModelRequest,
    Provider,
    ProviderError,
    TextChunk,
    ThinkingChunk,
    UsageChunk,
)
from cmdc_runtime.messages import TokenUsage
from workers.core.assemble import credible, fit
from workers.core.retry import Backoff, delay_s, failure_kind, should_retry
from workers.effects.cancelling import provided
from workers.effects.model import REPLY_CHARS_MAX

log = structlog.get_logger()

ANSWER_CHARS_MAX: Final = 100_000
"""A longer answer is cut: it is a summary or a judgement, no text of its own."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a question is asked again, how long between, and when silence fails it."""

    retries_max: int
    backoff: Backoff
    silence_s: float


class Asker:
    """Asks single questions; several may run at once."""

    def __init__(
        self,
        provider: Provider,
        patience: Patience,
        has_answered: Callable[[str], bool] = lambda _model: False,
    ) -> None:
        """Ask ``provider``; ``has_answered`` says whether a model has answered the session."""
        self._provider = provider
        self._patience = patience
        self._has_answered = has_answered

    async def ask(self, request: ModelRequest, what: str) -> tuple[str, TokenUsage]:
        """Return an answer that is not empty, and what it took; ``what`` names it in errors.

        Raises:
            ProviderError: there is none.
        """
        attempt = 0
        spent: list[TokenUsage] = []
        while True:
            try:
                text = await self._attempt(request, what, spent)
                return text, sum(spent, TokenUsage())
            except Exception as error:  # a provider's bug is this request's failure
                attempt += 1
                kind = failure_kind(error)
                known = self._has_answered(request.model)
                if not should_retry(kind, attempt, self._patience.retries_max, has_answered=known):
                    raise _told(kind, error) from error
                after_s = error.retry_after_s if isinstance(error, ProviderError) else None
                await asyncio.sleep(delay_s(self._patience.backoff, attempt, after_s))

    async def _attempt(self, request: ModelRequest, what: str, spent: list[TokenUsage]) -> str:
        silence_s = self._patience.silence_s
        silence = asyncio.timeout(silence_s)
        try:
            async with silence:
                text, usage = await provided(lambda: self._read(request, what, silence))
        except TimeoutError as error:
            if not silence.expired():
                raise
            raise ProviderError(FailureKind.TIMEOUT, f"silent for {silence_s:g} s") from error
        spent.append(usage)
        if not text.strip():
            raise ProviderError(FailureKind.TRANSIENT, f"the model gave an empty {what}")
        return text

    async def _read(
        self, request: ModelRequest, what: str, silence: asyncio.Timeout
    ) -> tuple[str, TokenUsage]:
        text, chars, usage, is_whole = "", 0, TokenUsage(), False
        loop = asyncio.get_running_loop()
        async with contextlib.aclosing(self._provider.stream(request)) as stream:
            async for given in stream:
                chunk = fit(given)
                silence.reschedule(loop.time() + self._patience.silence_s)
                chars += len(chunk.text) if isinstance(chunk, TextChunk | ThinkingChunk) else 0
                if chars > REPLY_CHARS_MAX:
                    endless = f"the {what} is longer than {REPLY_CHARS_MAX} characters"
                    raise ProviderError(FailureKind.PERMANENT, endless)
                if isinstance(chunk, TextChunk) and len(text) < ANSWER_CHARS_MAX:
                    text += chunk.text
                elif isinstance(chunk, UsageChunk):
                    usage = credible(chunk.usage) or TokenUsage()
                is_whole |= isinstance(chunk, FinishChunk)
        if not is_whole:
            raise ProviderError(FailureKind.TRANSIENT, f"the stream ended before the {what} did")
        return text[:ANSWER_CHARS_MAX], usage


def _told(kind: FailureKind, error: Exception) -> ProviderError:
    if isinstance(error, ProviderError):
        return error
    log.error("provider.crashed", exception=foreign.traceback_of(error))
    return ProviderError(kind, foreign.told(error))
