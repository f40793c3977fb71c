"""Images in conversations that are summed up, and in sessions that go to another daemon."""

import base64
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client.sync.session import Session
from cmdc_runtime.testing import Error, Hold
from cmdc_runtime.testing.daemon import DaemonProcess

pytestmark = pytest.mark.process

CMDC = Path(sys.executable).with_name("cmdc")
TURN_S = 20.0
CLI_S = 60.0
OVERFLOW = Error(400, "Please reduce the length.", code="context_length_exceeded")
SUMMARY = "They looked at pictures."


def picture(number):
    """Return bytes that are recognized as an image, and are no other's."""
    return b"\x89PNG\r\n\x1a\n" + bytes([number]) * 40


def shown(request):
    """Return the numbers of the pictures that a request shows, in their order."""
    found = []
    for said in request["messages"]:
        blocks = said["content"] if isinstance(said["content"], list) else []
        urls = (one["image_url"]["url"] for one in blocks if one["type"] == "image_url")
        found += [base64.b64decode(url.partition(",")[2])[-1] for url in urls]
    return found


def texts(request):
    return str([said["content"] for said in request["messages"]])


@pytest.fixture(scope="module")
def elsewhere():
    """Another daemon with a state directory of its own."""
    daemon = DaemonProcess()
    try:
        yield daemon
    finally:
        daemon.close()


@pytest.fixture
def there(elsewhere):
    """A client of it."""
    with cmdc.Client(elsewhere.address) as client:
        yield client


@pytest.fixture
def moved(cmdc_daemon, elsewhere, tmp_path):
    """Carry a session to the other daemon by the command line."""

    def command(address, *arguments):
        ours = {name: value for name, value in os.environ.items() if not name.startswith("CMDC_")}
        return subprocess.run(
            [CMDC, *arguments],
            env={**ours, "CMDC_ADDRESS": str(address)},
            capture_output=True,
            timeout=CLI_S,
            check=False,
        )

    def move(session_id, *more, as_id=None):
        file = str(tmp_path / "session")
        done = command(cmdc_daemon.address, "export", session_id, "-o", file, *more)
        assert done.returncode == 0, done.stderr
        named = () if as_id is None else ("--as", as_id)
        done = command(elsewhere.address, "import", file, *named)
        assert done.returncode == 0, done.stderr
        return as_id or session_id

    return move


@pytest.fixture
def looked(agent, scripted, tmp_path):
    """Make a session that has seen a picture with each of so many prompts."""

    def made(count, *steps):
        model = scripted(*["seen"] * count, *steps)
        session = agent(model, working_dir=str(tmp_path))
        for number in range(count):
            session.run([f"Picture {number}:", cmdc.Image(picture(number))], timeout=TURN_S)
        return model, session

    return made


def test_a_summary_has_no_pictures_and_those_behind_it_stay(looked):
    """The model that sums up reads their names; what is kept of the conversation is shown on."""
    model, session = looked(6, OVERFLOW, SUMMARY, "Red.", "Still red.")
    asked = session.run(["And now?", cmdc.Image(picture(9))], timeout=TURN_S)
    session.run("Sure?", timeout=TURN_S)
    refused, summed, sent, last = model.requests[6:]
    kept = shown(sent)

    assert asked.text == "Red."
    assert shown(refused) == [0, 1, 2, 3, 4, 5, 9]
    assert shown(summed) == []
    assert "[image image/png, 48 bytes]" in texts(summed)
    assert kept == [*range(7 - len(kept), 6), 9]
    assert 0 < len(kept) < 6
    assert SUMMARY in texts(sent)
    assert shown(last) == shown(sent)
    model.assert_complete()


def test_whoever_dies_the_pictures_behind_a_summary_are_shown(looked, poll):
    """The next process has them from the journal, and none of those that the summary replaced."""
    model, session = looked(6, OVERFLOW, SUMMARY, "Red.", "Still red.")
    session.run("And now?", timeout=TURN_S)
    os.kill(session.agent_pid(), signal.SIGKILL)
    assert poll(lambda: session.status().incarnation == 2)
    session.run("Sure?", timeout=TURN_S)
    before, after = model.requests[-2:]

    assert shown(before) == shown(after) != []
    assert 0 not in shown(after)


def test_a_session_that_was_summed_up_moves_with_its_pictures(looked, there, moved):
    """It goes on elsewhere with the same summary and the same pictures; a new one comes to them."""
    model, session = looked(6, OVERFLOW, SUMMARY, "Red.", "Still red.")
    session.run("And now?", timeout=TURN_S)
    moved(session.id, "--move")
    with Session(session.id, there) as again:
        again.run(["And this?", cmdc.Image(picture(7))], timeout=TURN_S)
        listed = [one for one in again.messages() if one.parts]
    before, after = model.requests[-2:]

    assert shown(after) == [*shown(before), 7]
    assert SUMMARY in texts(after)
    assert len(listed) == len(shown(after))
    model.assert_complete()


def test_pictures_that_wait_move_too(agent, scripted, there, moved):
    """Those of a prompt in the queue, and of one that is being answered."""
    model = scripted((Hold(), "never"), "first", "second")
    session = agent(model)
    session.prompt(["Slow:", cmdc.Image(picture(1))])
    model.wait_held()
    session.prompt(["Waits:", cmdc.Image(picture(2))])
    moved(session.id, "--move")
    with Session(session.id, there) as again:
        answer = again.collect_reply(timeout=TURN_S)

    assert answer == "second"
    assert [shown(one) for one in model.requests] == [[1], [1], [1, 2]]


def test_a_copy_has_its_own_pictures(looked, there, moved):
    """The one goes on where the other ended; neither takes bytes from the other's daemon."""
    model, session = looked(2, "mine", "its own")
    copy = moved(session.id, as_id=f"{session.id}.copy")
    session.run("Me?", timeout=TURN_S)
    session.stop()
    with Session(copy, there) as again:
        again.run(["You?", cmdc.Image(picture(0))], timeout=TURN_S)

    assert shown(model.requests[-2]) == [0, 1]
    assert shown(model.requests[-1]) == [0, 1, 0]


def test_a_checkpoint_moves_with_the_pictures_that_it_alone_has(looked, there, moved):
    """Who resumes it elsewhere, from before a summary, sees what the session sees no more."""
    model, session = looked(6, OVERFLOW, SUMMARY, "Red.", "All of them.")
    saved = session.checkpoint(label="before")
    session.run("And now?", timeout=TURN_S)
    moved(session.id, "--move")
    with there.resume_session(
        session.id, checkpoint_id=saved.checkpoint_id, new_id=f"{session.id}.before"
    ) as before:
        before.run("What did you see?", timeout=TURN_S)
    there.stop(session.id)

    assert shown(model.requests[-1]) == [0, 1, 2, 3, 4, 5]
    model.assert_complete()
