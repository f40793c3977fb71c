"""What plays in pairs come to: two revisions, one behind the other, again and again in one run.

What a machine does to a figure it does to both plays of a pair, nearly; so the ratio is taken
within each pair, and of these ratios the median. Nothing is compared that one revision lacks, or
reports in another unit: that is left out by name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, TypeAlias

import msgspec

from benchmarks.metrics import DIGITS, TAIL, Metric, percentile

Play: TypeAlias = Mapping[str, Metric]
"""What one play of a subject reported, by the metric's name."""
HEAD: Final = ("metric", "unit", "old", "new", "ratio", "ratio min", "ratio max", "n")


class Paired(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of two revisions, in the fields of a record: the old one is the baseline.

    ``value`` and ``baseline`` are medians of the plays. ``ratio`` is the median of new through old
    within each pair, between ``ratio_min`` and ``ratio_max``; all are None where no pair has one,
    since the old value is 0. ``n`` counts pairs; ``p50`` and ``p99`` are of the new plays.
    """

    metric: str
    value: float
    unit: str
    baseline: float
    ratio: float | None
    ratio_min: float | None
    ratio_max: float | None
    bar: None = None
    met: None = None
    n: int
    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The metrics of all pairs, and what was left out of it, a sentence each."""

    metrics: list[Paired]
    left_out: list[str]


def compare(pairs: Sequence[tuple[Play, Play]]) -> Comparison:
    """Return what pairs of plays, the old one first, come to; there is at least one pair."""
    metrics: list[Paired] = []
    left_out: list[str] = []
    for name in _names(pairs):
        found = [(old.get(name), new.get(name)) for old, new in pairs]
        both = [(old, new) for old, new in found if old is not None and new is not None]
        if both:
            units = sorted({metric.unit for pair in both for metric in pair})
            if len(units) == 1:
                metrics.append(_paired(both))
            else:
                left_out.append(f"{name} is measured in different units: {', '.join(units)}")
        elif all(old is None for old, _ in found):
            left_out.append(f"{name} is not measured by the old revision")
        elif all(new is None for _, new in found):
            left_out.append(f"{name} is not measured by the new revision")
        else:
            left_out.append(f"{name} is not measured by both revisions in any pair")
    return Comparison(metrics, left_out)


def table(metrics: Sequence[Paired]) -> str:
    """Return all metrics as aligned columns, for people."""
    rows = [HEAD, *(_cells(metric) for metric in metrics)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _cells(one: Paired) -> tuple[str, ...]:
    numbers = (one.baseline, one.value, one.ratio, one.ratio_min, one.ratio_max)
    shown = ("" if number is None else f"{number:.10g}" for number in numbers)
    return (one.metric, one.unit, *shown, str(one.n))


def _names(pairs: Sequence[tuple[Play, Play]]) -> list[str]:
    """Return the names of all metrics, in the order in which they are reported first."""
    return list(dict.fromkeys(name for old, new in pairs for name in (*new, *old)))


def _paired(both: Sequence[tuple[Metric, Metric]]) -> Paired:
    old = [pair[0].value for pair in both]
    new = [pair[1].value for pair in both]
    ratios = [after / before for before, after in zip(old, new, strict=True) if before]
    first = both[0][1]
    return Paired(
        metric=first.metric,
        value=_rounded(median(new)),
        unit=first.unit,
        baseline=_rounded(median(old)),
        ratio=_rounded(median(ratios)) if ratios else None,
        ratio_min=_rounded(min(ratios)) if ratios else None,
        ratio_max=_rounded(max(ratios)) if ratios else None,
        n=len(both),
        p50=_rounded(median(new)),
        p99=_rounded(percentile(new, TAIL)),
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
