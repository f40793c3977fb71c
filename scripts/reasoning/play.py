"""Plays a run of a strategy without a daemon: a function answers the branches, chance orders them.

``play`` drives the machine as a session does, checks at each output what must always hold, and
keeps the inputs and events, so that a run can be cut anywhere and played again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import fsum
from random import Random
from typing import Final

from cmdc_runtime.extensions.reasoning import Branch, ReasoningStrategy
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.reasoning import ReasoningResult, RunLimits
from cmdc_runtime.reasoning.result import ReasoningEvent
from workers.reasoning.inputs import (
    EndBranch,
    Finish,
    Output,
    PublishEvent,
    Recorded,
    RunBegun,
    StartBranch,
    ThoughtCame,
)
from workers.reasoning.run import Run

_ROUNDING: Final = 1e-9
"""Of dollars, which the machine counts in billionths."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a scripted model answers."""

    content: str = ""
    error: str | None = None
    tokens: int = 0
    cost_usd: float | None = 0.0


Model = Callable[[Branch], Answer | str]
"""Answers a branch; the same branch is answered the same."""


@dataclass(slots=True)
class Play:
    """A run as it goes; ``result`` is there when it is over."""

    model: Model
    limits: RunLimits = field(default_factory=RunLimits)
    order: Random | None = None
    """Who arrives next: None, who was started first."""
    meddle: Callable[["Play"], Recorded | None] = lambda _: None
    """May put another input before the next thought."""
    run_id: str = "r-1"
    overrun: float = 0
    """Tokens or dollars that a branch takes above its share where it is asked for more."""
    result: ReasoningResult | None = None
    started: dict[str, StartBranch] = field(default_factory=dict)
    """All that were paid for, in any life."""
    active: dict[str, StartBranch] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    """Those that are to be ended."""
    inputs: list[Recorded] = field(default_factory=list)
    published: list[ReasoningEvent] = field(default_factory=list)
    spent: TokenUsage = field(default_factory=TokenUsage)
    published_before: list[int] = field(default_factory=list)
    """How many events had been published when each input came."""

    def play(self, strategy: ReasoningStrategy, question: str) -> ReasoningResult:
        """Return how a whole run ends."""
        run = Run(strategy)
        begin = RunBegun(run_id=self.run_id, question=question, limits=self.limits)
        self.take(run.handle(begin))
        return self.go_on(run)

    def again(self, strategy: ReasoningStrategy, question: str, inputs: int, published: int) -> Run:
        """Return a run that was played up to ``inputs`` of this one, after a death.

        What this one did after that is forgotten, but for who was paid.
        """
        run = Run(strategy)
        del self.inputs[inputs:], self.published[published:]
        thoughts = [one for one in self.inputs if isinstance(one, ThoughtCame)]
        came = {one.branch_id for one in thoughts}
        self.spent = sum((one.usage for one in thoughts), TokenUsage())
        before = self.started
        self.result, self.active, self.ended = None, {}, set()
        self.started = {name: start for name, start in before.items() if name in came}
        begin = RunBegun(
            run_id=self.run_id,
            question=question,
            limits=self.limits,
            played=tuple(self.inputs),
            published=tuple(self.published),
        )
        outputs = run.handle(begin)
        ending = [one.branch_id for one in outputs if isinstance(one, EndBranch)]
        self.active.update((name, before[name]) for name in ending)
        self.started.update(self.active)
        self.take(outputs)
        order = list(before)
        self.active = dict(sorted(self.active.items(), key=lambda item: _place(item[0], order)))
        return run

    def go_on(self, run: Run) -> ReasoningResult:
        """Return how a run ends that has begun."""
        while self.result is None:
            given = self.meddle(self) or self.next()
            self.published_before.append(len(self.published))
            self.inputs.append(given)
            self.take(run.handle(given))
        return self.result

    def take(self, outputs: Sequence[Output]) -> None:
        """Do what the machine wants done, and check that it may want it."""
        for output in outputs:
            _must(self.result is None, "an output after the end")
            match output:
                case StartBranch(branch=branch):
                    name = str(branch.id)
                    _must(name not in self.started, f"{name} was paid twice")
                    self.started[name] = self.active[name] = output
                    _must(len(self.active) <= self.limits.max_parallel, "too many at a time")
                    self._check_budget()
                case EndBranch(branch_id=name):
                    _must(name in self.active, f"{name} does not run")
                    self.ended.add(name)
                case PublishEvent(event=event):
                    self.published.append(event)
                case Finish(result=result):
                    is_cut = bool(self.inputs) and not isinstance(self.inputs[-1], ThoughtCame)
                    _must(is_cut or not self.active, "the run is over while branches run")
                    self.result = result

    def next(self) -> ThoughtCame:
        """Return the thought of the branch that is next, and forget the branch."""
        place = 0 if self.order is None else self.order.randrange(len(self.active))
        name = list(self.active)[place]
        start = self.active.pop(name)
        published = self.model(start.branch)
        answer = Answer(published) if isinstance(published, str) else published
        error = "it was ended" if name in self.ended else answer.error
        usage = _taken(answer, start, self.overrun)
        self.spent += usage
        content = "" if error else answer.content
        return ThoughtCame(branch_id=name, content=content, error=error, usage=usage)

    def _check_budget(self) -> None:
        """See that what is spent and what is promised are within the budget, at each start."""
        tokens = self.spent.total_tokens + sum(one.tokens or 0 for one in self.active.values())
        usd = fsum(one.cost_usd or 0 for one in self.active.values()) + (self.spent.cost_usd or 0)
        _must(tokens <= (self.limits.budget_tokens or tokens), "more tokens than there are")
        _must(usd <= (self.limits.budget_usd or usd) + _ROUNDING, "more dollars than there are")


def _taken(answer: Answer, start: StartBranch, overrun: float) -> TokenUsage:
    """Return what a session takes for an answer: of its share, and ``overrun`` tokens or dollars.

    Infinite, it keeps to no share at all.
    """
    tokens, cost = answer.tokens, answer.cost_usd
    return TokenUsage(
        total_tokens=tokens if start.tokens is None else int(min(tokens, start.tokens + overrun)),
        cost_usd=cost
        if cost is None or start.cost_usd is None
        else min(cost, start.cost_usd + overrun),
    )


def _place(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)


def _must(condition: bool, otherwise: str) -> None:  # noqa: FBT001 - as an assertion's
    if not condition:
        raise AssertionError(otherwise)
