"""Output that cannot be written: one line and a status, whatever command it is."""

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cmdc_runtime.testing import ScriptedModel

pytestmark = pytest.mark.process

CMDC = Path(sys.executable).with_name("cmdc")
RUN_S = 60.0
"""For one command, the machine being busy."""
CLOSED = "import os, sys; os.close({}); os.execv(sys.argv[1], sys.argv[1:])"
"""Runs a command with one of its standard streams closed."""
LOST = "standard output cannot be written: "
COMMANDS = [
    ("--help",),
    ("plugins",),
    ("ps", "--json"),
    ("ps",),
    ("tree",),
    ("doctor",),
    ("checkpoints", "printed"),
    ("checkpoints", "printed", "--json"),
    ("replay", "printed"),
    ("tail", "printed", "--since", "0", "--json"),
    ("export", "printed"),
]


@pytest.fixture(scope="module")
def printed(cmdc_daemon):
    """A session whose events are there, so that every command has something to print."""
    with ScriptedModel([], default="Said.") as model, cmdc_daemon.client() as client:
        session = client.create_agent(model=model, session_id="printed")
        session.run("Hi.")
        session.checkpoint(label="said")
        yield model
        session.stop()


@pytest.fixture
def run(cmdc_daemon, printed):
    """Run a command at the daemon; what goes to standard output is not kept."""

    def command(*words, program=(), **streams):
        ours = {name: value for name, value in os.environ.items() if not name.startswith("CMDC_")}
        given = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, **streams}
        return subprocess.run(
            [*program, CMDC, *words],
            env={**ours, "CMDC_ADDRESS": str(cmdc_daemon.address)},
            timeout=RUN_S,
            check=False,
            **given,
        )

    return command


def named(words):
    return " ".join(words)


@pytest.mark.parametrize("words", COMMANDS, ids=named)
def test_output_for_which_there_is_no_room_is_one_line(run, words):
    """The line says why, and the status is that of a failure."""
    with Path("/dev/full").open("wb") as full:
        done = run(*words, stdout=full)

    assert done.returncode == 1
    assert done.stderr.decode() == f"Error: {LOST}No space left on device\n"


@pytest.mark.parametrize("words", COMMANDS, ids=named)
def test_output_that_nobody_reads_ends_the_command_quietly(run, words):
    """As behind ``| head -0``: there is nothing to say."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = run(*words, stdout=writer)
    finally:
        os.close(writer)

    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("words", COMMANDS, ids=named)
def test_closed_output_is_one_line(run, words):
    """Nothing else that the command opens is taken for its output."""
    done = run(*words, program=(sys.executable, "-c", CLOSED.format(1)))

    assert done.returncode == 1
    assert done.stderr.decode() == f"Error: {LOST}Bad file descriptor\n"


def test_answer_that_cannot_be_written_is_one_line(run, printed):
    """The session of ``run`` has ended with it."""
    name, opts = printed.model_source()
    options = [word for key, value in opts.items() for word in ("--provider-opt", f"{key}={value}")]
    words = ("run", "hi", "--model", name, *options, "--session-id", "unheard")
    with Path("/dev/full").open("wb") as full:
        done = run(*words, stdout=full)
    gone = run("stop", "unheard", stdout=subprocess.DEVNULL)

    assert done.returncode == 1
    assert done.stderr.decode() == f"Error: {LOST}No space left on device\n"
    assert b"ended" in gone.stderr


@pytest.mark.parametrize(("words", "status"), [(("nosuch",), 2), (("stop", "nosuch"), 1)])
def test_errors_that_cannot_be_written_leave_the_status(run, words, status):
    """Nobody can read them, and the status is what it would have been."""
    with Path("/dev/full").open("wb") as full:
        unheard = run(*words, stderr=full)
    closed = run(*words, program=(sys.executable, "-c", CLOSED.format(2)))

    assert (unheard.returncode, closed.returncode) == (status, status)


def test_output_that_does_not_block_is_waited_for(run):
    """What reads more slowly than the command writes gets everything."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    found = []

    def read():
        with open(reader, "rb") as source:  # noqa: PTH123 - a descriptor
            found.append(source.read())

    thread = threading.Thread(target=read)
    thread.start()
    try:
        done = run("plugins", stdout=writer)
    finally:
        os.close(writer)
        thread.join(RUN_S)

    assert (done.returncode, done.stderr) == (0, b"")
    assert b"".join(found).endswith(b"\n")
    assert len(b"".join(found)) > 4096
