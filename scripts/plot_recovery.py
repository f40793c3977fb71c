"""``python -m scripts.plot_recovery``: the picture of the recovery benchmark, from its own output.

It reads the newest results in ``benchmarks/results`` that have all the crowds, and writes
``docs/discussion/recovery.svg``: sessions killed at once against the time until their monitors are
told and until the next processes answer.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
PICTURE: Final = ROOT / "docs" / "discussion" / "recovery.svg"
METRIC: Final = re.compile(r"recovery\.(told|ready|last_told|last_ready)_of_(\d+)")
CURVES: Final = {
    "told": ("told, median", "tab:blue", "-"),
    "last_told": ("told, the last one", "tab:blue", "--"),
    "ready": ("ready again, median", "tab:green", "-"),
    "last_ready": ("ready again, the last one", "tab:green", "--"),
    "raw": ("the kernel alone, raw forks", "tab:gray", ":"),
}


def main() -> int:
    """Draw; return the exit status."""
    found = _newest()
    if found is None:
        sys.stderr.write("no results of the recovery benchmark: make bench NAME=recovery BIG=1\n")
        return 1
    run, curves = found
    _draw(run, curves)
    print(f"{PICTURE.relative_to(ROOT)}: drawn from the run of {run['at']}")  # noqa: T201
    return 0


def _newest() -> tuple[dict[str, Any], dict[str, dict[int, float]]] | None:
    """Return the newest run with the largest crowd, and its curves."""
    runs = [
        run
        for path in sorted((ROOT / "benchmarks" / "results").glob("*-recovery.json"))
        for run in json.loads(path.read_text(encoding="utf-8"))
    ]
    runs.sort(key=lambda run: (max(run["crowds"], default=1), run["at"]))
    if not runs:
        return None
    curves: dict[str, dict[int, float]] = {name: {} for name in CURVES}
    for metric in runs[-1]["metrics"]:
        name = METRIC.fullmatch(metric["metric"])
        if name is None:
            continue
        curves[name[1]][int(name[2])] = metric["p50"]
        if name[1] == "last_told" and metric["baseline"] is not None:
            curves["raw"][int(name[2])] = metric["baseline"]
    return runs[-1], curves


def _draw(run: dict[str, Any], curves: dict[str, dict[int, float]]) -> None:
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "cmdc"  # the same picture has the same bytes
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the choice of what draws

    figure, axes = plt.subplots(figsize=(8, 5))
    for name, (label, colour, line) in CURVES.items():
        points = sorted(curves[name].items())
        if points:
            axes.plot(*zip(*points, strict=True), line, color=colour, marker="o", label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("sessions whose processes are killed at once")
    axes.set_ylabel("milliseconds since the first kill")
    machine = run["machine"]
    axes.set_title(f"kill -9 to told and to ready again ({machine['cores']} cores)")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
