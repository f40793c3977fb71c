"""SIGHUP: what becomes of a configuration that is read again, and of a terminal that is closed."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cmdc_runtime.errors import InvalidOptions
from supervisor.adapters.systemd import Notifier
from supervisor.config import DaemonConfig
from supervisor.upkeep.reload import Reload

WAIT_S = 20.0
OLD = DaemonConfig(runtime_dir=Path("/run/cmdc"), state_dir=Path("/var/lib/cmdc"))
IN_A_TERMINAL = """
import asyncio, os, signal, sys
from supervisor.upkeep.reload import Hangup
if sys.argv[2] == "nohup":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.close(os.open(sys.argv[1], os.O_RDWR))  # the leader's first terminal is its own
async def main():
    over = asyncio.Event()
    def report(word):
        print(word, flush=True)
        if word == "gone":
            over.set()
    hangup = Hangup(on_reload=lambda: report("reload"), on_gone=lambda: report("gone"))
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hangup.hear)
    print("ready", flush=True)
    await over.wait()
asyncio.run(main())
"""


@pytest.fixture
def manager(tmp_path):
    """The socket on which a service manager listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.setblocking(False)
        yield listening


async def reloaded(manager, *reads):
    """Request one reload for each of ``reads``; return what was applied and the last config."""
    applied, waiting = [], list(reads)

    def read():
        return waiting.pop(0)()

    loop = asyncio.get_running_loop()
    with Notifier(manager.getsockname()) as notifier:
        notifier.ready()
        apply = {
            name: lambda value, name=name: applied.append((name, value))
            for name in ("log_level", "max_sessions", "spares")
        }
        reload = Reload(OLD, read, apply, notifier)
        task = asyncio.create_task(reload.keep())
        heard = [await loop.sock_recv(manager, 100)]
        for _ in reads:
            reload.request()
            heard += [await loop.sock_recv(manager, 100), await loop.sock_recv(manager, 100)]
        task.cancel()
        await asyncio.wait([task])
    assert [one.partition(b"\n")[0] for one in heard[1:]] == [b"RELOADING=1", b"READY=1"] * len(
        reads
    )
    return applied, reload.config


def run(manager, *reads):
    """Reload, and return what was applied, what holds now, and what was logged."""
    with capture_logs() as records:
        applied, config = asyncio.run(asyncio.wait_for(reloaded(manager, *reads), WAIT_S))
    return applied, config, records


def changed(**fields):
    return lambda: DaemonConfig(runtime_dir=OLD.runtime_dir, state_dir=OLD.state_dir, **fields)


def test_what_can_change_is_applied_and_the_rest_is_reported(manager):
    """The service manager hears of the begin and the end; the log says what needs a restart."""
    read = changed(spares=5, log_level="debug", durability="power")
    applied, config, records = run(manager, read)

    assert sorted(applied) == [("log_level", "debug"), ("spares", 5)]
    assert (config.spares, config.durability) == (5, "process")
    assert [(one["event"], one["needs_restart"]) for one in records] == [
        ("config.reloaded", ["durability"]),
        ("config.not_applied", ["durability"]),
    ]


def test_a_mistake_changes_nothing(manager):
    """All problems are reported, and the next reload of a right file is as good as the first."""

    def refuse():
        raise InvalidOptions(["spares: no", "log_level: no"])

    applied, config, records = run(manager, refuse, changed(spares=3))

    assert (applied, config.spares) == ([("spares", 3)], 3)
    assert [one["event"] for one in records] == ["config.refused", "config.reloaded"]
    assert records[0]["problems"] == ["spares: no", "log_level: no"]


def test_a_file_that_never_comes_changes_nothing(manager, monkeypatch):
    """A dead network share holds up neither the daemon nor its end."""
    monkeypatch.setattr(
        "supervisor.upkeep.reload.RELOAD_S", 2.0
    )  # the second one is read within it
    released = threading.Event()

    def hang():
        released.wait(WAIT_S)
        return OLD

    applied, _, records = run(manager, hang, changed(spares=3))
    released.set()
    for thread in threading.enumerate():
        if thread.name == "reload":
            thread.join(WAIT_S)

    assert applied == [("spares", 3)]
    assert "could not be read within" in records[0]["problems"][0]


def test_a_bug_in_reading_ends_nothing(manager):
    """What nobody has thought of is logged, and reloads go on."""

    def fail():
        raise ZeroDivisionError

    applied, _, records = run(manager, fail, changed(spares=3))

    assert applied == [("spares", 3)]
    assert records[0]["event"] == "reload.failed"


@contextlib.contextmanager
def in_a_terminal(how):
    """A process with a terminal of its own that prints what SIGHUP means to it."""
    leader, follower = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", IN_A_TERMINAL, os.ttyname(follower), how],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    os.close(follower)
    with process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield process, leader
        finally:
            with contextlib.suppress(OSError):
                os.close(leader)
            process.kill()


@pytest.mark.parametrize(
    ("how", "closed"), [("plain", "gone\n"), ("nohup", "reload\n")], ids=["terminal", "nohup"]
)
def test_a_daemon_ends_with_its_terminal(how, closed):
    """A person's SIGHUP is a reload; that of a closed terminal is the end, unless under nohup."""
    with in_a_terminal(how) as (process, leader):
        process.send_signal(signal.SIGHUP)
        asked = process.stdout.readline()
        os.close(leader)

        assert (asked, process.stdout.readline()) == ("reload\n", closed)
