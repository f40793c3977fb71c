"""Files that are whole or not there: what a kill or a cut of the power may not leave half done.

A file is written under another name, made durable, and then takes its place. What is left under
the other name by a kill is written over by the next try.
"""

import os
import shutil
from pathlib import Path

from supervisor.adapters.journal.volume import FILE_MODE


def sync_file(path: Path) -> None:
    """Make what is in a file durable."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Make what was renamed in a directory durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, or leave the one that was there."""
    fresh = path.with_name(f"{path.name}.new")
    try:
        fresh.write_bytes(data)
        settle(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def copy_whole(source: Path, target: Path) -> None:
    """Copy a file, or leave nothing."""
    fresh = target.with_name(f"{source.name}.copy")
    try:
        shutil.copyfile(source, fresh)
        settle(fresh, target)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def settle(fresh: Path, path: Path) -> None:
    """Make a file that is written private and durable, and put it in its place."""
    fresh.chmod(FILE_MODE)
    sync_file(fresh)
    fresh.replace(path)
    sync_directory(path.parent)
