"""``reason``: a question thought about by a strategy, over branches that models work on.

The run is a part of this call: it goes on after a death of the process, and ends with the call.
What it came to is published by ``reasoning_done``; the model reads the answer.

``Driver`` drives the run over the session of the call: the machine decides, the driver carries it
out. The machine is asked in a thread, since a strategy is a stranger's code that must not stop the
loop. One that does not decide in time is given up: its thread is left alone, and the run ends with
what was published. After a death the run is played again: what came before is fed in the order in
which it came first, which the published events say; the session has the answers, and nothing is
asked twice.
"""

import asyncio
import importlib
import textwrap
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import structlog

from cmdc_runtime import plain
from cmdc_runtime.checked_struct import SECONDS_MAX
from cmdc_runtime.clock import now_ms
from cmdc_runtime.errors import InvalidTool
from cmdc_runtime.events import Envelope, ReasoningBranch, ReasoningDone, ReasoningThought
from cmdc_runtime.events.reasoning import over
from cmdc_runtime.extensions import Context, OtherBranchError, SessionPort, Tool, ToolError
from cmdc_runtime.extensions.reasoning import ReasoningStrategy, RunStatus
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.ids import run_of_call
from cmdc_runtime.reasoning import ReasoningResult, RunLimits
from cmdc_runtime.reasoning.result import ReasoningEvent
from cmdc_runtime.subagent import REASON_TOOL
from workers.builtin import reasoning as built_in
from workers.builtin.tools._session import META_CHARS_MAX, session_of
from workers.reasoning.inputs import (
    BranchRefused,
    Deadline,
    EndBranch,
    Finish,
    Output,
    PublishEvent,
    Recorded,
    RunBegun,
    StartBranch,
    ThoughtCame,
)
from workers.reasoning.remains import CUT, Remains
from workers.reasoning.run import Run
from workers.threads import Threads

log = structlog.get_logger()

# --- the driver -----------------------------------------------------------------------------------

DECIDE_S: Final = 60.0
"""For a strategy to decide; one that takes longer ends its run."""
GRACE_S: Final = 1.0
"""For a decision that is at work when the time of its run is over, and for the best answer."""
HUNG_MAX: Final = 4
"""Threads of strategies that were given up and have not returned, in one process: while there are
so many, no strategy is asked in it, since each may take all of its time."""
END_S: Final = 60.0
"""For branches to end whose run is over in time; then nobody waits for them."""
CLOSE_S: Final = 60.0
"""As above, where the call itself is over."""

_THREADS: Final = Threads("strategy")
"""Of all runs in this process."""
_FOREVER: Final = float("inf")

T = TypeVar("T")
Maker: TypeAlias = Callable[[], ReasoningStrategy]
"""Returns a new strategy, for one run."""
Played: TypeAlias = ReasoningThought | Deadline
"""What came in an earlier life, as far as the published events say it."""


class GivenUpError(Exception):
    """The strategy is not asked any more; the run ends with this status, and the text says why."""

    def __init__(self, status: RunStatus, reason: str) -> None:
        """Say how and why."""
        super().__init__(reason)
        self.status = status


class Driver:
    """One run in one life of its call."""

    def __init__(
        self,
        name: str,
        make: Maker,
        session: SessionPort,
        *,
        forks: bool = False,
    ) -> None:
        """Take what makes the strategy of this name, which is for this run alone.

        ``forks``: each branch begins with the session's conversation.
        """
        self._forks = forks
        self._name, self._make = name, make
        self._session = session
        self._remains = Remains("", name)
        self._due_s = _FOREVER
        """When the time of the run is over, as the loop counts."""
        self._played: deque[Played] = deque()
        self._lost: set[str] = set()
        """Branches that came to nothing in an earlier life: they are not asked for."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ending: set[str] = set()
        self._arrived: dict[str, Recorded] = {}
        self._deadlines: deque[Deadline] = deque()
        self._news = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    async def drive(self, begin: RunBegun) -> ReasoningResult:
        """Return how the run ends; cancelled, end its branches first.

        Raises:
            ToolError: what the strategy says cannot be published.
        """
        published = await self._session.recall(begin.run_id)
        begin = self._remember(begin, published)
        if self._remains.is_over:
            return self._remains.result
        self._set_timer(begin)
        try:
            return await self._driven(begin)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            await self._close()

    async def _driven(self, begin: RunBegun) -> ReasoningResult:
        given: RunBegun | Recorded = begin
        try:
            run = await self._call_strategy(lambda: Run(self._make()))
            while (result := await self._carry_out(await self._handle(run, given))) is None:
                given = await self._next()
            if run.trace:
                log.warning("strategy.failed", strategy=self._name, exception=run.trace)
        except GivenUpError as error:
            came = [given] if isinstance(given, ThoughtCame) else []
            return await self._give_up(begin, error, came)
        return result

    async def _give_up(
        self, begin: RunBegun, why: GivenUpError, came: list[ThoughtCame]
    ) -> ReasoningResult:
        """End the run without its strategy: publish what came, end what runs, publish the end."""
        log.warning("strategy.given_up", strategy=self._name, status=why.status)
        rest = self._remains
        came += [one for one in self._arrived.values() if isinstance(one, ThoughtCame)]
        for one in came:
            if one.branch_id in rest.open:
                await self._publish(rest.thought(one))
        self._arrived.clear()
        for name in rest.open:
            if name not in self._ending:
                self._end(name)
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await self._end_open(why.status)
        for name in rest.open:
            await self._publish(rest.unheard(name, why.status))
        await self._publish(rest.done(why.status, str(why), now_ms() - begin.at_ms))
        return rest.result

    async def _end_open(self, status: RunStatus) -> None:
        """Publish each open branch as it ends."""
        while self._remains.open:
            while not self._arrived:
                await self._heard()
            name = next(iter(self._arrived))
            came = self._arrived.pop(name)
            if name in self._remains.open and isinstance(came, ThoughtCame):
                if came.error is not None:
                    came = msgspec.structs.replace(came, error=over(status))
                await self._publish(self._remains.thought(came))

    # --- what came before -------------------------------------------------------------------------

    def _remember(self, begin: RunBegun, published: Sequence[Envelope]) -> RunBegun:
        """Take up what was published; where the journal lacks some, only the number is known."""
        events = tuple(one.event for one in published if isinstance(one.event, ReasoningEvent))
        self._remains = Remains(begin.run_id, self._name, events)
        if len(published) < self._session.published:
            return msgspec.structs.replace(begin, published=self._session.published)
        if not published:
            return begin
        self._played.extend(played_of(events))
        thoughts = (one for one in self._played if isinstance(one, ReasoningThought))
        self._lost = {one.thought_id for one in thoughts if one.error is not None}
        return msgspec.structs.replace(begin, published=events, at_ms=published[0].at_ms)

    async def _next(self) -> Recorded:
        """Return what comes next: in an order that is known, else whatever is first."""
        while self._played:
            given = self._played.popleft()
            if isinstance(given, Deadline):
                return Deadline(at_ms=now_ms())
            name = given.thought_id
            if given.error is not None:
                return ThoughtCame(
                    branch_id=name, error=given.error, usage=given.usage, at_ms=now_ms()
                )
            if name in self._tasks:  # else the strategy decides otherwise, and the machine says so
                return await self._arrival_of(name)
        while True:
            if self._deadlines:
                return self._deadlines.popleft()
            if self._arrived:
                return self._arrived.pop(next(iter(self._arrived)))
            await self._heard()

    async def _arrival_of(self, name: str) -> Recorded:
        while name not in self._arrived:
            await self._heard()
        return self._arrived.pop(name)

    async def _heard(self) -> None:
        self._news.clear()
        await self._news.wait()

    def _hear(self, name: str, came: Recorded) -> None:
        self._arrived[name] = came
        self._news.set()

    # --- time -------------------------------------------------------------------------------------

    def _set_timer(self, begin: RunBegun) -> None:
        if begin.limits.timeout is not None:
            left_s = (begin.at_ms - now_ms()) / 1000 + begin.limits.timeout
            self._due_s = asyncio.get_running_loop().time() + left_s
            self._call_later(max(0.0, left_s))

    def _call_later(self, delay_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._deadlines.append(Deadline(at_ms=now_ms()))
        self._news.set()
        self._call_later(END_S)

    # --- what the machine wants -------------------------------------------------------------------

    async def _handle(self, run: Run, given: RunBegun | Recorded) -> list[Output]:
        return await self._call_strategy(lambda: run.handle(given))

    async def _call_strategy(self, work: Callable[[], T]) -> T:
        """Return what the strategy's code comes to, within its time and that of the run.

        Raises:
            GivenUpError: it did not come to anything, or too many have not.
        """
        if (hung := _THREADS.left) >= HUNG_MAX:
            raise GivenUpError(
                "failed",
                f"{hung} strategies that did not decide in time still run in this session's"
                " process: no other is asked there until they return",
            )
        left_s = max(GRACE_S, self._due_s - asyncio.get_running_loop().time())
        bound = asyncio.timeout(min(DECIDE_S, left_s))
        try:
            async with bound:
                return await _THREADS.run(work)
        except ForeignError as error:
            log.warning("strategy.failed", strategy=self._name, exception=error.trace)
            raise GivenUpError("failed", f"the strategy cannot be run: {error}") from error
        except TimeoutError as error:
            if not bound.expired():
                raise
            if left_s <= DECIDE_S:
                raise GivenUpError("timeout", "the strategy had not decided by then") from error
            why = f"the strategy did not decide within {DECIDE_S:g} s"
            raise GivenUpError("failed", why) from error

    async def _publish(self, event: ReasoningEvent) -> None:
        await self._session.publish(event)
        self._remains.record(event)

    async def _carry_out(self, outputs: Iterable[Output]) -> ReasoningResult | None:
        """Do what is wanted, and return the result where it is there."""
        wanted = list(outputs)
        left = sum(isinstance(one, StartBranch) for one in wanted)
        for output in wanted:
            match output:
                case PublishEvent():
                    await self._publish(output.event)
                case StartBranch():
                    self._start(output, left)
                    left -= 1
                case EndBranch():
                    self._end(output.branch_id)
                case Finish():
                    return output.result
        return None

    def _start(self, start: StartBranch, shares: int) -> None:
        name = str(start.branch.id)
        self._remains.start(start)
        if name not in self._lost:
            work = self._work(start, shares)
            self._tasks[name] = asyncio.create_task(work, name=f"branch-{name}")

    async def _work(self, start: StartBranch, shares: int) -> None:
        branch, name = start.branch, str(start.branch.id)
        came: Recorded
        try:
            answer = await self._session.branch(
                name,
                branch.prompt,
                model=branch.model,
                response_format=branch.result,
                fork=branch.fork or self._forks,
                tokens=start.tokens,
                cost_usd=start.cost_usd,
                shares=shares,
            )
        except OtherBranchError as error:
            came = BranchRefused(branch_id=name, reason=str(error), at_ms=now_ms())
        except ToolError as error:
            came = ThoughtCame(branch_id=name, error=str(error) or "failed", at_ms=now_ms())
        else:
            content, error_text = (answer.text, None) if answer.ok else ("", answer.text)
            came = ThoughtCame(
                branch_id=name,
                content=content,
                error=error_text,
                usage=answer.usage,
                is_cut=answer.is_cut,
                at_ms=now_ms(),
            )
        if name not in self._ending:
            self._hear(name, came)

    def _end(self, name: str) -> None:
        """End a branch; what came of it before is published already, or is of no use any more."""
        if name in self._lost or name in self._arrived:
            return
        self._ending.add(name)
        self._tasks[f"{name}:end"] = asyncio.create_task(self._ended(name), name=f"end-{name}")

    async def _ended(self, name: str) -> None:
        answer = await self._session.end_branch(name)
        came = ThoughtCame(
            branch_id=name,
            content=answer.text if answer.ok else "",
            error=None if answer.ok else "it was ended",
            usage=answer.usage,
            is_cut=answer.is_cut,
            at_ms=now_ms(),
        )
        self._hear(name, came)

    async def _close(self) -> None:
        """End all branches that still run, and return when they are gone."""
        left = [task for task in self._tasks.values() if not task.done()]
        for task in left:
            task.cancel()
        if left:
            _, late = await asyncio.wait(left, timeout=CLOSE_S)
            for task in late:  # a second time, it waits for nobody
                task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


def played_of(published: Iterable[ReasoningEvent]) -> Iterable[Played]:
    """Yield what has come, in its order: the thoughts of branches, and that the time was over."""
    branches: set[str] = set()
    is_late = False
    for event in published:
        if not is_late and _shows_the_deadline(event):
            is_late = True
            yield Deadline()
        if isinstance(event, ReasoningBranch):
            branches.add(event.branch_id)
        elif isinstance(event, ReasoningThought) and event.thought_id in branches:
            yield event


def _shows_the_deadline(event: ReasoningEvent) -> bool:
    match event:
        case ReasoningThought(error=error):
            return error == over("timeout")
        case ReasoningDone(status=status):
            return status == "timeout"
        case _:
            return False


# --- the tool -------------------------------------------------------------------------------------

CLOSING_S: Final = 300.0
"""For branches to end after the run's own time, before the call is cut off."""
_CUT_OFF: Final = ("timeout", "budget_exceeded", "max_steps_exceeded")
_DESCRIPTION: Final = """\
Think about a hard question with a strategy that asks models several times, compares what they \
come to and goes on from there. It costs more than an answer of your own, so use it where a first \
thought is likely to be wrong."""


class Reason(Tool):
    """The tool of one session, with the strategies that it may be called with."""

    description = _DESCRIPTION
    isolation = "task"
    effects = "idempotent"
    max_retries = 0

    def __init__(
        self,
        name: str,
        strategies: Iterable[Maker],
        limits: RunLimits,
        *,
        forks: bool = False,
    ) -> None:
        """Make each strategy once, for its name and to know that it can be made."""
        self.name = name
        self._limits = limits
        self._forks = forks
        makers = list(strategies)
        self._strategies = {make().name: make for make in makers}
        if len(self._strategies) < max(1, len(makers)):
            raise InvalidTool(f"tool {name!r}: give one strategy or more, each with its own name")
        time_s = limits.timeout
        self.run_strategy = next(iter(self._strategies))
        self.timeout = SECONDS_MAX if time_s is None else min(time_s + CLOSING_S, SECONDS_MAX)
        self.parameters = _parameters(tuple(self._strategies))

    def meta(self, args: dict[str, Any]) -> str:
        """Return the question."""
        return textwrap.shorten(f"Reason: {args.get('question')}", META_CHARS_MAX, placeholder="…")

    async def execute(self, args: dict[str, Any], context: Context) -> str:
        """Run the strategy and return its answer."""
        session = session_of(context, self.name)
        chosen = str(args.get("strategy") or next(iter(self._strategies)))
        begin = RunBegun(
            run_id=run_of_call(context.call_id, context.turn),
            question=str(args["question"]),
            session_id=context.session_id,
            limits=self._limits,
            at_ms=now_ms(),
        )
        driver = Driver(chosen, self._strategies[chosen], session, forks=self._forks)
        return _text_of(await driver.drive(begin))


def create(  # noqa: PLR0913, PLR0917 - the fields of ``cmdc.tools.Reason``
    strategies: Sequence[str | Maker] | Mapping[str, str | Maker] = ("adaptive",),
    max_steps: int = 20,
    max_parallel: int = 4,
    max_revisions: int = 3,
    budget_usd: float | None = None,
    budget_tokens: int | None = None,
    timeout: float | None = None,
    fork: bool | None = None,  # noqa: FBT001 - as above
    name: str = REASON_TOOL,
) -> Tool:
    """Return the tool; ``strategies`` make a new one for each run, or name built-in ones.

    Those of a mapping have its keys as their names.
    """
    makers = (
        [_named(key, _maker(one)) for key, one in strategies.items()]
        if isinstance(strategies, Mapping)
        else [_maker(one) for one in strategies]
    )
    limits = RunLimits(
        max_steps=max_steps,
        max_parallel=max_parallel,
        max_revisions=max_revisions,
        budget_usd=budget_usd,
        budget_tokens=budget_tokens,
        timeout=timeout,
    )
    return Reason(name, makers, limits, forks=bool(fork))


def _named(name: str, make: Maker) -> Maker:
    """Return what makes a strategy that has this name, as a variant among others of its class."""

    def named() -> ReasoningStrategy:
        strategy = make()
        strategy.name = name
        return strategy

    return named


def _maker(given: str | Maker) -> Maker:
    if not isinstance(given, str):
        return given
    create: Maker
    create = importlib.import_module(f"{built_in.__name__}.{given}").create
    return create


def _parameters(names: Sequence[str]) -> dict[str, Any]:  # Any: a JSON Schema
    question = {
        "type": "string",
        "pattern": r"\S",
        "description": "The question, with all that is needed to answer it.",
    }
    strategy = {
        "type": "string",
        "enum": list(names),
        "default": names[0],
        "description": "How it is thought about.",
    }
    return {
        "type": "object",
        "properties": {"question": question, "strategy": strategy},
        "required": ["question"],
        "additionalProperties": False,
    }


def _text_of(result: ReasoningResult) -> str:
    """Return what the model reads.

    Raises:
        ToolError: there is no answer; the text says why.
    """
    cuts = [f"[{note}]" for note in result.notes if note.startswith(CUT)]
    return "\n\n".join([_answer(result), *cuts])


def _answer(result: ReasoningResult) -> str:
    why = f"{result.status}: {result.reason}" if result.reason else result.status
    if result.status == "done":
        return _text(result.answer)
    if result.status in _CUT_OFF and result.answer is not None:
        return f"{_text(result.answer)}\n\n[Cut off ({why}): this is the best answer so far.]"
    if result.status in _CUT_OFF:
        raise ToolError(f"{result.strategy} was cut off without an answer ({why})")
    if result.answer is not None:
        return f"{_text(result.answer)}\n\n[Not finished ({why}): this is the best answer so far.]"
    raise ToolError(f"{result.strategy} {why}")


def _text(answer: Any) -> str:  # Any: plain data of the strategy
    if isinstance(answer, str):
        return answer
    return plain.mended(msgspec.json.encode(answer).decode())
