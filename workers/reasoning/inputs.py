"""What comes into a run and goes out of it: inputs, outputs, shares of a budget, thoughts.

Inputs and outputs are values that can be kept and sent: a run is played again by giving it the
same inputs. To add one: its class here, and a case in ``run.Run``.

``RunBudget`` holds what a run may spend: shares are reserved before a branch starts, the rest comes
back after it. Dollars are counted in whole billionths, so that no sum drifts. What a strategy and
its branches bring is made into what a run can keep, or refused by name.
"""

import re
from collections.abc import Sequence
from math import ceil
from typing import Any, Final, TypeAlias

import msgspec

from cmdc_runtime import foreign
from cmdc_runtime.events import (
    ReasoningBranch,
    ReasoningDone,
    ReasoningPrune,
    ReasoningScore,
    ReasoningThought,
)
from cmdc_runtime.events.reasoning import over
from cmdc_runtime.extensions.reasoning import ERROR, OUTPUT, Branch, Thought
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.ids import SessionId
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.plain import copied, mended, short, text_problem
from cmdc_runtime.reasoning.limits import PLAIN_BYTES_MAX, PROMPT_CHARS_MAX, RunLimits
from cmdc_runtime.reasoning.result import ReasoningEvent, ReasoningResult
from cmdc_runtime.reasons import snake

# --- inputs and outputs ---------------------------------------------------------------------------


class RunInput(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=snake):
    """Something has happened, at ``at_ms``: of any clock that goes on, also from life to life."""

    at_ms: int = 0


class ThoughtCame(RunInput, frozen=True, kw_only=True):
    """A branch has ended, be it by itself or because it was ended.

    ``content`` is its answer; of a branch with a ``result`` the typed answer as JSON. ``error``
    says why there is none.
    """

    branch_id: str
    content: str = ""
    error: str | None = None
    usage: TokenUsage = TokenUsage()
    is_cut: bool = False
    """Whether it ended in the middle of a request, which ``usage`` does not count."""


class BranchRefused(RunInput, frozen=True, kw_only=True):
    """The session knows the branch by its id, and was asked something else: the run fails."""

    branch_id: str
    reason: str


class Deadline(RunInput, frozen=True, kw_only=True):
    """The time is over; again, while branches are being ended: they are not waited for."""


class RunAborted(RunInput, frozen=True, kw_only=True):
    """Somebody ended the run; again: as above."""

    reason: str = ""


Recorded: TypeAlias = ThoughtCame | BranchRefused | Deadline | RunAborted
"""What is kept of a run, in the order in which it came, to play it again."""


class RunBegun(RunInput, frozen=True, kw_only=True):
    """The run begins, or is played again up to where it was.

    ``played`` is what came in earlier lives, in the order in which it came first. ``published`` are
    the events that subscribers have: they are passed over, and one that differs ends the run; where
    their number alone is known, that many are passed over unseen.
    """

    run_id: str
    question: str
    session_id: SessionId = SessionId("")
    limits: RunLimits = RunLimits()
    played: tuple[Recorded, ...] = ()
    published: tuple[ReasoningEvent, ...] | int = ()


class StartBranch(msgspec.Struct, frozen=True, kw_only=True):
    """Have a model work on ``branch``, whose id is set; ``ThoughtCame`` answers.

    ``tokens`` and ``cost_usd`` are what it may use at most, None without a limit. After a death it
    is said again for the branches that have not answered: one that is known by its id goes on.
    """

    branch: Branch
    tokens: int | None = None
    cost_usd: float | None = None


class EndBranch(msgspec.Struct, frozen=True, kw_only=True):
    """End the branch now; ``ThoughtCame`` answers with what it took, also where there is none."""

    branch_id: str


class PublishEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Publish to the session's subscribers."""

    event: ReasoningEvent


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """The run is over, and none of its branches runs."""

    result: ReasoningResult


Output: TypeAlias = StartBranch | EndBranch | PublishEvent | Finish


# --- budget ---------------------------------------------------------------------------------------

_NANO: Final = 1_000_000_000
_SHARE_MIN_NANO: Final = 1_000
"""A millionth of a dollar: less than any request costs."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What one branch may use; None is no limit."""

    tokens: int | None = None
    cost_usd: float | None = None


class Purse:
    """One of the two budgets, in whole units: what is left of it, and what is reserved."""

    def __init__(self, limit: int | None, share_min: int) -> None:
        """Begin with all of ``limit``; a share below ``share_min`` is none."""
        self._limit = limit
        self._share_min = share_min
        self._spent = 0
        self._reserved: dict[str, int] = {}

    @property
    def left(self) -> int | None:
        """What is neither spent nor reserved; below 0 where a branch took more than its share."""
        return None if self._limit is None else self._limit - self._spent - self._promised()

    def share(self, waiting: int) -> int | None:
        """Return an equal part for each of those that wait; None without a limit."""
        return None if self.left is None else max(0, self.left) // waiting

    def is_enough(self, share: int | None) -> bool:
        """Say whether anything can be done with a share."""
        return share is None or share >= self._share_min

    def reserve(self, branch_id: str, share: int | None) -> None:
        """Keep a share for a branch."""
        self._reserved[branch_id] = share or 0

    def spend(self, branch_id: str, spent: int | None) -> None:
        """Take what a branch has spent, None where nobody knows: then all of its share."""
        share = self._reserved.pop(branch_id, 0)
        self._spent += share if spent is None else spent

    def reserved(self, branch_id: str) -> int:
        """Return what is kept for a branch; 0 without a limit."""
        return self._reserved.get(branch_id, 0)

    def _promised(self) -> int:
        return sum(self._reserved.values())


class RunBudget:
    """Tokens and dollars of one run."""

    def __init__(self, limits: RunLimits) -> None:
        """Begin with all of it."""
        nano = None if limits.budget_usd is None else int(limits.budget_usd * _NANO)
        self._tokens = Purse(limits.budget_tokens, 1)
        self._nano = Purse(nano, _SHARE_MIN_NANO)

    @property
    def tokens_left(self) -> int | None:
        """As of ``Purse.left``."""
        return self._tokens.left

    @property
    def usd_left(self) -> float | None:
        """As of ``Purse.left``."""
        return None if self._nano.left is None else self._nano.left / _NANO

    def reserve(self, branch_id: str, waiting: int) -> Share | None:
        """Reserve an equal part for one of ``waiting`` branches; None where too little is left."""
        tokens, nano = self._tokens.share(waiting), self._nano.share(waiting)
        if not (self._tokens.is_enough(tokens) and self._nano.is_enough(nano)):
            return None
        self._tokens.reserve(branch_id, tokens)
        self._nano.reserve(branch_id, nano)
        return Share(tokens=tokens, cost_usd=None if nano is None else nano / _NANO)

    def charged(self, came: ThoughtCame) -> TokenUsage:
        """Return what a branch is taken to have used: one that was cut, all that was reserved."""
        nano = self._nano.reserved(came.branch_id)
        return charge(came, self._tokens.reserved(came.branch_id), nano / _NANO)

    def spend(self, branch_id: str, usage: TokenUsage) -> None:
        """Take what a branch has used, and give back the rest of its share."""
        self._tokens.spend(branch_id, usage.total_tokens)
        is_unpriced = usage.cost_usd is None and usage.total_tokens > 0
        nano = ceil(round((usage.cost_usd or 0) * _NANO, 3))  # never less than it was
        self._nano.spend(branch_id, None if is_unpriced else nano)


def charge(came: ThoughtCame, tokens: int, cost_usd: float) -> TokenUsage:
    """Return what a branch is taken to have used that these were reserved for; 0: no limit."""
    usage = came.usage
    if not came.is_cut:
        return usage
    total = max(usage.total_tokens, tokens)
    return msgspec.structs.replace(
        usage,
        completion_tokens=usage.completion_tokens + total - usage.total_tokens,
        total_tokens=total,
        cost_usd=max(usage.cost_usd or 0.0, cost_usd) if cost_usd else usage.cost_usd,
    )


# --- thoughts -------------------------------------------------------------------------------------

_BROKE: Final = re.compile(r"\bmax_(?:total_tokens|cost_usd)_exceeded\b")
"""What the session of a branch, or that of the run, ends with at its limit."""


class MisuseError(Exception):
    """The strategy decided something that cannot be done; the text says what."""


class NotDeterministicError(MisuseError):
    """The strategy decides otherwise than it did before."""

    def __init__(self, what: str) -> None:
        """Say what differs."""
        super().__init__(f"strategy is not deterministic: {what}")


def thought_of(branch: Branch, came: ThoughtCame) -> Thought:
    """Return what a branch came to."""
    if came.error is not None:
        return lost(branch, mended(came.error) or "failed")
    content = mended(came.content)
    metadata = branch.metadata
    if branch.result is not None:
        try:
            output = foreign.call(lambda: _typed(content, branch.result))
        except ForeignError as error:
            why = f"its answer is not of the type that was asked for: {error}: {short(content)}"
            return lost(branch, why)
        metadata = {**metadata, OUTPUT: output}
    return Thought(str(branch.id), content, branch.parent_id, metadata=metadata)


def _typed(content: str, result: Any) -> Any:  # Any: a type, and what is of it
    of_pydantic = getattr(result, "model_validate_json", None)
    if of_pydantic is not None:
        return of_pydantic(content)
    return msgspec.json.decode(content, type=result)


def is_broke(error: str | None) -> bool:
    """Say whether a branch came to nothing for want of budget."""
    return error is not None and _BROKE.search(error) is not None


def left_out(branches: Sequence[Thought], limits: RunLimits) -> tuple[str, ...]:
    """Return what a run notes at its end of its branches that had too little budget, or none."""
    unbegun = over("budget_exceeded")
    count = sum(one.error == unbegun or is_broke(one.error) for one in branches)
    if not count:
        return ()
    bounds = {"budget_tokens": limits.budget_tokens, "budget_usd": limits.budget_usd}
    named = [f"{name}={bound:,}" for name, bound in bounds.items() if bound is not None]
    which = " and ".join(named) or "the session's own limit"
    return (f"{count} of {len(branches)} branches were left out: {which} is too little for them",)


def lost(branch: Branch, why: str) -> Thought:
    """Return the thought of a branch that came to nothing."""
    metadata = {**branch.metadata, ERROR: why}
    return Thought(str(branch.id), "", branch.parent_id, metadata=metadata)


def plain(
    value: object, what: str, bytes_max: int = PLAIN_BYTES_MAX
) -> Any:  # Any: what was given, as data
    """Return data as it is read back.

    Raises:
        MisuseError: it is no plain data, or too much.
    """
    try:
        return copied(value, bytes_max)
    except ValueError as error:
        raise MisuseError(f"{what}: {error}") from error


def plain_dict(value: object, what: str) -> dict[str, Any]:  # Any: what was given, as data
    """Return a dict as ``plain`` does, and refuse anything else."""
    if not isinstance(value, dict):
        raise MisuseError(f"{what}: expected a dict, got {type(value).__name__}")
    found: dict[str, Any] = plain(value, what)
    return found


def check_text(text: object, what: str) -> None:
    """Refuse what cannot be kept as text."""
    if (problem := text_problem(text, chars_max=PROMPT_CHARS_MAX)) is not None:
        raise MisuseError(f"{what}: {problem}")


def name_of(event: ReasoningEvent) -> str:
    """Return an event for people: its kind, and whose it is."""
    match event:
        case ReasoningBranch():
            return f"branch {event.branch_id!r} of prompt {short(event.prompt)}"
        case ReasoningThought() | ReasoningScore():
            return f"{event.kind} of {event.thought_id!r}"
        case ReasoningPrune():
            return f"{event.kind} of {', '.join(event.thought_ids)}"
        case ReasoningDone():
            return event.kind
