"""Where a stream begins and what it finds there: late, early, too far, after everything is gone."""

from collections import Counter

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client import dispatcher
from cmdc_runtime.events import EventsLost
from cmdc_runtime.wire.frames import Events, Watermark
from supervisor.core.limits import WATERMARK_IDLE_S, WATERMARK_S, WATERMARKS_AFTER
from tests.fault.streams.ledger import Log

pytestmark = [pytest.mark.fault, pytest.mark.slow]

WAIT_S = 20.0
BEFORE_IDLE_S = 0.8 * WATERMARK_IDLE_S
"""By then no watermark has come but those that follow an event."""
FOUND_S = 1.5
"""What docs/howto/streams.md promises."""
TRIES = 2


def indexes(stream, last):
    """Return the indexes up to the last one, what is lost as (first, last)."""
    found = []
    while not found or found[-1].index < last:
        found.append(stream.get(WAIT_S))
    return [shown(one) for one in found]


def shown(envelope):
    event = envelope.event
    return (event.first, event.last) if isinstance(event, EventsLost) else envelope.index


@pytest.mark.stream_case("S02")
@pytest.mark.parametrize("hears_welcome", [True, False])
def test_subscriber_that_comes_late_misses_nothing(station, wire_of, monkeypatch, hears_welcome):
    """What was published before it listened is there, with the welcome or without."""
    monkeypatch.setattr(dispatcher, "WELCOME_S", 0.2)
    station.add("s1")
    station.publish(["s1"], 3)
    wire = wire_of(station.directory)
    wire.spoil = lambda topic, frame: isinstance(frame, Watermark) and not hears_welcome
    with cmdc.Client(wire.directory) as client:
        stream = client.subscribe("s1", since=0)
        station.publish(["s1"], 2)

        assert indexes(stream, 5) == [1, 2, 3, 4, 5]


@pytest.mark.stream_case("S04")
def test_silent_subscriber_finds_what_was_published_while_it_was_cut_off(station, wire_of):
    """Its program does nothing, and asks for nothing, until it reads."""
    station.add("s1", "s2")
    wire = wire_of(station.directory)
    with cmdc.Client(wire.directory) as client:
        stream, everything = client.subscribe("s1", since=0), client.subscribe_all()
        for _ in range(5):
            wire.cut()
            station.publish(["s1"], 2)
        everything_of_s1 = Log().read(everything, 10)

        assert indexes(stream, 10) == [*range(1, 11)]
        assert [*everything_of_s1.events] == [*range(1, 11)]


class Deaf:
    """Loses all events on a wire, and of each one's watermarks all but number ``heard``."""

    def __init__(self, heard):
        self.heard = heard
        self.marks = Counter()

    def __call__(self, topic, frame):
        if isinstance(frame, Watermark) and frame.last:
            self.marks[frame.last] += 1
            return self.marks[frame.last] != self.heard
        return isinstance(frame, Events)


@pytest.mark.stream_case("S06")
@pytest.mark.parametrize("heard", range(1, WATERMARKS_AFTER + 1))
@pytest.mark.parametrize("follows_all", [False, True])
def test_last_event_that_was_lost_is_found_by_one_watermark(station, wire_of, follows_all, heard):
    """Any of those that follow an event is enough, and there are so many, for 1.5 s in all."""
    station.add("s1")
    wire = wire_of(station.directory)
    with cmdc.Client(wire.directory) as client:
        stream = client.subscribe_all() if follows_all else client.subscribe("s1")
        wire.spoil = deaf = Deaf(heard)
        for index in range(1, TRIES + 1):
            station.publish(["s1"])

            assert stream.get(BEFORE_IDLE_S).index == index
            assert deaf.marks[index] >= heard

    assert wire.lost >= TRIES * heard
    assert WATERMARKS_AFTER * WATERMARK_S <= FOUND_S


@pytest.mark.stream_case("S07")
def test_events_that_are_not_kept_any_more_are_reported(station):
    """The stream begins with what is lost, up to the earliest event that there is."""
    station.add("s1", events_max=0, last=100)
    station.publish(["s1"], 2, durable=True)
    station.publish(["s1"], 3)
    station.publish(["s1"], durable=True)
    with cmdc.Client(station.directory) as client:
        found = {since: indexes(client.subscribe("s1", since=since), 106) for since in (0, 50, 103)}

    assert found == {
        0: [(1, 100), 101, 102, (103, 105), 106],
        50: [(51, 100), 101, 102, (103, 105), 106],
        103: [(104, 105), 106],
    }


@pytest.mark.stream_case("S07")
def test_session_that_is_not_kept_any_more_is_refused(station):
    """Who asks for a session that was pruned learns that there is none."""
    with cmdc.Client(station.directory) as client, pytest.raises(cmdc.InvalidSession, match="s1"):
        client.subscribe("s1", since=5)


@pytest.mark.stream_case("S08")
def test_cursor_beyond_the_newest_event_is_reported(station):
    """It names what the daemon does not have, and the stream goes on with what follows."""
    station.add("s1")
    station.publish(["s1"], 3)
    with cmdc.Client(station.directory) as client:
        stream = client.subscribe("s1", since=10)
        reported = stream.get(WAIT_S)
        station.publish(["s1"])
        after = stream.get(WAIT_S)

    assert (reported.index, reported.event.first, reported.event.last) == (3, 4, 10)
    assert after.index == 4


@pytest.mark.stream_case("S12")
def test_two_clients_see_one_order(station, wire_of):
    """However rough the way of one of them is."""
    station.add("s1", events_max=100_000)
    wire = wire_of(station.directory)
    wire.spoil = lambda topic, frame: isinstance(frame, Events) and frame.first % 3 == 0
    with cmdc.Client(wire.directory) as one, cmdc.Client(station.directory) as other:
        streams = [one.subscribe("s1"), other.subscribe("s1")]
        for number in range(30):
            station.publish(["s1"], 1, durable=number % 4 == 0, text=str(number))
            if number % 10 == 5:
                wire.cut()
        logs = [Log().read(stream, 30) for stream in streams]

    assert [*logs[0].events.items()] == [*logs[1].events.items()]
    assert len(logs[0].events) == 30


@pytest.mark.stream_case("S13")
@pytest.mark.parametrize("events_max", [0, 1, 7, 1_000])
def test_stream_is_taken_up_again_from_every_index(station, events_max):
    """Each event behind it once: durable ones always, others as far as the ring goes."""
    station.add("s1", events_max=events_max)
    durable = set()
    for number in range(12):
        is_durable = number % 3 == 0
        count = number % 4 + 1
        station.publish(["s1"], count, durable=is_durable)
        last = station.hub.taken_index("s1")
        if is_durable:
            durable |= {*range(last - count + 1, last + 1)}
    with cmdc.Client(station.directory) as client:
        for since in range(last + 1):
            with client.subscribe("s1", since=since) as stream:
                log = Log()
                log.last = since
                log.read(stream, last)
            assert log.last == last
            assert {index for index in durable if index > since} <= {*log.events}
            if events_max == 1_000:
                assert log.lost == []
            if events_max == 0:
                assert {*log.events} <= durable
