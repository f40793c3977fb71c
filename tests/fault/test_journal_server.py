"""A daemon whose journal is in PostgreSQL or in memory: what it outlives, what it shows nobody."""

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.errors import StorageFull
from tests.postgres import lend_server

pytestmark = [pytest.mark.fault, pytest.mark.process]

TURN_S = 60.0
PASSWORD = "hunter2"


server = pytest.fixture(lend_server)


@pytest.fixture
def own_daemon(own_daemon):
    """Return directories for a daemon whose journal is where ``journal`` says."""
    environment = own_daemon.environment
    own_daemon.environment = lambda: environment() | {"CMDC_JOURNAL": own_daemon.journal}
    return own_daemon


def until_ends(events, count):
    """Read until so many cycles have ended; an end is heard of when it is stored."""
    while count:
        count -= events.get(TURN_S).event.kind == "agent_end"


def texts(client, session_id):
    """Return what was said in a session."""
    return [one.content for one in client.messages(session_id) if one.role != "system"]


def test_a_session_outlives_the_server_and_the_daemon(own_daemon, server, scripted, poll):
    """What is new is refused while the server is away; nothing that was taken is lost."""
    own_daemon.journal = server.url
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=scripted("one", "two", "three"), session_id="s-1")
        events = session.subscribe()
        session.run("1", timeout=TURN_S)
        server.kill()
        with pytest.raises(StorageFull, match="see that PostgreSQL runs"):
            session.prompt("lost?")
        server.start()

        def run_again():
            try:
                return session.run("2", timeout=TURN_S).text
            except StorageFull:
                return None

        assert poll(run_again) == "two"
        until_ends(events, 2)
        own_daemon.kill()
    own_daemon.start()
    with own_daemon.client() as client:
        assert client.run("s-1", "3", timeout=TURN_S).text == "three"
        assert texts(client, "s-1") == ["1", "one", "2", "two", "3", "three"]


def test_the_password_is_shown_to_nobody(own_daemon, server):
    """It is in no log, and in the environment of no process but the daemon's own."""
    own_daemon.journal = server.url.replace("cmdc@", f"cmdc:{PASSWORD}@")
    daemon = own_daemon.start()
    with own_daemon.client() as client:
        client.create_agent(model="openai:none")
        others = [one for one in own_daemon.left() if one.pid != daemon]
        found = [one for one in others if PASSWORD in str(environment_of(one))]

    assert len(others) > 2
    assert found == []
    assert PASSWORD not in own_daemon.log.read_text()


def environment_of(process):
    """Return the environment of a process, if it is still there."""
    try:
        return process.environ()
    except psutil.Error:
        return {}


def test_a_second_daemon_does_not_start(own_daemon, server):
    """It says who has the journal."""
    own_daemon.journal = server.url
    first = own_daemon.start()
    second = type(own_daemon)()
    second.environment = lambda: (
        own_daemon.environment()
        | {
            "CMDC_RUNTIME_DIR": str(second.address),
            "CMDC_STATE_DIR": str(second.place / "state"),
        }
    )
    try:
        with pytest.raises(AssertionError, match=rf"another daemon has .*process {first} on"):
            second.start()
    finally:
        second.close()


def test_a_journal_in_memory_is_enough_to_work(own_daemon, scripted):
    """Until the daemon ends; then the sessions are gone."""
    own_daemon.journal = "memory"
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=scripted("one"), session_id="s-1")
        assert session.run("1", timeout=TURN_S).text == "one"
        own_daemon.kill()
    own_daemon.start()
    with own_daemon.client() as client, pytest.raises(cmdc.InvalidSession):
        client.status("s-1")
