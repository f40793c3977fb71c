"""A call whose answer may take long, where the daemon that the client knows is gone."""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client import connection
from cmdc_runtime.client.open_requests import OpenRequests
from cmdc_runtime.requests import StartSession, StopSession
from tests.integration.client.conftest import Peer

WAIT_S = 10.0
ABSENCE_S = 0.3
LONG_S = 600.0
CALLS = {
    "start": lambda client: client.create_agent(
        model="a:b", session_id="new", start_timeout=LONG_S
    ),
    "stop": lambda client: client.stop("s1", timeout=LONG_S),
}


@pytest.fixture
def client(peer, monkeypatch):
    """A client that waits for a daemon for a moment, and looks for one often."""
    monkeypatch.setattr(connection, "ABSENCE_S", ABSENCE_S)
    monkeypatch.setattr(connection, "OpenRequests", partial(OpenRequests, resend_every_s=0.05))
    peer.add("s1")
    with cmdc.Client(peer.directory) as found:
        found.last_index("s1")
        yield found


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_long_call_ends_soon_where_nobody_listens(peer, client, call):
    """The daemon was gone before: it waits no longer for the next one than any other call."""
    peer.close()
    begun_s = time.monotonic()
    with pytest.raises((cmdc.DaemonUnavailable, cmdc.CommandTimeout)):
        call(client)

    assert ABSENCE_S <= time.monotonic() - begun_s < WAIT_S


def test_a_start_that_was_not_sent_says_that_no_daemon_is_there(peer, client):
    """Nothing comes of it later."""
    peer.close()
    for _ in range(2):  # the first may have been taken by a connection that was not yet seen to end
        with pytest.raises((cmdc.DaemonUnavailable, cmdc.CommandTimeout)) as caught:
            CALLS["start"](client)

    assert type(caught.value) is cmdc.DaemonUnavailable
    assert "no daemon runs at" in str(caught.value)


@pytest.mark.parametrize(
    ("call", "kind"),
    [(CALLS["start"], StartSession), (CALLS["stop"], StopSession)],
    ids=["start", "stop"],
)
def test_a_long_call_that_was_sent_may_take_effect(peer, client, call, kind):
    """The daemon ends while it works on it, and no other one comes: that is what the error says."""
    peer.answers[kind] = None
    with ThreadPoolExecutor(1) as threads:
        calling = threads.submit(call, client)
        peer.wait_for(lambda: peer.of(kind))
        peer.close()
        with pytest.raises(cmdc.CommandTimeout, match="no other one has come; the command"):
            calling.result(WAIT_S)


def test_a_start_that_a_living_daemon_works_on_is_waited_for(peer, client):
    """However long it takes: longer here than a call waits for a daemon that is not there."""
    begun_s = time.monotonic()

    def started(request, _frame):
        if time.monotonic() - begun_s < 3 * ABSENCE_S:
            return None
        peer.add(request.session_id)
        return peer.sessions[request.session_id]

    peer.answers[StartSession] = started

    assert CALLS["start"](client).id == "new"


def test_a_start_goes_on_with_the_next_daemon(peer, client, monkeypatch):
    """One that comes in time has it sent again."""
    monkeypatch.setattr(connection, "ABSENCE_S", WAIT_S)
    peer.answers[StartSession] = None
    with ThreadPoolExecutor(1) as threads:
        calling = threads.submit(CALLS["start"], client)
        peer.wait_for(lambda: peer.of(StartSession))
        peer.close()
        following = Peer(peer.directory)
        try:
            following.add("new")
            following.answers[StartSession] = lambda _request, _frame: following.sessions["new"]

            assert calling.result(WAIT_S).id == "new"
        finally:
            following.close()
