"""Streams of real sessions whose daemon dies, is replaced by an older one, or loses the pieces."""

import shutil

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.events import AgentEnd, AgentStart, MessageDelta, ResponseComplete
from cmdc_runtime.testing import Text
from cmdc_runtime.wire.frames import Events
from tests.fault.reviving import reviving
from tests.fault.streams.ledger import Log, digest, journaled

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 60.0
WARM_S = 120.0
STORY = "".join(f"{number:04} " for number in range(400))
CYCLES = 6
KILLS = 2


def kinds(log):
    return [type(event) for _, event in log.events.values()]


def await_agent(own_daemon, client):
    """Wait until the session has a process again: a new zygote has to get warm first."""
    assert own_daemon.poll(lambda: client.status("s-1").state == "idle", WARM_S)


@pytest.mark.stream_case("S09")
@pytest.mark.parametrize("grace", [0.0, 60.0], ids=["agents end", "agents stay"])
@pytest.mark.timeout(300)
def test_event_that_was_committed_and_not_published_comes_once(
    own_daemon, scripted, tmp_path, grace
):
    """The daemon is killed right after the commit, before anybody hears of it, for each event."""
    plain = own_daemon.environment
    own_daemon.environment = lambda: plain() | {"CMDC_FAULTS": str(tmp_path)}
    own_daemon.grace = grace
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=scripted(default=Text("fine")), session_id="s-1")
        stream = session.subscribe()
        tmp_path.joinpath("s-1.plan").write_text("append.*.after:1=daemon\n" * KILLS)

        def whole():  # the answer may come before the last event, and so before the last death
            reply = session.run("Go.", timeout=TURN_S)
            return reply.text, Log().read(stream, session.last_index())

        (text, log), deaths = reviving(own_daemon, whole)
        assert (text, deaths) == ("fine", KILLS)
        session.stop()
    own_daemon.process.terminate()
    own_daemon.process.wait(TURN_S)
    (kept,) = journaled(own_daemon.place / "state", "s-1")

    assert digest(log.durable) == digest(kept)
    assert kinds(log).count(AgentStart) == kinds(log).count(AgentEnd) == 1


@pytest.mark.stream_case("S14")
@pytest.mark.timeout(300)
def test_client_that_was_away_for_long_finds_every_durable_event(own_daemon, scripted):
    """Beyond the ring, and across a daemon's end: what is gone is reported, the rest comes once."""
    own_daemon.start()
    with own_daemon.client() as client:
        model = scripted(default=Text(STORY, chunk_chars=5))
        session = client.create_agent(model=model, session_id="s-1", event_buffer_size=10)
        session.run("Go.", timeout=TURN_S)
        cursor = session.last_index()
    with own_daemon.client() as client:
        for _ in range(CYCLES):
            client.run("s-1", "Go.", timeout=TURN_S)
    own_daemon.kill()
    own_daemon.start()
    with own_daemon.client() as client:
        await_agent(own_daemon, client)
        client.run("s-1", "Go.", timeout=TURN_S)
        log = Log()
        log.last = cursor
        log.read(client.subscribe("s-1", since=cursor), client.last_index("s-1"))
        client.stop("s-1")
    own_daemon.process.terminate()
    own_daemon.process.wait(TURN_S)
    (kept,) = journaled(own_daemon.place / "state", "s-1")

    assert digest(log.durable) == digest({at: one for at, one in kept.items() if at > cursor})
    assert kinds(log).count(AgentEnd) == CYCLES + 1
    assert log.lost_count > CYCLES * len(STORY) / 5 / 2


@pytest.mark.stream_case("S08")
@pytest.mark.timeout(300)
def test_daemon_with_an_older_journal_notifies_a_client_that_knows_more(own_daemon, scripted):
    """A backup was put back: the client's stream names what is gone, and goes on."""
    model = scripted(default="fine")
    state, backup = own_daemon.place / "state", own_daemon.place / "backup"
    own_daemon.start()
    with own_daemon.client() as client:
        for session_id in ("s-1", "s-2"):
            client.create_agent(model=model, session_id=session_id)
            client.run(session_id, "Go.", timeout=TURN_S)
        client.stop("s-2")
    own_daemon.process.terminate()
    own_daemon.process.wait(TURN_S)
    shutil.copytree(state, backup)
    own_daemon.start()
    with own_daemon.client() as client:
        await_agent(own_daemon, client)
        client.run("s-1", "Again.", timeout=TURN_S)
        cursor = client.last_index("s-1")
        ended = [one.index for one in client.subscribe("s-2", since=0)][-1]
    own_daemon.process.terminate()
    own_daemon.process.wait(TURN_S)
    shutil.rmtree(state)
    backup.rename(state)
    own_daemon.start()
    with own_daemon.client() as client:
        stream = client.subscribe("s-1", since=cursor)
        await_agent(own_daemon, client)
        reported = stream.get(TURN_S)  # before its indexes have come as far as the client's again
        client.run("s-1", "Go on.", timeout=TURN_S)
        after = Log()
        after.last = reported.index
        after.read(stream, client.last_index("s-1"))
        over = list(client.subscribe("s-2", since=ended + 5))
        client.stop("s-1")

    assert isinstance(reported.event, cmdc.events.EventsLost)
    assert reported.event.first <= cursor + 1
    assert kinds(after).count(AgentEnd) == 1
    assert [(one.index, one.event.first, one.event.last) for one in over] == [
        (ended, ended + 1, ended + 5)
    ]


@pytest.mark.stream_case("S11")
def test_answer_is_complete_where_its_pieces_are_lost(own_daemon, scripted, wire_of):
    """No piece arrives and none is kept: the event behind them has the whole text."""
    own_daemon.start()
    wire = wire_of(own_daemon.address)
    wire.spoil = lambda topic, frame: isinstance(frame, Events)
    with own_daemon.client() as driver, cmdc.Client(wire.directory) as client:
        model = scripted(Text(STORY, chunk_chars=5))
        session = driver.create_agent(model=model, event_buffer_size=0)
        stream = client.subscribe(session.id)
        reply = session.run("Go.", timeout=TURN_S)
        log = Log().read(stream, session.last_index())
        session.stop()
    said = [one.message.content for _, one in log.events.values() if type(one) is ResponseComplete]

    assert MessageDelta not in kinds(log)
    assert log.lost_count >= 1
    assert said == [STORY] == [reply.text]
