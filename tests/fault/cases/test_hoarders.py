"""Who makes the daemon remember more and more is cut off, and nobody else notices."""

import contextlib
import fcntl
import os
import socket
import struct
import termios
import threading
from pathlib import Path

import psutil
import pytest

from cmdc_runtime.testing import Hold, Text
from tests.fault.cases.hoarders import hoarder, topics_follower
from tests.fault.test_frames import facts_of

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 30.0
SENT_BYTES = 2**31
PEAK_BYTES_MAX = 512 * 2**20
TOPICS_PEAK_BYTES_MAX = 128 * 2**20
LEFT_BYTES_MAX = 64 * 2**20
LOOK_S = 0.01
TOPICS = 300_000
HONEST_TOPICS = 5_000
SENT_MIN = 100
"""Bytes of a prompt, and more than a heartbeat has."""


class Peak:
    """The most memory that a process had meanwhile, above what it had before."""

    def __init__(self, pid):
        self.process, self.over = psutil.Process(pid), threading.Event()
        self.before = self.most = self.now
        self.thread = threading.Thread(target=self.watch)

    @property
    def now(self):
        return self.process.memory_info().rss

    @property
    def grown(self):
        return self.most - self.before

    def watch(self):
        while not self.over.wait(LOOK_S):
            self.most = max(self.most, self.now)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def daemon_pid(place):
    return place.process.pid


def cut_by(place):
    """Return how many connections the daemon has cut."""
    return facts_of(f"ipc://{place.address / 'control.sock'}").cut_connections


@pytest.mark.fault_case("F75")
@pytest.mark.parametrize(
    ("where", "part_bytes"),
    [
        (("control", "DEALER"), 16 * 2**20),
        (("control", "DEALER"), 1_000),
        (("workers", "DEALER"), 16 * 2**20),
        (("events", "SUB"), 1_000),
    ],
)
def test_a_message_without_end_is_cut_off(place, agent, scripted, where, part_bytes):
    """Its parts are kept by nobody's choice; a stream and a call under way go on."""
    model = scripted("before", (Text("dur"), Hold(), "ing"), default="after")
    session = agent(model)
    assert session.run("1", timeout=TURN_S).text == "before"
    before, pid = cut_by(place), session.agent_pid()
    stream = session.stream("2", timeout=TURN_S)
    model.wait_held()
    name, kind = where
    address = place.address / f"{name}.sock"
    with Peak(daemon_pid(place)) as peak, hoarder(address, kind, part_bytes, SENT_BYTES) as process:
        assert process.stdout.readline() == "cut\n"
        assert place.poll(lambda: peak.now < peak.before + LEFT_BYTES_MAX)
    model.release()

    assert "".join(stream) == "during"
    assert session.run("3", timeout=TURN_S).text == "after"
    assert peak.grown < PEAK_BYTES_MAX
    assert cut_by(place) >= before + 1
    assert session.agent_pid() == pid


@pytest.mark.fault_case("F75")
def test_a_part_larger_than_any_topic_is_not_taken_at_the_socket_of_events(place):
    """Subscribers say topics and nothing else."""
    address = place.address / "events.sock"
    with (
        Peak(daemon_pid(place)) as peak,
        hoarder(address, "SUB", 16 * 2**20, SENT_BYTES) as process,
    ):
        assert process.stdout.readline() == "cut\n"

    assert peak.grown < LEFT_BYTES_MAX


@pytest.mark.fault_case("F75")
def test_a_process_that_follows_everything_is_cut_off(place, agent, scripted):
    """Of 300,000 topics only some are taken; a stream of somebody else has no gap."""
    session = agent(scripted("one", default="two"))
    stream = session.subscribe(since=0)
    assert session.run("1", timeout=TURN_S).text == "one"
    before, logged = cut_by(place), place.log.read_text()
    with Peak(daemon_pid(place)) as peak, topics_follower(place.address / "events.sock", TOPICS):
        assert place.poll(lambda: cut_by(place) > before)
        assert session.run("2", timeout=TURN_S).text == "two"
        assert place.poll(lambda: "may try again later" in place.log.read_text()[len(logged) :])
        added = place.log.read_text()[len(logged) :]

    assert "subscriber.cut" in added
    assert "connection.cut" not in added  # the watch over the memory had nothing to do
    assert peak.grown < TOPICS_PEAK_BYTES_MAX
    indexes = [stream.get(timeout=TURN_S).index for _ in range(session.last_index())]
    assert indexes == list(range(1, len(indexes) + 1))


@pytest.mark.fault_case("F75")
def test_a_process_that_follows_all_sessions_there_can_be_is_not(place, agent, scripted):
    """It hears of one of them, and is never cut."""
    session, before = agent(scripted(default="one")), cut_by(place)
    with topics_follower(place.address / "events.sock", HONEST_TOPICS, last=session.id) as process:
        assert process.stdout.readline() == "heard\n"  # the welcome, behind all the others
        assert session.run("1", timeout=TURN_S).text == "one"

    assert cut_by(place) == before


@pytest.mark.fault_case("F75")
def test_a_client_that_is_cut_in_a_call_has_its_answer(place, agent, scripted):
    """It connects again and asks again under the same id: the prompt takes effect once."""
    model = scripted("one", default="two")
    session = agent(model)
    assert session.run("1", timeout=TURN_S).text == "one"
    daemon, replies = psutil.Process(daemon_pid(place)), []
    daemon.suspend()
    try:
        asking = threading.Thread(target=lambda: replies.append(session.prompt("2")))
        asking.start()
        assert place.poll(lambda: max(over_connections(place, unread), default=0) > SENT_MIN)
        over_connections(place, lambda one: one.shutdown(socket.SHUT_RDWR))
    finally:
        daemon.resume()
    asking.join(TURN_S)

    assert len(replies) == 1
    assert session.collect_reply(timeout=TURN_S) == "two"
    assert [one.role for one in session.messages()].count("user") == len("12")


def over_connections(place, ask):
    """Return what a function says of each connection of this process to the control socket."""
    found, path = [], str(place.address / "control.sock")
    for entry in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError), contextlib.closing(duplicate(int(entry.name))) as one:
            if one.family == socket.AF_UNIX and one.getpeername() == path:
                found.append(ask(one))
    return found


def duplicate(number):
    """Return a duplicate of a descriptor; raises OSError, and keeps none, where it is no socket."""
    copy = os.dup(number)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise


def unread(connection):
    """Return how many bytes the other side has still to read."""
    return struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]
