"""What sessions have published, read from the journal by way of their daemon.

Pages come in order; what is read backwards is read in spans, since the end is where it is wanted.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import structlog

from cmdc_runtime.client.link import Link
from cmdc_runtime.codec import decode_events
from cmdc_runtime.errors import TransientError
from cmdc_runtime.events import Envelope
from cmdc_runtime.ids import EventIndex, SessionId
from cmdc_runtime.requests import FindSession, Replay, Replayed, SessionInfo

log = structlog.get_logger()

TRIES: Final = 5
"""How often the daemon is asked, before what it knows counts as unknown."""
RETRY_S: Final = 1.0
SPAN: Final = 2_000
"""Events that are read at a time, backwards from the newest one."""


class PastEvents:
    """The events of sessions of one daemon."""

    def __init__(self, daemon: Link) -> None:
        """Ask ``daemon``, which is connected to at the first use."""
        self._daemon = daemon

    async def of_child(self, session_id: SessionId) -> AsyncIterator[Envelope]:
        """Yield all that a session below another one has published.

        Raises:
            InvalidSession: it never began.
        """
        found: SessionInfo = await self._asked(FindSession(session_id=session_id))
        if found.parent_id is None:
            return  # it never began: this is somebody else's session, which took the id
        async for envelope in self._between(session_id, EventIndex(0), found.last_index):
            yield envelope

    async def steps(self, session_id: SessionId, run_id: str, count: int) -> tuple[Envelope, ...]:
        """Return the latest ``count`` steps of a reasoning run, in their order; fewer if gone."""
        found: SessionInfo = await self._asked(FindSession(session_id=session_id))
        steps: list[Envelope] = []
        end = found.last_index
        while end > 0 and len(steps) < count:
            begin = EventIndex(max(0, end - SPAN))
            span = [one async for one in self._between(session_id, begin, end)]
            steps[:0] = [one for one in span if getattr(one.event, "run_id", None) == run_id]
            end = begin
        return tuple(steps[-count:])

    async def _between(
        self, session_id: SessionId, after: EventIndex, last: EventIndex
    ) -> AsyncIterator[Envelope]:
        while after < last:
            wanted = Replay(session_id=session_id, after=after, through=last)
            part: Replayed = await self._asked(wanted)
            for batch in part.batches:
                for place, (at_ms, event) in enumerate(decode_events(batch.body), batch.first):
                    index = EventIndex(place)
                    yield Envelope(session_id=session_id, index=index, at_ms=at_ms, event=event)
            if part.through <= after:
                return
            after = part.through

    async def _asked(self, request: FindSession | Replay) -> Any:
        """Return the daemon's answer (Any: what the request's ``answer`` says).

        A journal that is busy for a while is no reason to know nothing.
        """
        tried = 0
        while True:
            try:
                daemon = await self._daemon.connected()
                return await daemon.ask(request)
            except TransientError as error:
                tried += 1
                if tried == TRIES:
                    raise
                log.info("past_events.delayed", problem=str(error))
                await asyncio.sleep(RETRY_S)
