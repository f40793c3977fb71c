"""Files of the journal that somebody changes in place under a running daemon."""

import os
import signal

import pytest

import cmdc_runtime as cmdc
from tests.fault.cases.test_storage import last_page_of

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 30.0
END_S = 30.0
PAGE_BYTES = 4096


def said_to(session):
    """Return what users have said to a session, in its order."""
    return [one.content for one in session.messages() if one.role == "user"]


@pytest.mark.fault_case("F81")
@pytest.mark.parametrize("part", [0.0, 0.5])
def test_log_cut_under_a_running_daemon_loses_nothing(place, agent, audit, part):
    """What was acknowledged before and behind it is there when the daemon is killed then."""
    audit.daemon_died = True
    session = agent()
    before = [f"before {number}" for number in range(13)]
    for text in before:
        session.run(text, timeout=TURN_S)
    log = place.place / "state" / "journal.sqlite3-wal"
    os.truncate(log, int(log.stat().st_size * part))
    session.run("after", timeout=TURN_S)
    place.kill()
    place.start()
    heard = said_to(session)

    assert heard == [*before, "after"]
    assert "journal.log_written_again" in place.log.read_text()


@pytest.mark.fault_case("F81")
def test_page_overwritten_under_a_running_daemon_is_reported_to_its_sessions(own_daemon, scripted):
    """Nothing is acknowledged any more; the next daemon reports who misses something, and how."""
    own_daemon.start()
    state = own_daemon.place / "state"
    with own_daemon.client() as client:
        model = scripted(default="fine" * 300)
        sessions = [client.create_agent(model=model) for _ in range(6)]
        for session in sessions:
            session.run("Hello. " * 100, timeout=TURN_S)
        own_daemon.process.send_signal(signal.SIGTERM)
        own_daemon.process.wait(END_S)  # behind it all is in the file alone
        page = last_page_of(state / "journal.sqlite3", "commands")
        own_daemon.start()
        monitors = {session.id: session.monitor() for session in sessions}
        with (state / "journal.sqlite3").open("r+b") as file:
            file.seek((page - 1) * PAGE_BYTES)
            file.write(os.urandom(PAGE_BYTES))
        status = own_daemon.process.wait(
            END_S
        )  # it looks at its journal every 5 s, whoever asks or not
        own_daemon.start()
        ended, well, downs = [], [], []
        for session in sessions:
            try:
                assert session.run("Still there?", timeout=TURN_S).text == "fine" * 300
                well.append(session)
            except cmdc.SessionNotAlive as error:
                ended.append(str(error))
                downs.append(monitors[session.id].wait(TURN_S))
        for session in well:
            session.stop()

    assert status == 1
    assert well
    assert ended
    assert all("the journal was damaged" in reason for reason in ended), ended
    assert all("the journal was damaged" in str(down.reason) for down in downs), "\n".join(
        str((d.reason, d.incarnation, d.restarting, d.at_ms)) for d in downs
    )
    assert {down.restarting for down in downs} == {False}
    assert "overwritten by somebody else" in own_daemon.log.read_text()
