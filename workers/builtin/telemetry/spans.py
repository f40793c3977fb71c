"""The open spans of a session, and what is to be done to them and to its metrics.

One table is shared by all that describe a session: ``telemetry.tracker`` and what it is made of.
The operations are what the tracker sends to the exporter.
"""

from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.ids import CommandId, SessionId
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.tracing import SpanParent, cycle_span_id, trace_id_of
from workers.builtin.telemetry import names

# --- operations -----------------------------------------------------------------------------------

Value: TypeAlias = str | bool | int | float | tuple[str, ...]
Attributes: TypeAlias = dict[str, Value]


@dataclass(frozen=True, slots=True)
class OpenSpan:
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
class AddSpanEvent:
    """Add an event to an open span."""

    key: str
    name: str
    at_ns: int
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AddAttributes:
    """Add attributes to an open span."""

    key: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class EndSpan:
    """End an open span; an ``error`` is the type of what went wrong, ``text`` its message."""

    key: str
    at_ns: int
    error: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class AddToMetric:
    """Add to a metric."""

    instrument: str
    value: float
    attributes: Attributes = field(default_factory=dict)


Operation: TypeAlias = OpenSpan | AddSpanEvent | AddAttributes | EndSpan | AddToMetric


# --- what is open ---------------------------------------------------------------------------------

CYCLE: Final = "cycle"
REQUEST: Final = "request"
_ALONE: Final = "alone"
_NS_PER_S: Final = 1e9
_NS_PER_MS: Final = 1e6


class SpanPlace(NamedTuple):
    """Where a span stands, and its id where another process has to know that."""

    parent: str | None = None
    """The key of an open span; None: the cycle."""
    span_id: str | None = None


class Facts(NamedTuple):
    """What has to be known of the session when an event is tracked."""

    session_id: SessionId
    model: str = ""
    incarnation: int = 1
    group_id: str | None = None
    messages: tuple[Message, ...] = ()
    """Only where content is captured."""
    cycle_id: CommandId | None = None
    trace_parent: str | None = None

    @classmethod
    def of(cls, context: PluginContext, *, with_messages: bool) -> "Facts":
        """Return what is needed of ``context``."""
        return cls(
            session_id=context.session_id,
            model=context.model,
            incarnation=int(context.incarnation),
            group_id=context.group_id,
            messages=context.messages if with_messages else (),
            cycle_id=context.cycle_id,
            trace_parent=context.trace_parent,
        )


@dataclass(frozen=True, slots=True)
class SpanEnding:
    """How a span ends."""

    outcome: str
    error: str | None = None
    """The type of what went wrong."""
    text: str | None = None
    """Its message: content."""


class OpenSpans:
    """The open spans, and the operations on them since the last event."""

    def __init__(self, *, captures: bool) -> None:
        """Begin with nothing; ``captures`` is whether content may be exported."""
        self.captures: Final = captures
        self.facts = Facts(SessionId(""))
        self.now_ns = 0
        self._operations: list[Operation] = []
        self._began_ns: dict[str, int] = {}
        self._trace_id: str | None = None
        """Of the latest cycle, in which things may come to their end when it is over."""

    def turn(self, facts: Facts, at_ns: int) -> None:
        """Begin with the next event; a clock that somebody set back stands still."""
        self.facts, self._operations = facts, []
        self.now_ns = max(self.now_ns, at_ns)

    def operations(self) -> list[Operation]:
        """Return what this event amounts to."""
        return self._operations

    def has(self, key: str) -> bool:
        """Say whether a span is open."""
        return key in self._began_ns

    def innermost(self) -> str | None:
        """Return the request, else the cycle, that things happen in."""
        return next((key for key in (REQUEST, CYCLE) if self.has(key)), None)

    def open(
        self,
        key: str,
        operation: str,
        subject: str = "",
        more: Attributes | None = None,
        place: SpanPlace | None = None,
    ) -> None:
        """Begin a span."""
        name = f"{operation} {subject}" if subject else operation
        attributes = {names.OPERATION: operation, **self._common(), **(more or {})}
        parent, span_id = place or SpanPlace()
        if parent is None and self.has(CYCLE):
            parent = CYCLE
        kind: Literal["internal", "client"] = "client" if operation == names.CHAT else "internal"
        opened = OpenSpan(key, parent, name, kind, self.now_ns, attributes, span_id=span_id)
        self._begin(opened)

    def open_cycle(self, more: Attributes, begun: CommandId | None) -> None:
        """Begin the cycle's span, in that of who started the session, else in a trace of its own.

        ``begun`` is the cycle where it begins here: of one that goes on another process may have
        reported it already.
        """
        facts = self.facts
        above, cycle_id = facts.trace_parent, begun or facts.cycle_id
        self._trace_id = cycle_id and trace_id_of(facts.session_id, cycle_id, above)
        opened = OpenSpan(
            CYCLE,
            None,
            names.INVOKE_AGENT,
            "internal",
            self.now_ns,
            {names.OPERATION: names.INVOKE_AGENT, **self._common(), **more},
            trace_id=self._trace_id,
            span_id=None if begun is None else cycle_span_id(facts.session_id, begun),
            remote=None if above is None else SpanParent.parse(above),
        )
        self._begin(opened)

    def _begin(self, opened: OpenSpan) -> None:
        self._operations.append(opened)
        self._began_ns[opened.key] = self.now_ns

    def describe(self, key: str, attributes: Attributes) -> None:
        """Add to an open span."""
        self._operations.append(AddAttributes(key, attributes))

    def note(
        self, name: str, attributes: Attributes, key: str | None = None, late_in: str | None = None
    ) -> None:
        """Add an event to the span ``key``, else to the innermost, else to one of its own.

        Its own begins a trace, unless it is in the span with the id ``late_in``, of the latest
        cycle.
        """
        where = key or self.innermost()
        alone = where is None
        if where is None:
            where, trace_id = _ALONE, self._trace_id
            remote = SpanParent(trace_id, late_in) if trace_id and late_in else None
            opened = OpenSpan(
                where, None, name, "internal", self.now_ns, self._common(), remote=remote
            )
            self._operations.append(opened)
        self._operations.append(AddSpanEvent(where, name, self.now_ns, attributes))
        if alone:
            self._operations.append(EndSpan(where, self.now_ns))

    def close(self, key: str, ending: SpanEnding, at_ns: int | None = None) -> None:
        """End an open span."""
        del self._began_ns[key]
        self.describe(key, {"cmdc.outcome": ending.outcome})
        text = ending.text if self.captures else None
        self._operations.append(EndSpan(key, at_ns or self.now_ns, ending.error, text))

    def elapsed_s(self, key: str) -> float:
        """Return the seconds since a span began."""
        return (self.now_ns - self._began_ns[key]) / _NS_PER_S

    def elapsed_ms(self, key: str) -> int:
        """Return the milliseconds since a span began."""
        return round((self.now_ns - self._began_ns[key]) / _NS_PER_MS)

    def measure(self, instrument: str, value: float, attributes: Attributes) -> None:
        """Add to a metric; ``attributes`` have few values, or there would be too many series."""
        self._operations.append(AddToMetric(instrument, value, attributes))

    def spend(self, usage: TokenUsage, model: str, purpose: str) -> None:
        """Add what a request took."""
        kinds = {**request_kinds(model), "cmdc.purpose": purpose}
        for side, tokens in (("input", usage.prompt_tokens), ("output", usage.completion_tokens)):
            if tokens:
                self.measure(names.TOKEN_USAGE, tokens, {**kinds, names.TOKEN_TYPE: side})
        if usage.cost_usd:
            self.measure(names.COST, usage.cost_usd, kinds)

    def _common(self) -> Attributes:
        facts = self.facts
        common: Attributes = {
            names.CONVERSATION_ID: facts.session_id,
            "cmdc.incarnation": facts.incarnation,
        }
        if facts.group_id is not None:
            common["cmdc.group_id"] = facts.group_id
        return common


def request_kinds(model: str) -> Attributes:
    """Return what requests to a model have in common."""
    return {names.OPERATION: names.CHAT, **model_attributes(model)}


def model_attributes(model: str) -> Attributes:
    """Return the model and its provider."""
    return {
        names.PROVIDER: names.provider_of(model),
        names.REQUEST_MODEL: names.model_id_of(model),
    }


def usage_attributes(usage: TokenUsage) -> Attributes:
    """Return what one or more requests took, as far as it is known."""
    facts: Attributes = {
        names.USAGE_INPUT: usage.prompt_tokens,
        names.USAGE_OUTPUT: usage.completion_tokens,
    }
    if usage.cached_tokens is not None:
        facts[names.USAGE_CACHED] = usage.cached_tokens
    if usage.cost_usd is not None:
        facts["cmdc.cost_usd"] = usage.cost_usd
    return facts


def error_kind(ending: SpanEnding) -> Attributes:
    """Return the type of an error, if there was one."""
    return {} if ending.error is None else {names.ERROR_TYPE: ending.error}
