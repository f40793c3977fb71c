"""What a new process is told before it is the agent of a session: who it is, and what was."""

from cmdc_runtime.frames import Assign, ToWorker
from cmdc_runtime.ids import EventIndex
from cmdc_runtime.requests import StartSession
from supervisor.core.history import slices
from supervisor.core.lifecycle import Life
from supervisor.desk import Desk


async def briefing(desk: Desk, spec: StartSession, life: Life) -> tuple[ToWorker, ...]:
    """Return the frames for the process of the current incarnation, in their order.

    From now on no earlier process of the session can write to the journal.

    Raises:
        CmdcError: the journal could not be read or written.
    """
    stored = None
    if life.incarnation > 1:
        await desk.journal.began(spec.session_id, life.incarnation, life.restarts)
        stored = await desk.journal.load(spec.session_id)
    assign = Assign(
        session_id=spec.session_id,
        incarnation=life.incarnation,
        restarts=life.restarts,
        next_index=EventIndex(desk.hub.taken_index(spec.session_id) + 1),
        agent=spec.agent,
        parent_id=spec.parent_id,
        group_id=spec.group_id,
        last_reason=life.last_reason,
    )
    return (assign, *slices(stored))
