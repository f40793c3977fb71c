"""Questions to the daemon's own parts that are answered only where the part does its real work.

Each is a coroutine that returns when the part has answered and waits for ever when it does not;
``supervisor.upkeep.self_check`` bounds it. To watch one more part, write its question and hand it
to that.

One of them says whether ZeroMQ has passed on what this daemon has sent: the end of the daemon would
stop it else. A sent message is with ZeroMQ's thread, which writes it to the peer's connection when
it gets to it; on a busy machine that takes as long as it may. Only that thread knows. So the
daemon asks itself a question over its own control socket, which takes the same thread (the daemon's
context has one), behind all that it had to do.
"""

import asyncio
import os
from typing import Final

import structlog
import zmq

from cmdc_runtime.errors import ProtocolError
from cmdc_runtime.ids import CommandId, SessionId
from cmdc_runtime.requests import GetFacts
from cmdc_runtime.wire.codec import decode, encode, raw
from cmdc_runtime.wire.frames import HEADER, Ask, FailedReply, ToClient, ValueReply, of_router
from cmdc_runtime.wire.sockets import Pump, Role, open_socket
from supervisor.adapters.journal.operations import FindLastIndex
from supervisor.adapters.journal.store import Journal
from supervisor.adapters.tasks import BackgroundTasks, awake_timeout
from supervisor.core.limits import FLUSH_PACE_S, FLUSH_ROUND_S_MAX

# --- questions to the parts -----------------------------------------------------------------------

_IDS: Final = 8
"""The daemon remembers the answer to each id, so they come again; an answer that is eight rounds
late would be taken for a new one."""


async def ask_reaper() -> None:
    """Return when the loop has noticed a descriptor, as it notices the pidfd of a dead process."""
    loop = asyncio.get_running_loop()
    noticed: asyncio.Future[None] = loop.create_future()
    try:
        ready = os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    except OSError:  # there is none to ask with; that is no fault of the loop, which runs this
        return

    def notice() -> None:
        if not noticed.done():  # the descriptor stays ready
            noticed.set_result(None)

    loop.add_reader(ready, notice)
    try:
        await noticed
    finally:
        loop.remove_reader(ready)
        os.close(ready)


async def ask_journal(journal: Journal) -> None:
    """Return when the journal's thread has read something, behind all that it had to write.

    Raises ``JournalOverloaded`` where it has too much to write for one more call.
    """
    await journal.read(FindLastIndex(SessionId("")))


class Caller:
    """A client of the daemon inside the daemon: its questions go over the socket like any other."""

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", control: str, name: str = "self-check"
    ) -> None:
        """Keep the address of the control socket; the first question connects.

        ``name`` is in the id of each question, and shows who asks.
        """
        self._name = name
        self._context = context
        self._control = control
        self._pump: Pump | None = None
        self._asked = 0
        self._waiting: tuple[CommandId, asyncio.Future[None]] | None = None

    async def ask_router(self) -> None:
        """Return when a question has come back from the control socket with an answer."""
        self._asked += 1
        question = Ask(id=CommandId(f"{self._name}-{self._asked % _IDS}"), body=raw(GetFacts()))
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting = (question.id, answered)
        self._connected().send([HEADER, encode(question)])
        await answered

    def close(self) -> None:
        """Close the connection; before the context is."""
        if self._pump is not None:
            self._pump.stop()
            self._pump = None

    def _connected(self) -> Pump:
        if self._pump is None:
            socket = open_socket(self._context, Role.CLIENT)
            socket.connect(self._control)
            self._pump = Pump(socket, self._hear)
            self._pump.start()
        return self._pump

    def _hear(self, parts: list[bytes]) -> None:
        data = of_router(parts)
        if data is None or self._waiting is None:
            return
        try:
            frame = decode(ToClient, data)
        except ProtocolError:
            return
        wanted, answered = self._waiting
        # A refusal is an answer as well: the question is whether the socket is served at all.
        if (
            isinstance(frame, ValueReply | FailedReply)
            and frame.id == wanted
            and not answered.done()
        ):
            answered.set_result(None)


# --- what has been passed on ----------------------------------------------------------------------

log = structlog.get_logger()

ROUNDS: Final = 2
"""Answers behind a message until it is passed on. Within its first round ZeroMQ's thread may have
taken the question before the message; it looks after every connection once before the second."""


class FlushBarrier:
    """Asks while somebody has a mark that is not passed, at most one question at a time.

    A question without an answer within ``FLUSH_ROUND_S_MAX`` counts as answered: agents keep what
    is not passed on, within a bound, and must not end because the daemon is slow to hear itself.
    """

    def __init__(self, caller: Caller) -> None:
        """Ask with ``caller``, which is the barrier's own: it closes it."""
        self._caller = caller
        self._begun = 0
        """Rounds, each a question and its answer."""
        self._done = 0
        self._wanted = 0
        self._is_closed = False
        self._tasks = BackgroundTasks()

    def mark(self) -> int:
        """Return a mark of now: ``is_flushed`` says it of all that was sent before."""
        mark = self._begun + ROUNDS
        self._wanted = max(self._wanted, mark)
        if not self._is_closed and not self._tasks:
            self._tasks.spawn(self._ask(), "flush-barrier")
        return mark

    def is_flushed(self, mark: int) -> bool:
        """Say whether all that was sent before the mark is passed on."""
        return self._done >= mark

    async def close(self) -> None:
        """Ask nothing more; what is not passed on by now is never said to be."""
        self._is_closed = True
        self._tasks.cancel()
        await self._tasks.wait()
        self._caller.close()

    async def _ask(self) -> None:
        while self._done < self._wanted:
            self._begun += 1
            try:
                async with awake_timeout(FLUSH_ROUND_S_MAX):
                    await self._caller.ask_router()
            except TimeoutError:
                log.warning("flush_barrier.silent", for_s=FLUSH_ROUND_S_MAX)
            self._done = self._begun
            await asyncio.sleep(FLUSH_PACE_S)
