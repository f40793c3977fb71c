"""``python -m scripts.plots``: the pictures of the benchmarks, from their own output.

Each reads the newest results in ``benchmarks/results`` that have the largest crowd:
``docs/discussion/recovery.svg`` shows sessions killed at once against the time until their monitors
are notified and until the next processes answer, ``docs/discussion/growth.svg`` what one more
session costs beside how many there are.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
PICTURES: Final = ROOT / "docs" / "discussion"
Run = dict[str, Any]  # Any: a record of benchmarks.report
Points = dict[int, float]
"""By the number of sessions."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a picture."""

    metric: re.Pattern[str]
    """Its first group is the number of sessions."""
    label: str
    colour: str
    line: str = "-"
    field: str = "value"

    def points(self, run: Run) -> Points:
        """Return what a run has of it."""
        found: Points = {}
        for metric in run["metrics"]:
            match = self.metric.fullmatch(metric["metric"])
            if match is not None and metric[self.field] is not None:
                found[int(match[1])] = metric[self.field]
        return found


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes: a subject, and what is drawn of it."""

    subject: str
    title: str
    unit: str
    curves: Sequence[Curve]


def _curve(pattern: str, label: str, colour: str, line: str = "-", field: str = "value") -> Curve:
    return Curve(re.compile(pattern), label, f"tab:{colour}", line, field)


KILLED: Final = Panel(
    "recovery",
    "kill -9 of so many at once",
    "milliseconds since the first kill",
    (
        _curve(r"recovery\.down_of_(\d+)", "Down, median", "blue"),
        _curve(r"recovery\.last_down_of_(\d+)", "Down, the last one", "blue", "--"),
        _curve(r"recovery\.ready_of_(\d+)", "ready again, median", "green"),
        _curve(r"recovery\.last_ready_of_(\d+)", "ready again, the last one", "green", "--"),
        _curve(
            r"recovery\.last_down_of_(\d+)",
            "the kernel alone, raw forks",
            "gray",
            ":",
            "baseline",
        ),
    ),
)
GROWTH: Final = (
    Panel(
        "spawn",
        "one more session, beside so many",
        "milliseconds",
        (
            _curve(r"spawn\.spare_beside_(\d+)", "created, a spare ready", "blue"),
            _curve(r"spawn\.spare_beside_(\d+)", "raw fork", "gray", ":", "baseline"),
        ),
    ),
    Panel(
        "roundtrip",
        "status round trip, beside so many",
        "microseconds",
        (
            _curve(r"roundtrip\.wire_beside_(\d+)", "client, daemon, agent and back", "blue"),
            _curve(r"roundtrip\.wire_beside_(\d+)", "two bare hops", "gray", ":", "baseline"),
        ),
    ),
    Panel(
        "restart",
        "kill -9 of one, beside so many",
        "milliseconds",
        (
            _curve(r"restart\.down_beside_(\d+)", "Down", "blue"),
            _curve(r"restart\.answers_beside_(\d+)", "the next one answers", "green"),
            _curve(r"restart\.answers_beside_(\d+)", "raw", "gray", ":", "baseline"),
        ),
    ),
    Panel(
        "memory",
        "memory of so many",
        "MiB",
        (
            _curve(r"memory\.pss_total_at_(\d+)", "all of it (PSS)", "blue"),
            _curve(r"memory\.pss_total_at_(\d+)", "raw forks", "gray", ":", "baseline"),
        ),
    ),
)
DAY: Final = "[0-9]" * 4 + "-[0-9][0-9]" * 2
"""The day of a run; a comparison of the same subject has a word between."""
DRAWN: Final[Mapping[str, Sequence[Panel]]] = {"recovery.svg": (KILLED,), "growth.svg": GROWTH}


def main() -> int:
    """Draw; return the exit status."""
    status = 0
    for name, panels in DRAWN.items():
        runs = {panel.subject: _newest(panel.subject) for panel in panels}
        missing = [subject for subject, run in runs.items() if run is None]
        if missing:
            sys.stderr.write(f"{name}: no results: make bench NAME={missing[0]} BIG=1\n")
            status = 1
            continue
        _draw(PICTURES / name, [(panel, runs[panel.subject] or {}) for panel in panels])
        days = ", ".join(f"{subject} {run['at']}" for subject, run in runs.items() if run)
        print(f"{name}: drawn from the runs of {days}")  # noqa: T201
    return status


def _newest(subject: str) -> Run | None:
    """Return the newest run with the largest crowd."""
    runs = [
        run
        for path in (ROOT / "benchmarks" / "results").glob(f"{DAY}-{subject}.json")
        for run in json.loads(path.read_text(encoding="utf-8"))
    ]
    return max(runs, key=lambda run: (max(run["crowds"], default=1), run["at"]), default=None)


def _draw(picture: Path, panels: Sequence[tuple[Panel, Run]]) -> None:
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "cmdc"  # the same picture has the same bytes
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the choice of what draws

    rows = (len(panels) + 1) // 2
    columns = min(2, len(panels))
    figure, found = plt.subplots(rows, columns, figsize=(8, 5 * rows / columns), squeeze=False)
    for axes, (panel, run) in zip(found.flat, panels, strict=True):
        _fill(axes, panel, run)
    figure.tight_layout()
    figure.savefig(picture, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def _fill(axes: Any, panel: Panel, run: Run) -> None:  # Any: matplotlib has no types
    for curve in panel.curves:
        points = sorted(curve.points(run).items())
        if points:
            style = {"color": curve.colour, "label": curve.label, "marker": "o"}
            axes.plot(*zip(*points, strict=True), curve.line, **style)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("sessions")
    axes.set_ylabel(panel.unit)
    axes.set_title(f"{panel.title} ({run['machine']['cores']} cores)", fontsize=10)
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend(fontsize=8)


if __name__ == "__main__":
    sys.exit(main())
