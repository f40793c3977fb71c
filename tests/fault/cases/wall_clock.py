"""A wall clock that a test sets, for the processes that are started with its variables."""

import mmap
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("clock_shift.c")
BUILD_S = 30.0


class WallClock:
    """The wall clock of some processes; it begins with the right time."""

    def __init__(self, compiler, folder):
        """Build what the processes preload; a C compiler has to be there."""
        self._path, library = folder / "shift", folder / "clock_shift.so"
        self._path.write_bytes(bytes(mmap.PAGESIZE))
        words = ["-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"]
        subprocess.run([compiler, *words], check=True, timeout=BUILD_S)
        self.variables = {"LD_PRELOAD": str(library), "CLOCK_SHIFT_FILE": str(self._path)}

    def put(self, shift_s):
        """Put it forward by so many seconds, or back; at once, and for all of them."""
        with self._path.open("r+b") as file:
            file.write((shift_s * 10**9).to_bytes(8, sys.byteorder, signed=True))
