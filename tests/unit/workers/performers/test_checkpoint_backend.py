"""The session's own checkpoint backend: its time, its answers, and what is said of its failures."""

import asyncio
import threading

import pytest

from cmdc_runtime.checkpoints import CHECKPOINT_BYTES_MAX, Snapshot
from cmdc_runtime.commands import DeleteOwnCheckpoint, ListOwnCheckpoints, LoadOwnCheckpoint
from cmdc_runtime.errors import CheckpointFailed, CheckpointNotFound, CheckpointUnreadable
from cmdc_runtime.extensions.checkpoint_backend import CheckpointBackend
from cmdc_runtime.wire.codec import encode
from workers.core.snapshot import saved
from workers.core.state import Memory
from workers.performers import checkpoint_backend as module
from workers.performers.checkpoint_backend import OwnBackend

BODY = encode(saved(Memory(model="x:m")))


def snapshot(name="c", **given):
    facts = {"checkpoint_id": name, "session_id": "s", "label": None, "saved_at_ms": 1}
    return Snapshot(**(facts | {"schema_version": 1, "metadata": {}} | given))


class Scripted(CheckpointBackend):
    """Returns what it is given for each method, or calls it."""

    def __init__(self, **does):
        self.does = does

    def _do(self, method):
        prepared = self.does.get(method)
        return prepared() if callable(prepared) else prepared

    def save(self, snapshot, body):
        return self._do("save")

    def load(self, session_id, checkpoint_id):
        return self._do("load")

    def list(self, session_id):
        return self._do("list")

    def delete(self, session_id, checkpoint_id):
        return self._do("delete")


def ask(command, **does):
    """Return what a backend answers to a command, asked as a session's own."""
    return asyncio.run(OwnBackend(Scripted(**does), "s").asked(command))


def test_what_it_lists_is_returned_newest_first():
    """In whatever order it comes, from a generator too."""
    listed = ask(
        ListOwnCheckpoints(), list=lambda: (snapshot(f"c-{at}", saved_at_ms=at) for at in (2, 3, 1))
    )

    assert [one.checkpoint_id for one in listed] == ["c-3", "c-2", "c-1"]


def test_what_it_loads_comes_back():
    """The facts and the body, be that any kind of bytes."""
    for body in (BODY, bytearray(BODY), memoryview(BODY)):
        found = ask(LoadOwnCheckpoint(checkpoint_id="c"), load=(snapshot(), body))

        assert (found.snapshot, found.body) == (snapshot(), BODY)


def test_a_coroutine_of_a_plain_method_is_awaited():
    """As that of an async one is."""

    async def later():
        return [snapshot()]

    assert ask(ListOwnCheckpoints(), list=later) == (snapshot(),)
    assert ask(DeleteOwnCheckpoint()) is None


@pytest.mark.parametrize(
    ("returned", "error", "problem"),
    [
        (None, CheckpointNotFound, "checkpoint backend Scripted has no checkpoint 'c' of session"),
        ((snapshot(),), CheckpointFailed, "load returned .*, and a .Snapshot, bytes. is wanted"),
        ((snapshot(), "x"), CheckpointFailed, "and a .Snapshot, bytes. is wanted"),
        (({}, b""), CheckpointFailed, "load returned {}, and a Snapshot is wanted"),
        ((snapshot("d"), BODY), CheckpointFailed, "load returned checkpoint 'd' for another one"),
        ((snapshot(session_id="t"), BODY), CheckpointFailed, "a checkpoint of session 't'"),
        ((snapshot(), b"\xc1"), CheckpointUnreadable, "damaged"),
        ((snapshot(), b""), CheckpointUnreadable, "damaged"),
        ((snapshot(), bytes(CHECKPOINT_BYTES_MAX + 1)), CheckpointFailed, "67,108,864 fit"),
    ],
)
def test_what_it_loads_is_a_checkpoint_of_the_session(returned, error, problem):
    """Or the error says what came."""
    with pytest.raises(error, match=problem):
        ask(LoadOwnCheckpoint(checkpoint_id="c"), load=returned)


def test_fields_of_another_type_are_no_snapshot():
    """What was made around the checks of its class is seen here."""
    odd = snapshot(metadata={"x": 1})
    odd.metadata["x"] = object()

    with pytest.raises(CheckpointFailed, match="list returned a Snapshot that is none"):
        ask(ListOwnCheckpoints(), list=[odd])


def test_an_id_that_nobody_could_ask_for_is_reported():
    """It would be listed, and never be loaded."""
    with pytest.raises(CheckpointFailed, match="a checkpoint of the id 'no id'"):
        ask(ListOwnCheckpoints(), list=[snapshot("no id")])


def test_an_endless_list_ends(monkeypatch):
    """At the bound, with the way out."""
    monkeypatch.setattr(module, "LISTED_MAX", 3)

    def endless():
        while True:
            yield snapshot()

    with pytest.raises(CheckpointFailed, match="list returned more than 3: delete some there"):
        ask(ListOwnCheckpoints(), list=endless)


@pytest.mark.parametrize("method", ["save", "load", "list", "delete"])
def test_a_backend_that_hangs_is_left_alone(monkeypatch, method):
    """Its thread goes on; with too many of them nothing is begun any more."""
    monkeypatch.setattr(module, "BACKEND_S", 0.01)
    monkeypatch.setattr(module, "STRAYS_MAX", 2)
    gate = threading.Event()
    asked = {
        "save": lambda own: own.save(snapshot(), BODY),
        "load": lambda own: own.load(None),
        "list": lambda own: own.known(),
        "delete": lambda own: own.delete(None),
    }

    async def scenario():
        own = OwnBackend(Scripted(**{method: gate.wait}), "s")
        problems = []
        for _ in range(3):
            with pytest.raises(CheckpointFailed) as failed:
                await asked[method](own)
            problems.append(str(failed.value))
        gate.set()
        return problems

    first, second, third = asyncio.run(scenario())
    assert first == second == f"checkpoint backend Scripted: {method} did not return within 0.01 s"
    assert third == "checkpoint backend Scripted is busy: 2 calls of it have not returned yet"


def test_an_async_method_that_hangs_is_cancelled(monkeypatch):
    """In its time, as a plain one is left alone."""
    monkeypatch.setattr(module, "BACKEND_S", 0.01)

    class Hangs(Scripted):
        async def list(self, session_id):
            await asyncio.Event().wait()

    with pytest.raises(CheckpointFailed, match=r"Hangs: list did not return within 0.01 s"):
        asyncio.run(OwnBackend(Hangs(), "s").known())


def test_its_own_timeout_is_its_own_failure():
    """It is reported as what it raised, not as ours."""

    def late():
        raise TimeoutError("the database did not answer")

    with pytest.raises(CheckpointFailed, match="save raised TimeoutError: the database"):
        asyncio.run(OwnBackend(Scripted(save=late), "s").save(snapshot(), BODY))


def test_a_class_is_made_at_the_first_use_and_once():
    """However many calls there are at a time."""
    made = []

    class Counted(Scripted):
        def __init__(self):
            super().__init__(list=[])
            made.append(self)

    async def scenario():
        own = OwnBackend(Counted, "s")
        assert made == []
        await asyncio.gather(own.known(), own.known(), own.delete(None))

    asyncio.run(scenario())
    assert len(made) == 1
