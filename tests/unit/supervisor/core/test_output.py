"""Lines and their rate: bounded and harmless, whatever bytes a worker writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.lines import LINE_BYTES_MAX, VISIBLE_LINES
from supervisor.core.output import (
    LINE_UNIT_BYTES,
    Line,
    LineCutter,
    RateLimit,
    pieces,
    readable,
    units,
)

LONG = b"x" * (LINE_BYTES_MAX + 10)
MANY = 1_000


def fed(chunks, lines_max=MANY):
    """Return the lines, the number of dropped ones and of dropped bytes of a whole stream."""
    cutter, logged, dropped, dropped_bytes = LineCutter(), [], 0, 0
    for chunk in chunks:
        lines = cutter.cut(chunk, lines_max)
        logged += lines.logged
        dropped += lines.dropped
        dropped_bytes += lines.dropped_bytes
    if last := cutter.end():
        logged.append(last)
    return logged, dropped, dropped_bytes


def split(text, every):
    return [text[start : start + every] for start in range(0, len(text), every)]


def test_lines_are_whole_however_they_arrive():
    """A line ends at its newline, and the last one where the stream does."""
    text = b"one\n\ntwo\nthr"
    expected = [Line(b"one"), Line(b""), Line(b"two"), Line(b"thr")]

    for every in range(1, len(text) + 1):
        assert fed(split(text, every)) == (expected, 0, 0)
    assert fed([]) == ([], 0, 0)


@given(
    st.lists(st.integers(0, 30).map(lambda count: b"x" * count * 600)),
    st.integers(1, 3 * LINE_BYTES_MAX),
)
def test_a_long_line_is_cut_once_and_its_rest_is_counted(lines, every):
    """Each line is logged once, at most as long as it may be, whatever the chunks are."""
    text = b"".join(line + b"\n" for line in lines)
    logged, dropped, dropped_bytes = fed(split(text, every))
    kept = [line[:LINE_BYTES_MAX] for line in lines]
    missing = sum(map(len, lines)) - sum(map(len, kept))

    assert [line.raw for line in logged] == kept
    assert [line.is_cut for line in logged] == [len(line) > LINE_BYTES_MAX for line in lines]
    assert dropped == 0
    assert missing <= dropped_bytes <= missing + len(lines)


@given(st.lists(st.integers(0, 12).map(lambda count: b"y" * count * 800)), st.integers(0, 4))
def test_lines_beyond_the_rate_are_counted(lines, lines_max):
    """What is logged and what is dropped is all there was."""
    text = b"".join(line + b"\n" for line in lines)
    logged, dropped, dropped_bytes = fed([text], lines_max)

    assert (len(logged), dropped) == (min(lines_max, len(lines)), max(0, len(lines) - lines_max))
    assert (dropped_bytes > 0) == (dropped > 0 or any(line.is_cut for line in logged))


def test_a_cut_line_that_may_not_be_logged_is_dropped_with_its_rest():
    """A flood without a newline costs nothing but counting."""
    cutter = LineCutter()

    assert cutter.cut(LONG, 0).dropped == 1
    assert (cutter.cut(LONG, 0).dropped, cutter.end()) == (0, None)
    assert cutter.cut(b"rest\nnext\n", 1).logged == [Line(b"next")]


@pytest.mark.parametrize(
    ("chunk", "lines_max", "logged", "dropped"),
    [
        (LONG, 1, [Line(LONG[:LINE_BYTES_MAX], is_cut=True)], 0),
        (b"a\n" + LONG, 1, [Line(b"a")], 1),
        (b"a\nb\n" + LONG, 1, [Line(b"a")], 2),
        (LONG[:LINE_BYTES_MAX] + b"\n", 1, [Line(LONG[:LINE_BYTES_MAX])], 0),
    ],
    ids=["the last that may be logged", "one too many", "two too many", "as long as it may be"],
)
def test_a_long_beginning_counts_as_any_line(chunk, lines_max, logged, dropped):
    """It is logged while there is room for one, and counted with the others where there is none."""
    lines = LineCutter().cut(chunk, lines_max)

    assert (lines.logged, lines.dropped) == (logged, dropped)


def test_a_pending_line_counts_with_what_is_dropped():
    """The beginning of a line that came earlier goes with the line."""
    cutter = LineCutter()
    cutter.cut(b"begin", 1)

    assert cutter.cut(b"end\nx", 0).dropped_bytes == len(b"beginend\n")
    assert cutter.end() == Line(b"x")


def test_long_lines_count_for_more():
    """The bound is one of the log's bytes, too."""
    assert units(Line(b"")) == 1
    assert units(Line(b"x" * (LINE_UNIT_BYTES * 3))) == 4


def test_a_rate_limit_is_a_burst_and_then_a_rate():
    """After a pause the burst is there again; debts are paid first, and are bounded too."""
    limit = RateLimit(per_s=10, burst=100)

    assert limit.at(5.0) == 100
    limit.spend(100)
    assert (limit.at(5.0), limit.at(5.5), limit.at(5.0)) == (0, 5, 5)
    limit.spend(15)
    assert (limit.at(6.0), limit.at(7.25)) == (0, 7)
    limit.spend(10_000)
    assert limit.at(17.5) == 2
    assert limit.at(1_000.0) == 100


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"plain \xc3\xa4\tb", "plain ä\tb"),
        (b"\x1b[2J\x00\r\x7f", "␛[2J␀␍␡"),
        (b"\xff\xfe", "\\xff\\xfe"),
        ("\x9b1m\u202e\u2028".encode(), "\\x9b1m\\u202e\\u2028"),
    ],
)
def test_text_is_readable(raw, text):
    """No control character, half a character or trick of direction gets through."""
    assert readable(raw) == text


def test_a_record_ends_half_a_line():
    """What somebody had begun to write stands by itself, and so does the record."""
    assert pieces(Line(b"half\x1e{}")) == [b"half", b"\x1e{}"]
    assert pieces(Line(b"dos\r")) == [b"dos"]
    assert pieces(Line(b"")) == pieces(Line(b"\r")) == []


def test_the_first_second_counts_as_any_other():
    """A clock may begin at 0, with what is spent before anybody has asked."""
    limit = RateLimit(per_s=10, burst=100)
    limit.spend(100)

    assert limit.at(1.0) == 10


def test_lines_of_a_terminal_stay_lines():
    """It ends them with two characters, of which one says nothing here."""
    assert "one\r\ntwo\x1b".translate(VISIBLE_LINES) == "one\ntwo␛"
