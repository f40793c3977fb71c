"""What clients are refused at the door, over the real socket."""

import asyncio

import msgspec
import pytest
import zmq

from cmdc_runtime.codec import decode, encode, raw
from cmdc_runtime.errors import AccessDenied, InvalidSession
from cmdc_runtime.frames import HEADER, Ask, Failed, FromClient, Send, ToClient
from cmdc_runtime.requests import StartSession, Supervision
from cmdc_runtime.sockets import Role
from supervisor.adapters.hub import Hub
from supervisor.adapters.journal.sqlite import SqliteJournal
from supervisor.adapters.router import Router
from supervisor.frontdesk import FrontDesk
from supervisor.handlers import House
from supervisor.sessions import Sessions

WAIT_S = 10.0
BODY = msgspec.Raw(b"\xc0")
START = StartSession(session_id="s1", supervision=Supervision(), agent=BODY, carries_code=True)


def send(*, carries_code, durable=False):
    return Send(id="c1", session_id="s1", durable=durable, body=BODY, carries_code=carries_code)


async def answered(tmp_path, frame, *, accepts_code):
    """Return the answer of a front desk that has no session and no worker."""
    journal = SqliteJournal(tmp_path, durability="process")
    await journal.open()
    with zmq.Context() as context:
        hub = Hub(context, journal)
        hub.bind(f"ipc://{tmp_path}/events")
        sessions = Sessions(None, None, hub, journal, None, sessions_max=10)
        desk = FrontDesk(House(sessions, None, hub, accepts_code, facts=None), sessions)
        router = Router(context, Role.CONTROL, FromClient, desk.receive)
        desk.control = sessions.control = router
        peer = context.socket(zmq.DEALER)
        peer.setsockopt(zmq.LINGER, 0)
        try:
            router.bind(f"ipc://{tmp_path}/control")
            peer.connect(f"ipc://{tmp_path}/control")
            peer.send_multipart([HEADER, encode(frame)])
            assert await asyncio.to_thread(peer.poll, round(WAIT_S * 1000))
            return decode(ToClient, peer.recv_multipart()[1])
        finally:
            await desk.close()
            peer.close()
            router.close()
            hub.close()
            await journal.close()


@pytest.mark.parametrize(
    "frame",
    [
        Ask(id="c1", body=raw(START)),
        send(carries_code=True),
        send(carries_code=True, durable=True),
    ],
    ids=["start", "question", "durable"],
)
def test_code_is_refused_where_none_is_taken(tmp_path, frame):
    """Whether it comes with a new session or with a command to one."""
    answer = asyncio.run(answered(tmp_path, frame, accepts_code=False))

    assert isinstance(answer, Failed)
    assert (answer.id, answer.code) == ("c1", AccessDenied.code)
    assert "allow_code_by_value" in answer.message


@pytest.mark.parametrize("accepts_code", [True, False])
def test_command_without_code_is_taken(tmp_path, accepts_code):
    """It goes on to its session, which is not there in this test."""
    frame = send(carries_code=accepts_code)
    answer = asyncio.run(answered(tmp_path, frame, accepts_code=accepts_code))

    assert answer.code == InvalidSession.code
