"""What is shown and kept of a run: a table for people, JSON lines for machines, a record on disk.

A record says with what and on what it was measured, but not where: no host name, no path.
"""

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from benchmarks.metrics import Metric
from benchmarks.processes import ROOT
from benchmarks.settings import Settings

RESULTS: Final = Path(__file__).parent / "results"
DISTRIBUTIONS: Final = ("litellm", "msgspec", "multiprocess", "psutil", "pyzmq", "structlog")
COLUMNS: Final = ("metric", "value", "unit", "baseline", "ratio", "bar", "met", "n", "p50", "p99")
_MET: Final = {True: "yes", False: "NO", None: ""}
GIB: Final = 2**30


def json_line(metric: Metric) -> str:
    """Return one metric as one line of JSON."""
    return msgspec.json.encode(metric).decode()


def table(metrics: Sequence[Metric]) -> str:
    """Return all metrics as aligned columns."""
    rows = [COLUMNS, *(_row(metric) for metric in metrics)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _row(metric: Metric) -> tuple[str, ...]:
    return tuple(_MET[metric.met] if name == "met" else _cell(metric, name) for name in COLUMNS)


def _cell(metric: Metric, name: str) -> str:
    value = getattr(metric, name)
    if value is None:
        return ""
    return f"{value:.10g}" if isinstance(value, float) else f"{value}"


def save(subject: str, settings: Settings, metrics: Sequence[Metric], load: float) -> Path:
    """Append the run to today's file of the subject; ``load`` is what the machine did before."""
    measured = {"repeats": settings.repeats, "crowds": settings.crowds, "metrics": metrics}
    return append(subject, measured, load)


def append(subject: str, found: Mapping[str, object], load: float) -> Path:
    """Append what a run found to today's file of its subject, with what it was found on."""
    now = datetime.now(UTC)
    path = RESULTS / f"{now:%Y-%m-%d}-{subject}.json"
    runs: list[Any] = msgspec.json.decode(path.read_bytes()) if path.exists() else []
    runs.append(
        {
            "at": f"{now:%Y-%m-%dT%H:%M:%SZ}",
            "commit": commit(),
            "load_before": round(load, 2),
            "machine": _machine(),
            "versions": _versions(),
            **found,
        }
    )
    RESULTS.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(runs), indent=2) + b"\n")
    return path


def commit() -> str:
    """Return the commit that was measured, with a + when files differ from it."""
    command = ["git", "describe", "--always", "--dirty=+", "--abbrev=12"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _machine() -> dict[str, object]:
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / GIB),
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _versions() -> dict[str, str]:
    found = {name: importlib.metadata.version(name) for name in DISTRIBUTIONS}
    return {"python": platform.python_version(), **found}
