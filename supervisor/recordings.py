"""Writes down what the supervision tree was told, for a test that plays it again.

It is written when the root gives up, and whenever the daemon gets SIGUSR1. ``python -m
scripts.simulate --replay FILE`` plays it and says where today's tree decides otherwise.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import structlog

from cmdc_runtime.clock import now_ms

log = structlog.get_logger()

FOLDER: Final = "recordings"
RECORDINGS_KEPT_MAX: Final = 10
"""The oldest goes: one is some megabytes where thousands of sessions live."""


def write_recording(state_dir: Path, lines: Iterable[bytes]) -> Path | None:
    """Write a record below ``state_dir`` and return its path, None if that can't be.

    It may take a second; call it in a thread where somebody waits.
    """
    folder = state_dir / FOLDER
    path = folder / f"{now_ms()}.jsonl"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(line + b"\n" for line in lines)
        for old in sorted(folder.glob("*.jsonl"))[:-RECORDINGS_KEPT_MAX]:
            old.unlink(missing_ok=True)
    except OSError as error:
        log.error("recording.not_written", problem=str(error))
        return None
    log.info("recording.written", path=str(path))
    return path
