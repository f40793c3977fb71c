"""A zygote ends with its daemon, whatever it is about: importing, stopped, or hardly begun."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from supervisor.adapters.pidfd import is_over

pytestmark = [pytest.mark.process, pytest.mark.fault]

HERE = Path(__file__).parent
WAIT_S = 20.0
IMPORTS_IT = "import supervisor.adapters.parent_death; print('goes on')"
ENDLESS = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600.0)\n"
DAEMON = """
import asyncio, sys
from supervisor.adapters.zygote import Zygote, ZygoteOptions

asyncio.run(Zygote(ZygoteOptions(preload=sys.argv[1], needs=())).warm())
"""


@pytest.fixture
def folder(tmp_path_factory, monkeypatch):
    """Return a folder with a short path, for sockets, in which modules are found."""
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
        env=os.environ | {"TMPDIR": str(folder)},  # a killed daemon leaves its socket there
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


@pytest.mark.parametrize(("is_held", "said"), [(True, "goes on\n"), (False, "")])
def test_a_zygote_whose_daemon_ended_first_does_not_import(is_held, said):
    """The kernel tells only of what comes later; that its pipe is closed tells of what was."""
    handed_on, held = os.pipe()
    try:
        if not is_held:
            os.close(held)
        begun = subprocess.run(
            [sys.executable, "-c", IMPORTS_IT],
            pass_fds=[handed_on],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
    finally:
        os.close(handed_on)
        if is_held:
            os.close(held)

    assert (begun.stdout, begun.stderr) == (said, "")
    assert begun.returncode == (0 if is_held else 3)
