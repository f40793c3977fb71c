"""Carries out ``Summarize``: the model's summary, and the history file that has it all.

What goes wrong comes back as ``SummaryFailed``, after the retries that a request of its own would
have had; a history file that can't be written costs only itself. A summary that is cancelled is not
heard of again. Whatever else happens, one result is posted, since a request or a tool waits for it.
"""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from cmdc_runtime.clock import now_ms
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
from cmdc_runtime.ids import SessionId
from cmdc_runtime.messages import Message, TokenUsage
from workers.core.compaction import history_markdown
from workers.core.inputs import Result, Summarized, SummaryFailed
from workers.core.retry import Backoff, delay_s, failure_kind, should_retry
from workers.effects.cancelling import is_ending
from workers.effects.model import REPLY_CHARS_MAX
from workers.intake import fit

log = structlog.get_logger()

HISTORY_DIR: Final = Path(".cmdc", "conversation_history")
"""Below the working folder; one file for each session."""
SUMMARY_CHARS_MAX: Final = 100_000
"""A longer summary is no summary; it is cut."""


class Summarizer:
    """Makes at most one summary at a time and posts what becomes of it."""

    def __init__(
        self,
        provider: Provider,
        post: Callable[[Result], None],
        *,
        session_id: SessionId,
        working_dir: str,
        retries: tuple[int, Backoff, float],
    ) -> None:
        """``retries`` are their number, their delays, and the seconds of silence that fail one."""
        self._provider = provider
        self._post = post
        self._session_id = session_id
        self._file = Path(working_dir) / HISTORY_DIR / f"{session_id}.md"
        self._retries_max, self._backoff, self._silence_s = retries
        self._task: asyncio.Task[None] | None = None

    def start(
        self, work: int, request: ModelRequest, evicted: tuple[Message, ...]
    ) -> asyncio.Task[None]:
        """Begin the summary of ``evicted``."""
        self.cancel()
        self._task = asyncio.create_task(self._run(work, request, evicted), name="summary")
        return self._task

    def cancel(self) -> None:
        """End it; nothing more is posted of it."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self, work: int, request: ModelRequest, evicted: tuple[Message, ...]) -> None:
        try:
            text, usage = await self._ask(request)
        except ProviderError as error:
            log.warning("summary.failed", kind=error.kind.value, messages=len(evicted))
            self._post(SummaryFailed(work, fit(error.reason), now_ms()))
            return
        kept = await asyncio.to_thread(self._keep, evicted)
        self._post(Summarized(work, text, usage, kept, now_ms()))

    async def _ask(self, request: ModelRequest) -> tuple[str, TokenUsage]:
        attempt = 0
        spent: list[TokenUsage] = []
        while True:
            try:
                text = await self._attempt(request, spent)
                return text, sum(spent, TokenUsage())
            except Exception as error:  # a provider's bug is this request's failure
                attempt += 1
                kind = failure_kind(error)
                if not should_retry(kind, attempt, self._retries_max):
                    raise _told(kind, error) from error
                after_s = error.retry_after_s if isinstance(error, ProviderError) else None
                await asyncio.sleep(delay_s(self._backoff, attempt, after_s))

    async def _attempt(self, request: ModelRequest, spent: list[TokenUsage]) -> str:
        """Return a summary that is not empty; what the attempt used is added to ``spent``."""
        silence = asyncio.timeout(self._silence_s)
        try:
            async with silence:
                text, usage = await self._read(request, silence)
        except TimeoutError as error:
            if not silence.expired():
                raise
            silent = f"silent for {self._silence_s:g} s"
            raise ProviderError(FailureKind.TIMEOUT, silent) from error
        except asyncio.CancelledError as error:
            if is_ending():
                raise
            own = "the provider cancelled its own request"
            raise ProviderError(FailureKind.TRANSIENT, own) from error
        spent.append(usage)
        if not text.strip():
            raise ProviderError(FailureKind.TRANSIENT, "the model gave an empty summary")
        return text

    async def _read(
        self, request: ModelRequest, silence: asyncio.Timeout
    ) -> tuple[str, TokenUsage]:
        text, chars, usage, is_whole = "", 0, TokenUsage(), False
        loop = asyncio.get_running_loop()
        async with contextlib.aclosing(self._provider.stream(request)) as stream:
            async for chunk in stream:
                silence.reschedule(loop.time() + self._silence_s)
                chars += len(chunk.text) if isinstance(chunk, TextChunk | ThinkingChunk) else 0
                if chars > REPLY_CHARS_MAX:
                    endless = f"the summary is longer than {REPLY_CHARS_MAX} characters"
                    raise ProviderError(FailureKind.PERMANENT, endless)
                if isinstance(chunk, TextChunk) and len(text) < SUMMARY_CHARS_MAX:
                    text += fit(chunk.text)
                elif isinstance(chunk, UsageChunk):
                    usage = chunk.usage
                is_whole |= isinstance(chunk, FinishChunk)
        if not is_whole:
            raise ProviderError(FailureKind.TRANSIENT, "the stream ended before the summary did")
        return text[:SUMMARY_CHARS_MAX], usage

    def _keep(self, evicted: tuple[Message, ...]) -> str | None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8", errors="replace") as file:
                file.write(history_markdown(evicted, self._session_id))
        except OSError as error:
            log.warning("history.not_written", file=str(self._file), problem=str(error))
            return None
        return str(self._file)


def _told(kind: FailureKind, error: Exception) -> ProviderError:
    if isinstance(error, ProviderError):
        return error
    log.error("provider.crashed", exc_info=error)
    return ProviderError(kind, f"{type(error).__name__}: {error}".rstrip(": "))
