"""What is to be done to spans and metrics: the words between the tracker and the exporter."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from cmdc_runtime.tracing import SpanParent

Value: TypeAlias = str | bool | int | float | tuple[str, ...]
Attributes: TypeAlias = dict[str, Value]


@dataclass(frozen=True, slots=True)
class Open:
    """Begin the span ``key``, which no open span has; without a parent it begins a trace."""

    key: str
    parent: str | None
    name: str
    kind: Literal["internal", "client"]
    at_ns: int
    attributes: Attributes = field(default_factory=dict)
    trace_id: str | None = None
    """Of the trace that it begins, in hex."""
    span_id: str | None = None
    """The span's own, where another process has to know it; of two, the second has another one."""
    remote: SpanParent | None = None
    """The span of another process that it is in."""


@dataclass(frozen=True, slots=True)
class Note:
    """Add an event to an open span."""

    key: str
    name: str
    at_ns: int
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Describe:
    """Add attributes to an open span."""

    key: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class Close:
    """End an open span; an ``error`` is the type of what went wrong, ``text`` what was said."""

    key: str
    at_ns: int
    error: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """Add to a metric."""

    instrument: str
    value: float
    attributes: Attributes = field(default_factory=dict)


Operation: TypeAlias = Open | Note | Describe | Close | Measure
