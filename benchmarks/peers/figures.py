"""What a run of the peers comes to: metrics, how each took a kill, and a table side by side.

The table is made from a record as it is kept, for the terminal and for the page alike.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from benchmarks.metrics import Metric, measured
from benchmarks.peers.catalogue import CANDIDATES, CMDC

Run: TypeAlias = Mapping[str, Any]  # Any: a record is JSON
UNITS: Final[Mapping[str, str]] = {
    "warm": "ms",
    "cold": "s",
    "crowd": "s",
    "pss": "MiB",
    "pss_added": "MiB",
    "goes_on": "ms",
    "chunk": "us",
    "chunk_all": "us",
}
"""What is measured, in the order of the columns, each with its unit."""
NEVER: Final = "not at all"
NOT_PLAYED: Final = "left out"
DIGITS: Final = 3


@dataclass(slots=True)
class Kill:
    """How the last kill of an agent's process ended."""

    peer: str
    goes_on: bool
    script_lives: bool
    history: int
    """Messages before the interrupted prompt."""
    kept: int
    """How many of them the model was sent again."""


@dataclass(slots=True)
class Findings:
    """Samples by measure and peer."""

    samples: defaultdict[str, defaultdict[str, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    kills: dict[str, Kill] = field(default_factory=dict)

    def add(self, measure: str, peer: str, value: float) -> None:
        """Take one sample."""
        self.samples[measure][peer].append(value)

    def metrics(self) -> list[Metric]:
        """Return a metric for each measure and peer; ours stands beside all others."""
        return [
            _metric(measure, peer, self.samples[measure])
            for measure in UNITS
            for peer in self.samples[measure]
        ]


def _metric(measure: str, peer: str, samples: Mapping[str, Sequence[float]]) -> Metric:
    beside = () if peer == CMDC else samples.get(CMDC, ())
    return measured(f"{measure}.{peer}", UNITS[measure], samples[peer], baseline=beside)


def head(run: Run) -> tuple[str, ...]:
    """Return the head of the table of a run."""
    return (
        "",
        "first token, warm (ms)",
        "first token, cold (s)",
        f"{run['crowd']} agents answered (s)",
        "memory per agent (MiB)",
        "each agent adds (MiB)",
        "goes on after kill -9 (ms)",
        "history kept",
        "CPU per chunk, agent (us)",
        "CPU per chunk, all (us)",
    )


def rows(run: Run) -> list[tuple[str, ...]]:
    """Return a row for each peer, what was left out too."""
    values = {one["metric"]: one["value"] for one in run["metrics"]}
    kills = {one["peer"]: one for one in run["kills"]}
    return [_row(one.name, values, kills.get(one.name)) for one in CANDIDATES]


def _row(peer: str, values: Mapping[str, float], kill: Run | None) -> tuple[str, ...]:
    if kill is None:
        return (peer, NOT_PLAYED, *[""] * len(UNITS))
    cells = {measure: number(values.get(f"{measure}.{peer}")) for measure in UNITS}
    if not kill["goes_on"]:
        cells["goes_on"] = NEVER if kill["script_lives"] else f"{NEVER}; the script died too"
    kept = f"{kill['kept']} of {kill['history']}"
    shown = list(cells.values())
    at = list(cells).index("goes_on") + 1
    return (peer, *shown[:at], kept, *shown[at:])


def number(value: float | None) -> str:
    """Return a number with as many digits as mean something."""
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 10**DIGITS else f"{value:.{DIGITS}g}"


def text_table(run: Run) -> str:
    """Return the table of a run for a terminal, a column of the page being a line."""
    lines = list(zip(head(run), *rows(run), strict=True))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
