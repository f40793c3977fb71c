"""What a run is told, and what it wants done about it: values that can be kept and sent.

A run is played again by telling it the same inputs. To add one: its class here, and a case in
``run.Run``.
"""

from typing import TypeAlias

import msgspec

from cmdc_runtime.events import Event
from cmdc_runtime.extensions.reasoning import Branch
from cmdc_runtime.ids import SessionId
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.reasoning.limits import RunLimits
from cmdc_runtime.reasoning.result import ReasoningEvent, ReasoningResult
from cmdc_runtime.reasons import snake


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

    ``played`` is what came in earlier lives, in the order in which it came first. ``told`` are the
    events that subscribers have: they are passed over, and one that differs ends the run; where
    their number alone is known, that many are passed over unseen.
    """

    run_id: str
    question: str
    session_id: SessionId = SessionId("")
    limits: RunLimits = RunLimits()
    played: tuple[Recorded, ...] = ()
    told: tuple[ReasoningEvent, ...] | int = ()


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


class Tell(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the session's subscribers."""

    event: Event


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """The run is over, and none of its branches runs."""

    result: ReasoningResult


Output: TypeAlias = StartBranch | EndBranch | Tell | Finish
