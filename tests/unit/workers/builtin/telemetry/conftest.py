"""What the tests of built-in plugins share."""

from dataclasses import dataclass, field

import pytest

from workers.builtin.telemetry import names
from workers.builtin.telemetry.spans import (
    AddAttributes,
    AddSpanEvent,
    AddToMetric,
    EndSpan,
    Facts,
    OpenSpan,
)
from workers.builtin.telemetry.tracker import Tracker

FACTS = Facts("s-1", "openai:gpt-5", 2)


@dataclass
class Drawn:
    """One span as operations drew it."""

    name: str
    parent: str | None
    kind: str
    begin: int
    attributes: dict
    events: list = field(default_factory=list)
    end: int | None = None
    error: str | None = None
    text: str | None = None
    remote: tuple | None = None

    @property
    def outline(self):
        """What a person would draw: name, parent, begin and end in seconds, outcome, error."""
        outcome = self.attributes.get("cmdc.outcome")
        return (self.name, self.parent, self.begin, self.end, outcome, self.error)


class Drawing:
    """Carries operations out, and holds them to their rules."""

    def __init__(self, captures=False):
        self.tracker = Tracker(captures=captures)
        self.open, self.spans, self.measures = {}, [], []

    def play(self, *heard, facts=FACTS, start=0):
        for second, event in enumerate(heard, start):
            self.apply(self.tracker.track(event, facts, second * 10**9))
        return self

    def end(self, second):
        self.apply(self.tracker.end(FACTS, second * 10**9))
        assert self.open == {}
        return self

    def apply(self, operations):
        for operation in operations:
            match operation:
                case OpenSpan():
                    self.begin(operation)
                case AddSpanEvent(key, name, _, attributes):
                    self.open[key].events.append((name, attributes))
                case AddAttributes(key, attributes):
                    self.open[key].attributes.update(attributes)
                case EndSpan(key, at_ns, error, text):
                    span = self.open.pop(key)
                    span.end, span.error, span.text = at_ns // 10**9, error, text
                    assert span.end >= span.begin
                case AddToMetric(instrument, value, attributes):
                    assert instrument in names.INSTRUMENTS
                    self.measures.append((instrument, value, attributes))

    def begin(self, opened):
        assert opened.key not in self.open
        parent = None if opened.parent is None else self.open[opened.parent].name
        span = Drawn(
            opened.name, parent, opened.kind, opened.at_ns // 10**9, dict(opened.attributes)
        )
        span.remote = opened.remote
        self.open[opened.key] = span
        self.spans.append(span)

    @property
    def outlines(self):
        return [span.outline for span in self.spans]

    def span(self, name):
        [found] = [span for span in self.spans if span.name == name]
        return found

    def notes(self, name):
        """Return the attributes of every event of this name, with the span that it is in."""
        return [
            (span.name, attributes)
            for span in self.spans
            for event, attributes in span.events
            if event == name
        ]

    def measured(self, instrument):
        return [(value, kinds) for name, value, kinds in self.measures if name == instrument]


@pytest.fixture(scope="session")
def drawing_of():
    """Draw the spans of a session: ``drawing_of().play(event, event).end(2)``."""
    return Drawing
