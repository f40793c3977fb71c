"""Memory files: where they are, and as much of them as is shown.

The application names them, so that they may be anywhere. One below the working folder may be a link
that stays there: tools, and whoever wrote the project, put links there too (``NamedPath``).
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from cmdc_runtime.beneath import NamedPath, named_path
from workers.builtin.tools._files import READING, text_file

MEMORY_BYTES_MAX: Final = 64 * 1024
"""Of one file, as it is shown."""
NAME_CHARS_MAX: Final = 128
"""Of a name as it is shown; of a longer one the end is."""
LOCK_WAIT_S: Final = 10.0
"""For another process that changes a memory file of the same folder."""
_LOCK_POLL_S: Final = 0.02


class MemoryText(NamedTuple):
    """What is shown of a memory file."""

    text: str
    is_cut: bool


def memory_path(name: str, working_dir: str) -> NamedPath:
    """Return where the memory file of this name is.

    Raises:
        ValueError: nothing can have this name.
    """
    return named_path(name, working_dir)


def shown_name(name: str) -> str:
    """Return a name as it is shown."""
    return name if len(name) <= NAME_CHARS_MAX else f"…{name[1 - NAME_CHARS_MAX :]}"


def read_memory(path: NamedPath) -> MemoryText | None:
    """Return what is shown of a memory file, None where there is nothing to show.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no text, or a link leads out of the working folder.
    """
    try:
        with text_file(path.open(READING)) as file:
            content = file.read(MEMORY_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    # What is no UTF-8 grows when it is decoded, so that the bound is looked at again.
    encoded = content.decode(errors="replace").encode()
    text = encoded[:MEMORY_BYTES_MAX].decode(errors="ignore")
    is_cut = len(encoded) > MEMORY_BYTES_MAX
    if is_cut:
        text += f"\n[the file is longer; its first {MEMORY_BYTES_MAX} bytes are shown]"
    return MemoryText(text, is_cut) if text.strip() else None


@contextlib.contextmanager
def locked_folder(folder: int) -> Iterator[None]:
    """Keep other processes from changing memory files of an open folder.

    A file system without locks locks nothing.

    Raises:
        OSError: the folder cannot be opened.
        TimeoutError: another process does not end its change.
    """
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    until_s = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > until_s:
                message = f"another process has its folder locked for {LOCK_WAIT_S:g} s"
                raise TimeoutError(message) from error
            time.sleep(_LOCK_POLL_S)
        except OSError:
            return
        else:
            return
