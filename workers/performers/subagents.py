"""Sessions below this one in the tree: driven as an application would, and read from their events.

``Subagents`` carries out ``RunSubagent``. A subagent is driven by a client of the same daemon: it
is started, given one prompt, waited for, and ended. Whatever happens to it comes back as one
``SubagentDone``; what it used is counted from its own events, so a crash hides nothing of that, and
one whose cycle has ended has an answer, whoever died since. Subagents of its own that it could not
count any more are counted in its place.

To have something else of a subagent's life come back, read it from its events in ``_Account``.
``PastEvents`` reads what sessions have published from the journal, by way of their daemon.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import structlog

from cmdc_runtime import reasons
from cmdc_runtime.client.link import Link
from cmdc_runtime.client.link import Link as DaemonLink
from cmdc_runtime.commands import AwaitCycle, CycleResult, Prompt, PromptReceipt
from cmdc_runtime.errors import (
    REASON_CHARS_MAX,
    CmdcError,
    CommandTimeout,
    DaemonUnavailable,
    InvalidSession,
    SessionNotAlive,
    StartFailed,
    TransientError,
)
from cmdc_runtime.events import (
    AgentAbort,
    AgentEnd,
    AgentError,
    ApprovalRequired,
    ConversationCompacted,
    Envelope,
    Event,
    PluginModelCall,
    PromptReceived,
    RequestCut,
    RequestStart,
    ResponseComplete,
    StreamError,
    SubagentEnd,
    SubagentStart,
    ToolApproved,
    ToolRejected,
)
from cmdc_runtime.ids import EventIndex, SessionId
from cmdc_runtime.lines import one_line
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.plain import shown
from cmdc_runtime.reasons import (
    AnyReason,
    ExitCode,
    MaxTurnsExceeded,
    NoProcess,
    Normal,
    NurseryLost,
    Other,
    OutOfMemory,
    PluginAborted,
    ProviderTimeout,
    RestartIntensityExceeded,
    Shutdown,
    Signal,
    Unkillable,
    Unresponsive,
)
from cmdc_runtime.requests import (
    FindSession,
    Origin,
    Replay,
    Replayed,
    ReplayedBatch,
    SessionInfo,
    StartSession,
    StopSession,
)
from cmdc_runtime.wire.codec import decode_events
from workers.core.budget import COMPLETION_TOKENS_GUESS, estimate_tokens
from workers.core.inputs import Result, SubagentDone

# --- past events ----------------------------------------------------------------------------------

log = structlog.get_logger()

TRIES: Final = 5
"""How often the daemon is asked, before what it knows counts as unknown."""
RETRY_S: Final = 1.0
SPAN: Final = 2_000
"""Events that are read at first, backwards from the newest one; each next span is twice as long.
Each death of a daemon leaves a million indexes out."""


class PastEvents:
    """The events of sessions of one daemon.

    Pages come in order; what is read backwards is read in spans, since the end is where it is
    wanted.
    """

    def __init__(self, daemon: Link) -> None:
        """Ask ``daemon``, which is connected to at the first use."""
        self._daemon = daemon

    async def of_child(self, session_id: SessionId) -> AsyncIterator[Envelope]:
        """Yield all that a session below another one has published.

        Raises:
            InvalidSession: it never began.
        """
        found: SessionInfo = await self._asked(FindSession(session_id=session_id))
        if found.parent_id is None:
            return  # it never began: this is somebody else's session, which took the id
        async for envelope in self._between(session_id, EventIndex(0), found.last_index):
            yield envelope

    async def steps(self, session_id: SessionId, run_id: str, count: int) -> tuple[Envelope, ...]:
        """Return the latest ``count`` steps of a reasoning run, in their order; fewer if gone."""
        found: SessionInfo = await self._asked(FindSession(session_id=session_id))
        steps: list[Envelope] = []
        end, length = found.last_index, SPAN
        while end > 0 and len(steps) < count:
            begin = EventIndex(max(0, end - length))
            span = [one async for one in self._between(session_id, begin, end)]
            steps[:0] = [one for one in span if getattr(one.event, "run_id", None) == run_id]
            end, length = begin, 2 * length
        return tuple(steps[-count:])

    async def _between(
        self, session_id: SessionId, after: EventIndex, last: EventIndex
    ) -> AsyncIterator[Envelope]:
        """Yield the events behind ``after`` up to ``last``; a batch may reach beyond both."""
        while after < last:
            wanted = Replay(session_id=session_id, after=after, through=last)
            part: Replayed = await self._asked(wanted)
            for envelope in _envelopes(session_id, part.batches):
                if after < envelope.index <= last:
                    yield envelope
            if part.through <= after:
                return
            after = part.through

    async def _asked(self, request: FindSession | Replay) -> Any:
        """Return the daemon's answer (Any: what the request's ``answer`` says).

        A journal that is busy for a while is no reason to know nothing.
        """
        tried = 0
        while True:
            try:
                daemon = await self._daemon.connected()
                return await daemon.ask(request)
            except TransientError as error:
                tried += 1
                if tried == TRIES:
                    raise
                log.info("past_events.delayed", problem=str(error))
                await asyncio.sleep(RETRY_S)


def _envelopes(session_id: SessionId, batches: Iterable[ReplayedBatch]) -> Iterator[Envelope]:
    for batch in batches:
        for place, (at_ms, event) in enumerate(decode_events(batch.body), batch.first):
            index = EventIndex(place)
            yield Envelope(session_id=session_id, index=index, at_ms=at_ms, event=event)


# --- subagents ------------------------------------------------------------------------------------

START_S: Final = 150.0
"""How long a subagent may take to start: the zygote may be warming up."""
STOP_S: Final = 5.0
"""How long its end may take; SIGKILL follows."""
STOP_ANSWER_S: Final = STOP_S + 30.0
ENDED: Final = "the subagent was ended"
LOST: Final = "the subagent ended with the process of its parent"
_ENDS: Final[Mapping[type[AnyReason], str]] = {
    Normal: "was stopped",
    Shutdown: "was stopped",
    reasons.Exception: "crashed",
    Signal: "crashed",
    OutOfMemory: "crashed",
    Unresponsive: "crashed",
    Unkillable: "crashed",
    ExitCode: "crashed",
    reasons.StartFailed: "did not start",
    NurseryLost: "did not start",
    MaxTurnsExceeded: "ended",
    ProviderTimeout: "ended",
    PluginAborted: "ended",
    NoProcess: "ended",
    Other: "crashed",
    RestartIntensityExceeded: "crashed",
}
"""What a subagent did that is down, for each reason."""
_UNKNOWN: Final = (CommandTimeout, DaemonUnavailable)
"""Nobody said whether the session was started."""


@dataclass(slots=True)
class _Account:
    """What a session's events say of it."""

    usage: TokenUsage = field(default_factory=TokenUsage)
    """Of its requests, and of its own subagents that ended before it."""
    subagents: dict[SessionId, None] = field(default_factory=dict)
    """Those that did not, in their order."""
    approvals: dict[str, str] = field(default_factory=dict)
    """Tools whose calls wait for a person, by the approval's id."""
    is_asking: bool = False
    """Whether a request was under way at its last event."""
    is_counted: bool = True
    """Whether that request is in ``usage``: its process said about what it took before it ended."""
    context_tokens: int = 0
    """About how many tokens the conversation has."""
    outcome: tuple[bool, str] | None = None
    """Whether its cycle has finished, and the answer or what it ended with; None: it has no end."""

    def take(self, event: Event) -> None:
        """Read the next event."""
        self._follow_requests(event)
        match event:
            case (
                ResponseComplete(usage=usage)
                | ConversationCompacted(usage=usage)
                | PluginModelCall(usage=usage)
                | RequestCut(usage=usage)
            ):
                self.usage += usage
            case SubagentStart(child_session_id=child_id):
                self.subagents[child_id] = None
            case SubagentEnd(child_session_id=child_id, usage=usage):
                self.usage += usage
                self.subagents.pop(child_id, None)
            case ApprovalRequired(id=approval_id, tool=tool):
                self.approvals[approval_id] = tool
            case ToolApproved(approval_id=approval_id) | ToolRejected(approval_id=approval_id):
                self.approvals.pop(approval_id, None)
            case AgentEnd(messages=messages):
                said = (one.content for one in reversed(messages) if one.role == "assistant")
                self.outcome = True, next(said, "")
            case AgentAbort(reason=reason):
                self.outcome = False, _ended("aborted", reason)
            case AgentError(reason=reason):
                self.outcome = False, _ended("failed", reason)
            case _:  # the others are for observers, not for the parent's model
                pass

    def _follow_requests(self, event: Event) -> None:
        match event:
            case PromptReceived(text=text):
                self.context_tokens += estimate_tokens(len(text))
            case RequestStart():
                self.is_asking, self.is_counted = True, False
            case RequestCut():
                self.is_counted = True
            case ResponseComplete(usage=usage):
                self.is_asking, self.is_counted = False, True
                self.context_tokens = max(self.context_tokens, usage.total_tokens)
            case StreamError():  # as far as a server says that fails, it charges nothing
                self.is_asking, self.is_counted = False, True
            case _:
                pass

    def close(self) -> None:
        """Count a request that was under way in a process that was killed, as a usual one."""
        if self.is_counted:
            return
        self.is_counted = True
        prompt, answer = self.context_tokens, COMPLETION_TOKENS_GUESS
        self.usage += TokenUsage(
            prompt_tokens=prompt, completion_tokens=answer, total_tokens=prompt + answer
        )

    def judged(self, ok: bool, answer: str) -> tuple[bool, str]:  # noqa: FBT001 - of an outcome
        """Return how a subagent did that came to this answer: nobody decides approvals of one."""
        if not ok or not self.approvals:
            return ok, answer
        tools = ", ".join(sorted(set(self.approvals.values())))
        return False, f"the subagent may not call {tools} without a person's approval"


# Any: plain data of whoever ended it.
def _ended(outcome: str, reason: Any) -> str:
    how = outcome if outcome == "failed" else f"was {outcome}"
    return f"the subagent's cycle {how}: {shown(reason, REASON_CHARS_MAX) or 'no reason'}"


def end_event(reason: AnyReason) -> str:
    """Return what the parent's model reads of a subagent that was down before its answer."""
    how = _ENDS[type(reason)]
    if isinstance(reason, Normal | Shutdown):  # "normal" means nothing to a model
        why = reason.detail if isinstance(reason, Shutdown) else ""
        return f"the subagent {how}" + (f": {one_line(why, REASON_CHARS_MAX)}" if why else "")
    return f"the subagent {how}: {reason}"


class Subagents:
    """The subagents of one session."""

    def __init__(self, address: str, post: Callable[[Result], None]) -> None:
        """``address`` is the daemon's runtime directory; it is connected to at the first use."""
        self._daemon = DaemonLink(address, patience_s=START_S)
        self.past = PastEvents(self._daemon)
        """What sessions have published."""
        self._post = post
        self._running: dict[SessionId, asyncio.Task[None]] = {}
        self._ended: set[SessionId] = set()

    def start(
        self,
        request: StartSession,
        prompt: str,
        past: AbstractAsyncContextManager[Origin] | None = None,
    ) -> asyncio.Task[None]:
        """Start a session, with a past if it has one, and give it its prompt."""
        return self._keep(request.session_id, self._run(request, prompt, past))

    def end(self, child_ids: tuple[SessionId, ...]) -> list[asyncio.Task[None]]:
        """End some; each still posts its ``SubagentDone``."""
        running = [child_id for child_id in child_ids if child_id in self._running]
        self._ended.update(running)
        return [
            asyncio.create_task(self._stop(child_id), name=f"end-{child_id}")
            for child_id in running
        ]

    def count(self, child_ids: tuple[SessionId, ...]) -> list[asyncio.Task[None]]:
        """Post what subagents used that ended together with the process before this one."""
        return [self._keep(child_id, self._count(child_id)) for child_id in child_ids]

    async def close(self) -> None:
        """Let go of all; the daemon ends the sessions."""
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        await self._daemon.disconnect()

    def _keep(self, child_id: SessionId, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        assert isinstance(task, asyncio.Task)  # noqa: S101 - it is made of a coroutine
        self._running[child_id] = task
        task.add_done_callback(lambda _done: self._forget(child_id))
        return task

    def _forget(self, child_id: SessionId) -> None:
        self._running.pop(child_id, None)
        self._ended.discard(child_id)

    async def _run(
        self, request: StartSession, prompt: str, past: AbstractAsyncContextManager[Origin] | None
    ) -> None:
        child_id = request.session_id
        account = _Account()
        try:
            daemon = await self._daemon.connected()
            async with past or nullcontext() as origin:
                begun = msgspec.structs.replace(request, origin=origin)
                await daemon.ask(begun, timeout_s=START_S)
            is_there = True
            ok, answer = await self._drive(child_id, prompt)
        except CmdcError as error:
            # Where the daemon says no, the id may be that of a session that is none of ours.
            is_there = isinstance(error, _UNKNOWN)
            reason = error.reason if isinstance(error, StartFailed) else error
            ok, answer = False, f"the subagent did not start: {reason}"
        if is_there:
            await self._stop(child_id)
            account = await self._account(child_id)
            if account.outcome is not None and account.outcome[0] and child_id not in self._ended:
                ok, answer = account.outcome  # its process may have died after that
        ok, answer = account.judged(ok, answer)
        is_ended = not ok and child_id in self._ended
        answer = ENDED if is_ended else answer
        self._post(
            SubagentDone(
                child_id,
                ok,
                answer,
                account.usage,
                is_lost=is_ended,
                is_cut=not ok and account.is_asking,
            )
        )

    async def _drive(self, child_id: SessionId, prompt: str) -> tuple[bool, str]:
        """Give a subagent its task and return how that went; no failure of it is an error here."""
        if child_id in self._ended:
            return False, ENDED
        try:
            daemon = await self._daemon.connected()
            receipt: PromptReceipt = await daemon.send(child_id, Prompt(text=prompt))
            cycle: CycleResult = await daemon.send(
                child_id, AwaitCycle(prompt_id=receipt.command_id), timeout_s=None
            )
        except SessionNotAlive as error:
            return False, end_event(error.reason)
        except CmdcError as error:
            return False, f"the subagent could not be used: {error}"
        if cycle.outcome == "finished":
            return True, cycle.text
        return False, _ended(cycle.outcome, cycle.reason)

    async def _stop(self, child_id: SessionId) -> None:
        request = StopSession(session_id=child_id, reason="the task is done", timeout=STOP_S)
        try:
            daemon = await self._daemon.connected()
            await daemon.ask(request, timeout_s=STOP_ANSWER_S)
        except (SessionNotAlive, InvalidSession):
            return  # it has ended, or never began
        except CmdcError as error:
            log.warning("subagent.not_ended", child_id=child_id, problem=str(error))

    async def _count(self, child_id: SessionId) -> None:
        account = await self._account(child_id)
        ok, text = account.judged(*(account.outcome or (False, LOST)))
        is_lost = account.outcome is None
        self._post(SubagentDone(child_id, ok, text, account.usage, is_lost=is_lost))

    async def _account(self, child_id: SessionId) -> _Account:
        """Return what an ended session's events say, its own subagents included."""
        account = _Account()
        try:
            async for envelope in self.past.of_child(child_id):
                account.take(envelope.event)
        except InvalidSession:
            return account  # it never began
        except CmdcError as error:
            log.warning("subagent.not_counted", child_id=child_id, problem=str(error))
        account.close()
        for below in account.subagents:
            account.usage += (await self._account(below)).usage
        return account
