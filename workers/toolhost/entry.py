"""A tool host from its first line to its last: connect to the agent, serve, end every call."""

import faulthandler
import os
import signal
import socket
import struct
import sys
import traceback
from typing import Any, Final, NoReturn

from cmdc_runtime.prctl import set_child_subreaper, set_dumpable, set_title
from cmdc_runtime.process import EXIT_CRASHED, EXIT_OK, EXIT_ORPHANED, TITLE_PREFIX
from workers.output import keep_printing
from workers.toolhost.host import Host

_ADDRESS_BYTES_MAX: Final = 108
"""The path of a socket of Unix has no more (unix(7))."""
_PEER: Final = struct.Struct("3i")


def main() -> NoReturn:
    """Be a tool host; never returns."""
    code = EXIT_CRASHED
    host: Host | None = None
    try:
        set_dumpable(is_dumpable=False)  # of what the zygote has set the exec has left nothing
        keep_printing()
        faulthandler.enable()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, _leave)
        address = _given_address()
        set_child_subreaper()
        # A dead host's calls are known by its name, which is the last argument.
        set_title("cmdc-tool-host", f"{TITLE_PREFIX}tool host {sys.argv[-1]}")
        host = Host(_connect(address))
        del address  # the calls are copies of this process
        code = host.serve()
    except _Left:
        code = EXIT_OK
    except _NobodyError:
        code = EXIT_ORPHANED  # the agent went while this process started
    except BaseException:  # noqa: BLE001 - the last line of defence; the exit code says so
        traceback.print_exc()
    finally:
        if host is not None:
            host.end()
        os._exit(code)


def _given_address() -> str:
    """Return the address of the agent, which standard input holds, and have no input from now."""
    with os.fdopen(0, "rb", closefd=False) as given:
        address = os.fsdecode(given.read(_ADDRESS_BYTES_MAX))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return address


class _Left(BaseException):
    """SIGTERM came."""


class _NobodyError(Exception):
    """The agent does not listen any more."""


def _leave(_number: int, _frame: Any) -> NoReturn:  # Any: a frame, as signal hands it over
    raise _Left


def _connect(address: str) -> socket.socket:
    """Return the connection to the agent, which must be a process of this user."""
    agent = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        agent.connect(address)
    except OSError as error:
        raise _NobodyError(address) from error
    peer = agent.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    _, uid, _ = _PEER.unpack(peer)
    if uid != os.geteuid():
        raise PermissionError(f"user {uid} listens at {address}")
    return agent
