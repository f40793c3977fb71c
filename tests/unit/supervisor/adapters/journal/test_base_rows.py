"""Rows of a journal that somebody has damaged."""

from dataclasses import replace

import pytest

from cmdc_runtime.errors import UsageError
from cmdc_runtime.ids import is_session_id
from supervisor.adapters.journal.base import (
    CheckpointRow,
    SessionRow,
    check_row,
    checkpoint_problem,
    is_checkpoint_id,
    row_problem,
    shown_checkpoint,
    shown_row,
)

ROW = SessionRow(session_id="s-1", created_ms=5, spec=b"spec", incarnation=2, restarts=1)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"session_id": b"s-1"}, "session_id: no session can be called b's-1'"),
        ({"session_id": "a\udcffb"}, "session_id: no session can be called 'a\\udcffb'"),
        ({"created_ms": -1}, "created_ms: -1 is not between"),
        ({"created_ms": "late"}, "created_ms: expected an int, got str"),
        ({"incarnation": -1}, "incarnation: -1 is not between"),
        ({"incarnation": 2**62}, "incarnation: "),
        ({"incarnation": 1.5}, "incarnation: expected an int, got float"),
        ({"restarts": None}, "restarts: expected an int, got NoneType"),
        ({"ended_ms": -1}, "ended_ms: -1 is not between"),
        ({"ended_ms": "late"}, "ended_ms: expected an int, got str"),
        ({"written": b""}, "written: expected an int, got bytes"),
        ({"spec": "spec"}, "spec: expected bytes, got str"),
        ({"parent_id": 5}, "parent_id: expected a str, got int"),
        ({"group_id": "\udc80"}, "group_id: it is no valid UTF-8"),
    ],
)
def test_a_row_that_no_daemon_writes_is_distinguished(fields, problem):
    """What is shown of it can be asked for, and fits into what clients read."""
    damaged = replace(ROW, **fields)
    assert row_problem(damaged).startswith(problem)
    with pytest.raises(UsageError, match="the journal's row of the session is damaged"):
        check_row(damaged)
    shown = replace(shown_row(damaged), spec=b"spec")
    assert row_problem(shown) is None
    assert is_session_id(shown.session_id)


def test_a_sound_row_is_as_it_is():
    """Also with a parent and a group."""
    row = replace(ROW, parent_id="p", group_id="team")
    check_row(row)
    assert row_problem(row) is None
    assert shown_row(row) == row


CHECKPOINT = CheckpointRow(
    session_id="s-1",
    checkpoint_id="c-1",
    label="here",
    saved_ms=5,
    schema_version=1,
    body=b"state",
    metadata=b"\x80",
)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"saved_ms": "late"}, "saved_ms: expected an int, got str"),
        ({"schema_version": -1}, "schema_version: -1 is not between"),
        ({"label": 5}, "label: expected a str, got int"),
        ({"label": "a\udcff"}, "label: it is no valid UTF-8"),
        ({"metadata": "text"}, "metadata: expected bytes, got str"),
        ({"body": None}, "body: expected bytes, got NoneType"),
    ],
)
def test_a_damaged_checkpoint_is_shown_as_one_that_cannot_be_read(fields, problem):
    """By its id, with what is whole of it."""
    damaged = replace(CHECKPOINT, **fields)
    shown = shown_checkpoint(damaged)

    assert checkpoint_problem(damaged).startswith(problem)
    assert checkpoint_problem(replace(shown, body=b"state")) is None
    assert (shown.checkpoint_id, shown.metadata) == ("c-1", b"")


@pytest.mark.parametrize("found", [b"c-1", 7, "a b", "", "a\udcff"])
def test_a_checkpoint_without_an_id_cannot_be_asked_for(found):
    """So it can be shown to nobody."""
    assert not is_checkpoint_id(found)
    assert checkpoint_problem(replace(CHECKPOINT, checkpoint_id=found)).startswith("checkpoint_id:")


def test_a_sound_checkpoint_is_shown_as_it_is():
    """With its metadata."""
    assert shown_checkpoint(CHECKPOINT) is CHECKPOINT
    assert is_checkpoint_id("c-1")
