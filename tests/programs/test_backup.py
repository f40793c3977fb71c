"""A backup that is made while sessions work, and what a daemon elsewhere goes on with."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client.sync.session import Session
from tests.fault.conftest import OwnDaemon

pytestmark = [pytest.mark.process, pytest.mark.slow]

CMDC = Path(sys.executable).with_name("cmdc")
SESSIONS = 8
BEFORE = 3
"""Prompts that each session has answered when the backup begins."""
TEXT = "x" * 4_000
TURN_S = 60.0
CLI_S = 60.0


@pytest.fixture
def elsewhere():
    """Directories for a daemon that is started on a restored journal."""
    found = OwnDaemon()
    yield found
    found.close()


@pytest.fixture
def run(cmdc_daemon):
    """Run the command line at the run's daemon."""

    def command(*words, **variables):
        ours = {name: text for name, text in os.environ.items() if not name.startswith("CMDC_")}
        return subprocess.run(
            [CMDC, *map(str, words)],
            env={**ours, "CMDC_ADDRESS": str(cmdc_daemon.address), **variables},
            capture_output=True,
            text=True,
            timeout=CLI_S,
            check=False,
        )

    return command


@pytest.fixture
def speakers(agent, scripted):
    """Prompt some sessions from now on; the end of it ends them."""
    model, is_over = scripted(default="fine"), threading.Event()
    found = [Speaker(agent(model), is_over) for _ in range(SESSIONS)]
    for one in found:
        one.start()
    yield found
    hushed(found)


def hushed(speakers):
    """Let the speakers end, and check that nothing went wrong."""
    for one in speakers:
        one.is_over.set()
    for one in speakers:
        one.join(TURN_S)
    assert [(one.is_alive(), one.error) for one in speakers] == [(False, None)] * len(speakers)


def texts(session):
    """Return the prompts of a session by their numbers."""
    return [int(one.content.split()[0]) for one in session.messages() if one.role == "user"]


class Speaker(threading.Thread):
    """Prompts a session again and again, and counts what was acknowledged."""

    def __init__(self, session, is_over):
        super().__init__(daemon=True)
        self.session, self.is_over = session, is_over
        self.taken = self.answered = 0
        self.error = None

    def run(self):
        try:
            while not self.is_over.is_set():
                self.session.prompt(f"{self.taken} {TEXT}")
                self.taken += 1
                self.session.collect_reply(timeout=TURN_S)
                self.answered += 1
        except cmdc.CmdcError as error:
            self.error = error


def test_a_backup_amid_work_is_gone_on_with_elsewhere(speakers, run, elsewhere, poll, tmp_path):
    """All that was acknowledged before it is there, nothing is there in part, sessions resume."""
    assert poll(lambda: min(one.answered for one in speakers) >= BEFORE, TURN_S)
    before = [one.taken for one in speakers]
    made = run("backup", tmp_path / "b", "--json")
    after = [one.taken + 1 for one in speakers]  # of one more the answer may be on its way
    assert poll(
        lambda: all(one.answered > then for one, then in zip(speakers, after, strict=True)), TURN_S
    )
    hushed(speakers)
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["sessions"] >= SESSIONS

    places = {
        "CMDC_STATE_DIR": str(elsewhere.place / "state"),
        "CMDC_RUNTIME_DIR": str(elsewhere.address),
    }
    done = run("restore", tmp_path / "b", **places)
    assert done.returncode == 0, done.stderr
    elsewhere.start()
    ours = {one.session.id for one in speakers}
    with elsewhere.client() as there:
        for status in there.list_sessions():
            if status.session_id not in ours:  # other tests' of the run's daemon
                there.stop(status.session_id)
        for one, low, high in zip(speakers, before, after, strict=True):
            with Session(one.session.id, there) as session:
                with contextlib.suppress(cmdc.UsageError):  # it may have had nothing to do
                    session.collect_reply(timeout=TURN_S)
                found = texts(session)
                assert found == list(range(len(found)))
                assert low <= len(found) <= high
                assert session.run(f"{len(found)} more", timeout=TURN_S).text == "fine"
                assert texts(session) == list(range(len(found) + 1))


def test_the_command_line_prints_what_it_did(agent, scripted, run, tmp_path):
    """One line for people, one value for programs, and where a check is asked for, that."""
    session = agent(scripted(default="fine"))
    session.run("Hi.", timeout=TURN_S)
    file = tmp_path / "b"
    said = run("backup", file)
    checked = run("restore", "--check", file)

    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith(f"{file}: ")
    assert " MiB, as of 20" in said.stdout
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.startswith(f"{file} is whole: ")


def test_a_path_is_that_of_who_asks(agent, scripted, run, tmp_path):
    """A relative one counts from there, and a home is that of the person."""
    agent(scripted(default="fine"))
    done = run("backup", os.path.relpath(tmp_path / "b"))
    at_home = run("backup", "~/h", HOME=str(tmp_path))

    assert (done.returncode, at_home.returncode) == (0, 0), (done.stderr, at_home.stderr)
    assert {one.name for one in tmp_path.iterdir()} == {"b", "h"}


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("backup", "/nowhere/b"), 1, "/nowhere/b cannot be written: No such file or directory"),
        (("backup", "/dev/null", "--force"), 1, "is no regular file"),
        (("backup", ""), 2, "FILE: expected a path"),
        (("backup", "a\nb"), 2, "control character"),
        (("backup", "x" * 5_000), 2, "at most 4,096"),
        (("backup",), 2, "Missing argument"),
        (("restore", "/nowhere/b"), 1, "/nowhere/b cannot be read: No such file or directory"),
        (("restore", __file__), 1, "is no backup of a journal"),
        (("restore", __file__, "--config", "/nowhere"), 2, "config file /nowhere"),
    ],
)
def test_what_cannot_be_done_is_reported_in_one_line(run, tmp_path, words, status, message):
    """With the exit status that says who can do something about it."""
    done = run(*words, CMDC_STATE_DIR=str(tmp_path / "s"), CMDC_RUNTIME_DIR=str(tmp_path / "r"))

    assert done.returncode == status, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_running_daemon_keeps_its_journal(run, cmdc_daemon, agent, scripted, tmp_path):
    """Whatever is forced."""
    agent(scripted(default="fine"))
    assert run("backup", tmp_path / "b").returncode == 0
    places = {"CMDC_RUNTIME_DIR": str(cmdc_daemon.address)}
    flags = ("--force", "--state-dir", cmdc_daemon.state_dir)
    done = run("restore", tmp_path / "b", *flags, **places)

    assert done.returncode == 3
    assert "a daemon runs with the journal in" in done.stderr


def test_agents_that_wait_keep_their_journal(run, elsewhere, scripted, tmp_path):
    """They would bring the next daemon what the backup has not; when they have ended it goes."""
    elsewhere.grace = 60.0
    elsewhere.start()
    with elsewhere.client() as client:
        session = client.create_agent(model=scripted(default="fine"))
        session.run("Hi.", timeout=TURN_S)
        places = {
            "CMDC_STATE_DIR": str(elsewhere.place / "state"),
            "CMDC_RUNTIME_DIR": str(elsewhere.address),
        }
        address = {"CMDC_ADDRESS": str(elsewhere.address)}
        assert run("backup", tmp_path / "b", **address).returncode == 0
        elsewhere.kill()
        done = run("restore", tmp_path / "b", **places)
        elsewhere.start()
        assert session.run("Still?", timeout=TURN_S).text == "fine"
        session.stop()

    assert done.returncode == 3, done.stdout
    assert "agents of the last daemon wait for the next one" in done.stderr


def test_a_tool_makes_no_backup(agent, scripted, cmdc_daemon, tmp_path):
    """It would have the daemon write where it may not."""
    from cmdc_runtime.testing import ToolCalls, ToolUse  # noqa: PLC0415 - of this test alone

    words = f"{CMDC} backup {tmp_path / 'b'} --address {cmdc_daemon.address} 2>&1"
    model = scripted(ToolCalls(ToolUse("shell", {"command": words})), "done")
    session = agent(model, tools=["shell"])
    session.run("Try.", timeout=TURN_S)

    (result,) = [one.content for one in session.messages() if one.role == "tool_result"]
    assert "only a person or an application" in str(result)
    assert not (tmp_path / "b").exists()
