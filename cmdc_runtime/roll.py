"""The roll: a file for each agent that is up, by which the next daemon finds those that live.

An agent signs before it takes its first command; whoever buries it strikes it off. The roll is a
folder of the runtime directory: it goes with the machine's boot, as the processes do.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from cmdc_runtime.frames import WIRE_VERSION
from cmdc_runtime.ids import Incarnation, SessionId, WorkerId
from cmdc_runtime.runtime_dir import PRIVATE_MODE

ROLL: Final = "agents"
ENTRY_BYTES_MAX: Final = 4096
_START_TICKS_AT: Final = 19
"""Of /proc/<pid>/stat, counted behind the command's closing parenthesis."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One agent that is up; with ``boot_id`` and ``start_ticks`` its pid names it for good."""

    worker_id: WorkerId
    session_id: SessionId
    incarnation: Incarnation
    pid: int
    start_ticks: int
    boot_id: str
    wire: int = WIRE_VERSION
    brings_slot: bool = False
    """It has the memory of its slot on the heartbeat board, and brings that to its next daemon."""


def own_entry(worker_id: WorkerId, session_id: SessionId, incarnation: Incarnation) -> Entry:
    """Return the entry of this process."""
    stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
    return Entry(
        worker_id=worker_id,
        session_id=session_id,
        incarnation=incarnation,
        pid=os.getpid(),
        start_ticks=int(stat.rpartition(")")[2].split()[_START_TICKS_AT]),
        boot_id=boot_id(),
        brings_slot=True,
    )


def sign(directory: Path, entry: Entry) -> None:
    """Put an agent on the roll of a runtime directory.

    Raises:
        OSError: it can't be written.
    """
    folder = directory / ROLL
    folder.mkdir(mode=PRIVATE_MODE, exist_ok=True)
    fresh = folder / _unfinished(entry.worker_id)
    fresh.write_bytes(msgspec.json.encode(entry))
    fresh.replace(folder / entry.worker_id)


def strike(directory: Path, worker_id: WorkerId) -> None:
    """Take an agent off the roll, also one that died over its signature; no error if it is not."""
    for name in (worker_id, _unfinished(worker_id)):
        with suppress(OSError):
            (directory / ROLL / name).unlink(missing_ok=True)


def signed(directory: Path) -> frozenset[str]:
    """Return the ids of the workers on the roll, also those whose entries can't be read."""
    try:
        return frozenset(os.listdir(directory / ROLL))  # noqa: PTH208 - a thousand names a second
    except FileNotFoundError:
        return frozenset()


def entries(directory: Path) -> Iterator[Entry]:
    """Yield who is on the roll; what can't be read is removed."""
    folder = directory / ROLL
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            with path.open("rb") as file:
                entry = msgspec.json.decode(file.read(ENTRY_BYTES_MAX), type=Entry)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            with suppress(OSError):
                path.unlink(missing_ok=True)
            continue
        if entry.worker_id == path.name:
            yield entry


def _unfinished(worker_id: WorkerId) -> str:
    return f".{worker_id}"


@cache
def boot_id() -> str:
    """Return what no other boot of this machine is called."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
