"""Monitors against a peer that speaks the daemon's frames."""

import asyncio
import logging
import sys
import threading

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client import connection
from cmdc_runtime.reasons import NoProcess, Normal, Signal
from cmdc_runtime.requests import Demonitor, Monitor

WAIT_S = 10.0
SOON_S = 0.05
KILLED = Signal(number=9, name="SIGKILL")


@pytest.fixture
def client(peer):
    with cmdc.Client(peer.directory) as found:
        yield found


def test_monitor_is_notified_once(peer, client):
    """A one-shot monitor gets one notice, and every later ``wait`` returns that one."""
    peer.add("s1")
    monitor = client.monitor("s1")
    peer.down(monitor.ref, KILLED, restarting=True)
    peer.down(monitor.ref, Normal(), incarnation=2)
    peer.watermark("s1")
    client.last_index("s1")

    assert [monitor.wait(WAIT_S).reason, monitor.wait(0).reason] == [KILLED, KILLED]


def test_unknown_session_is_reported_at_once(peer, client):
    """A monitor of a session that never was gets its notice in the same round trip."""
    assert client.monitor("never").wait(WAIT_S).reason == NoProcess()


def test_persistent_monitor_hears_of_every_process(peer, client):
    """It is notified of each incarnation once, until the session is gone."""
    peer.add("s1")
    monitor = client.monitor("s1", persistent=True)
    for incarnation, restarting in ((1, True), (1, True), (2, True), (3, False)):
        peer.down(monitor.ref, KILLED, incarnation=incarnation, restarting=restarting)
    downs = [monitor.wait(WAIT_S) for _ in range(3)]

    assert [down.incarnation for down in downs] == [1, 2, 3]
    assert not downs[-1].restarting


def test_callback_may_call_the_client(peer, client):
    """A callback runs in a thread of its own, where every call works."""
    peer.add("s1", last_index=5)
    called = threading.Event()
    found = []

    def callback(down):
        found.append((down.reason, client.last_index("s1"), threading.current_thread().name))
        called.set()

    monitor = client.monitor("s1", callback)
    peer.down(monitor.ref, KILLED)

    assert called.wait(WAIT_S)
    assert found == [(KILLED, 5, "cmdc-callbacks")]


def test_raising_callback_ends_nothing(peer, client, caplog):
    """What a callback raises is logged, and the next one is called."""
    peer.add("s1")
    called = threading.Event()
    with caplog.at_level(logging.ERROR):
        peer.down(client.monitor("s1", lambda _down: 1 / 0).ref, KILLED)
        peer.down(client.monitor("s1", lambda _down: called.set()).ref, KILLED)
        assert called.wait(WAIT_S)

    assert "ZeroDivisionError" in caplog.text


def test_callback_that_exits_silences_no_other(peer, client, caplog):
    """``sys.exit`` ends the callback that calls it, and not the thread that runs them all."""
    peer.add("s1")
    called = threading.Event()
    with caplog.at_level(logging.ERROR):
        peer.down(client.monitor("s1", lambda _down: sys.exit(3)).ref, KILLED)
        peer.down(client.monitor("s1", lambda _down: called.set()).ref, KILLED)

        assert called.wait(WAIT_S)
    assert "SystemExit" in caplog.text


def test_nothing_comes_after_demonitor(peer, client):
    """After ``demonitor`` neither ``wait`` nor a callback gets a notice, not even one under way."""
    peer.add("s1")
    is_blocked, go_on = threading.Event(), threading.Event()
    heard = []

    def block(_down):
        is_blocked.set()
        go_on.wait(WAIT_S)

    peer.down(client.monitor("s1", block).ref, KILLED)
    assert is_blocked.wait(WAIT_S)
    monitor = client.monitor("s1", heard.append)
    peer.down(monitor.ref, KILLED)
    client.last_index("s1")
    client.demonitor("s1", monitor.ref)
    go_on.set()
    last = client.monitor("s1", lambda _down: is_blocked.clear())
    peer.down(last.ref, KILLED)
    last.wait(WAIT_S)
    client.close()

    assert heard == []
    assert [one.ref for one in peer.of(Demonitor)] == [monitor.ref]
    with pytest.raises(cmdc.UsageError, match="removed"):
        monitor.wait(0)


def test_removed_monitor_has_nothing_left(peer, client):
    """Also when the connection had failed before, with a notice that nobody had fetched."""
    peer.add("s1")
    monitor = client.monitor("s1", persistent=True)
    peer.down(monitor.ref, KILLED, restarting=True)
    client.last_index("s1")
    client.close()
    with pytest.raises(cmdc.UsageError, match="closed"):
        client.demonitor("s1", monitor)

    with pytest.raises(cmdc.UsageError, match="removed"):
        monitor.wait(0)


def test_lost_notice_is_asked_for(peer, monkeypatch):
    """The daemon has counted more than arrived: each monitor is set again from where it was."""
    monkeypatch.setattr(connection, "FACTS_S", SOON_S)
    peer.newest_down = 4
    peer.add("s1")
    with cmdc.Client(peer.directory) as client:
        monitor, other = client.monitor("s1", persistent=True), client.monitor("s1")
        peer.down(monitor.ref, KILLED, restarting=True, seq=5)
        peer.down(monitor.ref, KILLED, incarnation=2, restarting=True, seq=6, is_lost=True)
        peer.wait_for(lambda: len(peer.of(Monitor)) == 4)
        peer.down(monitor.ref, KILLED, incarnation=2, restarting=True, seq=6)
        heard = [monitor.wait(WAIT_S).incarnation for _ in range(2)]

    assert heard == [1, 2]
    assert {(one.ref, one.since) for one in peer.of(Monitor)[2:]} == {
        (monitor.ref, 5),
        (other.ref, 4),
    }


@pytest.mark.slow
def test_next_daemon_is_asked_again(peer, client):
    """A monitor survives the daemon: the next one gets it under the same reference."""
    peer.add("s1")
    monitor = client.monitor("s1")
    peer.restart("two")
    peer.wait_for(lambda: len(peer.of(Monitor)) == 2)
    peer.down(monitor.ref, KILLED)

    assert monitor.wait(WAIT_S).reason == KILLED
    assert {one.ref for one in peer.of(Monitor)} == {monitor.ref}


def test_coroutine_callback_runs_as_a_task(peer):
    """In ``aio`` a callback is a plain function or a coroutine function of the same loop."""
    peer.add("s1")

    async def main():
        async with cmdc.AsyncClient(peer.directory) as client:
            heard = asyncio.Queue()

            async def coroutine(down):
                await heard.put((down.ref, await client.last_index("s1")))

            first = await client.monitor("s1", coroutine)
            second = await client.monitor("s1", lambda down: heard.put_nowait((down.ref, None)))
            removed = await client.monitor("s1", lambda _down: heard.put_nowait("removed"))
            await client.demonitor("s1", removed)
            for monitor in (first, second):
                peer.down(monitor.ref, KILLED)
            async with asyncio.timeout(WAIT_S):
                found = {await heard.get(), await heard.get()}
            await first.wait(0)
            return found == {(first.ref, 0), (second.ref, None)}

    assert asyncio.run(main())
