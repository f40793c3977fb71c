"""Frames of the daemon that a session's process cannot read: reported, never waited for."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.errors import SessionParked
from cmdc_runtime.reasons import Other, StartFailed
from tests.fault.audit import SLEEPER
from tests.fault.cases.garbling import COMMAND, SECRET, WAYS
from tests.fault.cases.test_parked import run
from tests.fault.conftest import poll_for

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 20.0
"""Less than a start may take: who only waits for that is late."""
FRAMES = [(kind, way) for kind in ("Assign", "History") for way in WAYS]
UNNAMED = ("unknown", "header", "nothing")
"""Ways in which nothing says any more which frame it is."""


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    """Where the plans of sessions are whose frames are spoiled."""
    return tmp_path_factory.mktemp("garbled")


def garble(own_daemon, plans):
    """Have a daemon spoil frames where a plan says so."""
    plain = own_daemon.environment
    more = {"GARBLED_FRAMES": str(plans), "PYTHONPATH": str(Path(__file__).parent)}
    own_daemon.environment = lambda: plain() | more
    own_daemon.command = lambda *flags: [sys.executable, "-c", COMMAND, *flags]
    return own_daemon


@pytest.fixture(scope="module")
def shared_daemon(plans, shared_daemon):
    """A daemon that spoils frames where a plan says so."""
    return garble(shared_daemon, plans)


@pytest.fixture
def spoil(plans):
    """Have the next frames of a session spoiled."""

    def plan(session_id, *lines):
        (plans / session_id).write_text("\n".join(lines))

    return plan


def kill(session):
    """Kill its agent."""
    os.kill(session.agent_pid(), signal.SIGKILL)


def parked(session):
    """Return the error of a session when it is parked."""

    def look():
        try:
            session.status()
        except SessionParked as error:
            return str(error)
        except cmdc.CmdcError:
            return None
        return None

    return poll_for(look, TURN_S)


@pytest.mark.fault_case("F95")
def test_frame_that_cannot_be_read_at_the_start_parks_its_session(
    place, client, bystander, scripted, spoil
):
    """The reason names the frame and shows nothing of it; resumed, the session goes on."""
    model = scripted(default="fine")
    sessions = {}
    for kind, way in FRAMES:
        name = f"{SLEEPER}{kind}-{way}"
        sessions[kind, way] = client.create_agent(model=model, session_id=name)
        sessions[kind, way].run("First.", timeout=TURN_S)
    monitors = {one: session.monitor(persistent=True) for one, session in sessions.items()}
    for (kind, way), session in sessions.items():
        spoil(session.id, f"{kind} {way}")
        kill(session)
    for (kind, way), session in sessions.items():
        error = parked(session)
        monitors[kind, way].wait(TURN_S)
        notice = monitors[kind, way].wait(TURN_S)
        what = "of this protocol" if way in {"header", "nothing"} else "cannot be read"

        assert error is not None, (kind, way)
        assert what in error
        assert way in UNNAMED or f"the daemon's frame {kind}" in error
        assert SECRET not in error
        assert isinstance(notice.reason, StartFailed)
        assert (notice.reason.stage, notice.restarting) == ("frame", False)
        assert notice.reason.message in error
    listed = json.loads(run(place, "ps", "--all", "--json").stdout)
    reasons = {one["session_id"]: one["reason"] for one in listed if one["state"] == "parked"}
    assert {session.id for session in sessions.values()} <= reasons.keys()
    assert all(one.startswith("start failed at frame: ") for one in reasons.values())
    assert bystander.run("Still there?", timeout=TURN_S).text == "fine"
    for session in sessions.values():
        with client.resume_session(session.id) as resumed:
            assert resumed.run("Second.", timeout=TURN_S).text == "fine"
            assert [one.content for one in resumed.messages() if one.role == "user"] == [
                "First.",
                "Second.",
            ]


@pytest.mark.fault_case("F95")
def test_frame_that_cannot_be_read_at_the_first_start_is_reported_to_who_starts_it(
    client, scripted, spoil
):
    """There is nothing to park: the call fails, with the frame in its reason."""
    spoil("never", "Assign fields")
    with pytest.raises(cmdc.StartFailed, match="at frame: the daemon's frame Assign cannot be"):
        client.create_agent(model=scripted(default="fine"), session_id="never")
    with client.create_agent(model=scripted(default="fine"), session_id="never") as session:
        assert session.run("First.", timeout=TURN_S).text == "fine"


@pytest.mark.fault_case("F95")
@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("kind", ["Deliver", "Written"])
def test_frame_that_cannot_be_read_later_ends_its_process(agent, spoil, kind, way):
    """Nothing that leans on it waits for ever: the next process does what was asked for."""
    session = agent()
    session.run("First.", timeout=TURN_S)
    monitor = session.monitor()
    spoil(session.id, f"{kind} {way}")
    result = session.run("Second.", timeout=TURN_S)
    notice = monitor.wait(TURN_S)

    assert result.text == "fine"
    assert isinstance(notice.reason, Other)
    assert notice.restarting
    assert way in UNNAMED or f"the daemon's frame {kind} cannot be read" in notice.reason.detail
    assert SECRET not in notice.reason.detail
    assert session.status().restarts == 1


@pytest.mark.fault_case("F95")
@pytest.mark.parametrize("way", list(WAYS))
def test_adoption_that_cannot_be_read_is_asked_for_again(own_daemon, plans, scripted, spoil, way):
    """An agent that waits for the next daemon goes on waiting, and calls once more."""
    garble(own_daemon, plans).grace = 60.0
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=scripted(default="fine"))
        session.run("First.", timeout=TURN_S)
        pid = session.agent_pid()
        spoil("Adopted", f"Adopted {way}")
        own_daemon.kill()
        own_daemon.start()
        assert session.run("Second.", timeout=TURN_S).text == "fine"
        assert session.agent_pid() == pid
        assert (plans / "Adopted").read_text() == ""
        session.stop()
