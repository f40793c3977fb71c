"""The one place that touches ``multiprocess``: a forkserver process, and the children it forks.

Everything that blocks here is called from the zygote's own thread. The few private attributes of
multiprocess that have no public counterpart are read in this file only, each with its reason. A
process has at most one forkserver at a time, because multiprocess keeps it in a global.
"""

import errno
import fcntl
import os
import select
import signal
import subprocess
import sys
import termios
import time
import traceback
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import methodcaller
from types import ModuleType
from typing import Any, Final

import multiprocess
from multiprocess import forkserver, reduction, resource_tracker, util

from cmdc_runtime.process import run_module
from cmdc_runtime.tool_environment import passed_on
from supervisor.adapters.descriptors import check_descriptors

PARENT_DEATH_MODULE: Final = "supervisor.adapters.parent_death"
TRACKER_WAIT_S: Final = 2.0
"""How long the resource tracker may take to end by itself before it is killed."""
END_WAIT_S: Final = 2.0
"""For a killed forkserver to be gone, which takes milliseconds."""

_ENDED: Final = (errno.ESRCH, errno.EBADF)
"""A pidfd of a reaped process; no pidfd any more, or none because it ended too soon."""

_CONTEXT: Final = multiprocess.get_context("forkserver")


class Handed:
    """A descriptor for a child that is about to be started, which finds its own number in its boot.

    It is closed here when nobody has this object any more: a fork that was given up goes on.
    """

    def __init__(self, fd: int) -> None:
        """Own ``fd`` from now on."""
        self._fd = fd
        weakref.finalize(self, os.close, fd)

    def __reduce__(self) -> tuple[methodcaller, tuple[Any]]:  # Any: multiprocess has no types
        """Have multiprocess send it along, and the child replace it by the number."""
        return methodcaller("detach"), (reduction.DupFd(self._fd),)


Boot = dict[str, str | int | float | Handed]
"""What a child is started with: small and flat; all that runs when it is opened is ``Handed``'s."""


class _Util:
    """The module ``util`` as the resource tracker's side sees it: the tracker is told no keys.

    Its process lives as long as the daemon, needs none, and anybody of its user can look into it.
    """

    def __getattr__(self, name: str) -> Any:  # Any: whatever the module has
        return getattr(util, name)

    def spawnv_passfds(self, path: str, args: Sequence[str], passfds: Sequence[int]) -> int:
        """Start the tracker; its pid is multiprocess's to wait for. Raises OSError."""
        process = subprocess.Popen(  # noqa: S603 - multiprocess's own words
            args, executable=path, pass_fds=passfds, env=passed_on(os.environ)
        )
        process.returncode = 0  # nobody else is to reap it
        return process.pid


resource_tracker.util = _Util()


class ServerGone(Exception):
    """The forkserver ended before it could fork."""


class Child:
    """A forked process: signals go through its pidfd only, so never to a reused pid."""

    def __init__(self, process: Any) -> None:  # Any: multiprocess has no types
        """Take over a process that was just started."""
        self.pid: Final[int] = process.pid
        self.started_at: Final = time.monotonic()
        self.sentinel: Final[int] = process.sentinel
        """Readable when the zygote has told the status, or is gone."""
        self._process = process
        self._status: int | None = None
        self.pidfd = _open_pidfd(self.pid)
        """Readable when the process has ended; the truth about that. -1 after ``close``."""

    def __repr__(self) -> str:
        """Name the process by its pid."""
        return f"Child(pid={self.pid})"

    def send_signal(self, number: int) -> bool:
        """Send a signal; False if the process has ended."""
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except OSError as problem:
            if problem.errno not in _ENDED:
                raise
            return False
        return True

    def status(self) -> int | None:
        """Return the exit code, or minus the signal's number; None if it was not told (yet).

        A zygote that dies takes the statuses with it: the sentinel is then at its end, which
        multiprocess reports as 255 even while the process lives.
        """
        if self._status is None and self._process is not None and _has_input(self.sentinel):
            self._status = self._process.exitcode
        return self._status

    def close(self) -> None:
        """Give back the descriptors; the process itself goes on. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        os.close(self.pidfd)
        self.pidfd = -1
        with suppress(ValueError):  # still running: freed below, with the last reference
            process.close()


class Server:
    """One running forkserver, from ``launch`` to ``stop``."""

    def __init__(self, pid: int) -> None:
        """Take over the forkserver that multiprocess just started."""
        self.pid: Final = pid
        self.pidfd = os.pidfd_open(pid)

    @classmethod
    def launch(cls, preload: str) -> "Server":
        """Start a forkserver that imports ``preload``; returns before that is done.

        The kernel ties the process to the calling thread, which must live as long as it.
        """
        _CONTEXT.set_forkserver_preload([PARENT_DEATH_MODULE, preload])
        _forget_lost_folder()
        forkserver.ensure_running()
        return cls(forkserver._forkserver._forkserver_pid)  # noqa: SLF001 - told nowhere else

    def start(self, module: str, boot: Boot) -> Child:
        """Fork a child that calls ``main(boot)`` of ``module``; waits for a preload to end.

        Raises ServerGone, and OSError where there can't be another process now.
        """
        if self.has_ended():
            raise ServerGone(f"the zygote (pid {self.pid}) has ended")
        check_descriptors()  # multiprocess fails late, and leaves a half-made process behind
        process = _CONTEXT.Process(target=run_module, args=(module, boot), name="cmdc")
        try:
            with _main_kept_out():
                process.start()
        except (EOFError, ConnectionError, FileNotFoundError) as problem:
            # The half-made process sits in these frames with two descriptors.
            traceback.clear_frames(problem.__traceback__)
            raise ServerGone(f"the zygote (pid {self.pid}) ended: {problem!r}") from problem
        # multiprocess would join it at interpreter exit, kill it by pid, and read its status from
        # whatever thread starts the next process. All three are the reaper's business.
        multiprocess.process._children.discard(process)  # noqa: SLF001 - no public way
        if process.pid < 0:  # the zygote's word for an error; never to be sent a signal
            number = -process.pid
            del process  # and with it two descriptors
            raise OSError(number, f"no process could be forked: {os.strerror(number)}")
        child = _take_over(process)
        if forkserver._forkserver._forkserver_pid != self.pid:  # noqa: SLF001 - as above
            child.send_signal(signal.SIGKILL)
            child.close()
            raise ServerGone(f"the zygote (pid {self.pid}) ended and was replaced unseen")
        return child

    def has_ended(self) -> bool:
        """Say whether the forkserver is gone, before the loop may have heard of it."""
        return _is_readable(self.pidfd, 0.0)

    def threads(self) -> int:
        """Return how many threads it has; 0 if it has ended."""
        try:
            return len(os.listdir(f"/proc/{self.pid}/task"))  # noqa: PTH208 - only the number counts
        except OSError:
            return 0

    def end(self) -> None:
        """Kill the forkserver and wait until it has ended, ``END_WAIT_S`` at most."""
        self.kill()
        _is_readable(self.pidfd, END_WAIT_S)

    def kill(self) -> None:
        """End the forkserver at once; whoever waits for a fork gets ServerGone."""
        if self.pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def stop(self) -> None:
        """Ask the forkserver to end and wait until it has; ``kill`` hastens it. Idempotent."""
        server = forkserver._forkserver  # noqa: SLF001 - the only way to end and reap it
        if server._forkserver_pid == self.pid:  # noqa: SLF001 - see above
            with suppress(FileNotFoundError):  # its socket was removed: the last thing it does
                server._stop()  # noqa: SLF001 - see above

    def status(self) -> int | None:
        """Return how the forkserver ended, as ``wait_status`` does; it stays to be reaped."""
        return wait_status(self.pidfd, os.WNOWAIT)

    def close(self) -> None:
        """Give back the descriptor of a stopped server. Idempotent."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def server_pid() -> int | None:
    """Return the pid of multiprocess's forkserver, a child of ours from its start to ``stop``."""
    pid: int | None = forkserver._forkserver._forkserver_pid  # noqa: SLF001 - told nowhere else
    return pid


def tracker_pid() -> int | None:
    """Return the pid of multiprocess's resource tracker, a child of ours that it waits for."""
    pid: int | None = resource_tracker._resource_tracker._pid  # noqa: SLF001 - told nowhere else
    return pid


def stop_tracker() -> None:
    """End the resource tracker within ``TRACKER_WAIT_S``; the next fork starts a new one."""
    tracker = resource_tracker._resource_tracker  # noqa: SLF001 - no public way to end it
    if tracker._fd is None or tracker._pid is None:  # noqa: SLF001 - see above
        return
    pidfd = os.pidfd_open(tracker._pid)  # noqa: SLF001 - see above
    try:
        # It ends when nobody holds its pipe; a child that lives on may hold it.
        os.close(tracker._fd)  # noqa: SLF001 - see above
        if not _is_readable(pidfd, TRACKER_WAIT_S):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.waitpid(tracker._pid, 0)  # noqa: SLF001 - see above
    finally:
        tracker._fd = tracker._pid = None  # noqa: SLF001 - see above
        os.close(pidfd)


def wait_ended(child: Child, timeout_s: float) -> bool:
    """Block until the process has ended; False if it has not in time."""
    return _is_readable(child.pidfd, timeout_s)


def wait_status(pidfd: int, options: int = 0) -> int | None:
    """Reap a direct child: its exit code or minus the signal's number.

    None if it lives, is no child of this process, or was reaped by somebody else.
    """
    try:
        ended = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | options)
    except OSError:  # not ours, or not a pidfd
        return None
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


@contextmanager
def _main_kept_out() -> Iterator[None]:
    """Keep every child from importing the main module of this process again.

    multiprocess leaves ``python -m package`` alone, which is how a daemon runs. Under a script
    (pytest's, say) the child would run that script under another name.
    """
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None) or ""
    if name.endswith("__main__"):
        yield
        return
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _forget_lost_folder() -> None:
    """Let multiprocess make its folder for sockets anew where somebody has removed it.

    It keeps the name for good, and without the folder no forkserver could listen any more.
    """
    config = multiprocess.process.current_process()._config  # noqa: SLF001 - kept nowhere else
    folder = config.get("tempdir")
    if folder is not None and not os.path.isdir(folder):  # noqa: PTH112 - half the time of Path
        del config["tempdir"]


def _take_over(process: Any) -> Child:  # Any: multiprocess has no types
    try:
        return Child(process)
    except OSError:  # out of descriptors: a process without an owner must not live
        process.kill()
        raise


def _open_pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        # It ended and was reaped before we got here: a descriptor that is readable says the same.
        return os.eventfd(1)


def _is_readable(fd: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1e3))


def _has_input(fd: int) -> bool:
    """Tell bytes from an end of file, which poll reports alike."""
    count = fcntl.ioctl(fd, termios.FIONREAD, bytes(4))
    return int.from_bytes(count, sys.byteorder) > 0
