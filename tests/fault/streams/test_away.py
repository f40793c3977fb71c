"""A client that is away for a day, of which no second is waited for."""

import time

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.events import AgentStart
from tests.fault.streams.ledger import Log

pytestmark = [pytest.mark.fault, pytest.mark.slow]

DAY_H = 24
HOUR_S = 3_600.0
RING = 10


@pytest.mark.stream_case("S14")
@pytest.mark.timeout(600)
def test_client_that_was_away_for_a_day_finds_every_durable_event(station, monkeypatch):
    """Timers of router, hub and journal go off as often as in a day; what is gone is reported."""
    monkeypatch.setattr(time, "monotonic", station.now_s)
    station.add("s1", events_max=RING)
    station.publish(["s1"], durable=True)
    with cmdc.Client(station.directory) as client:
        cursor = client.last_index("s1")
    began_s = station.now_s()
    for _ in range(DAY_H):
        station.publish(["s1"], 5 * RING)
        station.publish(["s1"], durable=True)
        station.pass_time(HOUR_S)
    passed_s = station.now_s() - began_s
    log = Log()
    log.last = cursor
    with cmdc.Client(station.directory) as client, client.subscribe("s1", since=cursor) as stream:
        log.read(stream, client.last_index("s1"))

    assert passed_s >= DAY_H * HOUR_S
    assert cursor == 1
    assert [type(one) for _, one in log.durable.values()] == [AgentStart] * DAY_H
    assert log.lost_count >= (DAY_H - 1) * 5 * RING
