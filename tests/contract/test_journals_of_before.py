"""Journals that earlier versions wrote open, and say what they said then."""

import json
import shutil
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing.fixtures import DaemonProcess
from supervisor.adapters.journal.sqlite import JOURNAL_FILE
from workers.core.records import RECORDS

from .journals_of_before.make import SESSIONS, rebuilt, records_of, standing

FOLDER = Path(__file__).parent / "journals_of_before"
JOURNALS = sorted(path.stem for path in FOLDER.glob("*.db"))
NOT_THERE = {
    "CodeTaken",
    "Continued",
    "PluginOrdered",
    "PluginSpent",
    "SetAside",
    "ToolTold",
}
"""Kinds of records that no journal here has."""


class Restored(DaemonProcess):
    """A daemon whose state directory holds a journal from before its start."""

    def __init__(self, journal):
        """Start it on a copy of ``journal``."""
        self._journal = journal
        super().__init__()

    def _environment(self):
        self.state_dir.mkdir(mode=0o700)
        shutil.copyfile(self._journal, self.state_dir / JOURNAL_FILE)
        return super()._environment()


def expected(name):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.process
@pytest.mark.parametrize("name", JOURNALS)
def test_sessions_stand_as_they_stood(name):
    """A daemon that starts on such a journal has its sessions, with all that they remember."""
    daemon = Restored(FOLDER / f"{name}.db")
    try:
        with cmdc.Client(daemon.address) as client:
            found = {one: standing(client, one) for one in SESSIONS}
            for one in SESSIONS:
                client.stop(one)
    finally:
        daemon.close()

    assert found == expected(name)["sessions"]


@pytest.mark.parametrize("session_id", SESSIONS)
@pytest.mark.parametrize("name", JOURNALS)
def test_records_lead_to_the_same_memory(name, session_id):
    """The memory that is rebuilt of old records is the one that was rebuilt of them then."""
    then = expected(name)["rebuilt"][session_id]
    now = rebuilt(FOLDER / f"{name}.db", session_id)
    new = {field: now.pop(field) for field in now.keys() - then.keys()}

    assert now == then
    assert not any(
        new.values()
    )  # what memories have learned since then, old records know nothing of


def test_which_kinds_of_records_are_there():
    """Whoever adds a journal says which kinds of records none of them has."""
    found = {
        type(one)
        for name in JOURNALS
        for id_ in SESSIONS
        for one in records_of(FOLDER / f"{name}.db", id_)
    }

    assert {kind.__name__ for kind in set(RECORDS) - found} == NOT_THERE
