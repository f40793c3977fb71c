"""The process above an MCP server: what the server starts descends from it, wherever it goes.

``process`` runs this file as a script, for each server, with nothing but the standard library. It
is a subreaper, so it is the parent of whatever a server leaves behind, in whatever session or
environment. When the server ends, when it is asked to (SIGTERM) or when its agent is gone (the
kernel sends it the same signal), it kills all that is below it, and ends. The server itself is
killed by the kernel where this process is.

Its arguments are the pid of the agent; a descriptor to write the server's status to; the one of a
ruleset of Landlock that the server runs in, with the capabilities that it is not to have, or
``none``; ``kept`` or ``unset`` for the variable LC_CTYPE; and the program with its arguments.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

TYPE_CHECKING = False  # typing's own costs each start 6 ms
if TYPE_CHECKING:
    from typing import Final, NoReturn

ROUNDS_MAX: Final = 200
"""Each kills what there is; more come only where something forks meanwhile."""
ROUND_S: Final = 0.05
EXIT_NOT_STARTED: Final = 126
"""As a shell says it of a program that it can't run."""
_SET_PDEATHSIG: Final = 1
_CAPBSET_DROP: Final = 24
_SET_CHILD_SUBREAPER: Final = 36
_SET_NO_NEW_PRIVS: Final = 38
_RESTRICT_SELF: Final = 446
_WATCHED: Final = {signal.SIGTERM, signal.SIGCHLD}


def main() -> NoReturn:
    """Run a server and see to its end; never returns."""
    agent, report, shield, locale, *program = sys.argv[1:]
    os.set_inheritable(int(report), False)  # noqa: FBT003 - the name is the function's
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    prctl = ctypes.CDLL(None).prctl
    if prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) or prctl(_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0):
        sys.exit("the kernel gives no subreaper")
    if os.getppid() != int(agent):
        os._exit(0)  # it ended before the kernel was asked
    own = os.getpid()
    pid = os.fork()
    if pid == 0:
        prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == own:
            _become(program, shield, is_unset=locale == "unset")
        os._exit(EXIT_NOT_STARTED)
    # The pipes end with those who use them.
    for descriptor in (0, 1, 2, *_ruleset_of(shield)):
        os.close(descriptor)
    status = _status_of(pid)
    _end_all()
    if status is not None:
        os.write(int(report), str(status).encode())
    os._exit(0)


def _become(program: list[str], shield: str, *, is_unset: bool) -> NoReturn:
    """Run the program as if no interpreter stood before it, which ignores two signals."""
    try:
        os.setpgid(0, 0)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
        if is_unset:
            os.environ.pop("LC_CTYPE", None)
        for ruleset in _ruleset_of(shield):
            _enforce(ruleset, [int(number) for number in shield.split(",")[1:]])
        os.execvp(program[0], program)  # noqa: S606 - running what the application declares
    except OSError as error:
        os.write(2, f"cannot run {program[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(EXIT_NOT_STARTED)


def _ruleset_of(shield: str) -> list[int]:
    return [] if shield == "none" else [int(shield.split(",", maxsplit=1)[0])]


def _enforce(ruleset: int, capabilities: list[int]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for number in capabilities:
        libc.prctl(_CAPBSET_DROP, number, 0, 0, 0)  # who has none can't, and need not
    if libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.syscall(_RESTRICT_SELF, ruleset, 0):
        raise OSError(ctypes.get_errno(), "the kernel takes no domain of Landlock")
    os.close(ruleset)


def _status_of(pid: int) -> int | None:
    """Return how the server ended, negative for a signal; None: it is to be ended."""
    while True:
        status = _reaped(pid)
        if status is not None:
            return status
        if signal.sigwait(_WATCHED) == signal.SIGTERM:
            return None


def _reaped(pid: int) -> int | None:
    """Reap all that has ended; return the status of ``pid``, if that is among them."""
    found = None
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if not ended:
            return found
        if ended == pid:
            found = os.waitstatus_to_exitcode(status)


def _end_all() -> None:
    """Kill the children until there are none: those of a dead child are ours."""
    for _ in range(ROUNDS_MAX):
        _reaped(0)
        children = _children()
        if not children:
            return
        for child in children:
            os.kill(child, signal.SIGKILL)  # not reaped yet, so the pid is nobody else's
        signal.sigtimedwait({signal.SIGCHLD}, ROUND_S)


def _children() -> list[int]:
    try:
        with open("/proc/self/task/%d/children" % os.getpid(), encoding="ascii") as file:  # noqa: PTH123, UP031 - pathlib and f-strings cost nothing here, imports do
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return [int(pid) for pid in os.listdir("/proc") if pid.isdecimal() and _is_child(pid)]  # noqa: PTH208 - as above


def _is_child(pid: str) -> bool:
    try:
        with open("/proc/" + pid + "/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
            return int(file.read().rpartition(")")[2].split()[1]) == os.getpid()
    except OSError:
        return False


if __name__ == "__main__":
    main()
