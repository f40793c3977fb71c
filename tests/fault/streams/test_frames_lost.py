"""Whatever happens to frames and connections, a client's log is the journal's."""

import contextlib
import os
import random
import threading

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import Text
from tests.fault.streams.ledger import Log, digest, journaled
from tests.fault.streams.wire import Faults

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

EVENTS = int(os.environ.get("STREAMS_N", "8000"))
"""Of all sessions together; the long form has ten million."""
SEED = int(os.environ.get("STREAMS_SEED", "1"))
SESSIONS = 4
ROUNDS_MAX = 10
"""Prompts to each session of one daemon's life; then its journal is read and others begin."""
PIECES = 1_000
"""Of one answer; each is an event."""
STORY = "".join(f"{number:04} " for number in range(PIECES))
TURN_S = 120.0
ROUGH = Faults(lost=0.05, doubled=0.05, delayed=0.1, cut_every=40)
SHAKY = Faults(lost=0.05, doubled=0.05, delayed=0.1)


def lots():
    """Return how many prompts each session gets, one number for each lot of sessions."""
    rounds = max(1, EVENTS // (SESSIONS * PIECES))
    whole, rest = divmod(rounds, ROUNDS_MAX)
    return [ROUNDS_MAX] * whole + [rest] * (rest > 0)


def follow(stream, logs):
    """Read a stream of all sessions until it is closed."""
    for envelope in stream:
        logs.setdefault(envelope.session_id, Log()).add(envelope)


@contextlib.contextmanager
def heard(client):
    """Lend what a stream of all sessions gives: a log for each session."""
    logs = {}
    with client.subscribe_all() as stream:
        reader = threading.Thread(target=follow, args=(stream, logs))
        reader.start()
        yield logs
    reader.join(TURN_S)


def talk(own_daemon, sessions, rounds, chance, catch_up):
    """Give each session its prompts; the daemon is killed amid one of them."""
    fatal = chance.randrange(rounds * len(sessions))
    for turn in range(rounds):
        for number, session in enumerate(sessions):
            session.prompt("Talk.")
            if turn * len(sessions) + number == fatal:
                own_daemon.kill()
                own_daemon.start()
        for session in sessions:
            session.collect_reply(timeout=TURN_S)
            catch_up(session)


def play(own_daemon, wire, model, rounds, chance):
    """Play one lot of sessions in one daemon's life; return what was seen, and by the journal."""
    with (
        own_daemon.client() as driver,
        cmdc.Client(wire.directory) as client,
        heard(client) as all_logs,
    ):
        sessions = [driver.create_agent(model=model) for _ in range(SESSIONS)]
        streams = {one.id: client.subscribe(one.id, since=0) for one in sessions}
        logs = {session_id: Log() for session_id in streams}

        def catch_up(session):
            logs[session.id].read(streams[session.id], session.last_index())

        talk(own_daemon, sessions, rounds, chance, catch_up)
        for session in sessions:
            session.stop()
        for session_id, stream in streams.items():
            for envelope in stream:
                logs[session_id].add(envelope)
        assert own_daemon.poll(lambda: all(all_logs[one].last >= logs[one].last for one in logs))
    own_daemon.process.terminate()
    own_daemon.process.wait(TURN_S)
    kept = journaled(own_daemon.place / "state", *logs)
    return [
        (log, all_logs[session_id], right)
        for (session_id, log), right in zip(logs.items(), kept, strict=True)
    ]


@pytest.mark.stream_case("S01")
@pytest.mark.timeout(0)
@pytest.mark.parametrize("grace", [0.0, 60.0], ids=["agents end", "agents stay"])
def test_client_log_is_the_journal(own_daemon, scripted, wire_of, grace):
    """Every durable event once, in order; of all others each index once, or named as lost."""
    chance = random.Random(SEED)
    model = scripted(default=Text(STORY, chunk_chars=5))
    wire = wire_of(own_daemon.address, seed=SEED, events=ROUGH, control=SHAKY)
    own_daemon.grace = grace
    seen = 0
    for rounds in lots():
        own_daemon.start()
        wire.lend_token()  # each daemon that is not killed takes its own away
        for log, of_all, kept in play(own_daemon, wire, model, rounds, chance):
            assert digest(log.durable) == digest(kept)
            assert digest(of_all.durable) == digest(kept)
            seen += len(log.events)

    assert seen >= 0.5 * EVENTS
    assert wire.cuts > 0
    assert wire.lost > 0
