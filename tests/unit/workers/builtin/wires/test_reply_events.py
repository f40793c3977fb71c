"""Server-sent events, whatever the pieces are that they come in."""

import pytest

from workers.builtin.providers import _metering as metering
from workers.builtin.providers._failures import RefusedAnswerError
from workers.builtin.wires.reply import Events

STREAM = (
    b'event: x\ndata: {"a": "\xc3\xa4"}\n\n: a comment\nid: 7\ndata:b\n\ndata: c1\ndata: c2\n\n'
)
DATA = [b'{"a": "\xc3\xa4"}', b"b", b"c1\nc2"]
ENDS = (b"\n", b"\r\n", b"\r")


def read(*pieces):
    """Return what is read of pieces, and at their end."""
    events = Events()
    return [one for piece in pieces for one in events.take(piece)] + events.rest()


@pytest.mark.parametrize("end", ENDS, ids=repr)
def test_lines_end_in_three_ways(end):
    """Comments, names and ids say nothing; data of several lines are one."""
    assert read(STREAM.replace(b"\n", end)) == DATA


@pytest.mark.parametrize("end", ENDS, ids=repr)
def test_a_stream_may_be_cut_at_any_byte(end):
    """Also inside a character, or of a line's end; a piece may be empty."""
    stream = STREAM.replace(b"\n", end)
    for at in range(len(stream) + 1):
        assert read(stream[:at], b"", stream[at:]) == DATA, at


@pytest.mark.parametrize("end", ENDS, ids=repr)
def test_every_byte_may_come_alone(end):
    """An event is read with the byte that ends it, and not before."""
    events = Events()
    stream = STREAM.replace(b"\n", end)
    found = [(at, one) for at in range(len(stream)) for one in events.take(stream[at : at + 1])]

    assert [one for _, one in found] == DATA
    assert events.rest() == []
    blank = stream.index(end + end)
    # Where a line ends in CR alone, or in two bytes, the first of them ends the empty line.
    assert found[0][0] == blank + len(end)


def test_mixed_ends_of_lines_are_kept_apart():
    """A line feed belongs to the carriage return before it, and to no other."""
    assert read(b"data: a\r", b"\n", b"\r\n", b"data: b\r", b"\r", b"data: c\n\r", b"\n") == [
        b"a",
        b"b",
        b"c",
    ]


def test_a_line_feed_belongs_to_one_carriage_return():
    """The next one ends a line of its own."""
    events = Events()

    assert [events.take(one) for one in (b"data: a\r", b"\n", b"\n")] == [[], [], [b"a"]]


def test_a_line_feed_that_follows_text_ends_a_line():
    """What came before it does not matter."""
    assert read(b"data: a\r\n", b"data: b\n\n") == [b"a\nb"]
    assert read(b"data: a\r", b"x: y\n", b"\n") == [b"a"]


def test_an_event_without_an_end_is_read_at_the_end():
    """With the line that no sign ends."""
    events = Events()

    assert events.take(b"data: a\n\ndata: b\ndata: c") == [b"a"]
    assert events.rest() == [b"b\nc"]


def test_nothing_is_read_of_nothing():
    """Empty lines, comments and fields without data are no events."""
    assert read(b"", b"\n\n\n", b": x\n\n", b"event: y\n\nretry: 3\n\n") == []


def test_space_around_data_is_none_of_it():
    """And an event that says nothing is none."""
    assert read(b"data:   a \t\n\ndata:\n\ndata: b\n\n") == [b"a", b"b"]


def test_a_mark_of_the_byte_order_is_none_of_the_first_line():
    """Though it comes in pieces."""
    assert read(b"\xef\xbb", b"\xbfdata: a\n\ndata: b\n\n") == [b"a", b"b"]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b'{"error": {\n"message": "no"}}', {"error": {"message": "no"}}),
        (b"[1]", None),
        (b"Bad Gateway", None),
        (b"", None),
        (b'{"a": 1}\n\ndata: {}\n\n', None),
    ],
)
def test_an_object_may_come_in_the_place_of_events(sent, expected):
    """It is known at the end, where no event has come."""
    events = Events()
    events.take(sent)
    events.rest()

    assert events.instead() == expected


def test_a_field_has_to_be_named_so():
    """Neither what begins in another way nor what only has the word in it."""
    assert read(b"xdata: a\nDATA: b\n data: c\ndata: d\n\n") == [b"d"]


# --- bounds ---------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    """Have bounds that a test can reach."""
    monkeypatch.setattr(metering, "REPLY_BYTES_MAX", 60)
    monkeypatch.setattr(metering, "EVENT_BYTES_MAX", 20)
    monkeypatch.setattr(metering, "EVENT_LINES_MAX", 3)
    monkeypatch.setattr(metering, "EVENTS_MAX", 4)


FITTING = {
    "bytes": [b"data: " + b"a" * 12 + b"\n\n"] * 3,
    "event": [b"data: " + b"a" * 14, b"\n\n"],
    "lines": [b"data: 1\na\nb\n\n", b"data: 2\na\nb\n\n"],
    "events": [b"data: 1\n\n"] * 4,
}
EXCESSIVE = {
    "bytes": (*FITTING["bytes"], b"\n"),
    "bytes in one event": [b"data: " + b"a" * 14, b"a"],
    "lines in one event": [b"data: 1\na\n", b"b\nc\n"],
    "events": [b"data: 1\n\n"] * 5,
}


@pytest.mark.parametrize("pieces", FITTING.values(), ids=FITTING)
@pytest.mark.usefixtures("small")
def test_an_answer_may_have_as_much_as_the_bound(pieces):
    """Each event counts anew."""
    assert read(*pieces)


@pytest.mark.parametrize("what", EXCESSIVE)
@pytest.mark.usefixtures("small")
def test_more_is_refused_as_it_comes(what):
    """In the piece that is too much, and by what there is too much of."""
    events = Events()
    *before, last = EXCESSIVE[what]
    for piece in before:
        events.take(piece)
    with pytest.raises(RefusedAnswerError, match=f"more than [0-9]+ {what}$"):
        events.take(last)


@pytest.mark.parametrize(
    "piece",
    [b"a\n" + b"b" * 21, b"a" * 21 + b"\n", b"a\n" + b"b" * 20 + b"\n\n", b"\n" + b"a" * 21],
    ids=["rest", "first", "sum", "after an end"],
)
@pytest.mark.usefixtures("small")
def test_a_long_event_is_refused_wherever_it_is_in_a_piece(piece):
    """Also where other lines come in the same one."""
    with pytest.raises(RefusedAnswerError, match="more than 20 bytes in one event"):
        Events().take(piece)


@pytest.mark.usefixtures("small")
def test_the_last_event_counts():
    """It may be the one that is too much."""
    events = Events()
    events.take(b"data: 1\n\n" * 4 + b"data: 5")
    with pytest.raises(RefusedAnswerError, match="more than 4 events"):
        events.rest()
