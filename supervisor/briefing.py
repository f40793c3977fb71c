"""What a new process is told before it is the agent of a session: who it is, and what was."""

from typing import Protocol

from cmdc_runtime.frames import Assign, ToWorker
from cmdc_runtime.ids import EventIndex, Incarnation
from cmdc_runtime.reasons import AnyReason
from cmdc_runtime.requests import StartSession
from supervisor.core.history import slices
from supervisor.desk import Desk


class Briefed(Protocol):
    """What of a session its process has to know."""

    spec: StartSession
    incarnation: Incarnation
    restarts: int
    last_reason: AnyReason | None


async def briefing(desk: Desk, session: Briefed) -> tuple[ToWorker, ...]:
    """Return the frames for the process of the current incarnation, in their order.

    From now on no earlier process of the session can write to the journal.

    Raises:
        CmdcError: the journal could not be read or written.
    """
    spec, incarnation = session.spec, session.incarnation
    restarts, last_reason = session.restarts, session.last_reason
    stored = None
    if incarnation > 1:
        await desk.journal.began(spec.session_id, incarnation, restarts)
    if incarnation > 1 or spec.origin is not None:
        stored = await desk.journal.load(spec.session_id)
    assign = Assign(
        session_id=spec.session_id,
        incarnation=incarnation,
        restarts=restarts,
        next_index=EventIndex(desk.hub.taken_index(spec.session_id) + 1),
        agent=spec.agent,
        parent_id=spec.parent_id,
        group_id=spec.group_id,
        last_reason=last_reason,
        unresponsive_after=spec.supervision.unresponsive_after,
        max_open_files=spec.supervision.max_open_files,
    )
    return (assign, *slices(stored))
