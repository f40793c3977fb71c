"""The contract of checkpoint backends: the example keeps it, and each way to break it is found."""

import runpy
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import check_checkpoint_backend

EXAMPLE = Path(__file__).parents[2] / "examples" / "19_checkpoint_files.py"


class Kept(cmdc.CheckpointBackend):
    """Keeps checkpoints in memory."""

    def __init__(self):
        self.kept = {}

    def save(self, snapshot, body):
        self.kept[snapshot.session_id, snapshot.checkpoint_id] = (snapshot, body)

    def load(self, session_id, checkpoint_id):
        found = [one for one in self.kept.values() if one[0].session_id == session_id]
        if checkpoint_id is not None:
            return self.kept.get((session_id, checkpoint_id))
        return max(found, key=lambda one: one[0].saved_at_ms, default=None)

    def list(self, session_id):
        return [one for one, _ in self.kept.values() if one.session_id == session_id]

    def delete(self, session_id, checkpoint_id):
        for name in [*self.kept]:
            if name[0] == session_id and checkpoint_id in (None, name[1]):
                del self.kept[name]


class AsyncKept(Kept):
    """The same, awaited."""

    async def save(self, snapshot, body):
        super().save(snapshot, body)

    async def load(self, session_id, checkpoint_id):
        return super().load(session_id, checkpoint_id)

    async def list(self, session_id):
        return super().list(session_id)

    async def delete(self, session_id, checkpoint_id):
        super().delete(session_id, checkpoint_id)


@pytest.mark.parametrize("kind", [Kept, AsyncKept])
def test_a_backend_that_keeps_the_contract_passes(kind):
    """Plain or async, and nothing of the check is left in it."""
    backend = kind()
    check_checkpoint_backend(backend)

    assert backend.kept == {}


def test_the_example_keeps_it(tmp_path):
    """Files below a folder."""
    check_checkpoint_backend(runpy.run_path(str(EXAMPLE))["CheckpointFiles"](str(tmp_path)))

    assert list(tmp_path.iterdir()) == []


class Raises(Kept):
    """Says that a checkpoint is not there by an empty pair."""

    def load(self, session_id, checkpoint_id):
        return super().load(session_id, checkpoint_id) or ()


class Oldest(Kept):
    """Takes the last one saved for the newest."""

    def load(self, session_id, checkpoint_id):
        if checkpoint_id is None:
            mine = [one for one in self.kept.values() if one[0].session_id == session_id]
            return mine[-1] if mine else None
        return super().load(session_id, checkpoint_id)


class Shared(Kept):
    """Lists what others have, too."""

    def list(self, session_id):
        return [one for one, _ in self.kept.values()]


class Textual(Kept):
    """Keeps no bytes."""

    def save(self, snapshot, body):
        super().save(snapshot, body.decode(errors="replace").encode())


class First(Kept):
    """Keeps what it had."""

    def save(self, snapshot, body):
        self.kept.setdefault((snapshot.session_id, snapshot.checkpoint_id), (snapshot, body))


class Hoarder(Kept):
    """Deletes one only."""

    def delete(self, session_id, checkpoint_id):
        if checkpoint_id is not None:
            super().delete(session_id, checkpoint_id)


class Wiper(Kept):
    """Deletes all of everybody."""

    def delete(self, session_id, checkpoint_id):
        self.kept.clear()


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (Raises, "load returns None for what is not there"),
        (Oldest, "returns the newest by saved_at_ms"),
        (Shared, "list has all of a session and no other"),
        (Textual, "load returns what save was given"),
        (First, "save takes the place of a checkpoint of the same id"),
        (Hoarder, "takes all of the session away"),
        (Wiper, "delete of one leaves the others"),
    ],
)
def test_a_broken_rule_is_named(kind, rule):
    """The text says which."""
    with pytest.raises(AssertionError, match=rule):
        check_checkpoint_backend(kind())


def test_what_is_no_backend_is_refused():
    """Before anything of it is called."""
    with pytest.raises(TypeError, match="expected a class or an object of cmdc"):
        check_checkpoint_backend(object())
