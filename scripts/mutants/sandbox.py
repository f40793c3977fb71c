"""A place for one run of tests on wrong code: nothing that it does lasts, nothing of it lives on.

Where the kernel lets us (root with CAP_SYS_ADMIN) a run sees all file systems read-only but for its
own folder, has a ``/proc`` and ``/dev/shm`` of its own, and its processes end with the first of
them. Elsewhere it has what rights its user has; what it leaves behind is found by its environment.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NoReturn

from scripts.mutants.place import ROOT

TIMED_OUT: Final = 124
"""The exit status of a run that was cut off."""
BROKEN: Final = 125
"""The exit status where the place itself could not be made."""
MEMORY_BYTES_MAX: Final = 6 * 2**30
"""Address space of each process of a run."""
TMP: Final = Path("/tmp")  # noqa: S108 - it is not used, but hidden
PLACES: Final = Path("/var/tmp")  # noqa: S108 - for ``mkdtemp``
"""Where the folders of runs are made, which ``TMP`` would hide."""
_NEW_MOUNTS: Final = 0x00020000
_NEW_PIDS: Final = 0x20000000
_BIND: Final = 0x1000
_RECURSIVE: Final = 0x4000
_PRIVATE: Final = 0x40000
_MOUNT_SETATTR: Final = 442  # the number of the system call, the same on every architecture
_AT_FDCWD: Final = -100
_AT_RECURSIVE: Final = 0x8000
_READ_ONLY: Final = 0x1

_libc: Final = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user")]


def run(play: Callable[[], int], limit_s: float) -> int:
    """Fork, play right code, apart from nothing, and return the exit status.

    ``TIMED_OUT`` after ``limit_s`` seconds; a run that a signal ended counts as 128 and its number.
    """
    return status_of(os.waitpid(_forked(lambda: _watched(play, limit_s)), 0)[1])


def start_apart(folders: Sequence[Path], play: Callable[[], int], limit_s: float) -> int:
    """Fork, play with ``folders`` as the only places to write to; return the pid to wait for.

    ``TMP`` is one within the first of them: tests make the folders of their daemons there, where
    the addresses of sockets are short.
    """
    (folders[0] / "tmp").mkdir(exist_ok=True)

    def outermost() -> int:
        if not _unshared():
            return _watched(play, limit_s)
        inner = _forked(lambda: _innermost(folders, play, limit_s))
        return status_of(os.waitpid(inner, 0)[1])

    return _forked(outermost)


@cache
def is_apart() -> bool:
    """Say whether nothing outlives a run by itself; else somebody has to look for it."""
    return status_of(os.waitpid(_forked(lambda: int(not _unshared())), 0)[1]) == 0


def _innermost(folders: Sequence[Path], play: Callable[[], int], limit_s: float) -> int:
    """Be the first process of the new namespace: when it ends, the kernel ends all others."""
    _mount(folders)
    return _watched(play, limit_s)


def _watched(play: Callable[[], int], limit_s: float) -> int:
    """Wait for a process that plays, and for all that come to us as orphans."""
    ends_s = time.monotonic() + limit_s
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    player = _forked(lambda: _bounded(play))
    while (left_s := ends_s - time.monotonic()) > 0:
        signal.sigtimedwait({signal.SIGCHLD}, left_s)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == player:
                    return status_of(ended[1])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(player, signal.SIGKILL)
    return TIMED_OUT


def _bounded(play: Callable[[], int]) -> int:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return play()


def _unshared() -> bool:
    """Say whether this process has mounts of its own now, and its children their own pids."""
    return bool(_libc.unshare(_NEW_MOUNTS | _NEW_PIDS) == 0)


def _mount(folders: Sequence[Path]) -> None:
    """Make all that is mounted read-only but for some folders; raises OSError."""
    _called(_libc.mount(None, b"/", None, _RECURSIVE | _PRIVATE, None))
    places = [os.fsencode(folder) for folder in folders]
    for place in places:
        _called(_libc.mount(place, place, None, _BIND, None))
    if not any(place.is_relative_to(TMP) for place in (ROOT, *folders)):
        places.append(os.fsencode(TMP))
        _called(_libc.mount(os.fsencode(folders[0] / "tmp"), places[-1], None, _BIND, None))
    _set_mount(b"/", _Attributes(set=_READ_ONLY), _AT_RECURSIVE)
    for place in places:
        _set_mount(place, _Attributes(clear=_READ_ONLY), 0)
    _called(_libc.mount(b"proc", b"/proc", b"proc", 0, None))
    _called(_libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=1g"))


def _set_mount(path: bytes, attributes: _Attributes, flags: int) -> None:
    size = ctypes.sizeof(attributes)
    _called(_libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, path, flags, ctypes.byref(attributes), size))


def _called(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _forked(work: Callable[[], int]) -> int:
    """Return the pid of a process that does this work and ends with its result as status."""
    pid = os.fork()
    if pid == 0:
        _end_with(work)
    return pid


def _end_with(work: Callable[[], int]) -> NoReturn:
    status = BROKEN
    try:
        status = work()
    except BaseException:  # noqa: BLE001 - whatever it is, nothing of the parent's code may run here
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def status_of(wait_status: int) -> int:
    """Return how a process ended as a shell says it."""
    code = os.waitstatus_to_exitcode(wait_status)
    return code if code >= 0 else 128 - code
