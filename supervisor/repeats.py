"""Starts and stops that are asked for again: what was answered once holds for every daemon.

The answer to a request is lost with the connection, or with the daemon that gave it. So a start is
known by the id that its caller gave it, which the journal keeps with the session, and a stop is
answered when the journal has it: the next daemon would go on with the session otherwise.
"""

import asyncio

from cmdc_runtime.codec import decode_as
from cmdc_runtime.errors import DaemonUnavailable, StartFailed
from cmdc_runtime.ids import SessionId
from cmdc_runtime.reasons import AnyReason
from cmdc_runtime.reasons import StartFailed as StartFailedReason
from cmdc_runtime.requests import SessionInfo, StartSession
from supervisor.adapters.journal.operations import FindSession
from supervisor.sessions import Sessions
from supervisor.specs import spec_of


async def started_before(sessions: Sessions, request: StartSession) -> SessionInfo | None:
    """Return what became of this very start if it was asked for before; waits until that is known.

    A session that has ended meanwhile is returned as one that has, but for a subagent: the parent
    who asks has given it nothing to do yet, and wants one that lives.

    Raises:
        StartFailed: its agent could not be started.
    """
    row = None
    if request.session_id not in sessions.live:
        row = await sessions.journal.read(FindSession(request.session_id))
    session = sessions.live.get(request.session_id)
    if session is not None:
        if session.spec.start_id != request.start_id:
            return None
        await asyncio.shield(session.started)
        return session.info()
    if row is None or row.reason is None or spec_of(row.spec).start_id != request.start_id:
        return None
    reason = decode_as(AnyReason, row.reason)
    if isinstance(reason, StartFailedReason):
        raise StartFailed(reason)
    if request.parent_id is not None:
        return None
    return await sessions.look_up(request.session_id)


async def check_end(sessions: Sessions, session_id: SessionId) -> None:
    """Return when the end of a session that was stopped is in the journal.

    Raises:
        DaemonUnavailable: it is not, because the daemon ends, too.
        TransientError: it could not be written.
    """
    row = await sessions.journal.read(FindSession(session_id))
    if row is not None and row.ended_ms is None and session_id not in sessions.live:
        raise DaemonUnavailable(
            f"the end of session {session_id} is not in the journal, so the next daemon goes on "
            "with it: stop it again there"
        )
