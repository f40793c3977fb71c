"""A session that was to move and did not: it goes on where it was, with all that it is."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from cmdc_runtime.testing import Hold
from cmdc_runtime.transfer import MAGIC

pytestmark = pytest.mark.process

CMDC = Path(sys.executable).with_name("cmdc")
TURN_S = 20.0
CLI_S = 60.0
STAYS = "was not moved, and goes on here"


@pytest.fixture
def move(cmdc_daemon):
    """Run ``cmdc export --move``."""

    def command(session, *arguments, **more):
        ours = {name: value for name, value in os.environ.items() if not name.startswith("CMDC_")}
        given = {"stdout": subprocess.DEVNULL, **more}
        return subprocess.run(
            [CMDC, "export", session.id, "--move", *arguments],
            env={**ours, "CMDC_ADDRESS": str(cmdc_daemon.address)},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=CLI_S,
            check=False,
            **given,
        )

    return command


def no_room(move, session):
    with Path("/dev/full").open("wb") as full:
        return move(session, stdout=full)


def no_reader(move, session):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return move(session, stdout=writer)
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    ("failing", "problem"),
    [(no_room, "No space left on device"), (no_reader, None)],
    ids=["room", "reader"],
)
def test_what_fails_behind_the_end_lets_the_session_go_on(agent, scripted, move, failing, problem):
    """A running cycle goes on as after a crash, and what waits is done."""
    model = scripted("hello", (Hold(), "late"), "late again", "waited")
    session = agent(model)
    session.run("Hi.", timeout=TURN_S)
    session.prompt("Slow?")
    model.wait_held()
    session.prompt("Waits.")
    done = failing(move, session)
    lines = done.stderr.splitlines()

    assert done.returncode == 1
    assert lines[0] == f"{session.id} {STAYS}"
    assert lines[1:] == ([] if problem is None else [line_of(problem)])
    assert session.collect_reply(timeout=TURN_S) == "waited"
    texts = [one.content for one in session.messages() if one.role == "user"]
    assert texts == ["Hi.", "Slow?", "Waits."]
    assert session.status().incarnation == 2


def line_of(problem):
    return f"Error: standard output cannot be written: {problem}"


@pytest.mark.parametrize("room", [len(MAGIC), 2**19], ids=["draft", "reserve"])
def test_a_file_for_which_there_is_no_room_ends_nothing(agent, scripted, move, tmp_path, room):
    """What can be known before is known before: the process of the session goes on."""
    session = agent(scripted("hello", "still here"))
    session.run("Hi.", timeout=TURN_S)
    pid = session.agent_pid()

    def bounded():
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    done = move(session, "-o", str(tmp_path / "file"), preexec_fn=bounded)

    assert done.returncode == 1
    assert done.stderr == f"cmdc: {tmp_path / 'file'} cannot be written: File too large\n"
    assert list(tmp_path.iterdir()) == []
    assert session.agent_pid() == pid
    assert session.run("There?", timeout=TURN_S).text == "still here"


def test_a_session_that_has_ended_is_moved_as_it_is(agent, scripted, move, tmp_path):
    """As where the command was killed behind the end: it is asked for again."""
    session = agent(scripted("hello"))
    session.run("Hi.", timeout=TURN_S)
    session.stop()
    with Path("/dev/full").open("wb") as full:
        unwritten = move(session, stdout=full)
    done = move(session, "-o", str(tmp_path / "file"))

    assert (unwritten.returncode, unwritten.stderr) == (
        1,
        line_of("No space left on device") + "\n",
    )
    assert (done.returncode, "moved" in done.stderr) == (0, True)
