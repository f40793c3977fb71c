"""The end of a process and its last events, which come over different connections."""

import os
import signal
import threading

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.events import MessageDelta
from cmdc_runtime.reasons import Signal
from cmdc_runtime.testing import Hold, Text
from cmdc_runtime.wire.frames import Events, Watermark

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 60.0
PIECES = 300
"""Of one answer, each an event: fewer than the session's ring keeps."""
KILLED = Signal(number=9, name="SIGKILL")


def indexes_now(stream):
    """Return the indexes of all that a stream has for its reader at this moment."""
    found = []
    while True:
        try:
            found.append(stream.get(0).index)
        except (TimeoutError, cmdc.SessionNotAlive):
            return found


def until_piece(stream, number):
    """Read until a piece of the answer has come; return its index."""
    for envelope in stream:
        if isinstance(envelope.event, MessageDelta) and envelope.event.delta == f"{number} ":
            return envelope.index
    raise AssertionError("the stream has ended")


@pytest.mark.parametrize("restart", ["temporary", "permanent"])
@pytest.mark.parametrize("follows_all", [False, True])
def test_a_down_comes_behind_all_events_of_its_process(
    own_daemon, scripted, wire_of, restart, follows_all
):
    """Whoever hears of the end has them, though every one was lost on its way to the client."""
    model = scripted((*(Text(f"{number} ") for number in range(PIECES)), Hold(), "never"))
    own_daemon.start()
    wire = wire_of(own_daemon.address)
    called, at_call = threading.Event(), []
    with own_daemon.client() as driver, cmdc.Client(wire.directory) as client:
        session = driver.create_agent(model=model, restart=restart, restart_delay=(0.0, 0.0))
        witness = session.subscribe(since=0)
        first, second = (
            client.subscribe_all() if follows_all else client.subscribe(session.id, since=0)
            for _ in range(2)
        )

        def callback(_down):
            at_call.extend(indexes_now(first))
            called.set()

        client.monitor(session.id, callback)
        monitor = client.monitor(session.id)
        begun = indexes_now(second)
        wire.spoil = lambda topic, frame: isinstance(frame, Events | Watermark)
        session.prompt("Count.")
        last = until_piece(witness, PIECES - 1)
        os.kill(session.agent_pid(), signal.SIGKILL)
        down = monitor.wait(TURN_S)
        at_wait = begun + indexes_now(second)
        assert called.wait(TURN_S)

    assert down.reason == KILLED
    assert at_wait[:last] == at_call[:last] == [*range(1, last + 1)]
