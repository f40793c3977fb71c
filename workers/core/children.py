"""What a session has started and remembers: subagents, branches, and the runs that these are of."""

import msgspec
from msgspec import field

from cmdc_runtime.extensions.context import BranchAnswer
from cmdc_runtime.ids import CallId, SessionId
from cmdc_runtime.messages import TokenUsage
from workers.core.budget import Grant
from workers.core.records import RunEnd


class Child(msgspec.Struct, frozen=True):
    """A subagent under way; ``ref`` is what the call that waits for it is answered by.

    It is None once that call is over: another call may have its id, and must not get its answer.
    ``branch`` is that reference of a branch, also in a later process, where the call runs again;
    empty for others, and once the call is over. ``digest`` names what a branch was asked.
    """

    session_id: SessionId
    call_id: CallId
    ref: str | None
    grant: Grant
    branch: str = ""
    digest: str = ""


class Branch(msgspec.Struct, frozen=True):
    """What came of a branch of an open call, for the call that runs again and asks for it."""

    ref: str
    call_id: CallId
    digest: str
    answer: BranchAnswer


class LostBranch(msgspec.Struct, frozen=True):
    """What a branch of an open call has used that ended without an outcome, and may run again."""

    ref: str
    call_id: CallId
    usage: TokenUsage


class OpenRun(msgspec.Struct, frozen=True):
    """A run of reasoning that a call has begun to publish, and not to its end.

    ``branches`` are those without a thought, each with what it goes on from; ``judges`` those of
    them that score others. ``best`` is the branch with the best score, else the latest one.
    """

    run_id: str
    strategy: str
    branches: tuple[tuple[str, str | None], ...] = ()
    judges: tuple[str, ...] = ()
    best: str | None = None
    best_score: float | None = None


class RunningBranch(msgspec.Struct, frozen=True):
    """A subagent that still runs for a run whose call is over."""

    session_id: SessionId
    branch_id: str
    parent_id: str | None = None
    lost: TokenUsage = field(default_factory=TokenUsage)
    """What it used in earlier lives."""


class EndedRun(msgspec.Struct, frozen=True):
    """A run whose call is over; its end is published when ``branches`` are gone."""

    run: OpenRun
    end: RunEnd
    branches: tuple[RunningBranch, ...]
