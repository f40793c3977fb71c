"""Journals that earlier versions wrote open, and say what they said then."""

import json
import shutil
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing.daemon import DaemonProcess
from supervisor.adapters.journal.sqlite import JOURNAL_FILE
from workers.core.records import RECORDS

from .journals_of_before.make import rebuilt, rows_of, snapshot_of, standing

FOLDER = Path(__file__).parent / "journals_of_before"
JOURNALS = sorted(path.stem for path in FOLDER.glob("*.db"))


class Restored(DaemonProcess):
    """A daemon whose state directory holds a journal from before its start."""

    def __init__(self, journal):
        """Start it on a copy of ``journal``."""
        self._journal = journal
        super().__init__()

    def _environment(self):
        self.state_dir.mkdir(mode=0o700)
        shutil.copyfile(self._journal, self.state_dir / JOURNAL_FILE)
        return super()._environment() | {"PYTHONPATH": str(FOLDER)}


def expected(name):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


RENAMED = {"allowances": "granted"}
"""Fields of a memory that had other names then."""
SESSIONS = {name: sorted(expected(name)["sessions"]) for name in JOURNALS}


@pytest.mark.process
@pytest.mark.parametrize("name", JOURNALS)
def test_sessions_stand_as_they_stood(name):
    """A daemon that starts on such a journal has its sessions, with all that they remember."""
    daemon = Restored(FOLDER / f"{name}.db")
    try:
        with cmdc.Client(daemon.address) as client:
            found = {one: standing(client, one) for one in SESSIONS[name]}
            for one in SESSIONS[name]:
                client.stop(one)
    finally:
        daemon.close()

    assert found == expected(name)["sessions"]


@pytest.mark.parametrize(
    ("name", "session_id"), [(name, one) for name in JOURNALS for one in SESSIONS[name]]
)
def test_what_is_kept_leads_to_the_same_memory(name, session_id):
    """The memory that is rebuilt of old records is the one that was rebuilt of them then."""
    then = expected(name)["rebuilt"][session_id]
    then = {RENAMED.get(field, field): value for field, value in then.items()}

    assert without_news(rebuilt(FOLDER / f"{name}.db", session_id), then) == then


SAID_SINCE = {"calls_asked", "share"}
"""What is said of old records, too, since a field was added for it."""


def without_news(now, then):
    """Return a memory without the fields that it has learned since then.

    Old records know nothing of those; one that has something all the same stays.
    """
    if isinstance(now, dict) and isinstance(then, dict):
        return {
            field: without_news(value, then.get(field))
            for field, value in now.items()
            if field in then or (value and field not in SAID_SINCE)
        }
    if isinstance(now, list) and isinstance(then, list) and len(now) == len(then):
        return [without_news(*pair) for pair in zip(now, then, strict=True)]
    return now


def test_each_kind_of_record_is_there():
    """Whoever adds a kind adds a journal that has it."""
    found = {
        kind
        for name in JOURNALS
        for one in SESSIONS[name]
        for kind, _ in rows_of(FOLDER / f"{name}.db", one)
    }

    assert {str(kind.__struct_config__.tag) for kind in RECORDS} - found == set()


def test_a_snapshot_is_there():
    """It stands for the records before it, in its own form."""
    assert any(
        snapshot_of(FOLDER / f"{name}.db", one)[1] for name in JOURNALS for one in SESSIONS[name]
    )
