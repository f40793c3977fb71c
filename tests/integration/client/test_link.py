"""When a link connects: at the first call, or with the daemon that comes first."""

import asyncio

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client.link import Link
from tests.integration.client.conftest import Peer

WAIT_S = 10.0


async def connected_late(place, patience_s):
    """Return whether the first call had an answer before there was a daemon, and its connection."""
    link = Link(place, patience_s=patience_s)
    first = asyncio.ensure_future(link.connected())
    for _ in range(10):  # turns of the loop, in which one look for a daemon has its end
        await asyncio.sleep(0)
    is_early, peer = first.done(), await asyncio.to_thread(Peer, place)
    try:
        found = (await asyncio.wait_for(first, WAIT_S)).place
    finally:
        await link.disconnect()
        await asyncio.to_thread(peer.close)
    return is_early, found


def test_who_is_patient_waits_for_the_first_daemon(no_peer):
    """An agent that is between two daemons asks the next one."""
    is_early, found = asyncio.run(connected_late(no_peer, WAIT_S))

    assert not is_early
    assert found.directory == no_peer


def test_patience_has_an_end(no_peer):
    """Then it gets the same error as everybody else."""

    async def ask():
        await Link(no_peer, patience_s=0.01).connected()

    with pytest.raises(cmdc.DaemonUnavailable, match="no daemon runs at"):
        asyncio.run(ask())


def test_others_get_the_error_at_once(no_peer):
    """That there is no daemon is what an application wants to know."""
    with pytest.raises(cmdc.DaemonUnavailable, match="no daemon runs at"):
        asyncio.run(connected_late(no_peer, 0.0))
