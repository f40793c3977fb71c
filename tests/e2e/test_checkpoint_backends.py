"""Checkpoints in a backend of the application's own: each call about them, and each way to fail."""

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client.engine import ClientEngine
from cmdc_runtime.requests import ListCheckpoints
from tests.e2e.resuming import kill, said

TURN_S = 20.0
EXAMPLE = Path(__file__).parents[2] / "examples" / "19_checkpoint_files.py"


def example():
    """Return the module of the example, which is nowhere that can be imported."""
    spec = importlib.util.spec_from_file_location("example_of_checkpoints", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def backend(tmp_path):
    """The example's backend; it travels by value."""
    return example().CheckpointFiles(str(tmp_path))


def test_every_call_about_checkpoints_goes_to_the_backend(agent, scripted, backend, journaled):
    """Saved, listed newest first, loaded and deleted there; the journal has nothing of them."""
    session = agent(scripted("hello"), checkpoint_backend=backend)
    session.run("Hi.", timeout=TURN_S)
    first = session.checkpoint(label="a", metadata={"n": 1})
    second = session.checkpoint(label="b")

    assert session.list_checkpoints() == [second, first]
    assert (first.metadata, first.label) == ({"n": 1}, "a")
    state = session.load_checkpoint(first.checkpoint_id).state
    assert [one["content"] for one in state["messages"]] == ["Hi.", "hello"]
    assert session.load_checkpoint().checkpoint_id == second.checkpoint_id
    assert len(list(Path(backend.folder).iterdir())) == 2
    assert journaled(session) == ()
    session.delete_checkpoint(second.checkpoint_id)
    session.delete_checkpoint(second.checkpoint_id)
    assert session.list_checkpoints() == [first]
    with pytest.raises(cmdc.CheckpointNotFound, match="CheckpointFiles has no checkpoint 'c-0'"):
        session.load_checkpoint("c-0")
    session.delete_checkpoint()
    assert list(Path(backend.folder).iterdir()) == []


@pytest.fixture
def journaled(cmdc_daemon):
    """Return what the daemon's journal has of a session's checkpoints."""
    with contextlib.closing(ClientEngine(cmdc_daemon.address)) as engine:

        def found(session):
            request = ListCheckpoints(session_id=session.id)
            return engine.call(engine.exchange.ask(request, session.id))

        yield found


def test_an_ended_session_is_read_and_goes_on(agent, scripted, backend, resumed, journaled):
    """A process that only reads asks the backend; the state is in the journal for the start."""
    session = agent(scripted("one", "two", "other"), checkpoint_backend=backend)
    session.run("First?", timeout=TURN_S)
    made = session.checkpoint()
    session.run("Second?", timeout=TURN_S)
    session.stop()

    assert session.list_checkpoints() == [made]
    assert session.load_checkpoint().state["model"]
    again = resumed(session, checkpoint_id=made.checkpoint_id)
    assert said(again) == [("user", "First?"), ("assistant", "one")]
    assert again.run("Instead?", timeout=TURN_S).text == "other"
    assert again.list_checkpoints() == [made]
    assert journaled(again) == ()
    again.stop()
    session.delete_checkpoint(made.checkpoint_id)
    assert session.list_checkpoints() == []


def test_a_live_session_is_forked(agent, scripted, backend, resumed):
    """The fork has the backend as well, with checkpoints of its own."""
    session = agent(scripted("one", "mine", "its own"), checkpoint_backend=backend)
    session.run("First?", timeout=TURN_S)
    made = session.checkpoint()
    session.run("Me?", timeout=TURN_S)
    fork = resumed(session, checkpoint_id=made.checkpoint_id, new_id=f"{session.id}.f")

    assert fork.run("You?", timeout=TURN_S).text == "its own"
    assert [text for _, text in said(fork)] == ["First?", "one", "You?", "its own"]
    assert fork.list_checkpoints() == []
    assert fork.checkpoint().session_id == fork.id
    assert session.list_checkpoints() == [made]


def test_a_resumed_session_may_have_another_one(agent, scripted, backend, resumed, tmp_path):
    """What was saved stays where it was; from then on it goes to the other, or to the journal."""
    session = agent(scripted("one"), checkpoint_backend=backend)
    made = session.checkpoint()
    session.stop()
    (folder := tmp_path / "other").mkdir()
    other = example().CheckpointFiles(str(folder))
    again = resumed(session, checkpoint_id=made.checkpoint_id, checkpoint_backend=other)

    assert again.list_checkpoints() == []
    assert again.checkpoint() == again.list_checkpoints()[0]
    assert [file.name.partition("@")[0] for file in folder.iterdir()] == [session.id]
    again.stop()
    last = resumed(session, checkpoint_backend=None)
    kept = last.checkpoint(label="in the journal")
    assert last.list_checkpoints() == [kept]


def test_the_command_line_says_what_failed(agent, scripted, cmdc_daemon):
    """In one line, with the status of an error."""
    session = agent(scripted(), checkpoint_backend=Broken(list=fail))
    words = [Path(sys.executable).with_name("cmdc"), "checkpoints", session.id]
    completed = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"CMDC_ADDRESS": str(cmdc_daemon.address)},
    )

    assert completed.returncode == 1
    assert "checkpoint backend Broken: list raised OSError: the disk is gone" in completed.stderr
    assert "Traceback" not in completed.stderr


def test_who_lists_wakes_no_session(agent, scripted, backend, poll):
    """A session that sleeps is read for, and sleeps on."""
    session = agent(scripted("one"), checkpoint_backend=backend, hibernate_after=0.2)
    session.run("First?", timeout=TURN_S)
    made = session.checkpoint()
    assert poll(lambda: session.status().state == "hibernated")

    assert session.list_checkpoints() == [made]
    assert session.load_checkpoint().state["messages"]
    assert session.status().state == "hibernated"


def test_what_was_acknowledged_outlives_its_process(agent, scripted, backend, poll):
    """The agent is killed behind each save."""
    session = agent(scripted("one"), checkpoint_backend=backend, max_restarts=10)
    made = []
    for label in ("a", "b", "c"):
        made.insert(0, session.checkpoint(label=label))
        kill(session, poll)

    assert session.list_checkpoints() == made


def test_auto_checkpoint_saves_and_tidies_up_there(agent, scripted, backend, tmp_path):
    """Its own are counted and removed in the backend; what was saved by hand stays."""
    plugin = cmdc.plugins.AutoCheckpoint(every_n_turns=1, max_checkpoints=2)
    model = scripted("one", "two", "three", "four")
    session = agent(model, checkpoint_backend=backend, plugins=[plugin])
    by_hand = session.checkpoint(label="mine")
    for text in ("1?", "2?", "3?", "4?"):
        with session.subscribe(types=["plugin_event"]) as stream:
            session.run(text, timeout=TURN_S)
            assert stream.get(TURN_S).event.name == "auto_checkpoint_saved"

    labels = [one.label for one in session.list_checkpoints()]
    assert labels == ["auto: turns", "auto: turns", "mine"]
    assert by_hand in session.list_checkpoints()
    assert len(list(tmp_path.iterdir())) == 3


def test_a_class_and_its_name_will_do(agent, scripted):
    """A class is made without arguments where it is needed; its methods may be async."""
    session = agent(scripted(), checkpoint_backend="tests.e2e.kept_checkpoints:AsyncKept")
    made = session.checkpoint(label="by name")

    assert session.list_checkpoints() == [made]
    assert session.load_checkpoint().label == "by name"


def test_redact_is_asked_before_the_backend(agent, scripted, backend, tmp_path):
    """No byte of what it takes out reaches the backend."""

    def hush(state):
        for one in state["messages"]:
            one["content"] = re.sub(r"\d{4}", "[gone]", one["content"])
        return state

    session = agent(scripted("hello 4711"), redact=hush, checkpoint_backend=backend)
    session.run("I am 4711.", timeout=TURN_S)
    session.checkpoint()

    (file,) = tmp_path.iterdir()
    assert b"4711" not in file.read_bytes()
    assert b"[gone]" in file.read_bytes()


# --- backends that fail ----------------------------------------------------------------------


class Broken(cmdc.CheckpointBackend):
    """Does in each method what it is given."""

    def __init__(self, **does):
        self.does = does

    def _do(self, method, *given):
        return self.does[method](*given)

    def save(self, snapshot, body):
        return self._do("save", snapshot, body)

    def load(self, session_id, checkpoint_id):
        return self._do("load", session_id, checkpoint_id)

    def list(self, session_id):
        return self._do("list", session_id)

    def delete(self, session_id, checkpoint_id):
        return self._do("delete", session_id, checkpoint_id)


def fail(*_given):
    raise OSError("the disk is gone")


def leave(*_given):
    os._exit(9)


def snapshot(**given):
    facts = {"checkpoint_id": "c", "session_id": "other", "label": None, "saved_at_ms": 1}
    return cmdc.Snapshot(**(facts | {"schema_version": 1, "metadata": {}} | given))


@pytest.mark.parametrize("method", ["save", "load", "list", "delete"])
def test_a_backend_that_raises_is_named_and_ends_nothing(agent, scripted, method):
    """The error says which backend, which method and what it raised; the session goes on."""
    session = agent(scripted("hello"), checkpoint_backend=Broken(**{method: fail}))
    asked = {
        "save": session.checkpoint,
        "load": session.load_checkpoint,
        "list": session.list_checkpoints,
        "delete": session.delete_checkpoint,
    }
    problem = f"checkpoint backend Broken: {method} raised OSError: the disk is gone"

    with pytest.raises(cmdc.CheckpointFailed, match=problem):
        asked[method]()
    assert session.run("Hi.", timeout=TURN_S).text == "hello"
    assert session.status().incarnation == 1


@pytest.mark.parametrize(
    ("method", "returned", "problem"),
    [
        ("list", 5, "list raised TypeError: 'int' object is not iterable"),
        ("list", ["x"], "list returned 'x', and a Snapshot is wanted"),
        ("list", [snapshot()], "list returned a checkpoint of session 'other'"),
        ("load", None, "has no checkpoint of session"),
        ("load", b"x", r"load returned b'x', and a \(Snapshot, bytes\)"),
        ("load", (snapshot(), b""), "load returned a checkpoint of session 'other'"),
    ],
)
def test_garbage_of_a_backend_is_reported(agent, scripted, method, returned, problem):
    """What is no checkpoint of the session is none."""
    broken = Broken(**{method: lambda *_given: returned})
    session = agent(scripted("hello"), checkpoint_backend=broken)
    asked = {"load": session.load_checkpoint, "list": session.list_checkpoints}

    with pytest.raises((cmdc.CheckpointFailed, cmdc.CheckpointNotFound), match=problem):
        asked[method]()
    assert session.run("Hi.", timeout=TURN_S).text == "hello"


def test_a_damaged_body_is_no_state(agent, scripted, backend, tmp_path, client):
    """Neither to look at nor to go on with."""
    session = agent(scripted("hello"), checkpoint_backend=backend)
    made = session.checkpoint()
    (file,) = tmp_path.iterdir()
    facts, _body = msgspec.msgpack.decode(file.read_bytes())
    file.write_bytes(msgspec.msgpack.encode((facts, b"\xc1 no state")))

    with pytest.raises(cmdc.CheckpointUnreadable, match="damaged"):
        session.load_checkpoint()
    with pytest.raises(cmdc.CheckpointUnreadable, match="damaged"):
        client.resume_session(session, checkpoint_id=made.checkpoint_id, new_id=f"{session.id}.f")
    assert session.run("Hi.", timeout=TURN_S).text == "hello"


@pytest.mark.parametrize("method", ["save", "list"])
def test_a_backend_that_kills_its_process_ends_no_session(agent, scripted, method):
    """The next process is asked once more, no third one."""
    session = agent(scripted("hello"), checkpoint_backend=Broken(**{method: leave}))
    asked = {"save": session.checkpoint, "list": session.list_checkpoints}

    with pytest.raises(cmdc.CheckpointFailed, match="died one after the other"):
        asked[method]()
    assert session.run("Hi.", timeout=TURN_S).text == "hello"


def test_a_class_that_cannot_be_made_stops_no_session(agent, scripted):
    """It is made where it is needed, and that is reported there."""
    session = agent(scripted("hello"), checkpoint_backend="tests.e2e.kept_checkpoints:Unmade")

    with pytest.raises(cmdc.CheckpointFailed, match="Unmade cannot be made: OSError: no database"):
        session.checkpoint()
    assert session.run("Hi.", timeout=TURN_S).text == "hello"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (5, 'expected a class or object of cmdc.CheckpointBackend, or "module:Class"'),
        ("nothing", 'expected "module:Class"'),
        (threading.Lock(), 'expected a class or object of cmdc.CheckpointBackend, or "module:'),
        (cmdc.CheckpointBackend, "has no method delete, list, load, save"),
        (dict, "expected a class or an object of cmdc.CheckpointBackend"),
    ],
)
def test_what_is_no_backend_is_refused_at_the_start(agent, scripted, given, problem):
    """With what would have been one."""
    with pytest.raises(cmdc.InvalidOptions, match=f"checkpoint_backend: .*{problem}"):
        agent(scripted(), checkpoint_backend=given)
