"""Requests to the model: what each holds, its stream, its silence and its end; and its summaries.

``ModelCaller`` carries out ``CallModel``. The provider is read in one task. A watchdog on the loop
posts when nothing came for ``stall_after_s``, and cancels the stream after ``stall_timeout_s``.
What goes wrong comes back as one ``StreamFailed``; a cancelled request comes back as nothing.

``Asker`` asks once, apart from the conversation: for a summary, or for a plugin. ``Requests`` makes
the system prompt and the schemas anew for each request, since tools and options may change while a
session lives.

``Summarizer`` carries out ``Summarize``: the model's summary, and the history file that has it all.
What goes wrong comes back as ``SummaryFailed``, after the retries that a request of its own would
have had; a history file that can't be written costs only itself. Of a summary that is cancelled
nothing is posted. Whatever else happens, one result is posted, since a request or a tool waits for
it.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

import structlog

from cmdc_runtime import foreign, plain
from cmdc_runtime.beneath import named_path
from cmdc_runtime.clock import now_ms
from cmdc_runtime.extensions.actions import SYSTEM_MESSAGE_ID
from cmdc_runtime.extensions.context import ToolContext
from cmdc_runtime.extensions.provider import (
    Chunk,
    FailureKind,
    FinishChunk,
    ModelRequest,
    Provider,
    ProviderError,
    TextChunk,
    ThinkingChunk,
    ToolCallChunk,
    ToolSpec,
    UsageChunk,
)
from cmdc_runtime.ids import CallId, SessionId
from cmdc_runtime.messages import OWN_PROMPT_CHARS, Message, TokenUsage
from cmdc_runtime.spec import AgentSpec, acting
from workers.core.assemble import assemble, credible, fit, usage_problem
from workers.core.budget import estimate_tokens
from workers.core.compaction import SUMMARY_SYSTEM, chars, history_markdown, summary_request
from workers.core.conversation import form_of
from workers.core.expense import answer_tokens_max, side_answer_max
from workers.core.inputs import (
    FirstChunk,
    PluginsAborted,
    Result,
    StreamEnded,
    StreamFailed,
    StreamSilent,
    Summarized,
    SummaryFailed,
    TextArrived,
    ThoughtArrived,
)
from workers.core.retry import Backoff, delay_s, failure_kind, should_retry
from workers.core.state import Memory
from workers.core.step import CallModel, Summarize
from workers.core.system_prompt import PromptMode, PromptParts, system_prompt
from workers.core.tags import FoundTag
from workers.core.verdict import Aborted
from workers.mcp.servers import McpServers
from workers.output_filters import FilterFailedError, OutputFilters, Shown
from workers.performers.provider_edge import provided
from workers.performers.toolbox import Toolbox

# --- a request of a cycle -------------------------------------------------------------------------

log = structlog.get_logger()

REPLY_CHARS_MAX: Final = 2_000_000
"""Of one reply, thinking, arguments, names and ids included: beyond what a model is able to say."""
CALLS_MAX: Final = 1_000
"""Of one reply: each of them is a record, a few events and a message of its own."""
REASON_CHARS_MAX: Final = 4_000
"""Of why a request failed, as it is published and recorded."""
_CHANCES: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class CallSettings:
    """What every request of a session has in common; times are seconds."""

    stall_after_s: float
    stall_timeout_s: float


@dataclass(frozen=True, slots=True)
class _Call:
    """One request, and the work that its results name."""

    work: int
    request: ModelRequest
    used: Collection[CallId]
    post: Callable[[Result], None]


@dataclass(frozen=True, slots=True)
class ModelCallbacks:
    """Where results go, and what is waited for while observers can't keep up."""

    post: Callable[[Result], None]
    room: Callable[[], Awaitable[None]]


class ModelCaller:
    """Runs at most one request at a time and posts what becomes of it."""

    def __init__(
        self,
        provider: Provider,
        settings: CallSettings,
        ways: "ModelCallbacks",
        filters: Callable[[], OutputFilters | None] = lambda: None,
    ) -> None:
        """Show of each answer what its ``filters`` let through."""
        self._provider = provider
        self._settings = settings
        self._post = ways.post
        self._room = ways.room
        self._filters = filters
        self._task: asyncio.Task[None] | None = None

    def call(
        self,
        work: int,
        request: ModelRequest,
        used: Collection[CallId] = frozenset(),
        post: Callable[[Result], None] | None = None,
    ) -> asyncio.Task[None]:
        """Start the request; the one before, if any, is over. ``used`` are ids of earlier calls.

        What comes of it goes to ``post``, if that is given.
        """
        self.cancel()
        call = _Call(work, request, used, post or self._post)
        self._task = asyncio.create_task(self._run(call), name="model-call")
        return self._task

    def cancel(self) -> None:
        """End the request; nothing more is posted of it that counts."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self, call: "_Call") -> None:
        watchdog = _Watchdog(self._settings, call.work, call.post)
        try:
            reply = await provided(lambda: self._stream(call, watchdog))
        except asyncio.CancelledError:
            silence = watchdog.verdict()
            if silence is None:
                raise
            self._fail(call, silence)
        except FilterFailedError as failed:
            aborted = Aborted(failed.plugin, str(failed))
            call.post(PluginsAborted(call.work, aborted, now_ms()))
        except Exception as error:  # noqa: BLE001 - a provider's bug is this request's failure
            self._fail(call, watchdog.verdict() or error)
        else:
            call.post(reply)
        finally:
            watchdog.stop()

    async def _stream(self, call: "_Call", watchdog: "_Watchdog") -> StreamEnded:
        chunks: list[Chunk] = []
        chars, is_begun, calls = 0, False, set[int]()
        filters = self._filters()
        async with contextlib.aclosing(self._provider.stream(call.request)) as stream:
            async for given in stream:
                watchdog.feed()
                chunk = fit(given)
                if not is_begun:
                    is_begun = True
                    call.post(FirstChunk(call.work))
                chars += _chars(chunk)
                if chars > REPLY_CHARS_MAX:
                    endless = f"the reply is longer than {REPLY_CHARS_MAX} characters"
                    raise ProviderError(FailureKind.PERMANENT, endless)
                if isinstance(chunk, ToolCallChunk):
                    calls.add(chunk.index)
                    _check_calls(len(calls))
                shown = Shown((chunk,)) if filters is None else filters.pass_on(chunk)
                chunks += shown.chunks
                _show(call, shown, None if filters is None else shown.found)
                with watchdog.paused():
                    await self._room()
        reply = assemble(chunks, id_prefix=f"call-{call.work}", used=call.used)
        _check_calls(len(reply.tool_calls))
        counted = next((chunk for chunk in reversed(chunks) if isinstance(chunk, UsageChunk)), None)
        if counted is not None and reply.usage is None:
            problem = usage_problem(counted.usage)
            log.warning("usage.refused", model=call.request.model, problem=problem)
        if reply.finish_reason is None:
            raise ProviderError(FailureKind.TRANSIENT, "the stream ended before the reply did")
        return StreamEnded(call.work, reply, now_ms())

    def _fail(self, call: "_Call", error: Exception) -> None:
        known = error if isinstance(error, ProviderError) else None
        if known is None:
            log.error("provider.crashed", exception=foreign.traceback_of(error))
        reason = foreign.summary_of(error) if known is None else plain.mended(known.reason)
        failed = StreamFailed(
            call.work,
            failure_kind(error),
            reason[:REASON_CHARS_MAX],
            now_ms(),
            retry_after_s=None if known is None else known.retry_after_s,
            chance=secrets.randbelow(_CHANCES) / _CHANCES,
        )
        call.post(failed)


def _show(call: _Call, shown: Shown, found: tuple[FoundTag, ...] | None) -> None:
    """Post texts; ``found`` are the tags that were taken out of them, None if none were."""
    if found:
        call.post(TextArrived(call.work, "", found))
    for chunk in shown.chunks:
        if isinstance(chunk, TextChunk):
            call.post(TextArrived(call.work, chunk.text, None if found is None else ()))
        elif isinstance(chunk, ThinkingChunk):
            call.post(ThoughtArrived(call.work, chunk.text))


def _chars(chunk: Chunk) -> int:
    if isinstance(chunk, TextChunk | ThinkingChunk):
        return len(chunk.text)
    if not isinstance(chunk, ToolCallChunk):
        return 0
    return len(chunk.arguments) + len(chunk.name or "") + len(chunk.call_id or "")


def _check_calls(found: int) -> None:
    if found > CALLS_MAX:
        many = f"the reply asks for more than {CALLS_MAX} tool calls"
        raise ProviderError(FailureKind.PERMANENT, many)


class _Watchdog:
    """Reports silence every ``stall_after_s``; cancels the task after ``stall_timeout_s``."""

    def __init__(self, settings: CallSettings, work: int, post: Callable[[Result], None]) -> None:
        self._settings = settings
        self._work = work
        self._post = post
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._fed_at = self._reported_at = self._loop.time()
        self._timer = self._loop.call_later(settings.stall_after_s, self._look)
        self._is_paused = False
        self.has_fired = False

    def verdict(self) -> ProviderError | None:
        """Return the failure that the silence was, if it was one."""
        if not self.has_fired:
            return None
        seconds = self._settings.stall_timeout_s
        return ProviderError(FailureKind.TIMEOUT, f"silent for {seconds:g} s")

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Blame the provider for no silence of our own making."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False
            self.feed()

    def feed(self) -> None:
        """Remember that a chunk came."""
        self._fed_at = self._reported_at = self._loop.time()

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look(self) -> None:
        if self._is_paused:
            self.feed()
        now = self._loop.time()
        silent_s = now - self._fed_at
        if silent_s >= self._settings.stall_timeout_s:
            self.has_fired = True
            assert self._task is not None  # noqa: S101 - made inside a task
            self._task.cancel()
            return
        if now - self._reported_at >= self._settings.stall_after_s:
            self._reported_at = now
            self._post(StreamSilent(self._work, round(silent_s, 3)))
        due_s = min(
            self._settings.stall_after_s - (now - self._reported_at),
            self._settings.stall_timeout_s - silent_s,
        )
        self._timer = self._loop.call_later(max(due_s, 0.001), self._look)


# --- asked without a cycle ------------------------------------------------------------------------

ANSWER_CHARS_MAX: Final = 100_000
"""A longer answer is cut: it is a summary or a judgement, no text of its own."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a question is asked again, how long between, and when silence fails it."""

    retries_max: int
    backoff: Backoff
    silence_s: float


class Asker:
    """Asks single questions; several may run at once.

    One question has the retries that a request of its own would have; what goes wrong is one
    ``ProviderError``. What every attempt used is counted, the failed ones too.
    """

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
                    raise _reported(kind, error) from error
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


def _reported(kind: FailureKind, error: Exception) -> ProviderError:
    if isinstance(error, ProviderError):
        return error
    log.error("provider.crashed", exception=foreign.traceback_of(error))
    return ProviderError(kind, foreign.summary_of(error))


# --- what a request holds -------------------------------------------------------------------------

_SHELL: Final = "bash" if shutil.which("bash") else "sh"
"""What runs commands where a session's configuration names none; looked for by the zygote once."""


def system_of(
    spec: AgentSpec, tools: tuple[ToolSpec, ...] = (), memory: Memory | None = None
) -> str:
    """Return the system prompt of a session with these tools; empty with nothing to say.

    It is that of the agent that acts in ``memory``.
    """
    spec = spec if memory is None else acting(spec, memory.agent)
    parts = PromptParts(
        user=spec.system_prompt or "",
        tools=tools,
        identity=spec.identity,
        skills="" if memory is None else memory.skill_listing,
        memory=() if memory is None else memory.memory_contents,
        sections=() if memory is None else memory.sections,
    )
    return system_prompt(PromptMode(spec.prompt_mode), parts)


class Requests:
    """Makes the requests of one session."""

    def __init__(self, spec: AgentSpec, tools: Toolbox, servers: McpServers | None = None) -> None:
        """Make them of what ``spec`` says and of the tools that there are, those of servers too."""
        self._spec = spec
        self._tools = tools
        self._servers = servers
        subagents = tuple((one.name, one.description) for one in spec.subagents)
        shell = (spec.config_facts or {}).get("shell") or _SHELL
        self._where = ToolContext(working_dir=spec.working_dir, shell=shell, subagents=subagents)

    def system_message(self, memory: Memory) -> Message:
        """Return the system prompt as of now; its text is empty where there is nothing to say."""
        own = (acting(self._spec, memory.agent).system_prompt or "").strip()
        return Message(
            id=SYSTEM_MESSAGE_ID,
            role="system",
            content=system_of(self._spec, self._tools.specs(self._where), memory),
            metadata={**memory.system_metadata, OWN_PROMPT_CHARS: len(own)},
        )

    def answer(self, call: CallModel, memory: Memory) -> ModelRequest:
        """Return the request for the next answer; tools of MCP servers are exchanged here alone."""
        if self._servers is not None:
            self._tools.join(self._servers)
        tools = self._tools.specs(self._where)
        return ModelRequest(
            model=call.model,
            system=system_of(self._spec, tools, memory),
            system_metadata=memory.system_metadata,
            messages=call.messages,
            tools=tools,
            max_tokens=answer_tokens_max(memory),
            response_format=form_of(memory),
            provider_opts=memory.provider_opts,
            former_opts=memory.former_opts,
        )

    def summary(self, wanted: Summarize, memory: Memory) -> ModelRequest:
        """Return the request for a summary of the messages that are to go."""
        window = memory.policy.window_of(wanted.model)
        messages: tuple[Message, ...] = summary_request(wanted.messages, window)
        tokens = estimate_tokens(len(SUMMARY_SYSTEM) + sum(map(chars, messages)))
        return ModelRequest(
            model=wanted.model,
            system=SUMMARY_SYSTEM,
            messages=messages,
            max_tokens=side_answer_max(memory, wanted.model, tokens),
            provider_opts=memory.provider_opts,
            former_opts=memory.former_opts,
        )


# --- summaries ------------------------------------------------------------------------------------

HISTORY_DIR: Final = ".cmdc/conversation_history"
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
        self._file = named_path(f"{HISTORY_DIR}/{session_id}.md", working_dir)
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
            descriptor = self._file.open_in_folder(os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            with open(descriptor, "a", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                file.write(history_markdown(evicted, self._session_id))
        except (OSError, ValueError) as error:
            log.warning("history.not_written", file=self._file.whole, problem=str(error))
            return None
        return self._file.whole
