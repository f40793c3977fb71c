"""The page of incidents has every reason, and is made of its prose and of what was shown."""

import re

from cmdc_runtime.reasons import DownReason
from scripts.incidents import page
from scripts.incidents.playbill import PLAYS, command
from scripts.reference.sources import declared

HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
ANCHOR = re.compile(r"\]\(#([a-z0-9-]+)\)")


def test_every_reason_is_explained():
    """A new reason needs its text in scripts/incidents/prose."""
    headings = set(HEADING.findall(page.read()))
    missing = {kind.__name__ for kind in declared(DownReason)} - headings

    assert missing == set()


def test_every_reason_is_found_from_what_is_seen():
    """A new reason needs a line in the table of scripts/incidents/prose/00-table.md."""
    table, _, _ = page.read().partition("\n## ")
    linked = set(ANCHOR.findall(table))
    named = {kind.__name__ for kind in declared(DownReason)}
    missing = {name for name in named if name.lower() not in linked}

    assert missing == set()


def test_the_page_is_made_of_its_prose():
    """Who edits the prose writes the page anew in the same change."""
    assert not page.is_stale(), f"run `{page.WRITE} --prose`"


def test_every_incident_is_shown():
    """A place names what is played, and nothing is played for nobody."""
    places = page.places()
    named = {name for keys in places.values() for name, _ in keys}
    typed = [tuple(map(command, keys)) for keys in places.values()]

    assert named == set(PLAYS)
    assert len(set(typed)) == len(typed), "a block is known by its commands: let them differ"


def test_links_within_the_page_lead_somewhere():
    """An anchor is a heading in small letters, its words joined."""
    text = page.read()
    anchors = {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")
        for heading in HEADING.findall(text)
    }

    assert set(ANCHOR.findall(text)) - anchors == set()
