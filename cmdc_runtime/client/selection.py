"""Which events a stream shows: classes, names of kinds, and names that plugins and tools give.

A name that nobody knows is a mistake, and would show nothing for ever; so it is refused. Known are
the kinds of events, the events that our plugins emit, and those that a plugin class of this process
names in ``emits``. Any other that a plugin or a tool emits is chosen as ``plugin:NAME``.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from cmdc_runtime.client.edge import parts_of
from cmdc_runtime.errors import PROBLEMS_MAX, InvalidOptions
from cmdc_runtime.events import Envelope, Event, EventsLost, PluginEvent, UnknownEvent
from cmdc_runtime.extensions.actions import NAME_CHARS_MAX
from cmdc_runtime.extensions.plugin import declared_events
from cmdc_runtime.plain import nearest, short, text_problem

EventTypes = Iterable[type[Event] | str]

PREFIX: Final = "plugin:"
TYPES_MAX: Final = 1_024
"""Of one stream: many times as many kinds as there are, for the names of an application's own."""
_CATALOGUE: Final = Path(__file__).parents[1] / "plugins" / "catalogue.json"


class Selection:
    """Which events a stream shows; EventsLost always is."""

    def __init__(self, types: EventTypes | None) -> None:
        """Take event classes and names; None means all.

        Raises:
            InvalidOptions: something else was given, or a name that no event has.

        """
        self._kinds: frozenset[str] | None = None
        self._emitted: frozenset[str] = frozenset()
        self._shows_unknown = False
        if types is None:
            return
        given: object = types
        if not isinstance(given, Iterable | type) or isinstance(given, Mapping | bytes):
            raise InvalidOptions([f"types: expected event classes or names, got {short(types)}"])
        chosen = [types] if isinstance(types, str | type) else parts_of(types, "types", TYPES_MAX)
        problems = list(islice(filter(None, map(_problem, chosen)), PROBLEMS_MAX))
        if problems:
            raise InvalidOptions(problems)
        names = [one if isinstance(one, str) else _kind(one) for one in chosen]
        self._shows_unknown = UnknownEvent in chosen
        self._kinds = _kinds() & frozenset(names)
        self._emitted = frozenset(
            name.removeprefix(PREFIX) for name in names if name not in self._kinds
        )

    def of(self, envelopes: list[Envelope]) -> list[Envelope]:
        """Return those that are shown."""
        if self._kinds is None:
            return envelopes
        return [envelope for envelope in envelopes if self._shows(envelope.event)]

    def _shows(self, event: Event) -> bool:
        if isinstance(event, UnknownEvent):
            return self._shows_unknown
        if isinstance(event, PluginEvent) and event.name in self._emitted:
            return True
        return event.kind in (self._kinds or ()) or isinstance(event, EventsLost)


def _problem(chosen: object) -> str | None:
    if not isinstance(chosen, str):
        is_event = isinstance(chosen, type) and issubclass(chosen, Event) and chosen is not Event
        return None if is_event else f"types: not an event: {short(chosen)}"
    known = _kinds() | _emitted_by_ours() | declared_events()
    if chosen in known:
        return None
    if chosen.startswith(PREFIX):
        return _emitted_problem(chosen)
    near = nearest(chosen, known)
    hint = "." if near is None else f", did you mean {near!r}?"
    return (
        f"types: no event is called {short(chosen)}{hint} One that a plugin or a tool of yours"
        f" emits is chosen as {short(PREFIX + chosen)}, those of a newer daemon as UnknownEvent"
    )


def _emitted_problem(chosen: str) -> str | None:
    """Return why nothing that plugins and tools emit can be called so, or None."""
    name = chosen.removeprefix(PREFIX)
    problem = text_problem(name, chars_max=NAME_CHARS_MAX) if name else "it ends there"
    if problem is None:
        return None
    return f"types: {short(chosen)}: the name of an event comes behind {PREFIX!r}; {problem}"


def _kind(event: type[Event]) -> str:
    return str(event.__struct_config__.tag)


@cache
def _kinds() -> frozenset[str]:
    return frozenset(map(_kind, Event.__subclasses__()))


@cache
def _emitted_by_ours() -> frozenset[str]:
    """Return the names of the events that built-in plugins emit, as their catalogue has them."""
    found = msgspec.json.decode(_CATALOGUE.read_bytes(), type=list[_Emitting])
    return frozenset(name for one in found for name in one.emits)


class _Emitting(msgspec.Struct, frozen=True):
    emits: tuple[str, ...] = ()
