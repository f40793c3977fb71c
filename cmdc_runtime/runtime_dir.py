"""Where a daemon, its clients and its agents meet: names, default places, and who is there.

A runtime directory belongs to one user, is closed to all others, and holds the sockets and the lock
file of one daemon. The lock is a ``flock``, so the kernel gives it back however the holder dies: a
directory full of sockets whose lock is free is what a dead daemon left behind.

Nothing here creates or removes anything; that is the daemon's (``supervisor.adapters.endpoint``).
Environment, user and home are arguments. To add a default place, add it to both functions below:
the daemon's default must be one of those where a client looks.

The agent registry is a folder of it with a file for each agent that is up, by which the next daemon
finds those that live. An agent registers before it takes its first command; whoever reaps it
unregisters it. The registry goes with the machine's boot, as the processes do.
"""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from cmdc_runtime.ids import Incarnation, SessionId, WorkerId
from cmdc_runtime.plain import SHOWN_CHARS_MAX, text_problem
from cmdc_runtime.wire.frames import WIRE_VERSION

# --- the daemon -----------------------------------------------------------------------------------

CONTROL_SOCKET: Final = "control.sock"
EVENTS_SOCKET: Final = "events.sock"
WORKERS_SOCKET: Final = "workers.sock"
OUTPUT_SOCKET: Final = "output.sock"
SOCKETS: Final = (CONTROL_SOCKET, EVENTS_SOCKET, WORKERS_SOCKET, OUTPUT_SOCKET)
HOST_SOCKETS: Final = "h-*"
"""Where agents wait for their tool hosts, as a pattern; the names are those of ``host_socket``."""
BOARD_FILE: Final = "board"
"""Where agents of an earlier release find the heartbeat board; there only while there are such."""
LOCK_FILE: Final = "daemon.lock"
TOKEN_FILE: Final = "token"  # noqa: S105 - the name of a file
"""What a person's programs show to the daemon; a client reads it anew where it has changed."""
KEYS: Final = "keys"
"""A folder with a file for each session that was given keys of providers."""
TOKEN_CHARS: Final = 64
SOCKET_PATH_BYTES_MAX: Final = 107
"""``sun_path`` has 108 bytes on Linux, the last one for the final NUL (unix(7))."""
LOCK_FILE_BYTES_MAX: Final = 4096
TEXT_CHARS_MAX: Final = 4096
"""Of a path: what the kernel takes."""

_LOOKS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC

SYSTEM_RUNTIME_DIR: Final = Path("/run/cmdc")
PRIVATE_MODE: Final = 0o700


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """What a daemon writes into its lock file about itself."""

    pid: int
    version: str
    started_at_ms: int


@dataclass(frozen=True, slots=True)
class RunningDaemon:
    """A daemon that holds the lock of ``directory``; ``holder`` is None while it is starting."""

    directory: Path
    holder: Holder | None


def default_runtime_dir(environ: Mapping[str, str], *, uid: int, home: Path) -> Path:
    """Return where a daemon of this user puts its sockets unless it is configured otherwise."""
    if chosen := environ.get("CMDC_RUNTIME_DIR"):
        return Path(chosen)
    if session := environ.get("XDG_RUNTIME_DIR"):
        return Path(session, "cmdc")
    return SYSTEM_RUNTIME_DIR if uid == 0 else _cache_dir(home)


def candidate_runtime_dirs(environ: Mapping[str, str], *, home: Path) -> tuple[Path, ...]:
    """Return where a client looks for a daemon, best first; a chosen directory is the only one."""
    if chosen := environ.get("CMDC_RUNTIME_DIR"):
        return (Path(chosen),)
    session = environ.get("XDG_RUNTIME_DIR")
    found = (Path(session, "cmdc"),) if session else ()
    return (*found, SYSTEM_RUNTIME_DIR, _cache_dir(home))


def default_state_dir(environ: Mapping[str, str], *, home: Path) -> Path:
    """Return where a daemon of this user keeps its journal unless it is configured otherwise.

    ``STATE_DIRECTORY`` is systemd's, and may name several separated by colons (systemd.exec(5)).
    """
    if chosen := environ.get("CMDC_STATE_DIR"):
        return Path(chosen)
    if units := environ.get("STATE_DIRECTORY"):
        return Path(units.partition(":")[0])
    if user := environ.get("XDG_STATE_HOME"):
        return Path(user, "cmdc")
    return home / ".local/state/cmdc"


def socket_address(directory: Path, name: str) -> str:
    """Return the ZeroMQ address of one socket in the directory."""
    return f"ipc://{directory / name}"


def socket_path(address: str) -> str:
    """Return where the socket of such an address is."""
    return address.removeprefix("ipc://")


def host_socket(directory: Path, worker_id: str, number: int) -> Path:
    """Return where a worker waits for its tool host of this number.

    The daemon starts a host for no other place, so that no worker has it touch what is another's.
    The name is no longer than ``workers.sock``; a worker has one host, so numbers may come again.
    """
    return directory / f"h-{worker_id.rpartition('-')[2][:8]}{number % 100:02}"


def is_host_socket(directory: Path, worker_id: str, address: str) -> bool:
    """Say whether ``address`` is one of a worker's ``host_socket`` places."""
    number = address[-2:]
    return (
        number.isascii()
        and number.isdecimal()
        and address == str(host_socket(directory, worker_id, int(number)))
    )


def path_problem(directory: Path) -> str | None:
    """Say why sockets cannot live in a directory of this name, or None."""
    if (
        problem := text_problem(str(directory), chars_max=TEXT_CHARS_MAX, one_line=True)
    ) is not None:
        shown = ascii(str(directory))[:SHOWN_CHARS_MAX]
        return f"the runtime directory {shown} cannot be used: {problem}; choose another one"
    longest = max(len(os.fsencode(directory / name)) for name in SOCKETS)
    if longest <= SOCKET_PATH_BYTES_MAX:
        return None
    return (
        f"the runtime directory {directory} has too long a name: a socket in it would have a path "
        f"of {longest} bytes, and the kernel takes {SOCKET_PATH_BYTES_MAX}; choose a shorter one"
    )


def privacy_problem(directory: Path, *, uid: int) -> str | None:
    """Say why an existing directory cannot be trusted to be this user's alone, or None.

    Raises:
        FileNotFoundError: there is no such directory.

    """
    status = directory.lstat()
    if stat.S_ISLNK(status.st_mode):
        return f"{directory} is a link; name the directory itself"
    if not stat.S_ISDIR(status.st_mode):
        return f"{directory} is not a directory"
    if status.st_uid != uid:
        return f"{directory} belongs to user {status.st_uid}, not to user {uid}"
    if stat.S_IMODE(status.st_mode) & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        return f"{directory} is open to other users (mode {mode:04o}); run: chmod 700 {directory}"
    return None


def running_daemon(directory: Path) -> RunningDaemon | None:
    """Return the daemon that holds this directory, or None when nobody does or may be asked.

    The probe takes a shared lock for a moment, so a daemon that starts meanwhile tries again.
    """
    try:
        lock_fd = open_file(directory / LOCK_FILE)
    except OSError:
        # A daemon locks the directory, too: its lock file may have been removed just now.
        with contextlib.suppress(OSError):
            directory_fd = os.open(directory, _LOOKS | os.O_DIRECTORY)
            return RunningDaemon(directory, None) if _is_locked(directory_fd) else None
        return None
    holder = read_holder(lock_fd)
    return RunningDaemon(directory, holder) if _is_locked(lock_fd) else None


def _is_locked(fd: int) -> bool:
    """Say whether somebody holds the lock of what is open; closes it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)


def open_file(path: Path) -> int:
    """Open a file of a runtime directory to be read, and wait for nobody.

    Raises:
        OSError: it can't be, or what is there is no file: a pipe would keep its reader waiting.
    """
    fd = os.open(path, _LOOKS)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no file", str(path))
    return fd


def read_token(directory: Path) -> str:
    """Return the token of a runtime directory, "" where there is none or none for this user."""
    try:
        token_fd = open_file(directory / TOKEN_FILE)
    except OSError:
        return ""
    try:
        text = os.read(token_fd, TOKEN_CHARS + 1).decode("ascii", errors="replace").strip()
    except OSError:
        return ""
    finally:
        os.close(token_fd)
    return text if len(text) == TOKEN_CHARS and text.isalnum() else ""


def find_daemon(environ: Mapping[str, str], *, uid: int, home: Path) -> RunningDaemon | None:
    """Return the first running daemon where a client of this user looks, or None.

    A directory that is not this user's alone is passed over: who could write there could pose as
    the daemon.
    """
    for directory in candidate_runtime_dirs(environ, home=home):
        try:
            trusted = privacy_problem(directory, uid=uid) is None
        except OSError:
            continue
        if trusted and (daemon := running_daemon(directory)):
            return daemon
    return None


def read_holder(lock_fd: int) -> Holder | None:
    """Return what the open lock file says of its holder, or None when it says nothing yet."""
    try:
        return msgspec.json.decode(os.pread(lock_fd, LOCK_FILE_BYTES_MAX, 0), type=Holder)
    except msgspec.MsgspecError:
        return None


def _cache_dir(home: Path) -> Path:
    return home / ".cache/cmdc/run"


# --- the agent registry ---------------------------------------------------------------------------

REGISTRY: Final = "agents"
REGISTRATION_BYTES_MAX: Final = 4096
_START_TICKS_AT: Final = 19
"""Of /proc/<pid>/stat, counted behind the command's closing parenthesis."""


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """One agent that is up; with ``boot_id`` and ``start_ticks`` its pid names it for good."""

    worker_id: WorkerId
    session_id: SessionId
    incarnation: Incarnation
    pid: int
    start_ticks: int
    boot_id: str
    wire: int = WIRE_VERSION
    brings_slot: bool = False
    """It has the memory of its slot of the heartbeats, and brings that to its next daemon."""


def own_registration(
    worker_id: WorkerId, session_id: SessionId, incarnation: Incarnation
) -> Registration:
    """Return the registration of this process."""
    stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
    return Registration(
        worker_id=worker_id,
        session_id=session_id,
        incarnation=incarnation,
        pid=os.getpid(),
        start_ticks=int(stat.rpartition(")")[2].split()[_START_TICKS_AT]),
        boot_id=boot_id(),
        brings_slot=True,
    )


def register(directory: Path, registration: Registration) -> None:
    """Put an agent into the registry of a runtime directory.

    Raises:
        OSError: it can't be written.
    """
    folder = directory / REGISTRY
    folder.mkdir(mode=PRIVATE_MODE, exist_ok=True)
    fresh = folder / _unfinished(registration.worker_id)
    fresh.write_bytes(msgspec.json.encode(registration))
    fresh.replace(folder / registration.worker_id)


def unregister(directory: Path, worker_id: WorkerId) -> None:
    """Take an agent out of the registry, also one that died as it registered; no error without."""
    for name in (worker_id, _unfinished(worker_id)):
        with suppress(OSError):
            (directory / REGISTRY / name).unlink(missing_ok=True)


def registered_ids(directory: Path) -> frozenset[str]:
    """Return the ids of the workers in the registry, also those whose files can't be read."""
    try:
        return frozenset(os.listdir(directory / REGISTRY))  # noqa: PTH208 - a thousand names a second
    except FileNotFoundError:
        return frozenset()


def registrations(directory: Path) -> Iterator[Registration]:
    """Yield who is in the registry; what can't be read is removed."""
    folder = directory / REGISTRY
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            with path.open("rb") as file:
                registration = msgspec.json.decode(
                    file.read(REGISTRATION_BYTES_MAX), type=Registration
                )
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            with suppress(OSError):
                path.unlink(missing_ok=True)
            continue
        if registration.worker_id == path.name:
            yield registration


def _unfinished(worker_id: WorkerId) -> str:
    return f".{worker_id}"


@cache
def boot_id() -> str:
    """Return what no other boot of this machine is called."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
