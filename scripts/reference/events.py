"""``events.md``: the catalogue of events, a section for each theme."""

import sys
from itertools import groupby
from typing import Final

from cmdc_runtime.events import Event
from scripts.reference import markdown
from scripts.reference.sources import declared, fields_of

_INTRO: Final = (
    "Everything that an observer can see a session do. A durable event outlives every crash, an"
    " ephemeral one lives as long as the daemon's ring remembers it. In an envelope an event comes"
    " with its session, its index and the time. `log` is its level in the event log, `span` the"
    " span of a trace that it begins, ends or adds to."
)
_ABOUT: Final = {
    "session": (
        "The session as a whole: subagents, compaction, hibernation, and what extensions publish."
    ),
    "supervision": "What supervisors say of their children, on the topic of the supervision tree.",
    "client": "What only the client makes, and how it hands events on.",
}
"""What is said of a theme that shares its module; of another one, the module's own words."""
_HEAD: Final = ("event", "kind", "kept", "log", "span", "fields", "meaning")


def page() -> str:
    """Return the page."""
    # What the client makes is of no session, and comes last.
    kinds = sorted(declared(Event), key=lambda kind: _theme(kind) == "client")
    blocks: list[str] = []
    for theme, group in groupby(kinds, _theme):
        members = list(group)
        module = sys.modules[members[0].__module__]
        about = _ABOUT.get(theme) or markdown.prose(module.__doc__)
        rows = map(_row, members)
        blocks += [f"## {theme.capitalize()}", about, markdown.table(_HEAD, rows)]
    return markdown.page("Events", _INTRO, *blocks)


def _theme(kind: type[Event]) -> str:
    return kind.theme or kind.__module__.rpartition(".")[2]


def _row(kind: type[Event]) -> tuple[str, ...]:
    fields = (
        f"`{field.name}: {field.annotation}{field.default and ' = ' + field.default}`"
        for field in fields_of(kind)
    )
    return (
        markdown.code(kind.__name__),
        markdown.code(kind.__struct_config__.tag),
        "durable" if kind.durable else "ephemeral",
        kind.level,
        kind.span and markdown.code(kind.span),
        ", ".join(fields),
        markdown.prose(kind.__doc__),
    )
