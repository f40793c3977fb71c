"""The catalogue of events has a section for each theme, wherever its classes stand."""

import re

import pytest

from cmdc_runtime import events
from cmdc_runtime.events import Event
from scripts.reference.events import page
from scripts.reference.sources import declared


@pytest.mark.parametrize(
    ("event", "section"),
    [
        (events.PluginEvent, "Session"),
        (events.SupervisorReport, "Supervision"),
        (events.EventsLost, "Client"),
        (events.UnknownEvent, "Client"),
    ],
)
def test_an_event_stands_in_the_section_of_its_theme(event, section):
    """Whoever looks for what supervisors report finds it by that word."""
    _, _, behind = page().partition(f"\n## {section}\n")

    assert f"\n| `{event.__name__}` |" in behind.partition("\n## ")[0]


def test_a_section_says_what_it_is_about():
    """And each stands there once, with its events in one table."""
    themes = re.findall(r"\n## (.+)\n\n(.+)\n\n\| event", page())

    assert len({theme for theme, _ in themes}) == len(themes) == page().count("\n## ")
    assert len({about for _, about in themes}) == len(themes)
    assert page().count("\n| `") == len(declared(Event))
