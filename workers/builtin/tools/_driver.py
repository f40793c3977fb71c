"""Drives a run of a strategy over the session of a call: the machine decides, this carries it out.

The machine is asked in a thread, since a strategy is a stranger's code that must not stop the loop.
After a death the run is played again: what came before is fed in the order in which it came first,
which the told events say; the session has the answers, and nothing is asked twice.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

import msgspec

from cmdc_runtime.clock import now_ms
from cmdc_runtime.events import Envelope, ReasoningBranch, ReasoningDone, ReasoningThought
from cmdc_runtime.events.reasoning import over
from cmdc_runtime.extensions import OtherBranchError, SessionPort, ToolError
from cmdc_runtime.extensions.reasoning import ReasoningStrategy
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.reasoning.result import ReasoningEvent, ReasoningResult
from workers.reasoning.inputs import (
    BranchRefused,
    Deadline,
    EndBranch,
    Finish,
    Output,
    Recorded,
    RunBegun,
    StartBranch,
    Tell,
    ThoughtCame,
)
from workers.reasoning.run import Run
from workers.threads import Threads

DECIDE_S: Final = 60.0
"""For a strategy to decide; one that takes longer ends its run."""
END_S: Final = 60.0
"""For branches to end whose run is over in time; then nobody waits for them."""
CLOSE_S: Final = 60.0
"""As above, where the call itself is over."""

T = TypeVar("T")
Played: TypeAlias = ReasoningThought | Deadline
"""What came in an earlier life, as far as the told events say it."""


class Driver:
    """One run in one life of its call."""

    def __init__(
        self, make: Callable[[], ReasoningStrategy], session: SessionPort, *, forks: bool = False
    ) -> None:
        """Take what makes the strategy, which is for this run alone.

        ``forks``: each branch begins with the session's conversation.
        """
        self._forks = forks
        self._make = make
        self._session = session
        self._threads = Threads("strategy")
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
            ToolError: the strategy takes too long to decide, or what it says cannot be told.
        """
        told = await self._session.recall(begin.run_id)
        begin = self._remember(begin, told)
        self._set_timer(begin)
        try:
            run = await self._aside(lambda: Run(self._make()))
            given: RunBegun | Recorded = begin
            while (result := await self._carry_out(await self._handle(run, given))) is None:
                given = await self._next()
            return result
        finally:
            if self._timer is not None:
                self._timer.cancel()
            await self._close()

    # --- what came before -------------------------------------------------------------------------

    def _remember(self, begin: RunBegun, told: Sequence[Envelope]) -> RunBegun:
        """Take up what was told; where the journal has not all of it, only its number is known."""
        if len(told) < self._session.told:
            return msgspec.structs.replace(begin, told=self._session.told)
        if not told:
            return begin
        events = tuple(one.event for one in told if isinstance(one.event, ReasoningEvent))
        self._played.extend(played_of(events))
        thoughts = (one for one in self._played if isinstance(one, ReasoningThought))
        self._lost = {one.thought_id for one in thoughts if one.error is not None}
        return msgspec.structs.replace(begin, told=events, at_ms=told[0].at_ms)

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
            if name in self._tasks:  # else the strategy decides otherwise, and the machine tells
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
            due_s = (begin.at_ms - now_ms()) / 1000 + begin.limits.timeout
            self._call_later(max(0.0, due_s))

    def _call_later(self, delay_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._deadlines.append(Deadline(at_ms=now_ms()))
        self._news.set()
        self._call_later(END_S)

    # --- what the machine wants -------------------------------------------------------------------

    async def _handle(self, run: Run, given: RunBegun | Recorded) -> list[Output]:
        return await self._aside(lambda: run.handle(given))

    async def _aside(self, work: Callable[[], T]) -> T:
        """Return what the strategy's code comes to, within its time."""
        bound = asyncio.timeout(DECIDE_S)
        try:
            async with bound:
                return await self._threads.run(work)
        except ForeignError as error:
            raise ToolError(f"the strategy cannot be run: {error}") from error
        except TimeoutError as error:
            if not bound.expired():
                raise
            raise ToolError(f"the strategy did not decide within {DECIDE_S:g} s") from error

    async def _carry_out(self, outputs: Iterable[Output]) -> ReasoningResult | None:
        """Do what is wanted, and return the result where it is there."""
        wanted = list(outputs)
        left = sum(isinstance(one, StartBranch) for one in wanted)
        for output in wanted:
            match output:
                case Tell():
                    await self._session.tell(output.event)
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
                at_ms=now_ms(),
            )
        if name not in self._ending:
            self._hear(name, came)

    def _end(self, name: str) -> None:
        """End a branch; what came of it before is told already, or is of no use any more."""
        if name in self._lost or name in self._arrived:
            return
        self._ending.add(name)
        self._tasks[f"{name}:end"] = asyncio.create_task(self._ended(name), name=f"end-{name}")

    async def _ended(self, name: str) -> None:
        answer = await self._session.end_branch(name)
        usage = answer.usage
        came = ThoughtCame(branch_id=name, error="it was ended", usage=usage, at_ms=now_ms())
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


def played_of(told: Iterable[ReasoningEvent]) -> Iterable[Played]:
    """Yield what has come, in its order: the thoughts of branches, and that the time was over."""
    branches: set[str] = set()
    is_late = False
    for event in told:
        if not is_late and _tells_of_the_deadline(event):
            is_late = True
            yield Deadline()
        if isinstance(event, ReasoningBranch):
            branches.add(event.branch_id)
        elif isinstance(event, ReasoningThought) and event.thought_id in branches:
            yield event


def _tells_of_the_deadline(event: ReasoningEvent) -> bool:
    match event:
        case ReasoningThought(error=error):
            return error == over("timeout")
        case ReasoningDone(status=status):
            return status == "timeout"
        case _:
            return False
