"""Frames between agent, host and calls: what goes in comes out, and every length is bounded."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.reasons import ExitCode
from workers.toolhost.wire import (
    Begin,
    Ended,
    Frames,
    FrameTooLargeError,
    Kill,
    Refused,
    RunCall,
    encoded,
    framed,
    from_host,
    to_host,
)

KILLS = [Kill(number=number) for number in range(5)]


@given(st.lists(st.integers(1, 40), max_size=30))
def test_frames_come_out_however_they_are_cut(sizes):
    """A stream has no borders: a chunk may hold many frames, or a part of one."""
    stream, frames, found = b"".join(map(framed, KILLS)), Frames(), []
    for size in [*sizes, len(stream)]:
        found += frames.feed(stream[:size])
        stream = stream[size:]

    assert [to_host.decode(body) for body in found] == KILLS


def test_a_frame_that_is_too_large_is_neither_made_nor_read():
    """Whoever announces more has lost his place in the stream."""
    order = RunCall(call_id="a", arguments={"x": "x" * 100}, model="m", turn=1)
    with pytest.raises(FrameTooLargeError, match="at most 50 can go"):
        framed(order, 50)
    with pytest.raises(FrameTooLargeError, match="more than 50"):
        list(Frames(50).feed(framed(order)[:4]))


def test_each_direction_takes_its_own_messages_only():
    """What the other side would say is refused, as is what nobody would."""
    ended = Ended(number=1, reason=ExitCode(code=3))

    assert from_host.decode(framed(ended)[4:]) == ended
    for decoder, body in (
        (to_host, framed(ended)[4:]),
        (from_host, framed(KILLS[0])[4:]),
        (to_host, encoded(Refused(text="x"))),
    ):
        with pytest.raises(msgspec.ValidationError):
            decoder.decode(body)


def test_what_no_message_can_hold_is_refused_where_it_is_sent():
    """The one who made it hears of it, not the one who would read it."""
    with pytest.raises(TypeError):
        framed(
            Begin(
                session_id="s",
                incarnation=1,
                group_id=None,
                working_dir="/",
                user_data={"x": object()},
            )
        )
