"""One daemon in one directory: who gets in, who holds it, and what is left behind."""

import contextlib
import errno
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.runtime_dir import (
    LOCK_FILE,
    SOCKETS,
    TOKEN_CHARS,
    TOKEN_FILE,
    Holder,
    RunningDaemon,
    find_daemon,
    read_token,
    running_daemon,
)
from supervisor.adapters import endpoint as endpoints
from supervisor.adapters.endpoint import DaemonRunning, Endpoint, Lock, make_private, private_umask

HOLDER = Holder(pid=os.getpid(), version="1.2.3", started_at_ms=5)
UID = os.geteuid()
PATIENCE_S = 30.0


@pytest.fixture
def directory(tmp_path):
    """Return where the daemon is to live."""
    return tmp_path / "run"


@contextlib.contextmanager
def claimed(directory, **options):
    """Hold the directory for a while."""
    endpoint = Endpoint.claim(directory, HOLDER, **options)
    try:
        yield endpoint
    finally:
        endpoint.close()


def bind(path):
    """Leave a socket in the file system, as a daemon that was killed does."""
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))


def names(directory):
    """Return what is in the directory."""
    return sorted(path.name for path in directory.iterdir())


def test_a_claimed_directory_is_the_users_alone(directory):
    """Directory 0700, lock file 0600, and addresses of the three sockets in it."""
    with claimed(directory) as endpoint:
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE((directory / LOCK_FILE).stat().st_mode) == 0o600
        assert endpoint.control == f"ipc://{directory}/control.sock"
        assert endpoint.events == f"ipc://{directory}/events.sock"
        assert endpoint.workers == f"ipc://{directory}/workers.sock"


def test_a_running_daemon_can_be_found(directory, tmp_path):
    """Who looks learns where it is, which process it is and which version."""
    right = RunningDaemon(directory, HOLDER)
    with claimed(directory):
        assert running_daemon(directory) == right
        assert find_daemon({"CMDC_RUNTIME_DIR": str(directory)}, uid=UID, home=tmp_path) == right
    assert running_daemon(directory) is None


def test_a_daemon_that_is_just_starting_is_found(directory):
    """The lock counts, not what the file says."""
    with claimed(directory):
        (directory / LOCK_FILE).write_text("")

        assert running_daemon(directory) == RunningDaemon(directory, None)


def test_a_daemon_of_somebody_else_is_passed_over(directory, tmp_path):
    """A client trusts no directory that another user could have filled."""
    with claimed(directory):
        environ = {"CMDC_RUNTIME_DIR": str(directory)}

        assert find_daemon(environ, uid=UID + 1, home=tmp_path) is None


def test_a_second_daemon_is_refused(directory):
    """It learns who holds which directory, and takes nothing away from the first one."""
    with claimed(directory):
        bind(directory / SOCKETS[0])
        with pytest.raises(DaemonRunning) as refusal:
            Endpoint.claim(directory, HOLDER)

        assert str(directory) in str(refusal.value)
        assert f"process {os.getpid()}" in str(refusal.value)
        assert names(directory) == sorted([SOCKETS[0], LOCK_FILE, TOKEN_FILE])


def test_a_probe_does_not_keep_a_daemon_from_starting(directory, monkeypatch):
    """A client that looks holds a shared lock for a moment, and the daemon tries again."""
    make_private(directory)
    prober = Lock.acquire(directory, HOLDER)
    # The probe ends while the daemon waits for its next try.
    monkeypatch.setattr(endpoints.time, "sleep", lambda _seconds: prober.let_go())
    with claimed(directory):
        assert running_daemon(directory) == RunningDaemon(directory, HOLDER)


def test_a_lock_file_that_was_removed_meanwhile_is_not_taken(directory, monkeypatch):
    """A daemon that opened the lock of one that was just ending takes the new file instead."""
    make_private(directory)
    ending = Lock.acquire(directory, HOLDER)
    opened = []

    def open_then_end(path, *args):
        opened.append(real_open(path, *args))
        ending.release()
        return opened[-1]

    real_open = os.open
    monkeypatch.setattr(endpoints.os, "open", open_then_end)
    lock = Lock.acquire(directory, HOLDER)
    monkeypatch.undo()

    assert len(opened) == 2
    assert running_daemon(directory) == RunningDaemon(directory, HOLDER)
    lock.release()


def test_sockets_of_a_dead_daemon_are_cleared_away(directory):
    """Nothing of the last daemon is in the way of a bind."""
    make_private(directory)
    for name in SOCKETS:
        bind(directory / name)
    with claimed(directory):
        assert names(directory) == [LOCK_FILE, TOKEN_FILE]


def test_close_leaves_an_empty_directory(directory):
    """Sockets and lock go, the directory and what else is in it stay; twice is once."""
    endpoint = Endpoint.claim(directory, HOLDER)
    bind(directory / SOCKETS[1])
    (directory / "notes").touch()
    endpoint.close()
    endpoint.close()

    assert names(directory) == ["notes"]


def test_an_embedded_daemon_takes_its_directory_with_it(directory):
    """What was made for one application's daemon is gone when the daemon is."""
    with claimed(directory, embedded=True):
        (directory / "state").mkdir()

    assert not directory.exists()


def test_what_is_bound_under_the_mask_is_private(directory):
    """Others cannot connect, and the mask is as before afterwards."""
    make_private(directory)
    before = os.umask(0o022)
    try:
        with private_umask():
            bind(directory / "private")
        bind(directory / "open")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((directory / name).stat().st_mode) for name in ("private", "open")]

    assert modes == [0o700, 0o755]


def test_a_directory_open_to_others_is_refused(directory):
    """The daemon does not change what somebody chose, it says what is wrong."""
    directory.mkdir()
    directory.chmod(0o755)

    with pytest.raises(InvalidOptions, match="chmod 700"):
        Endpoint.claim(directory, HOLDER)


def test_a_link_is_refused(directory, tmp_path):
    """Neither the directory nor the lock file may be a link."""
    (tmp_path / "real").mkdir(mode=0o700)
    directory.symlink_to(tmp_path / "real")

    with pytest.raises(InvalidOptions, match="is a link"):
        Endpoint.claim(directory, HOLDER)


def test_a_name_too_long_for_a_socket_is_refused(tmp_path):
    """The kernel's limit is reported before anything is made."""
    directory = tmp_path / ("x" * 100)

    with pytest.raises(InvalidOptions, match="takes 107"):
        Endpoint.claim(directory, HOLDER)
    assert not directory.exists()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path):
    """What the operating system refuses is reported as a wrong option."""
    (tmp_path / "file").touch()

    with pytest.raises(InvalidOptions, match="cannot use the directory"):
        Endpoint.claim(tmp_path / "file" / "run", HOLDER)


HOLD = """
import os, sys
from pathlib import Path
from cmdc_runtime.runtime_dir import Holder
from supervisor.adapters.endpoint import Endpoint
Endpoint.claim(Path(sys.argv[1]), Holder(pid=os.getpid(), version="0", started_at_ms=0))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.fault
def test_a_killed_daemon_holds_nothing(directory):
    """The kernel frees the lock of a dead process, and the next daemon gets in at once."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as daemon:
        assert daemon.stdout.readline() == "held\n"
        assert running_daemon(directory).holder.pid == daemon.pid
        with pytest.raises(DaemonRunning, match=f"process {daemon.pid}"):
            Endpoint.claim(directory, HOLDER)
        daemon.kill()
        daemon.communicate(timeout=PATIENCE_S)

    assert daemon.returncode == -signal.SIGKILL
    with claimed(directory):
        assert running_daemon(directory) == RunningDaemon(directory, HOLDER)


def test_a_token_is_the_owners_alone_and_outlives_a_killed_daemon(directory):
    """A client that has it goes on; an orderly end takes it away."""
    with claimed(directory) as first:
        mode = (directory / TOKEN_FILE).stat().st_mode & 0o777
        token = first.token
        first.lock.release()
        first.lock.let_go()
        with claimed(directory) as second:
            assert second.token == token == read_token(directory)

    assert mode == 0o600
    assert read_token(directory) == ""


def a_full_folder(path):
    path.mkdir()
    (path / "kept").touch()


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


THINGS = {
    "folder": Path.mkdir,
    "full folder": a_full_folder,
    "pipe": os.mkfifo,
    "socket": a_socket,
    "link to itself": lambda path: path.symlink_to(path),
    "link to a folder": lambda path: path.symlink_to(path.parent),
    "other token": lambda path: path.write_text("x" * TOKEN_CHARS),
}


@pytest.mark.parametrize("thing", THINGS)
def test_whatever_is_in_the_place_of_the_token_gives_way(directory, thing):
    """To a daemon that runs, to one that starts, and to one that ends; nobody waits for it."""
    path = directory / TOKEN_FILE
    make_private(directory)
    THINGS[thing](path)
    with claimed(directory) as endpoint:
        started, token = read_token(directory), endpoint.token
        path.unlink()
        THINGS[thing](path)
        problem, healed = endpoint.keep_token(), read_token(directory)
        path.unlink()
        THINGS[thing](path)

    assert started == healed == token != ""
    assert problem is None
    assert not os.path.lexists(path)
    assert (thing == "full folder") == any(directory.glob("token.*.aside/kept"))


def test_token_that_cannot_be_put_there_is_reported(directory, monkeypatch):
    """A client that is refused for it hears why."""

    def full(*_):
        raise OSError(errno.ENOSPC, "it is full")

    with claimed(directory) as endpoint:
        (directory / TOKEN_FILE).unlink()
        with monkeypatch.context() as patch:
            patch.setattr(os, "link", full)
            problem = endpoint.keep_token()

    assert "it is full" in problem


@pytest.mark.parametrize("text", ["", "short", "x" * 65, "\x1b" * 64])
def test_what_is_no_token_is_replaced(directory, text):
    """A file that was cut off, say; nobody who knows its text is let in."""
    make_private(directory)
    (directory / TOKEN_FILE).write_text(text)
    with claimed(directory) as endpoint:
        assert len(endpoint.token) == 64
        assert endpoint.token == read_token(directory) != text
