"""What a running call may ask of its session, for calls in the agent's own process.

A call asks by a reference that the tables answer: the question is posted, and the call waits until
``Answers.answer`` is called with the same reference. References count from 1 for each attempt, so a
call that runs again after a crash asks for the same things under the same names.

What a call gives to a branch, and what a reasoning run publishes of its steps, is checked where it
comes in; a branch is named by a digest. Errors are the tool's: it gets them as ``ToolError``.
"""

import asyncio
import hashlib
import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from cmdc_runtime import plain
from cmdc_runtime.answer_schema import answer_schema, form_problem
from cmdc_runtime.checked_struct import TOTAL_MAX
from cmdc_runtime.commands import PROMPT_CHARS_MAX, ClientAnswer
from cmdc_runtime.errors import CmdcError, ProtocolError, UsageError
from cmdc_runtime.events import Envelope, Event
from cmdc_runtime.extensions.context import BranchAnswer
from cmdc_runtime.extensions.tool import Effect, OtherBranchError, ToolError
from cmdc_runtime.ids import CallId, branch_ref
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.plain import problem_of, short
from cmdc_runtime.provider_options import model_problem
from cmdc_runtime.wire.codec import decode, encode
from workers.core.budget import ROUNDING_USD, Grant
from workers.core.inputs import (
    AskedOtherwise,
    BranchDropped,
    BranchTask,
    BranchWanted,
    ClientCallDropped,
    ClientCallWanted,
    CompactWanted,
    QuestionAsked,
    Result,
    SubagentWanted,
    ToolEmitted,
    ToolKept,
    ToolStepReported,
    taken_ref,
)
from workers.core.message_content import text_problem
from workers.performers.toolbox import Tally
from workers.toolhost.wire import EMITTED_MAX, PAYLOAD_BYTES_MAX, checked_event, fit

# --- branches -------------------------------------------------------------------------------------

DIGEST_BYTES: Final = 16
SHARES_MAX: Final = 1_000
COST_USD_MAX: Final = 1e9
"""As of a session."""
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def checked_branch_id(branch_id: object) -> str:
    """Return the name of a branch.

    Raises:
        ToolError: it is none.
    """
    if not isinstance(branch_id, str) or _ID.fullmatch(branch_id) is None:
        raise ToolError(
            f"branch_id: expected 1 to 64 of A-Z a-z 0-9 . _ -, got {plain.short(branch_id)}"
        )
    return branch_id


def branch_task(
    prompt: object, model: object, response_format: object, *, fork: bool
) -> BranchTask:
    """Return what a branch is asked.

    Raises:
        ToolError: nothing can be asked so; the text names the argument.
    """
    asked: Any = prompt  # Any: checked here
    if problem := plain.text_problem(asked, chars_max=PROMPT_CHARS_MAX) or text_problem(asked):
        raise ToolError(f"prompt: {problem}")
    if model is not None and (problem := model_problem(model)) is not None:
        raise ToolError(f"model: {problem}")
    named = None if model is None else str(model)
    return BranchTask(asked, named, _schema(response_format), bool(fork))


def branch_limit(tokens: object, cost_usd: object, shares: object) -> Grant:
    """Return what a branch may spend at the most.

    Raises:
        ToolError: a number is none, or out of its range; the text names it.
    """
    costs = (ROUNDING_USD, COST_USD_MAX)
    problems = {
        "tokens": None if tokens is None else plain.whole_problem(tokens, 1, TOTAL_MAX),
        "cost_usd": None if cost_usd is None else plain.number_problem(cost_usd, *costs),
        "shares": plain.whole_problem(shares, 1, SHARES_MAX),
    }
    for name, problem in problems.items():
        if problem is not None:
            raise ToolError(f"{name}: {problem}")
    given: Any = (tokens, cost_usd)  # Any: checked above
    return Grant(given[0], None if given[1] is None else float(given[1]))


def branch_digest(task: BranchTask) -> str:
    """Return what names the task: the same for the same one, in any process."""
    packed = msgspec.msgpack.encode(task, order="deterministic")
    return hashlib.blake2b(packed, digest_size=DIGEST_BYTES).hexdigest()


def _schema(response_format: object) -> dict[str, Any] | None:  # Any: a JSON Schema
    if response_format is None:
        return None
    try:
        schema = answer_schema(response_format)
    except TypeError as error:
        raise ToolError(f"response_format: {error}") from error
    if problem := form_problem(schema):
        raise ToolError(f"response_format: {problem}")
    return schema


# --- steps of a reasoning run ---------------------------------------------------------------------

PREFIX: Final = "reasoning_"
"""Of the kinds of events of such steps."""


def checked_step(event: object) -> Event:
    """Return a copy of an event of a step, which nobody changes any more.

    Raises:
        ToolError: it is another event, too large, or cannot be kept.
    """
    name = event.kind if isinstance(event, Event) else ""
    if not isinstance(event, Event) or not name.startswith(PREFIX):
        raise ToolError(f"expected an event of a kind {PREFIX}*, got {short(event)}")
    try:
        body = encode(event)
        copy = decode(Event, body)
    except (ProtocolError, UsageError) as error:
        raise ToolError(f"{name!r} cannot be kept: {error}") from error
    if len(body) > PAYLOAD_BYTES_MAX:
        raise ToolError(f"{name!r} takes {len(body):,} bytes, more than {PAYLOAD_BYTES_MAX:,}")
    if (problem := problem_of(msgspec.to_builtins(copy))) is not None:
        raise ToolError(f"{name!r} cannot be kept: {problem}")
    return copy


# --- the port -------------------------------------------------------------------------------------

ASKED_MAX: Final = 100
"""Questions, compactions and subagents of one call."""
BRANCHES_MAX: Final = 1_000
"""Branches of one call: each of them is a process."""
STEPS_MAX: Final = 100_000
"""Steps of one call, over all its runs: a hundred for each branch."""
KEPT_BYTES_MAX: Final = 64 * 1024
"""Of what a call keeps: it stands in the journal until the call has ended."""
OPTIONS_MAX: Final = 100
"""Choices of one question."""
TAKEN_S: Final = 10.0
"""For the loop to take what a thread emits; a stuck loop loses it, and the thread gets an error."""
_ABSENT: Final = (
    "the call was not made: this tool runs in the program that has attached it, which is not"
    " connected and has not come back within {:g} s"
)
_ENDED: Final = BranchAnswer(ok=False, text="the branch was ended", usage=TokenUsage())

Recall: TypeAlias = Callable[[str, int], Awaitable[tuple[Envelope, ...]]]
"""Returns so many of the latest steps of a run that the session has published, in order."""


async def no_recall(_run_id: str, _count: int) -> tuple[Envelope, ...]:
    """Know of nothing that was published."""
    return ()


async def nothing_to_wait_for() -> None:
    """Have everything written down already."""


class Answers:
    """The calls that wait for an answer, by reference."""

    def __init__(self) -> None:
        """Hold none."""
        self._waiting: dict[str, asyncio.Future[Any]] = {}  # Any: what the call asked for
        self.are_over = False
        """The process ends: nothing that is asked from now on is answered."""

    def close(self) -> None:
        """Have no call ask anything any more when it is cancelled."""
        self.are_over = True

    def answer(self, ref: str, value: Any, error: str | None) -> None:  # Any: see above
        """Answer the call that waits by ``ref``; one that is over needs no answer."""
        waiting = self._waiting.get(ref)
        if waiting is None or waiting.done():
            return
        if error is None:
            waiting.set_result(value)
        else:
            waiting.set_exception(ToolError(error))

    async def of(self, ref: str, ask: Callable[[], None]) -> Any:  # Any: see above
        """Ask, and return the answer, which may come at once."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting[ref] = waiting
        try:
            ask()
            return await waiting
        finally:
            if self._waiting.get(ref) is waiting:
                del self._waiting[ref]


class AgentPort:
    """The port of one attempt at a call; see ``SessionPort`` for what the methods promise."""

    def __init__(  # noqa: PLR0913 - what an attempt is, and three things that a test may leave out
        self,
        work: int,
        call_id: CallId,
        post: Callable[[Result], None],
        answers: Answers,
        *,
        tally: Tally | None = None,
        recall: Recall = no_recall,
        synced: Callable[[], Awaitable[None]] = nothing_to_wait_for,
    ) -> None:
        """Belong to the running loop."""
        self._tally = tally or Tally()
        self._recall, self._synced = recall, synced
        self._steps_before = self._tally.steps
        self._work, self._call_id = work, call_id
        self._post, self._answers = post, answers
        self._loop = asyncio.get_running_loop()
        self._emitted = 0
        self._asked = {"ask": self._tally.asked}
        self._branches: set[str] = set()
        self._awaited: set[str] = set()
        self._ended: set[str] = set()
        self._is_open = True

    def close(self) -> None:
        """Say nothing any more: the attempt is over, even if its thread runs on."""
        self._is_open = False

    def emit(self, name: str | msgspec.Struct, payload: object = None) -> None:
        """Publish an event; in a thread, return when the agent has taken it."""
        shown, payload = checked_event(name, payload)
        self._emitted += 1
        if self._emitted > EMITTED_MAX:
            raise ToolError(f"a call may emit {EMITTED_MAX} events, and this is one more")
        if self._is_in_loop():
            self._post_emitted(shown, payload)
            return
        taken = threading.Event()

        def hand_over() -> None:
            self._post_emitted(shown, payload)
            taken.set()

        # A thread waits until its event is taken, so it can't flood the loop.
        self._loop.call_soon_threadsafe(hand_over)
        if not taken.wait(TAKEN_S):
            raise ToolError(f"the agent did not take the event {shown!r} within {TAKEN_S:g} s")

    async def ask_user(self, question: str, options: Sequence[str] = ()) -> object:
        """Ask the user and return the answer."""
        shown = tuple(fit(str(option)) for option in options)
        if len(shown) > OPTIONS_MAX:
            raise ToolError(f"a question has at most {OPTIONS_MAX} options, got {len(shown)}")
        ref = self._ref("ask")
        asked = QuestionAsked(self._work, self._call_id, ref, fit(str(question)), shown)
        return await self._answers.of(ref, lambda: self._post(asked))

    async def call_client(self, owner: str, arguments: dict[str, Any], absent_s: float) -> object:
        """Have the program that has attached the tool make the call, and return its result."""
        ref = self._ref("client")
        wanted = ClientCallWanted(self._work, self._call_id, ref, owner, arguments)
        taking = asyncio.ensure_future(self._answers.of(taken_ref(ref), lambda: None))
        answering = asyncio.ensure_future(self._answers.of(ref, lambda: self._post(wanted)))
        try:
            await asyncio.wait(
                {taking, answering}, timeout=absent_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not taking.done() and not answering.done():
                self._post(ClientCallDropped(self._work, self._call_id, ref))
            answer = msgspec.convert(await answering, ClientAnswer)
        finally:
            taking.cancel()
            answering.cancel()
        if not answer.ok:
            raise ToolError(answer.error or _ABSENT.format(absent_s))
        if answer.effect is None:
            return answer.value
        name, payload, text = answer.effect
        return Effect(name, payload, text)

    async def compact(self, reason: str) -> str:
        """Compact the conversation and return a report."""
        ref = self._ref("compact")
        wanted = CompactWanted(self._work, self._call_id, ref, fit(str(reason)))
        return str(await self._answers.of(ref, lambda: self._post(wanted)))

    async def delegate(self, description: str, subagent_type: str) -> str:
        """Let a subagent do a task and return its answer."""
        ref = self._ref("task")
        wanted = SubagentWanted(
            self._work, self._call_id, ref, fit(str(subagent_type)), fit(str(description))
        )
        return str(await self._answers.of(ref, lambda: self._post(wanted)))

    @property
    def kept(self) -> bytes:
        """What an earlier run of this call has kept."""
        return self._tally.kept

    async def keep(self, content: bytes) -> None:
        """Keep what a later run goes on with; return when it is in the journal."""
        self._check_open()
        given: Any = content  # Any: whatever a tool gives
        if not isinstance(given, bytes) or len(given) > KEPT_BYTES_MAX:
            shown = f"{len(given):,}" if isinstance(given, bytes) else short(given)
            raise ToolError(f"content: expected at most {KEPT_BYTES_MAX:,} bytes, got {shown}")
        asked = self._asked["ask"] if content else 0
        self._tally.kept, self._tally.asked = content, asked
        self._post(ToolKept(self._work, self._call_id, content, asked))
        await self._synced()

    @property
    def published(self) -> int:
        """How many events earlier runs of this call have published."""
        return self._steps_before

    async def publish(self, event: Event) -> None:
        """Publish a step, and have it counted with the same write."""
        self._check_open()
        seen = checked_step(event)
        if self._tally.steps >= STEPS_MAX:
            raise ToolError(f"a call may report {STEPS_MAX:,} steps, and this is one more")
        self._tally.steps += 1
        self._post(ToolStepReported(self._work, self._call_id, seen))

    async def recall(self, run_id: str) -> tuple[Envelope, ...]:
        """Return what earlier runs of this call have published."""
        self._check_open()
        if not self._steps_before:
            return ()
        try:
            return await self._recall(run_id, self._steps_before)
        except CmdcError as error:
            raise ToolError(
                f"what was published of run {run_id!r} cannot be read: {error}"
            ) from error

    async def branch(  # noqa: PLR0913 - as the contract has it
        self,
        branch_id: str,
        prompt: str,
        *,
        model: str | None = None,
        response_format: object = None,
        fork: bool = False,
        tokens: int | None = None,
        cost_usd: float | None = None,
        shares: int = 1,
    ) -> BranchAnswer:
        """Let a subagent answer a prompt under a name; a cancelled wait returns when it is gone."""
        task = branch_task(prompt, model, response_format, fork=fork)
        limit = branch_limit(tokens, cost_usd, shares)
        ref = self._branch_ref(branch_id)
        digest = branch_digest(task)
        wanted = BranchWanted(self._work, self._call_id, ref, task, digest, limit, shares)
        self._awaited.add(ref)
        try:
            answer: BranchAnswer | AskedOtherwise | None = None
            while answer is None:  # it was lost with the process before, and is begun anew
                answer = await self._answers.of(ref, lambda: self._post(wanted))
                if answer is None and ref in self._ended:
                    answer = _ENDED
        except asyncio.CancelledError:
            await self._drop(ref)
            raise
        finally:
            self._awaited.discard(ref)
        if isinstance(answer, AskedOtherwise):
            raise OtherBranchError(answer.text)
        return answer

    async def end_branch(self, branch_id: str) -> BranchAnswer:
        """End a branch and return what came of it, when it is gone and counted."""
        self._check_open()
        ref = self._ref_of(branch_id)
        self._ended.add(ref)
        dropped = BranchDropped(self._work, self._call_id, ref)
        answer: BranchAnswer | None = await self._answers.of(
            dropped.ended, lambda: self._post(dropped)
        )
        return answer or _ENDED

    async def _drop(self, ref: str) -> None:
        """Return when the branch is gone and counted; a second cancellation waits for nothing."""
        if not self._answers.are_over:
            dropped = BranchDropped(self._work, self._call_id, ref)
            await self._answers.of(dropped.ended, lambda: self._post(dropped))

    def _branch_ref(self, branch_id: str) -> str:
        self._check_open()
        ref = self._ref_of(branch_id)
        if ref in self._awaited:
            raise ToolError(f"branch {branch_id!r} is waited for already")
        if ref not in self._branches and len(self._branches) >= BRANCHES_MAX:
            raise ToolError(f"a call may branch {BRANCHES_MAX:,} times, and not once more")
        self._branches.add(ref)
        return ref

    def _ref_of(self, branch_id: str) -> str:
        return branch_ref(self._call_id, checked_branch_id(branch_id))

    def _post_emitted(self, name: str, payload: object) -> None:
        if self._is_open:
            self._post(ToolEmitted(self._work, self._call_id, name, payload))

    def _ref(self, kind: str) -> str:
        self._check_open()
        if sum(self._asked.values()) >= ASKED_MAX:
            raise ToolError(f"a call may ask its session {ASKED_MAX} times, and not once more")
        self._asked[kind] = self._asked.get(kind, 0) + 1
        return f"{self._call_id}:{kind}-{self._asked[kind]}"

    def _check_open(self) -> None:
        if not self._is_in_loop():
            raise ToolError('only "async def" tools can wait for their session')
        if not self._is_open:
            raise ToolError("the call is over")

    def _is_in_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:  # a thread without a loop
            return False
