"""What a streamed answer is made of: its requests, its bytes, and the moments in its text."""

import pytest

from benchmarks.chunk_format import EVENT, LAST, TEXT, body_bytes, chunk, wanted
from benchmarks.stamps import STAMP_CHARS, Delays, stamp

MS = 1_000_000


@pytest.mark.parametrize(
    ("path", "found"),
    [("/300/chat/completions", (300, 0)), ("/500/2000/chat/completions", (500, 2000))],
)
def test_a_request_names_its_chunks_and_their_interval(path, found):
    """By its path; without an interval they come without a pause."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 17\r\n\r\n".encode()

    assert wanted(head) == found
    assert body_bytes(head) == 17


def test_a_piece_says_how_long_it_is():
    """As HTTP has it, and the last one is followed by an empty one."""
    size, _, rest = chunk(TEXT).partition(b"\r\n")

    assert chunk(TEXT) == EVENT
    assert len(rest) == int(size, 16) + len(b"\r\n")
    assert LAST.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


@pytest.mark.parametrize("size", [1, STAMP_CHARS - 1, STAMP_CHARS, STAMP_CHARS + 1, 1000])
def test_delays_are_found_however_the_text_is_cut(size):
    """Each counts when its last character is there."""
    text = "".join(stamp(number * MS) for number in range(5))
    delays = Delays()
    for at in range(0, len(text), size):
        delays.take(text[at : at + size], now_ns=10 * MS)

    assert delays.found_ms == [10.0, 9.0, 8.0, 7.0, 6.0]


def test_what_is_not_whole_yet_does_not_count():
    """The rest of it may come with the next piece."""
    delays = Delays()
    delays.take(stamp(MS)[:-1], now_ns=2 * MS)
    assert delays.found_ms == []

    delays.take(" ", now_ns=4 * MS)
    assert delays.found_ms == [3.0]
