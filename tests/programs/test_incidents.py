"""What an operator reads of an incident is what the page about it says."""

import pytest

from scripts.incidents import page
from scripts.incidents.playbill import play
from scripts.incidents.stage import Stage

pytestmark = [pytest.mark.process, pytest.mark.slow]

CHEAP = ("never_seen", "killed", "exit_3", "refused_by_plugin")
"""The others are played by ``make incidents-check``."""


@pytest.mark.parametrize("name", CHEAP)
def test_an_incident_shows_what_the_page_says(name, cmdc_daemon, client):
    """The real commands and the real log, against the page."""
    stage = Stage(client, cmdc_daemon.address, cmdc_daemon.log_text)
    new = page.blocks(play(name, stage))
    found = page.differences(page.read_back(), new)

    assert new != {}
    assert found == [], f"the page is out of date: run `{page.WRITE} --only {name}`"
