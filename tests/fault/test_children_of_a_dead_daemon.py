"""``kill -9`` of the daemon takes every process along: parents come back, children do not."""

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client.exchange import Exchange
from cmdc_runtime.client.resuming import start_request
from cmdc_runtime.reasons import Shutdown

pytestmark = [pytest.mark.fault, pytest.mark.process]

TURN_S = 30.0


def test_new_daemon_takes_no_child_over(own_daemon, scripted, poll):
    """A child belongs to the process that it was started for, and that one is gone."""
    model = scripted(default="fine")
    own_daemon.start()
    with own_daemon.client() as client:
        parent = client.create_agent(model=model)
        request = start_request(None, {"model": model})
        request = msgspec.structs.replace(request, parent_id=parent.id)
        child = client._run(Exchange.start, request)
        monitor = client.monitor(child)
        own_daemon.kill()
        own_daemon.start()

        assert poll(lambda: parent.status().incarnation == 2, TURN_S)
        assert [one.session_id for one in client.list_sessions()] == [parent.id]
        with pytest.raises(cmdc.SessionNotAlive) as caught:
            client.status(child)
        assert caught.value.reason == Shutdown(detail="the parent's process ended")
        assert monitor.wait(TURN_S).reason == caught.value.reason
        parent.stop()
