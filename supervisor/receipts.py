"""What an agent is told to be safe, and need not keep for the next daemon."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from cmdc_runtime.frames import ToWorker, Written
from cmdc_runtime.ids import EventIndex, SessionId
from supervisor.adapters.hub import Hub
from supervisor.core.limits import ACK_EVENTS_S
from supervisor.passage import Passage


@dataclass(slots=True, eq=False)
class Receipts:
    """Tells one process of a session which of its writes are stored, and which events are out.

    A write is safe when the journal has it. An event is when ZeroMQ has passed it on: until then it
    is lost with this daemon.
    """

    hub: Hub
    passage: Passage
    session_id: SessionId
    send: Callable[[ToWorker], bool]
    written: int = 0
    """The newest of its writes that the journal has."""
    _out: EventIndex = EventIndex(0)
    """Up to here its events are safe."""
    _seen: EventIndex = EventIndex(0)
    """Up to here they were published at ``_mark``."""
    _mark: int = 0
    _told: tuple[int, int] = (0, 0)
    _timer: asyncio.TimerHandle | None = None

    def store(self, number: int) -> None:
        """Take note that the journal has the writes up to this one, and tell it now."""
        self.written = max(self.written, number)
        self._tell_in(0.0)

    def publish(self) -> None:
        """Take note that there are new events; they are told when they are safe, or soon after."""
        self._tell_in(ACK_EVENTS_S)

    def close(self) -> None:
        """Tell nothing more: the process has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _tell_in(self, delay_s: float) -> None:
        """Tell soon, and once for all that comes until then."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + delay_s:
                return
            self._timer.cancel()
        self._timer = loop.call_later(delay_s, self._tell)

    def _tell(self) -> None:
        self._timer = None
        if self.passage.has_passed(self._mark):
            self._out = self._seen
            published = self.hub.last_index(self.session_id)
            if published > self._seen:
                self._seen, self._mark = published, self.passage.mark()
        if self._told != (self.written, self._out):
            self._told = (self.written, self._out)
            self.send(Written(number=self.written, index=self._out))
        if self._out < self.hub.taken_index(self.session_id):
            self._tell_in(ACK_EVENTS_S)
