"""A zygote ends with its daemon, whatever it is about: importing, stopped, or hardly begun."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cmdc_runtime.process import EXIT_ORPHANED, ZYGOTE_MODULE
from supervisor.adapters.pidfd import is_over

pytestmark = [pytest.mark.process, pytest.mark.fault]

HERE = Path(__file__).parent
WAIT_S = 20.0
ENDLESS = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600.0)\n"
DAEMON = """
import asyncio, sys
from supervisor.adapters.zygote import Zygote, ZygoteOptions

asyncio.run(Zygote(ZygoteOptions(preload=sys.argv[1], needs=())).warm())
"""


@pytest.fixture
def folder(tmp_path_factory, monkeypatch):
    """Return a folder in which modules are found."""
    found = tmp_path_factory.mktemp("d")
    monkeypatch.setenv("PYTHONPATH", f"{found}{os.pathsep}{os.getcwd()}")  # noqa: PTH109
    return found


@contextmanager
def importing(folder):
    """Yield a process, and the pidfd of its zygote, which never gets to the end of an import."""
    (folder / "endless_preload.py").write_text(ENDLESS)
    daemon = subprocess.Popen(
        [sys.executable, "-c", DAEMON, "endless_preload"],
        stdout=subprocess.PIPE,
    )
    pidfd = -1
    try:
        pidfd = os.pidfd_open(int(daemon.stdout.readline()))
        yield daemon, pidfd
    finally:
        daemon.kill()
        daemon.wait()
        daemon.stdout.close()
        if pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)


@pytest.mark.parametrize("is_stopped", [False, True], ids=["runs", "stopped"])
def test_a_zygote_that_imports_ends_with_a_killed_daemon(folder, is_stopped):
    """It does not go on to the end of the import beside the next daemon's zygote."""
    with importing(folder) as (daemon, pidfd):
        if is_stopped:
            signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
        before = is_over(pidfd)
        daemon.kill()

        assert not before
        assert is_over(pidfd, WAIT_S)


def test_a_zygote_whose_daemon_ended_first_does_nothing():
    """The kernel signals only what comes later; that it has another parent shows what was."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        stranger = os.getppid()
        begun = subprocess.run(
            [sys.executable, "-m", ZYGOTE_MODULE, str(theirs.fileno()), str(stranger), "0"],
            pass_fds=[theirs.fileno()],
            capture_output=True,
            timeout=WAIT_S,
            check=False,
        )

    assert (begun.returncode, begun.stdout, begun.stderr) == (EXIT_ORPHANED, b"", b"")
