"""Processes die before they are agents, can't be had, or are wanted by many at once.

``FAULT_FULL=1`` plays the storms in full; what a build machine plays is smaller and no different.
The daemon of these cases takes so few sessions that a storm reaches its bound.
"""

import asyncio
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil
import pytest
import zmq

import cmdc_runtime as cmdc
from cmdc_runtime.reasons import RestartIntensityExceeded, Signal, StartFailed
from cmdc_runtime.requests import DaemonFacts, GetFacts
from cmdc_runtime.runtime_dir import read_token
from cmdc_runtime.testing import ToolCalls, ToolUse
from cmdc_runtime.wire import codec, frames
from cmdc_runtime.wire.frames import HEADER, of_router
from tests.fault.cases.births import no_births
from tests.fault.cases.shortages import no_descriptors, no_processes
from tests.fault.cases.test_storage import facts
from tests.fault.conftest import OwnDaemon

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

IS_FULL = bool(os.environ.get("FAULT_FULL"))
TURN_S = 120.0 if IS_FULL else 30.0
KILLED = Signal(number=9, name="SIGKILL")
SOON_S = 2.0
"""For a refusal: nothing is imported anew for it."""
FLAPPING = 200 if IS_FULL else 30
WANTED = 1000 if IS_FULL else 100
ROOM = 250 if IS_FULL else 40
"""Sessions that these daemons take, the bystander among them."""
RESTARTS = 3
DELAY_S = (0.05, 0.1)
ANSWER_S = 30.0 if IS_FULL else 10.0
"""For a turn of the bystander, while as many processes as there are sessions want two cores."""
SPENT = RestartIntensityExceeded(restarts=RESTARTS, seconds=TURN_S, last=KILLED)


class Fragile(cmdc.Plugin):
    """Leaves word of its process's identity in one incarnation, and dies before it is up; once."""

    class Config(msgspec.Struct, frozen=True):
        path: str
        dies_in: int

    async def session_start(self, event, context):
        if context.incarnation == self.config.dies_in and is_new(self.config.path):
            frame = sys._getframe()
            while "boot" not in frame.f_locals:
                frame = frame.f_back
            die(self.config.path, frame.f_locals["boot"]["worker_id"])


def is_new(path):
    return not Path(path).exists()


def die(path, last_words):
    """Leave word, and be killed."""
    Path(path).write_text(last_words)
    os.kill(os.getpid(), signal.SIGKILL)


@cmdc.tool(effects="read", isolation="thread")
def reach() -> str:
    """Be killed for reaching for what is down."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


class SmallDaemon(OwnDaemon):
    """Daemons with room for a few sessions."""

    def environment(self):
        return super().environment() | {"CMDC_MAX_SESSIONS": str(ROOM)}


@pytest.fixture(scope="module")
def shared_daemon():
    """Directories for such a daemon."""
    found = SmallDaemon()
    yield found
    found.close()


class Wire:
    """A socket of our own to one of the daemon's."""

    def __init__(self, path, identity=None):
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, round(TURN_S * 1000))
        self._socket.setsockopt(zmq.RCVTIMEO, round(TURN_S * 1000))
        if identity is not None:
            self._socket.setsockopt(zmq.ROUTING_ID, identity)
        self._socket.connect(f"ipc://{path}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()
        self._context.term()

    def send(self, frame):
        self._socket.send_multipart([HEADER, codec.encode(frame)])

    def receive(self):
        return of_router(self._socket.recv_multipart())


def refused_frames(place):
    """Return how many frames the daemon has refused so far."""
    with Wire(place.address / "control.sock") as wire:
        token = read_token(place.address)
        wire.send(frames.Ask(id="facts", body=codec.raw(GetFacts()), token=token))
        reply = codec.decode(frames.ToClient, wire.receive())
    return codec.decode_as(DaemonFacts, reply.body).refused_frames


@pytest.fixture
def zygote(client):
    """The pid of the zygote."""
    return next(one.pid for one in client.tree().children if one.id == "nursery")


@pytest.fixture
def without_spares(client, zygote, poll):
    """Return when no worker waits for a session; the daemon forks the next ones in a second."""

    def end():
        agents = {one.pid for one in client.list_sessions()}
        spares = [one for one in psutil.Process(zygote).children() if one.pid not in agents]
        for spare in spares:
            spare.kill()
        assert poll(lambda: not any(one.is_running() for one in spares))

    return end


# --- killed -----------------------------------------------------------------------------------


@pytest.mark.fault_case("F01")
def test_worker_that_is_killed_at_its_birth_is_a_failed_start(agent, zygote, without_spares):
    """The first start fails for its caller, a restart is charged and tried again."""
    session = agent(max_restarts=20)
    monitor = session.monitor(persistent=True)
    with no_births(zygote) as dead:
        without_spares()
        with pytest.raises(cmdc.StartFailed) as caught:
            agent(session_id="twin")
        os.kill(session.agent_pid(), signal.SIGKILL)
        downs = [monitor.wait(TURN_S) for _ in range(2)]
    failure = caught.value.reason

    assert (failure.stage, "ended before it was ready (-9)" in failure.message) == ("spawn", True)
    assert int(failure.message.split()[1]) in dead
    assert [(down.incarnation, down.restarts, down.restarting) for down in downs] == [
        (1, 1, True),
        (2, 2, True),
    ]
    assert (downs[0].reason, downs[1].reason.stage) == (KILLED, "spawn")
    assert session.run("Still there?", timeout=TURN_S).text == "fine"
    assert agent(session_id="twin").run("And you?", timeout=TURN_S).text == "fine"


@pytest.mark.fault_case("F02")
@pytest.mark.parametrize("dies_in", [1, 2])
def test_worker_that_is_killed_before_it_is_up_is_reported_and_never_heard_again(
    agent, place, poll, tmp_path, dies_in
):
    """Its identity was given to it alone: what comes under that name is refused."""
    path = tmp_path / "identity"
    plugin = (Fragile, {"path": str(path), "dies_in": dies_in})
    if dies_in == 1:
        with pytest.raises(cmdc.StartFailed) as caught:
            agent(session_id="fragile", plugins=[plugin])
        assert caught.value.reason == KILLED
        session = agent(session_id="fragile")
    else:
        session = agent(plugins=[plugin])
        monitor = session.monitor(persistent=True)
        assert session.status().state == "idle"  # it answers, so it has left word of that
        os.kill(session.agent_pid(), signal.SIGKILL)
        down = monitor.wait(TURN_S)
        assert (down.incarnation, down.reason, down.evidence.state) == (1, KILLED, "idle")
    assert session.run("1", timeout=TURN_S).text == "fine"
    before = refused_frames(place)
    with Wire(place.address / "workers.sock", path.read_bytes()) as wire:
        wire.send(frames.Started())
        wire.send(frames.ExitNotice(reason=KILLED))
    assert poll(lambda: refused_frames(place) >= before + 2)

    assert refused_frames(place) == before + 2
    assert session.status().incarnation == dies_in  # who dies at a step of rebuilding is replaced
    assert session.run("2", timeout=TURN_S).text == "fine"


# --- no process to be had ------------------------------------------------------------------------


@pytest.fixture(params=[no_processes, no_descriptors], ids=["EAGAIN", "EMFILE"])
def shortage(request, place, zygote, client):
    """What daemon and zygote are short of; it begins when no fork is under way."""
    with request.param((place.process.pid, zygote)) as found:

        def begin():
            assert place.poll(lambda: facts(client).spares >= place.spares)
            found.begin()

        yield replace(found, begin=begin)


@pytest.mark.fault_case("F21")
def test_fork_that_fails_is_reported_with_its_cause_to_who_starts_a_session(
    agent, shortage, without_spares
):
    """At once, and without an end of the zygote; what is there goes on."""
    session = agent()
    shortage.begin()
    without_spares()
    before_s = time.monotonic()
    reasons = []
    for _ in range(3):
        with pytest.raises(cmdc.StartFailed) as caught:
            agent()
        reasons.append(caught.value.reason)
    took_s = time.monotonic() - before_s
    text = session.run("Still there?", timeout=TURN_S).text
    shortage.end()

    assert [type(reason) for reason in reasons] == [StartFailed] * 3
    assert {reason.stage for reason in reasons} == {"spawn"}
    assert all(f"[Errno {shortage.number}]" in reason.message for reason in reasons), reasons
    assert (took_s < SOON_S, text) == (True, "fine")
    assert agent().run("And you?", timeout=TURN_S).text == "fine"


@pytest.mark.fault_case("F21")
def test_fork_that_fails_is_tried_again_for_a_session_that_is_restarted(
    agent, client, zygote, shortage, without_spares
):
    """Each end has its Down; all wait, and are back when there are processes to be had again."""
    sessions = [agent() for _ in range(shortage.killed)]
    monitors = [session.monitor() for session in sessions]
    shortage.begin()
    without_spares()
    for session in sessions:
        os.kill(session.agent_pid(), signal.SIGKILL)
    downs = [monitor.wait(TURN_S) for monitor in monitors]
    with ThreadPoolExecutor(len(sessions)) as pool:
        replies = pool.map(lambda one: one.run("Still there?", timeout=TURN_S).text, sessions)
        pids = [session.agent_pid() for session in sessions]
        shortage.end()
        texts = list(replies)

    assert {(down.reason, down.restarting) for down in downs} == {(KILLED, True)}
    assert set(pids) == {None}
    assert set(texts) == {"fine"}
    assert {session.status().incarnation for session in sessions} == {2}
    assert next(one.pid for one in client.tree().children if one.id == "nursery") == zygote


# --- storms -----------------------------------------------------------------------------------


@pytest.fixture
def answers(bystander):
    """Ask the bystander again and again; the seconds that each answer took."""
    took_s, done = [], threading.Event()

    def ask():
        while not done.wait(0.05):
            before_s = time.monotonic()
            bystander.run("Still there?", timeout=TURN_S)
            took_s.append(time.monotonic() - before_s)

    asker = threading.Thread(target=ask)
    asker.start()
    yield took_s
    done.set()
    asker.join()


@pytest.mark.fault_case("F19")
def test_sessions_that_flap_at_once_end_each_for_itself(agent, client, scripted, answers):
    """Each has its own back-off and its own budget, and no supervisor above them gives up."""
    model = scripted(default=ToolCalls(ToolUse("reach", {})))
    options = {
        "tools": [reach],
        "max_cycle_crashes": 100,
        "max_restarts": RESTARTS,
        "max_seconds": TURN_S,
        "restart_delay": DELAY_S,
    }
    with client.subscribe("_supervisor") as stream:
        sessions = [agent(model, **options) for _ in range(FLAPPING)]
        monitors = [session.monitor(persistent=True) for session in sessions]
        for session in sessions:
            session.prompt("Go.")
        downs = [[monitor.wait(TURN_S) for _ in range(RESTARTS + 1)] for monitor in monitors]
        reports = []
        while sum(one.report == "shutdown" for one in reports) < FLAPPING:
            reports.append(stream.get(TURN_S).event)

    for of_one in downs:
        assert [down.incarnation for down in of_one] == [1, 2, 3, 4]
        assert [down.next_attempt_ms for down in of_one] == [0, 50, 100, None]
        assert [down.reason for down in of_one] == [KILLED] * RESTARTS + [SPENT]
    gave_up = {one.supervisor for one in reports if one.report == "shutdown"}
    assert gave_up == {f"root/sessions/session:{session.id}" for session in sessions}
    assert len(answers) > 1
    assert max(answers) < ANSWER_S


@pytest.mark.fault_case("F20")
def test_more_sessions_than_there_is_room_for_are_refused(place, scripted, answers):
    """All are wanted at the same time: as many start as may, the others are refused for now."""
    model = scripted(default="fine")

    async def storm():
        async with cmdc.AsyncClient(place.address) as client:
            made = await asyncio.gather(
                *(client.create_agent(model=model) for _ in range(WANTED)), return_exceptions=True
            )
            sessions = [one for one in made if not isinstance(one, Exception)]
            texts = await asyncio.gather(*(one.run("Go.", timeout=TURN_S) for one in sessions))
            await asyncio.gather(*(one.stop() for one in sessions))
            again = await client.create_agent(model=model)
            await again.stop()
        return [one for one in made if isinstance(one, Exception)], [one.text for one in texts]

    refusals, texts = asyncio.run(storm())

    assert texts == ["fine"] * (ROOM - 1)
    assert [type(one) for one in refusals] == [cmdc.Overloaded] * (WANTED - ROOM + 1)
    assert {str(one) for one in refusals} == {f"max_sessions: {ROOM} sessions are alive already"}
    assert len(answers) > 1
    assert max(answers) < ANSWER_S
