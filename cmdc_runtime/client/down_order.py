"""A Down is delivered behind the events that led to it: it waits for the streams of its session.

Events and notices come over different connections, so that a notice may overtake the last events of
its process. The daemon sends it when it has all of them, and says how far the session is. Until
each stream that this client has of the session has put that into its queue, the notice is held;
the books of the monitors are done by then. A stream that has ended or that is full delays
nothing, and nothing is held for longer than ``DOWN_HOLD_S``.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from cmdc_runtime.client.dispatcher import Dispatcher
from cmdc_runtime.client.limits import DOWN_HOLD_S, DOWNS_HELD_MAX
from cmdc_runtime.client.logged import ClientLog
from cmdc_runtime.client.monitors import Daemon, Watcher
from cmdc_runtime.errors import CmdcError, InvalidSession
from cmdc_runtime.ids import SessionId
from cmdc_runtime.reasons import Down
from cmdc_runtime.requests import FindSession, SessionInfo

_log = ClientLog(__name__)


class DownReceiver(Watcher, Protocol):
    """Who gets the notices, and may be removed."""

    is_removed: bool


@dataclass(frozen=True, slots=True)
class _Held:
    """A notice, and when it is delivered at the latest, by the loop's clock."""

    down: Down
    due_s: float


class DownOrder:
    """The notices of one connection that wait for events."""

    def __init__(self, daemon: Daemon, dispatcher: Dispatcher) -> None:
        """Hold nothing yet."""
        self._daemon = daemon
        self._dispatcher = dispatcher
        self._lines: set[OrderedDowns] = set()

    def before(self, receiver: DownReceiver) -> "OrderedDowns":
        """Return what takes the notices in place of ``receiver``."""
        return OrderedDowns(self, receiver)

    def release(self) -> None:
        """Deliver all that is held: no event will come any more."""
        for line in list(self._lines):
            line.release()

    def is_followed(self, session_id: SessionId) -> bool:
        """Say whether there is a stream that notices of this session wait for."""
        return bool(self._dispatcher.subscriptions_to(session_id))

    def serve(self, line: "OrderedDowns") -> None:
        """Have the notices of ``line`` delivered, each in its time."""
        self._lines.add(line)
        self._daemon.spawn(self._serve(line))

    async def _serve(self, line: "OrderedDowns") -> None:
        try:
            while (held := line.next()) is not None:
                await self._await_events(held)
                line.deliver(held)
        finally:  # whatever went wrong: a notice is late rather than never delivered
            line.release()
            self._lines.discard(line)

    async def _await_events(self, held: _Held) -> None:
        """Return when the streams of the session have what came before its end, or it is time."""
        fields = {"ref": held.down.ref, "session_id": held.down.session_id}
        try:
            async with asyncio.timeout_at(held.due_s):
                await self._gathered(held.down.session_id)
        except TimeoutError:
            _log.warning("down.delivered_early", **fields, waited_s=DOWN_HOLD_S)
        except InvalidSession:  # nobody remembers it, and no stream of it goes on
            pass
        except CmdcError as error:
            _log.warning("down.delivered_early", **fields, problem=str(error))

    async def _gathered(self, session_id: SessionId) -> None:
        async with self._daemon.slots:
            found: SessionInfo = await self._daemon.ask(FindSession(session_id=session_id))
        subscriptions = self._dispatcher.subscriptions_to(session_id)
        for subscription in subscriptions:
            subscription.expect(found)
        for subscription in subscriptions:
            await subscription.reached(session_id, found.last_index)


class OrderedDowns:
    """The notices of one monitor, delivered in their order."""

    def __init__(self, order: DownOrder, receiver: DownReceiver) -> None:
        """Hold none yet."""
        self._order = order
        self._receiver = receiver
        self._held: deque[_Held] = deque()

    def next(self) -> _Held | None:
        """Return what is to be delivered next; None: nothing is, or the monitor was removed."""
        if self._receiver.is_removed:
            self._held.clear()
        return self._held[0] if self._held else None

    def on_down(self, down: Down) -> None:
        """Take one notice; beyond ``DOWNS_HELD_MAX`` all that are held are delivered."""
        if not self._held and not self._order.is_followed(down.session_id):
            self._receiver.on_down(down)
            return
        was_idle = not self._held
        if len(self._held) >= DOWNS_HELD_MAX:
            _log.warning("down.delivered_early", extra={"ref": down.ref, "held": DOWNS_HELD_MAX})
            self.release()
        self._held.append(_Held(down, asyncio.get_running_loop().time() + DOWN_HOLD_S))
        if was_idle:
            self._order.serve(self)

    def on_end(self, error: CmdcError) -> None:
        """Deliver what is held, and then that no notice will follow."""
        self.release()
        self._receiver.on_end(error)

    def deliver(self, held: _Held) -> None:
        """Deliver a notice, unless that was done meanwhile."""
        if self._held and self._held[0] is held:
            self._held.popleft()
            self._receiver.on_down(held.down)

    def release(self) -> None:
        """Deliver all that is held."""
        while self._held:
            self._receiver.on_down(self._held.popleft().down)
