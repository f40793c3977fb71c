"""Runs in each process of a measurement: notes which functions of the product are called.

The site folder of ``scripts.mutants`` has it loaded. One byte of a file, which all processes map,
says whether calls are noted, or are to be written down: whoever calls something next does so.
"""

import mmap
import os
import sys
import threading
from pathlib import Path
from types import FrameType, ModuleType
from typing import Final

FOLDER: Final = "HOPS_FOLDER"
"""The variable that names the folder of the flag, and of a file for each process."""
FLAG: Final = "flag"
WAIT, NOTE, WRITE = range(3)
ROOT: Final = str(Path(__file__).resolve().parents[2])
PACKAGES: Final = tuple(f"{ROOT}/{name}/" for name in ("cmdc_runtime", "supervisor", "workers"))
TESTING: Final = f"{ROOT}/cmdc_runtime/testing/"


class _Notes:
    """The calls of this process; each is a path below the root and a qualified name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with (folder / FLAG).open("rb") as file:
            self._flag = mmap.mmap(file.fileno(), 1, access=mmap.ACCESS_READ)
        self._calls: set[tuple[str, str]] = set()

    def take(self, frame: FrameType, event: str, _argument: object) -> None:
        """Be called by the interpreter for each call and each return."""
        flag = self._flag[0]
        if flag == NOTE and event == "call":
            code = frame.f_code
            self._calls.add((code.co_filename, code.co_qualname))
        elif flag == WRITE and self._calls:
            calls, self._calls = self._calls, set()
            self._write(calls)

    def _write(self, calls: set[tuple[str, str]]) -> None:
        ours = sorted(
            f"{path.removeprefix(ROOT)[1:]} {name}"
            for path, name in calls
            if path.startswith(PACKAGES) and not path.startswith(TESTING)
        )
        fresh = self._folder / f"{os.getpid()}.fresh"
        fresh.write_text("".join(f"{one}\n" for one in ours))
        fresh.rename(fresh.with_suffix(".calls"))


def watch(_module: ModuleType | None = None) -> None:
    """Note the calls of this thread, of those that it starts, and of processes that are forked."""
    notes = _Notes(Path(os.environ[FOLDER]))
    threading.setprofile(notes.take)
    sys.setprofile(notes.take)
