"""The private daemon's life, with a stand-in for the daemon that is a real process.

The stand-in is a package of the daemon's name that comes first on PYTHONPATH: it takes the
daemon's arguments and does what the test wrote into it.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client import default
from cmdc_runtime.client.embedded import Lease, lease
from tests.programs.terminals import typing

READY = """
import argparse, fcntl, json, os, signal, sys
sys.path.insert(0, {tests!r})
from conftest import Peer
from pathlib import Path
parser = argparse.ArgumentParser()
parser.add_argument("--embedded", action="store_true")
for name in ("--runtime-dir", "--state-dir"):
    parser.add_argument(name, type=Path)
for name in ("--owner-pid", "--ready-fd", "--echo-fd"):
    parser.add_argument(name, type=int)
given = parser.parse_args()
assert given.owner_pid == os.getppid()
peer = Peer(given.runtime_dir)
peer.add("s1", last_index=3)
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGTERM}})
ready = {{"ready": True, "pid": os.getpid(), "instance": "x"}}
os.write(given.ready_fd, json.dumps(ready).encode() + b"\\n")
print("the daemon is up", flush=True)
signal.sigwait({{signal.SIGTERM}})
peer.close()
"""
UNABLE = """
import os, sys
os.write(int(sys.argv[-1]), b'{"error": "no room on the device"}\\n')
"""
WAIT_S = 10.0
CRASHED = "raise OSError('everything is broken')"


def program(code, folder):
    """Run a program that must leave no warning, with a folder for its temporary files."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"TMPDIR": str(folder)},
    )
    # How long a step took is the machine's affair, and no warning.
    said = done.stderr.splitlines(keepends=True)
    done.stderr = "".join(line for line in said if not line.startswith("Executing <"))
    return done


@pytest.fixture
def stand_in(no_peer, tmp_path, monkeypatch):
    """Return what puts a stand-in in place; temporary files go to a folder to look at."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def put(code):
        package = tmp_path / "path" / "supervisor"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(code.format(tests=str(Path(__file__).parent)))
        monkeypatch.setenv("PYTHONPATH", str(package.parent))

    return put


def left(tmp_path):
    """Return the runtime directories that are still there."""
    return [path.name for path in tmp_path.iterdir() if path.name.startswith("cmdc-")]


@pytest.mark.process
def test_clients_share_a_daemon_that_ends_with_the_last(stand_in, tmp_path):
    """The first client starts it, the last one ends it, and nothing of it is left."""
    stand_in(READY)
    with cmdc.Client() as first:
        assert first.last_index("s1") == 3
        with cmdc.Client() as second:
            assert second.last_index("s1") == 3
            assert len(left(tmp_path)) == 1
        assert first.last_index("s1") == 3

    assert left(tmp_path) == []


@pytest.mark.process
def test_dead_daemon_is_reported_with_its_log_end(stand_in, tmp_path):
    """When it dies, what waits and what comes later fails with the end of its log."""
    stand_in(READY)
    with cmdc.Client() as client:
        stream = client.subscribe("s1")
        held = lease()
        assert isinstance(held, Lease)
        held.release()
        os.kill(held.daemon.pid, signal.SIGKILL)
        with pytest.raises(cmdc.DaemonUnavailable, match=r"status -9(.|\n)*the daemon is up"):
            list(stream)
        with pytest.raises(cmdc.DaemonUnavailable, match="is gone"):
            client.last_index("s1")

    assert left(tmp_path) == []


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (UNABLE.replace("{", "{{").replace("}", "}}"), "no room on the device"),
        (CRASHED, r"did not start, status 1(.|\n)*everything is broken"),
    ],
    ids=["says so", "crashes"],
)
def test_daemon_that_cannot_start_says_why(stand_in, tmp_path, code, words):
    """What hinders it arrives at the first call, and nothing of it is left."""
    stand_in(code)

    with pytest.raises(cmdc.DaemonUnavailable, match=words), cmdc.Client():
        pass
    assert left(tmp_path) == []


@pytest.mark.process
def test_long_temporary_folder_is_avoided(stand_in, tmp_path, monkeypatch):
    """Where the temporary folder's name is too long for a socket, a short one is taken."""
    stand_in(READY)
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with cmdc.Client() as client:
        assert client.last_index("s1") == 3

    assert list(deep.iterdir()) == []


@pytest.mark.process
def test_program_that_closes_nothing_leaves_no_daemon(stand_in, tmp_path):
    """The default clients' daemon ends with the program, and outlives each of its loops."""
    stand_in(READY)
    code = """
import asyncio, cmdc_runtime as cmdc
from cmdc_runtime.client.embedded import lease
pids = set()
for _ in range(2):
    asyncio.run(cmdc.aio.last_index("s1"))
    held = lease()
    pids.add(held.daemon.pid)
    held.release()
print(cmdc.last_index("s1"), len(pids))
"""
    done = program(code, tmp_path)

    assert (done.stdout.strip(), done.stderr) == ("3 1", "")
    assert left(tmp_path) == []


@pytest.mark.process
def test_a_dead_daemon_leaves_nothing_though_nobody_gives_it_back(stand_in, tmp_path):
    """Its folder goes when the next one is started, by whichever face; what it said is shown."""
    stand_in(READY)
    code = """
import asyncio, glob, os, signal, cmdc_runtime as cmdc
from cmdc_runtime.client.embedded import lease
asyncio.run(cmdc.aio.last_index("s1"))
for look in (cmdc.last_index, lambda name: asyncio.run(cmdc.aio.last_index(name))):
    held = lease()
    held.release()
    os.kill(held.daemon.pid, signal.SIGKILL)
    held.daemon._process.wait()
    print(look("s1"), len(glob.glob(os.environ["TMPDIR"] + "/cmdc-*")))
    print("the daemon is up" in str(held.daemon.death()))
"""
    done = program(code, tmp_path)

    assert (done.stdout.split(), done.stderr) == (["3", "1", "True"] * 2, "")
    assert left(tmp_path) == []


@pytest.mark.process
def test_closing_the_coroutines_client_ends_its_daemon(stand_in, tmp_path):
    """``aio.close`` does not wait for the program's end."""
    stand_in(READY)
    code = """
import asyncio, os, cmdc_runtime as cmdc
async def main():
    await cmdc.aio.last_index("s1")
    await cmdc.aio.close()
    print([name for name in os.listdir(os.environ["TMPDIR"]) if name.startswith("cmdc-")])
asyncio.run(cmdc.aio.last_index("s1"))
asyncio.run(main())
"""
    done = program(code, tmp_path)

    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.fixture
def module_level(stand_in):
    """Put a stand-in in place of the daemon of the module-level functions; it is ended at last."""
    stand_in(READY)
    yield
    default.client.close()


def killed():
    """Kill this process's embedded daemon and return its pid."""
    held = lease()
    assert isinstance(held, Lease)
    pid = held.daemon.pid
    held.release()
    os.kill(pid, signal.SIGKILL)
    held.daemon._process.wait(WAIT_S)
    return pid


def test_module_level_calls_have_the_next_daemon(module_level, tmp_path):
    """Whoever calls next starts it, be they many; each death has one successor."""
    pids = set()
    for _ in range(2):
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda _: cmdc.status("s1").session_id, range(16)))
        assert found == ["s1"] * 16
        pids.add(killed())

    assert len(pids) == 2
    assert cmdc.last_index("s1") == 3
    default.client.close()
    assert left(tmp_path) == []


def test_coroutines_have_the_next_daemon(module_level, tmp_path):
    """The functions of ``aio`` as well."""

    async def main():
        first = await cmdc.aio.last_index("s1")
        killed()
        found = await asyncio.gather(*[cmdc.aio.last_index("s1") for _ in range(8)])
        await cmdc.aio.close()
        return [first, *found]

    assert asyncio.run(main()) == [3] * 9
    assert left(tmp_path) == []


def test_what_runs_application_code_does_not_end_the_thread(module_level):
    """What would end it is raised in the caller's."""

    async def leave(_calls):
        raise SystemExit(3)

    assert cmdc.last_index("s1") == 3
    with pytest.raises(SystemExit):
        default.client._run(leave)

    assert cmdc.last_index("s1") == 3


SLOW = """
import time
from pathlib import Path
while not Path({gate!r}).exists():
    time.sleep(0.02)
"""
USE = "import cmdc_runtime as cmdc; print(len(cmdc.list_sessions()))"


def test_a_start_that_takes_long_is_shown_on_a_terminal(stand_in, tmp_path):
    """After a second a person reads what is waited for; a pipe gets nothing, nor a quick start."""
    gate = tmp_path / "gate"
    stand_in(SLOW.format(gate=str(gate)) + READY)
    with typing([sys.executable, "-c", USE], os.environ | {"TMPDIR": str(tmp_path)}) as terminal:
        terminal.expect("cmdc: starting a private daemon for this program")
        gate.touch()
        status = terminal.status()
    quiet = program(USE, tmp_path)

    assert (status, quiet.stderr, quiet.returncode) == (0, "", 0)
