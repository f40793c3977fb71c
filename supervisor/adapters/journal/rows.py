"""What of a row of a session, a checkpoint or an end in a journal cannot be gone on with. Pure.

SQLite keeps any value in any column, and a file may have been edited, restored from elsewhere or
written by a program with a fault: a row is looked at as what comes from a client is.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from cmdc_runtime.checked_struct import INCARNATION_MAX, INDEX_MAX, TIME_MS_MAX
from cmdc_runtime.checkpoints import CHECKPOINT_ID, SCHEMA_VERSION_MAX
from cmdc_runtime.errors import UsageError
from cmdc_runtime.ids import is_session_id
from cmdc_runtime.plain import text_problem, whole_problem
from supervisor.adapters.journal.base import CheckpointRow, SessionRow

TEXT_CHARS_MAX: Final = 2**20
"""Of a parent's id or a group's name; older programs had no bound for these."""
_DOWN_NUMBERS: Final = (
    ("seq", INDEX_MAX),
    ("incarnation", INCARNATION_MAX),
    ("restarting", 1),
    ("at_ms", TIME_MS_MAX),
)
_CHECKPOINT_NUMBERS: Final = (("saved_ms", TIME_MS_MAX), ("schema_version", SCHEMA_VERSION_MAX))
_NUMBERS: Final = (
    ("created_ms", TIME_MS_MAX),
    ("incarnation", INCARNATION_MAX - 1),  # the next process has a number, too
    ("restarts", INCARNATION_MAX - 1),
    ("written", INDEX_MAX),
)


def row_problem(row: SessionRow) -> str | None:
    """Return what of a row cannot be what a daemon has written, or None."""
    session_id: object = row.session_id
    if not isinstance(session_id, str) or not is_session_id(session_id):
        return f"session_id: no session can be called {ascii(session_id)[:80]}"
    for name, high in _NUMBERS:
        if (wrong := whole_problem(getattr(row, name), 0, high)) is not None:
            return f"{name}: {wrong}"
    if row.ended_ms is not None:
        wrong = whole_problem(row.ended_ms, 0, TIME_MS_MAX)
        if wrong is not None:
            return f"ended_ms: {wrong}"
    spec: object = row.spec
    if not isinstance(spec, bytes):
        return f"spec: expected bytes, got {type(spec).__name__}"
    for name in ("parent_id", "group_id"):
        text = getattr(row, name)
        if text is not None and (wrong := text_problem(text, chars_max=TEXT_CHARS_MAX)) is not None:
            return f"{name}: {wrong}"
    return None


def check_row(row: SessionRow) -> None:
    """Refuse a row that a session cannot go on from, before it is written or taken over.

    Raises:
        UsageError: with what is wrong.
    """
    if (problem := row_problem(row)) is not None:
        raise UsageError(f"the journal's row of the session is damaged: {problem}")


def shown_row(row: SessionRow) -> SessionRow:
    """Return a row that can be shown to clients: what is damaged of it reads as if never set.

    An id that is none is replaced by one that can be asked for, made from what is there.
    """
    session_id: object = row.session_id
    changes: dict[str, Any] = {}  # Any: values of columns
    if not isinstance(session_id, str) or not is_session_id(session_id):
        mark = hashlib.sha256(ascii(session_id).encode()).hexdigest()[:16]
        changes["session_id"] = f"damaged-{mark}"
    for name, high in _NUMBERS:
        if whole_problem(getattr(row, name), 0, high) is not None:
            changes[name] = 0
    if whole_problem(row.ended_ms, 0, TIME_MS_MAX) is not None:
        changes["ended_ms"] = None
    for name in ("parent_id", "group_id"):
        if text_problem(getattr(row, name), chars_max=TEXT_CHARS_MAX) is not None:
            changes[name] = None
    return replace(row, **changes)


def checkpoint_problem(row: CheckpointRow) -> str | None:
    """Return what of a checkpoint's row cannot be what a daemon has written, or None."""
    if not is_checkpoint_id(row.checkpoint_id):
        return f"checkpoint_id: no checkpoint can be called {ascii(row.checkpoint_id)[:80]}"
    for name, high in _CHECKPOINT_NUMBERS:
        if (wrong := whole_problem(getattr(row, name), 0, high)) is not None:
            return f"{name}: {wrong}"
    if (wrong := _label_problem(row.label)) is not None:
        return f"label: {wrong}"
    for name in ("metadata", "body"):
        value: object = getattr(row, name)
        if not isinstance(value, bytes):
            return f"{name}: expected bytes, got {type(value).__name__}"
    return None


def is_checkpoint_id(found: object) -> bool:
    """Say whether a checkpoint that is called so can be asked for."""
    return isinstance(found, str) and CHECKPOINT_ID.fullmatch(found) is not None


def shown_checkpoint(row: CheckpointRow) -> CheckpointRow:
    """Return a row that can be shown to clients: what is damaged of it reads as if never set.

    Its metadata are left empty then, which nobody can read: so the client knows.
    """
    if checkpoint_problem(row) is None:
        return row
    changes: dict[str, Any] = {"metadata": b""}  # Any: values of columns
    for name, high in _CHECKPOINT_NUMBERS:
        if whole_problem(getattr(row, name), 0, high) is not None:
            changes[name] = 0
    if _label_problem(row.label) is not None:
        changes["label"] = None
    return replace(row, **changes)


def down_problem(columns: Mapping[str, object]) -> str | None:
    """Return what of an end's columns cannot be what a daemon has written, or None."""
    for name, high in _DOWN_NUMBERS:
        value = columns[name]
        is_unset = name == "incarnation" and value is None  # its id was used again
        if not is_unset and (wrong := whole_problem(value, 0, high)) is not None:
            return f"{name}: {wrong}"
    if not isinstance(body := columns["body"], bytes):
        return f"body: expected bytes, got {type(body).__name__}"
    return None


def _label_problem(label: object) -> str | None:
    return None if label is None else text_problem(label, chars_max=TEXT_CHARS_MAX)
