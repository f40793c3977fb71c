"""Carries out ``Summarize``: the model's summary, and the history file that has it all.

What goes wrong comes back as ``SummaryFailed``, after the retries that a request of its own would
have had; a history file that can't be written costs only itself. Of a summary that is cancelled
nothing is posted. Whatever else happens, one result is posted, since a request or a tool waits for
it.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from cmdc_runtime import plain
from cmdc_runtime.clock import now_ms
from cmdc_runtime.extensions.provider import ModelRequest, ProviderError
from cmdc_runtime.ids import SessionId
from cmdc_runtime.messages import Message
from workers.core.compaction import history_markdown
from workers.core.inputs import Result, Summarized, SummaryFailed
from workers.performers.model import Asker

log = structlog.get_logger()

HISTORY_DIR: Final = Path(".cmdc", "conversation_history")
"""Below the working folder; one file for each session."""


class Summarizer:
    """Makes at most one summary at a time and posts what becomes of it."""

    def __init__(
        self,
        asker: Asker,
        post: Callable[[Result], None],
        *,
        session_id: SessionId,
        working_dir: str,
    ) -> None:
        """Ask by ``asker``; the history file is in ``working_dir``."""
        self._asker = asker
        self._post = post
        self._session_id = session_id
        self._file = Path(working_dir) / HISTORY_DIR / f"{session_id}.md"
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
            text, usage = await self._asker.ask(request, "summary")
        except ProviderError as error:
            log.warning("summary.failed", kind=error.kind.value, messages=len(evicted))
            self._post(SummaryFailed(work, plain.mended(error.reason), now_ms()))
            return
        kept = await asyncio.to_thread(self._keep, evicted)
        self._post(Summarized(work, text, usage, kept, now_ms()))

    def _keep(self, evicted: tuple[Message, ...]) -> str | None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8", errors="replace") as file:
                file.write(history_markdown(evicted, self._session_id))
        except OSError as error:
            log.warning("history.not_written", file=str(self._file), problem=str(error))
            return None
        return str(self._file)
