"""What the nursery's first child tells the daemon: what is preloaded, and whether to fork on.

multiprocess swallows the import errors of preload modules, so only a child can say what came of
them. Runs in that child, never in the daemon; names the preload module by a string only.
"""

import importlib
import json
import os
import sys
import traceback
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec


class ProbeReport(msgspec.Struct, frozen=True, kw_only=True):
    """The first child's word; ``preload`` is the preload module's own report, None if it failed."""

    nursery_pid: int
    nursery_threads: int
    loaded: tuple[str, ...]
    """Which of the needed modules the nursery had loaded before this child asked."""
    versions: dict[str, str]
    preload: dict[str, Any] | None = None  # Any: each preload module reports in its own words
    failure: str = ""
    """The traceback of the preload module's import."""


def main(boot: dict[str, str | int | float]) -> None:
    """Write the report to the file ``boot["path"]`` and return, which ends the child.

    ``boot["preload"]`` is the preload module's name, ``boot["needs"]`` the modules that must have
    been loaded by it, separated by commas.
    """
    needs = tuple(name for name in str(boot["needs"]).split(",") if name)
    loaded = tuple(name for name in needs if name in sys.modules)
    preload, failure = _preload_report(str(boot["preload"]))
    nursery = os.getppid()
    report = ProbeReport(
        nursery_pid=nursery,
        nursery_threads=len(list(Path(f"/proc/{nursery}/task").iterdir())),
        loaded=loaded,
        versions={name: _version(name) for name in loaded},
        preload=preload,
        failure=failure,
    )
    with suppress(FileNotFoundError):  # the daemon was killed, and the next one has cleared away
        Path(str(boot["path"])).write_bytes(msgspec.json.encode(report))


def _preload_report(name: str) -> tuple[dict[str, Any] | None, str]:
    """Return the module's ``REPORT``, or why there is none; imported already if all is well."""
    try:
        report = importlib.import_module(name).REPORT
        return json.loads(msgspec.json.encode(report)), ""
    except Exception:  # noqa: BLE001 - the child's last act is to tell it
        return None, traceback.format_exc(limit=-8)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
