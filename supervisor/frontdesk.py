"""What comes from clients: requests to the daemon, and commands that go on to a session.

A frame that has to wait for something is worked on in a task of its own, so nothing else waits for
one session or one client.
A frame that a client sends again is taken once: while it is worked on the second one is dropped,
and afterwards a request is answered from memory and a durable command from the journal.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine
from typing import Any, Final

import structlog

from cmdc_runtime.clock import now_ms
from cmdc_runtime.codec import decode, encode, failed, raw
from cmdc_runtime.errors import CmdcError, Overloaded, SessionNotAlive
from cmdc_runtime.frames import Ask, FromClient, Reply, Send, ToClient
from cmdc_runtime.ids import CommandId
from cmdc_runtime.requests import Request
from supervisor.adapters.journal.base import Duplicate, SessionEnded
from supervisor.adapters.router import Router, Told
from supervisor.handlers import HANDLERS, House, check_code
from supervisor.sessions import Sessions

log = structlog.get_logger()

REQUESTS_OPEN_MAX: Final = 20_000
"""Frames of all clients that are worked on; the next one is refused as Overloaded."""
ANSWERS_KEPT_MAX: Final = 4_096
"""Answers to requests that are remembered for a client that asks again."""
ANSWER_BYTES_KEPT_MAX: Final = 64 * 1024
"""A longer answer is worked out anew."""


class FrontDesk:
    """Takes every frame of the control socket."""

    def __init__(self, house: House, sessions: Sessions) -> None:
        """Serve ``house``; ``control`` is set before the first frame."""
        self.control: Router[FromClient, ToClient]
        self._house = house
        self._sessions = sessions
        self._open: dict[tuple[bytes, CommandId], asyncio.Task[None]] = {}
        self._answers: OrderedDict[tuple[bytes, CommandId], bytes] = OrderedDict()

    def receive(self, client: bytes, frame: FromClient, _told: Told) -> None:
        """Take one frame."""
        if isinstance(frame, Ask):
            kept = self._answers.get((client, frame.id))
            if kept is not None:
                self.control.send_encoded(client, kept)
                return
            self._work(client, frame.id, self._ask(client, frame))
        elif isinstance(frame, Send):
            self._receive_command(client, frame)

    def _receive_command(self, client: bytes, send: Send) -> None:
        try:
            check_code(self._house, carries_code=send.carries_code)
        except CmdcError as error:
            self.control.send(client, failed(send.id, error))
            return
        session = self._sessions.live.get(send.session_id)
        if send.durable or session is None:
            self._work(client, send.id, self._send(client, send))
            return
        try:  # a question to a live session waits for nothing here, so it needs no task
            session.deliver(client, send.id, send.body, durable=False)
        except CmdcError as error:
            self.control.send(client, failed(send.id, error))

    async def close(self) -> None:
        """End the work under way."""
        for task in self._open.values():
            task.cancel()
        await asyncio.gather(*self._open.values(), return_exceptions=True)

    def _work(self, client: bytes, command_id: CommandId, work: Coroutine[Any, Any, None]) -> None:
        key = (client, command_id)
        if key in self._open:
            work.close()
            return
        if len(self._open) >= REQUESTS_OPEN_MAX:
            work.close()
            full = Overloaded(f"{REQUESTS_OPEN_MAX} requests are open; try again later")
            self.control.send(client, failed(command_id, full))
            return
        task = asyncio.create_task(work, name=f"request-{command_id}")
        self._open[key] = task
        task.add_done_callback(lambda done: self._done(key, done))

    def _done(self, key: tuple[bytes, CommandId], task: asyncio.Task[None]) -> None:
        self._open.pop(key, None)
        if task.cancelled() or (error := task.exception()) is None:
            return
        client, command_id = key
        if not isinstance(error, CmdcError):
            log.error("request.failed", exc_info=error)
            error = CmdcError(f"the daemon failed on this request: {type(error).__name__}: {error}")
        self.control.send(client, failed(command_id, error))

    async def _ask(self, client: bytes, ask: Ask) -> None:
        request = decode(Request, ask.body)
        answer = await HANDLERS[type(request)](self._house, client, request)
        frame = encode(Reply(id=ask.id, body=raw(answer)))
        if len(frame) <= ANSWER_BYTES_KEPT_MAX:
            self._answers[client, ask.id] = frame
            if len(self._answers) > ANSWERS_KEPT_MAX:
                self._answers.popitem(last=False)
        self.control.send_encoded(client, frame)

    async def _send(self, client: bytes, send: Send) -> None:
        if send.durable:
            await self._send_durable(client, send)
            return
        session = await self._sessions.find(send.session_id)
        session.deliver(client, send.id, send.body, durable=False)

    async def _send_durable(self, client: bytes, send: Send) -> None:
        session = self._sessions.live.get(send.session_id)
        if session is not None:
            session.waiting.check_room(send.id)
        else:
            await self._sessions.look_up(send.session_id)  # raises for one never seen
        at_ms = now_ms()
        try:
            accepted = await self._sessions.journal.accept(
                send.session_id, send.id, bytes(send.body), at_ms
            )
        except SessionEnded:
            info = await self._sessions.look_up(send.session_id)
            if info.reason is None:
                raise
            raise SessionNotAlive(info.reason) from None
        if isinstance(accepted, Duplicate) and accepted.answer is not None:
            self.control.send_encoded(client, accepted.answer)
            return
        session = await self._sessions.find(send.session_id)
        session.deliver(client, send.id, send.body, durable=True)
