"""The process above a shell command: what the command starts descends from it, wherever it goes.

``shell`` runs this file as a script, for each command, with nothing but the standard library: it is
there in 15 ms and costs some 5 MB while the command runs. It is a subreaper in a group of its own,
so that it outlives a command that kills itself or its group. Rules: it says once how the command
ended, and ends when it is asked to; whoever wants everything gone kills it and what descends from
it before. The leading underscore keeps this module from being a tool of its own.

The command runs in a domain of Landlock, from which nobody looks into this process or any other
outside; ``cmdc_runtime.confinement.landlock`` makes it, and here it is enforced.

Its arguments are a descriptor to write the status to; the one of a ruleset, with the capabilities
that the command is not to have, or ``none``; ``kept`` or ``unset`` for the variable LC_CTYPE; and
the program with its arguments.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

TYPE_CHECKING = False  # typing's own costs each command 6 ms
if TYPE_CHECKING:
    from typing import Final, NoReturn

WORD_S: Final = 60
"""For the agent to say that it is done with a command that has ended; it takes milliseconds."""
EXIT_NOT_STARTED: Final = 126
"""As a shell says it of a program that it can't run."""
_SET_CHILD_SUBREAPER: Final = 36
_CAPBSET_DROP: Final = 24
_SET_NO_NEW_PRIVS: Final = 38
_RESTRICT_SELF: Final = 446


def main() -> NoReturn:
    """Run a program and see to its end; never returns."""
    report, shield, locale, *program = sys.argv[1:]
    os.set_inheritable(int(report), False)  # noqa: FBT003 - the name is the function's
    try:
        if ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
            sys.exit("Cannot run the command: the kernel gives it no subreaper")
        pid = os.fork()
    except OSError as error:  # no process is left
        sys.exit(f"Cannot run the command: {error.strerror}")
    if pid == 0:
        _become(program, shield, is_unset=locale == "unset")
    for descriptor in range(3):  # the output ends with those who write it
        os.close(descriptor)
    status = _status_of(pid)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        os.write(int(report), str(status).encode())
        signal.sigtimedwait({signal.SIGTERM}, WORD_S)
    except OSError:  # the agent has gone: nobody says anything
        pass
    os.killpg(pid, signal.SIGKILL)  # it is not reaped yet, so the number is its group's
    os.waitpid(pid, 0)
    os._exit(0)


def _become(program: list[str], shield: str, *, is_unset: bool) -> NoReturn:
    """Run the program as if no interpreter stood before it, which ignores two signals."""
    try:
        os.setpgid(0, 0)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        if is_unset:
            os.environ.pop("LC_CTYPE", None)
        if shield != "none":
            _enforce(*map(int, shield.split(",")))
        os.execv(program[0], program)  # noqa: S606 - running what the model wants is the tool
    except OSError as error:
        os.write(2, f"Cannot run the command: {error}\n".encode())
    finally:
        os._exit(EXIT_NOT_STARTED)


def _enforce(ruleset: int, *capabilities: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for number in capabilities:
        libc.prctl(_CAPBSET_DROP, number, 0, 0, 0)  # who has none can't, and need not
    if libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.syscall(_RESTRICT_SELF, ruleset, 0):
        raise OSError(ctypes.get_errno(), "the kernel takes no domain of Landlock")
    os.close(ruleset)


def _status_of(pid: int) -> int:
    """Return how a child ended, negative for a signal, and leave it unreaped; reap all others."""
    while True:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        assert ended is not None  # noqa: S101 - only WNOHANG returns without a result
        if ended.si_pid == pid:
            return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        os.waitpid(ended.si_pid, 0)


if __name__ == "__main__":
    main()
