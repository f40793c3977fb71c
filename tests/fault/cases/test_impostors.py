"""Workers that speak as others do, or as they did once: nothing of it counts, and nobody is hurt.

What a worker says over its own connection is about its own session. So one that would speak for
another needs a second connection, under the other's identity, or has to name what is the other's.
"""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import msgspec
import pytest
import zmq

import cmdc_runtime as cmdc
from cmdc_runtime.commands import AwaitCycle, CycleResult
from cmdc_runtime.reasons import Other
from cmdc_runtime.runtime_dir import read_token
from cmdc_runtime.testing import Hold, Text, ToolCalls, ToolUse
from cmdc_runtime.wire.codec import decode, decode_as, encode, raw
from cmdc_runtime.wire.frames import (
    HEADER,
    Answer,
    Completed,
    ExitNotice,
    JournalRecord,
    Ready,
    Send,
    Started,
    Terminate,
    ToClient,
    ToWorker,
    ValueReply,
    Write,
    of_router,
)
from tests.fault.cases.conftest import WARM_S, is_warm
from tests.fault.cases.strangers import own_link, stranger
from tests.fault.cases.test_long import restarted
from tests.fault.cases.test_strangers import (
    CONTRACT,
    ONE,
    TURN_S,
    announcement,
    batch,
    entry_of,
    refused_by,
)
from tests.fault.test_frames import hello

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

JUMP = 1_000
NOBODY = "w-1-0"
"""No worker's identity: a word of it is refused, and counted."""
KNOWN = "f-known"
"""The id of a command that others may know."""
LOOK_MS = 20
RECORD = JournalRecord(kind="said", body=b"\x80")


@pytest.fixture(scope="module")
def place(shared_daemon):
    """A daemon whose agents wait for the next one."""
    shared_daemon.grace = 60.0
    shared_daemon.start()
    with shared_daemon.client() as client:
        assert shared_daemon.poll(lambda: is_warm(client), WARM_S)
    return shared_daemon


def write(number, *, completed=()):
    """Return a write of records that no agent has written."""
    return encode(Write(records=(RECORD,), completed=completed, number=number))


def words_of(pid, index):
    """Return what a worker can say, as frames of a message each."""
    return [
        (encode(Ready(pid=pid)),),
        (encode(Started()),),
        (batch(index + 1, 1), ONE),
        (write(2),),
        (encode(ExitNotice(reason=Other(detail="not mine"))),),
    ]


def indexes_of(session):
    """Return the index and the kind of every event that a subscriber of all of them gets."""
    last = session.last_index()
    with session.subscribe(since=0) as stream:
        found = [stream.get(timeout=TURN_S)]
        while found[-1].index < last:
            found.append(stream.get(timeout=TURN_S))
    return [one.index for one in found], {one.event.kind for one in found}


def is_whole(session):
    """Say whether the stream has each index once, and no event of an impostor's."""
    indexes, kinds = indexes_of(session)
    assert not kinds & {"events_lost", "stream_reset"}
    return indexes == list(range(1, len(indexes) + 1))


# --- its own connection ---------------------------------------------------------------------------


@cmdc.tool(effects="write", isolation="task")
async def say_on(parts: list[str]) -> str:
    """Send a message over the agent's own connection."""
    own_link()._pump.send([bytes.fromhex(part) for part in parts])
    return "said"


@pytest.mark.fault_case("F42")
@pytest.mark.parametrize("kind", ["an old write", "old events", "events after a jump"])
def test_what_was_said_already_or_comes_too_early_is_not_taken(place, agent, scripted, kind):
    """The process goes on, its history and its stream are as before; a wrong index is logged."""
    parts = {
        "an old write": (write(1),),
        "old events": (batch(1, 1), ONE),
        "events after a jump": (batch(JUMP, 1), ONE),
    }[kind]
    hexes = [HEADER.hex(), *(part.hex() for part in parts)]
    model = scripted(ToolCalls(ToolUse("say_on", {"parts": hexes})), default="fine")
    session, logged = agent(model, tools=[say_on]), len(place.log.read_text())
    pid = session.agent_pid()
    assert session.run("Go.", timeout=TURN_S).text == "fine"
    assert session.run("On.", timeout=TURN_S).text == "fine"
    roles = [one.role for one in session.messages() if one.role != "system"]
    refusals = [
        one for one in place.log.read_text()[logged:].splitlines() if "event.refused" in one
    ]

    assert session.agent_pid() == pid
    assert is_whole(session)
    assert roles == ["user", "assistant", "tool_result", "assistant", "user", "assistant"]
    assert len(refusals) == (kind != "an old write")
    os.kill(pid, signal.SIGKILL)  # and so it is for the next process, from the journal
    assert place.poll(lambda: session.status().incarnation == 2)
    assert [one.role for one in session.messages() if one.role != "system"] == roles


@pytest.mark.fault_case("F42")
def test_a_jump_in_its_writes_ends_the_process_that_made_it(place, agent, scripted):
    """There would be a hole in the history: its session goes on from the last whole write."""
    hexes = [HEADER.hex(), write(JUMP).hex()]
    call = ToolCalls(ToolUse("say_on", {"parts": hexes}))
    session = agent(scripted(call, default="fine"), tools=[say_on])
    monitor, logged = session.monitor(), len(place.log.read_text())
    session.prompt("Go.")
    down = monitor.wait(TURN_S)

    assert f"write {JUMP} of the session {session.id} came before write" in str(down.reason)
    assert "record.not_journaled" in place.log.read_text()[logged:]
    assert session.run("On.", timeout=TURN_S).text == "fine"
    assert session.status().incarnation == 2


@contextlib.contextmanager
def waiting(place, session):
    """Wait for a session's cycle under a known id, over a connection that is yielded."""
    control = place.address / "control.sock"
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.linger, peer.rcvtimeo = 0, round(TURN_S * 1000)
        peer.connect(f"ipc://{control}")
        asked = Send(
            id=KNOWN,
            session_id=session.id,
            durable=False,
            body=raw(AwaitCycle()),
            token=read_token(place.address),
            waits=True,
        )
        peer.send_multipart([HEADER, encode(asked)])
        peer.send_multipart([HEADER, hello(f"ipc://{control}")])
        peer.recv_multipart()  # and so the daemon has taken what came before it
        yield peer


@pytest.mark.fault_case("F42")
def test_an_outcome_for_another_sessions_command_reaches_nobody(place, agent, scripted):
    """Who waits for one session has the answer of that one, whoever gave another one before."""
    model = scripted((Text("its "), Hold(), Text("own")))
    session = agent(model)
    session.prompt("1")
    model.wait_held()
    mine = ValueReply(id=KNOWN, body=raw("mine"))
    settled = (Completed(id=KNOWN, frame=encode(mine)),)
    parts = [encode(Answer(id=KNOWN, body=bytes(mine.body))), write(1, completed=settled)]
    hexes = [HEADER.hex(), *(part.hex() for part in parts)]
    call = ToolCalls(ToolUse("say_on", {"parts": hexes}))
    liar = agent(scripted(call, default="fine"), tools=[say_on])
    pid, before = liar.agent_pid(), refused_by(place)
    with waiting(place, session) as peer:
        assert liar.run("Go.", timeout=TURN_S).text == "fine"
        model.release()
        frame = of_router(peer.recv_multipart())
    answer = decode(ToClient, frame)

    assert (liar.agent_pid(), refused_by(place)) == (pid, before)  # it was taken, as its own
    assert answer.id == KNOWN
    assert decode_as(CycleResult, answer.body).text == "its own"
    assert is_whole(session)


# --- another's name -------------------------------------------------------------------------------


@cmdc.tool(effects="write", isolation="thread")
def say_as(address: str, name: str, messages: list[list[str]], go: str) -> list[str]:
    """Connect as another worker, and return what that one heard before there was a file."""
    heard = []
    dealer = zmq.DEALER
    with zmq.Context() as context, context.socket(dealer) as own, context.socket(dealer) as nobody:
        for socket, identity in ((own, name), (nobody, NOBODY)):
            socket.linger = 0
            socket.setsockopt(zmq.ROUTING_ID, identity.encode())
            socket.connect(address)
        for parts in messages:
            own.send_multipart([bytes.fromhex(part) for part in parts])
        nobody.send_multipart([HEADER, encode(Started())])
        while not Path(go).exists():
            if own.poll(LOOK_MS):
                heard.append(of_router(own.recv_multipart()).hex())
    return heard


@pytest.mark.fault_case("F42")
@pytest.mark.fault_case("F43")
def test_the_second_worker_of_an_identity_is_not_heard(place, agent, scripted, tmp_path):
    """The first one goes on, amid its turn, and the second one hears nothing of it."""
    model = scripted("one", (Text("dur"), Hold(), Text("ing")), default="after")
    session = agent(model)
    assert session.run("1", timeout=TURN_S).text == "one"
    pid, name = session.agent_pid(), entry_of(place, session).worker_id
    words = [[HEADER, *parts] for parts in words_of(pid, session.last_index())]
    hexes, go = [[part.hex() for part in parts] for parts in words], tmp_path / "go"
    address = f"ipc://{place.address / 'workers.sock'}"
    args = {"address": address, "name": name, "messages": hexes, "go": str(go)}
    liar = agent(scripted(ToolCalls(ToolUse("say_as", args)), default="fine"), tools=[say_as])
    liar_pid, before = liar.agent_pid(), refused_by(place)
    stream = session.stream("2", timeout=TURN_S)
    model.wait_held()
    liar.prompt("Go.")
    assert place.poll(lambda: refused_by(place) > before)
    model.release()
    said = "".join(stream)
    again = session.run("3", timeout=TURN_S).text
    go.touch()

    assert liar.collect_reply(timeout=TURN_S) == "fine"
    assert liar.messages()[-2].content == "[]"
    assert (said, again) == ("during", "after")
    assert (session.agent_pid(), liar.agent_pid()) == (pid, liar_pid)
    assert refused_by(place) == before + 1
    assert is_whole(session)
    assert is_whole(liar)


# --- an earlier process of the session ------------------------------------------------------------


@pytest.mark.fault_case("F42")
def test_words_of_an_earlier_process_come_to_nothing(place, agent, scripted):
    """They are refused and counted; who calls for the session is ordered to end."""
    session = agent(scripted("one", default="two"))
    assert session.run("1", timeout=TURN_S).text == "one"
    entry = entry_of(place, session)
    os.kill(entry.pid, signal.SIGKILL)
    assert session.run("2", timeout=TURN_S).text == "two"
    pid, before, index = session.agent_pid(), refused_by(place), session.last_index()
    words = words_of(entry.pid, index)
    messages = [(entry.worker_id, (HEADER, *parts)) for parts in [*words, (announcement(entry),)]]
    with stranger(place.address / "workers.sock", *messages) as heard:
        assert place.poll(lambda: refused_by(place) >= before + len(words))
        assert place.poll(lambda: heard)
        assert session.run("3", timeout=TURN_S).text == "two"

    assert refused_by(place) == before + len(words)
    assert {type(decode(ToWorker, bytes.fromhex(one.strip()))) for one in heard} == {Terminate}
    assert (session.agent_pid(), session.status().incarnation) == (pid, 2)
    assert is_whole(session)


@pytest.mark.fault_case("F42")
def test_a_process_that_was_taken_over_calls_as_no_earlier_one(
    place, audit, agent, scripted, tmp_path
):
    """It is of the second generation, and says that it is of the first: that is its end."""
    audit.daemon_died = True
    words = tmp_path / "words"
    call = ToolCalls(ToolUse("say_from", {"path": str(words)}))
    session = agent(scripted("one", "two", call, default="fine"), tools=[say_from])
    assert session.run("1", timeout=TURN_S).text == "one"
    first = entry_of(place, session)
    os.kill(first.pid, signal.SIGKILL)
    assert session.run("2", timeout=TURN_S).text == "two"
    pid, second = session.agent_pid(), entry_of(place, session)
    place.kill()
    place.start()
    assert session.agent_pid() == pid
    stale = msgspec.structs.replace(second, incarnation=first.incarnation)
    words.write_text(announcement(stale).hex())
    monitor, before = session.monitor(), refused_by(place)
    session.prompt("3")
    down = monitor.wait(TURN_S)

    assert CONTRACT in str(down.reason)
    assert refused_by(place) == before + 1
    assert restarted(place, session, 2).incarnation == 3
    assert session.run("4", timeout=TURN_S).text == "fine"


@cmdc.tool(effects="write", isolation="task")
async def say_from(path: str) -> str:
    """Send a frame from a file over the agent's own connection, and wait for what comes of it."""
    own_link()._pump.send([HEADER, bytes.fromhex(await asyncio.to_thread(Path(path).read_text))])
    await asyncio.Event().wait()
    return "nothing came of it"
