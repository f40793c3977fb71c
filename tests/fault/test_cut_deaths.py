"""What is known of an answer that was cut off is counted as it is reported, whoever dies at it."""

from itertools import takewhile

import pytest

from cmdc_runtime import TokenUsage, events
from cmdc_runtime.testing import Hold

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 120.0
WRITE = "cut_spent"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_cut_is_reported_and_counted_once(own_daemon, armed, scripted, moment):
    """Before it is written nobody has heard of it; behind it no process counts it again.

    An abort that was not written is sent once more, and the next process may have asked the model
    again before it comes: that request's cut is its own.
    """
    own_daemon.start()
    model = scripted(*[("so far", Hold(), "late")] * 2)
    with own_daemon.client() as client:
        session = client.create_agent(model=model, session_id="cut", restart_delay=(0.0, 0.05))
        stream = session.subscribe()
        session.prompt("Go.")
        while not isinstance(stream.get(TURN_S).event, events.MessageDelta):
            pass
        armed("cut", f"agent.*{WRITE}*.{moment}:1=agent")
        session.abort()
        heard = []
        while not (heard and isinstance(heard[-1], events.AgentAbort)):
            heard.append(stream.get(TURN_S).event)
        usage = session.status().token_usage
        session.stop()
    of_the_first = list(takewhile(lambda one: not isinstance(one, events.AgentRecovered), heard))
    cuts = [one.usage for one in heard if isinstance(one, events.RequestCut)]

    if moment == "before":
        assert not any(isinstance(one, events.RequestCut) for one in of_the_first)
        assert len(cuts) <= 1
    else:
        assert len(cuts) == 1
    assert usage == sum(cuts, TokenUsage())
