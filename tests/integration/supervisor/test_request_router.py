"""What clients are refused at the door, over the real socket."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest
import zmq

from cmdc_runtime.errors import AccessDenied, InvalidSession, Overloaded, UsageError
from cmdc_runtime.pages import PAGE_BYTES, Page
from cmdc_runtime.reasons import Exception as Exception_
from cmdc_runtime.requests import (
    DaemonFacts,
    FindSession,
    GetFacts,
    ListSessions,
    ReadPage,
    SessionInfo,
    StartSession,
    Supervision,
)
from cmdc_runtime.wire.codec import decode, decode_as, encode, raw
from cmdc_runtime.wire.frames import (
    ASKED_BYTES_MAX,
    FRAME_BYTES_MAX,
    HEADER,
    Ask,
    Deliver,
    FailedReply,
    FromClient,
    PagedReply,
    Send,
    ToClient,
    ValueReply,
    of_router,
)
from cmdc_runtime.wire.sockets import Role
from supervisor.adapters.hub import Hub
from supervisor.adapters.journal.base import (
    JournalFailed,
    JournalFull,
    JournalOverloaded,
    JournalUndecided,
    JournalUnread,
    SessionRow,
)
from supervisor.adapters.journal.operations import CreateSession
from supervisor.adapters.journal.sqlite import SqliteJournal
from supervisor.adapters.peers import SessionProcesses
from supervisor.adapters.router import Router
from supervisor.api import request_router
from supervisor.api.backups import Backups
from supervisor.api.gate import Gate
from supervisor.api.handlers import ApiContext
from supervisor.api.request_router import RequestRouter
from supervisor.core.storage import Condition
from supervisor.sessions.monitors import MonitorService
from supervisor.sessions.pending import PendingCommands
from supervisor.sessions.sessions import Sessions

WAIT_S = 10.0
SILENT_S = 0.3
FACTS = DaemonFacts(
    pid=1,
    instance="i",
    version="0",
    nursery="ready",
    sessions=0,
    spares=0,
    events_address="",
    refused_frames=0,
)
BODY = msgspec.Raw(b"\xc0")
START = StartSession(session_id="s1", supervision=Supervision(), agent=BODY, carries_code=True)


def send(*, carries_code, durable=False):
    return Send(id="c1", session_id="s1", durable=durable, body=BODY, carries_code=carries_code)


def whole(peer, answer):
    """Return the answer, one of pages as a ``ValueReply`` with the bodies of all of them."""
    if not isinstance(answer, PagedReply):
        return answer
    pieces = [answer.body]
    while True:
        wanted = ReadPage(page_id=answer.page_id, offset=sum(map(len, pieces)))
        peer.send_multipart([HEADER, encode(Ask(id=f"p{len(pieces)}", body=raw(wanted)))])
        assert peer.poll(round(WAIT_S * 1000))
        frame = of_router(peer.recv_multipart())
        page = decode_as(Page, decode(ToClient, frame).body)
        assert len(frame) < PAGE_BYTES + 1024
        pieces.append(page.body)
        if page.is_last:
            return ValueReply(id=answer.id, body=msgspec.Raw(b"".join(pieces)))


async def answered(tmp_path, frame, *, accepts_code=True, wait_s=WAIT_S, begin=None):
    """Return the answer of a request router that has no session and no worker, None for none.

    ``begin`` is given the sessions and the journal before the frame is sent.
    """
    journal = SqliteJournal(tmp_path, durability="process")
    await journal.open()
    with zmq.Context() as context:
        hub = Hub(context, journal)
        hub.bind(f"ipc://{tmp_path}/events")
        sessions = Sessions(None, None, hub, journal, None, sessions_max=10)
        monitors = MonitorService(journal, sessions.look_up, lambda _client, _notice: True)
        backups = Backups(journal, (tmp_path,))
        gate = Gate(sessions, lambda: SessionProcesses({}, {}, tmp_path), "", lambda: None)
        api = ApiContext(sessions, monitors, hub, accepts_code, lambda: FACTS, backups)
        services = RequestRouter(api, sessions, gate)
        router = Router(context, Role.CONTROL, FromClient, services.receive, check=gate.check)
        sessions.control = router
        peer = context.socket(zmq.DEALER)
        peer.setsockopt(zmq.LINGER, 0)
        peer.setsockopt(zmq.MAXMSGSIZE, FRAME_BYTES_MAX)
        try:
            router.bind(f"ipc://{tmp_path}/control")
            peer.connect(f"ipc://{tmp_path}/control")
            if begin is not None:
                await begin(sessions, journal)
            peer.send_multipart([HEADER, encode(frame)])
            if not await asyncio.to_thread(peer.poll, round(wait_s * 1000)):
                return None
            answer = decode(ToClient, of_router(peer.recv_multipart()))
            return await asyncio.to_thread(whole, peer, answer)
        finally:
            await services.close()
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

    assert isinstance(answer, FailedReply)
    assert (answer.id, answer.code) == ("c1", AccessDenied.code)
    assert "allow_code_by_value" in answer.message


@pytest.mark.parametrize("accepts_code", [True, False])
def test_command_without_code_is_taken(tmp_path, accepts_code):
    """It goes on to its session, which is not there in this test."""
    frame = send(carries_code=accepts_code)
    answer = asyncio.run(answered(tmp_path, frame, accepts_code=accepts_code))

    assert answer.code == InvalidSession.code


async def leave(sessions, _journal):
    """Have the daemon end."""
    sessions.is_leaving = True


async def fail(_sessions, journal):
    """Have the journal fail."""
    journal.health.turn(Condition.FAILED, "the disk is gone")


@pytest.mark.parametrize("ending", [leave, fail])
@pytest.mark.parametrize(
    "frame",
    [
        Ask(id="c1", body=raw(START)),
        Ask(id="c1", body=raw(FindSession(session_id="s1"))),
        Ask(id="c1", body=raw(ListSessions())),
        Ask(id="c1", body=msgspec.Raw(encode("no request"))),
        send(carries_code=False),
        send(carries_code=False, durable=True),
    ],
    ids=["start", "find", "list", "garbage", "question", "durable"],
)
def test_daemon_that_ends_answers_nothing(tmp_path, ending, frame):
    """Whoever asks it asks the next one, of which its own end is no part."""
    answer = asyncio.run(answered(tmp_path, frame, wait_s=SILENT_S, begin=ending))

    assert answer is None


def test_daemon_that_ends_says_who_it_is(tmp_path):
    """A client that connects meanwhile waits for the next one, and knows that it is another."""
    answer = asyncio.run(answered(tmp_path, Ask(id="c1", body=raw(GetFacts())), begin=leave))

    assert decode_as(DaemonFacts, answer.body).instance == "i"


@pytest.mark.parametrize("is_safe", [True, False])
def test_command_that_meets_the_end_on_its_way_to_the_journal_has_no_answer(tmp_path, is_safe):
    """Whether it came to be safe or not: the next daemon finds out, and nobody heard otherwise."""

    async def begin(sessions, journal):
        await journal.write(CreateSession(SessionRow(session_id="s1", created_ms=1, spec=b"")))
        write = journal.write

        async def accept_and_end(operation):
            found = await write(operation)
            sessions.is_leaving = True
            if not is_safe:
                raise JournalFailed("it ended before")
            return found

        journal.write = accept_and_end

    frame = send(carries_code=False, durable=True)

    assert asyncio.run(answered(tmp_path, frame, wait_s=SILENT_S, begin=begin)) is None


FULL = JournalFull("there is no room")
UNREAD = JournalUnread("there is no room, and it cannot be read")
BUSY = JournalOverloaded("too much waits")
PASSING = JournalFailed("the journal could not do it")
UNDECIDED = JournalUndecided("a commit may be there or not")


@pytest.mark.parametrize(
    ("error", "again", "is_reported"),
    [
        (FULL, False, True),
        (FULL, True, True),  # it was looked for, and is not there
        (UNREAD, False, True),
        (UNREAD, True, False),
        (BUSY, False, True),
        (BUSY, True, False),
        (PASSING, False, True),
        (PASSING, True, False),
        (UNDECIDED, False, False),
        (UNDECIDED, True, False),
    ],
)
def test_error_is_reported_only_of_what_has_no_effect(tmp_path, error, again, is_reported):
    """What may be safe from before is asked for again, until its answer is known."""

    async def begin(sessions, journal):
        await journal.write(CreateSession(SessionRow(session_id="s1", created_ms=1, spec=b"")))

        def refuse(_operation):
            raise error

        journal.write = refuse

    frame = msgspec.structs.replace(send(carries_code=False, durable=True), again=again)
    wait_s = WAIT_S if is_reported else SILENT_S
    answer = asyncio.run(answered(tmp_path, frame, wait_s=wait_s, begin=begin))

    assert (answer and answer.code) == (error.code if is_reported else None)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    "frame",
    [Ask(id="c1", body=raw(GetFacts())), send(carries_code=False, durable=True)],
    ids=["request", "command"],
)
def test_daemon_with_too_much_to_do_says_so_to_what_is_new(tmp_path, frame, again, monkeypatch):
    """What may have been taken before waits until there is time to find out."""
    monkeypatch.setattr(request_router, "REQUESTS_OPEN_MAX", 0)
    asked = msgspec.structs.replace(frame, again=again)
    answer = asyncio.run(answered(tmp_path, asked, wait_s=SILENT_S if again else WAIT_S))

    assert (answer and answer.code) == (None if again else Overloaded.code)


def test_command_in_hand_is_refused_nothing(tmp_path):
    """Whatever a second copy of it meets, the first is answered."""

    async def begin(sessions, journal):
        waiting = PendingCommands("s1")
        waiting.add(b"client", Deliver(id="c1", body=BODY, durable=True), is_sent=True)
        sessions.live["s1"] = SimpleNamespace(waiting=waiting)
        journal.write = None  # whatever happens when it is called

    frame = send(carries_code=True, durable=True)
    answer = asyncio.run(
        answered(tmp_path, frame, accepts_code=False, wait_s=SILENT_S, begin=begin)
    )

    assert answer is None


def test_a_list_of_any_length_comes_whole(tmp_path):
    """Each of many sessions may have a traceback to report: together more than a frame takes."""
    reason = Exception_(type="ValueError", message="no", traceback="x" * 32_000)
    infos = tuple(
        SessionInfo(
            session_id=f"s{number}",
            phase="up",
            incarnation=2,
            restarts=1,
            pid=number,
            parent_id=None,
            group_id=None,
            last_index=0,
            reason=reason,
        )
        for number in range(600)
    )

    async def begin(sessions, _journal):
        for info in infos:
            sessions.live[info.session_id] = SimpleNamespace(info=lambda info=info: info)

    ask = Ask(id="c1", body=raw(ListSessions()))
    answer = asyncio.run(answered(tmp_path, ask, begin=begin))

    assert len(bytes(answer.body)) > FRAME_BYTES_MAX
    assert decode_as(ListSessions.answer, answer.body) == infos


@pytest.mark.parametrize("kind", [Ask, Send])
def test_a_body_that_leaves_no_room_for_an_envelope_is_refused(tmp_path, kind):
    """By its name: the frame that an agent is given of it would be too long for any socket."""
    body = raw(b"x" * ASKED_BYTES_MAX)
    more = {} if kind is Ask else {"session_id": "s1", "durable": True}
    answer = asyncio.run(answered(tmp_path, kind(id="c1", body=body, **more)))

    assert (answer.id, answer.code) == ("c1", UsageError.code)
