"""What one benchmark found, in the shape that machines read, and how it is held against its bar.

A metric is one number: the median of its samples, or another percentile where its name says so. A
bar is a ratio to the baseline of the same run, or the difference from it, or a limit of the value
itself where nothing else could be measured beside it. To add a field, add it to ``Metric``: report
and record derive from it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

MEDIAN: Final = 50.0
TAIL: Final = 99.0
DIGITS: Final = 4
"""Significant digits of a reported number; the noise is in the second."""


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the report; ``baseline`` and ``ratio`` are None where nothing was compared."""

    metric: str
    value: float
    unit: str
    baseline: float | None
    ratio: float | None
    bar: str | None
    met: bool | None
    n: int
    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Bar:
    """What a metric has to reach; ``of`` says what is held against the limit."""

    of: Literal["ratio", "difference", "value"]
    """The ratio to the baseline, what the value is more than that, or the value itself."""
    relation: Literal["<=", ">="]
    limit: float
    rank: float = MEDIAN
    """Which percentile is the metric's value."""

    def __str__(self) -> str:
        """Return the bar as a person writes it."""
        return f"{self.of} {self.relation} {self.limit:g}"

    def is_met(self, value: float, baseline: float | None) -> bool | None:
        """Say whether it is reached; None when there is no baseline to judge it by."""
        found = value
        if self.of == "ratio":
            if not baseline:
                return None
            found = value / baseline
        elif self.of == "difference":
            if baseline is None:
                return None
            found = value - baseline
        return found <= self.limit if self.relation == "<=" else found >= self.limit


def at_most(limit: float, *, rank: float = MEDIAN) -> Bar:
    """Return the bar of something that should be quick or small beside its baseline."""
    return Bar("ratio", "<=", limit, rank)


def at_least(limit: float) -> Bar:
    """Return the bar of something that should be large beside its baseline."""
    return Bar("ratio", ">=", limit)


def at_most_more(limit: float, *, rank: float = MEDIAN) -> Bar:
    """Return the bar of something that may take ``limit`` of its unit more than its baseline."""
    return Bar("difference", "<=", limit, rank)


def no_more_than(limit: float, *, rank: float = MEDIAN) -> Bar:
    """Return a limit of the value itself."""
    return Bar("value", "<=", limit, rank)


def no_less_than(limit: float) -> Bar:
    """Return what the value itself has to reach."""
    return Bar("value", ">=", limit)


def percentile(samples: Sequence[float], rank: float) -> float:
    """Return the smallest sample that ``rank`` percent of all do not exceed (nearest rank)."""
    ordered = sorted(samples)
    place = math.ceil(rank / 100.0 * len(ordered))
    return ordered[max(place, 1) - 1]


def measured(
    name: str,
    unit: str,
    samples: Sequence[float],
    *,
    baseline: Sequence[float] = (),
    bar: Bar | None = None,
) -> Metric:
    """Return the metric of ``samples`` beside the same percentile of ``baseline``."""
    rank = MEDIAN if bar is None else bar.rank
    value = percentile(samples, rank)
    beside = percentile(baseline, rank) if baseline else None
    ratio = value / beside if beside else None
    return Metric(
        metric=name,
        value=_rounded(value),
        unit=unit,
        baseline=None if beside is None else _rounded(beside),
        ratio=None if ratio is None else _rounded(ratio),
        bar=None if bar is None else str(bar),
        met=None if bar is None else bar.is_met(value, beside),
        n=len(samples),
        p50=_rounded(percentile(samples, MEDIAN)),
        p99=_rounded(percentile(samples, TAIL)),
    )


def tail(name: str, unit: str, samples: Sequence[float], *, baseline: Sequence[float]) -> Metric:
    """Return the metric of the 99th percentile where there is no bar."""
    no_limit = no_more_than(math.inf, rank=TAIL)
    found = measured(name, unit, samples, baseline=baseline, bar=no_limit)
    return msgspec.structs.replace(found, bar=None, met=None)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
