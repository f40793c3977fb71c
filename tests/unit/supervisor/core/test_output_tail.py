"""Last words: bounded and harmless, whatever bytes a worker writes."""

import json

import pytest

from supervisor.core.output import TAIL_BYTES_MAX, TAIL_KEPT_BYTES_MAX, Tail, last_lines


def test_the_tail_is_what_was_written_last_without_records():
    """Text in chunks stays text; what is in the log as a record is not shown again."""
    tail = Tail()
    for chunk in (b"a\x1b[1m\r\n\x1e{", b'"event": 1}\nb\n', b"half\x1e{}"):
        tail.add(chunk)

    assert tail.text() == "a␛[1m\nb\nhalf"


@pytest.mark.parametrize("end", [b"\n", b" ", b"x"])
def test_the_tail_begins_where_it_can_with_a_line(end):
    """What is left of a line that was cut is left out: a secret may have lost its name."""
    tail = Tail()
    tail.add(b"s" * TAIL_KEPT_BYTES_MAX)
    tail.add(end + b"last")
    text = tail.text()

    assert text.lstrip("s") == ("xlast" if end == b"x" else "last")
    assert len(text) <= TAIL_KEPT_BYTES_MAX


def test_last_lines_are_cut_at_a_line():
    """At most the bound, whole lines where there are any, no half character."""
    text = "".join(f"line {number}\n" for number in range(1_000))
    short = last_lines(text)

    assert TAIL_BYTES_MAX - 20 < len(short) <= TAIL_BYTES_MAX
    assert text.endswith(short)
    assert short.startswith("line ")
    assert last_lines("ä" * 10, 5) == "ää"
    assert last_lines("short") == "short"


def test_text_that_just_fits_is_whole():
    """At its bound nothing goes, and without the modules nothing of the rest."""
    text = "aa\n" * 4
    modules = "Extension modules: a.b (total: 1)\n"

    assert last_lines(text, len(text)) == text
    assert last_lines(text + modules, len(text + modules)) == text + modules
    assert last_lines(text + modules, len(text)) == text
    assert last_lines(text, len(text) - 1) == "aa\n" * 3


def test_a_head_takes_at_most_half_of_the_room():
    """It is put in front where it was cut off, from the first line on, and else not."""
    head = "Fatal Python error: x\n"
    frames = "  f\n" * 30
    room = 2 * len(head)

    assert last_lines(head + frames, room) == head + "  f\n" * 5
    assert last_lines(head + frames, room - 1) == "  f\n" * 10
    assert last_lines("a\n" + head + frames, len(head + frames)) == head + frames
    assert last_lines(head + frames, len(head + frames) - 1) == head + "  f\n" * 29
    assert last_lines("a\n" * 30, 4) == "a\na\n"


def test_the_list_of_modules_goes_before_the_stack_does():
    """A dump of the interpreter ends with what says least, and with many modules that is long."""
    stack = "Fatal Python error: Aborted\n\n" + "  File x\n" * 400
    dump = f"{stack}\nExtension modules: {'a.b, ' * 400}(total: 400)\n"

    assert last_lines(dump) == stack + "\n"


def test_what_a_dump_begins_with_stays():
    """The interpreter's own word for its end is worth more than the outermost frames."""
    stack = "before\n" * 10 + "Fatal Python error: Aborted\n\n" + "  File x\n" * 1_000
    short = last_lines(stack)

    assert short.startswith("Fatal Python error: Aborted\n  File x\n")
    assert len(short) <= TAIL_BYTES_MAX


def test_a_dump_that_fits_is_whole_and_a_forged_head_takes_no_room():
    """The head is put in front only where it was cut off, and only if it is short."""
    dump = "Fatal Python error: Aborted\n  File x\n"

    assert last_lines("x\n" * TAIL_BYTES_MAX + dump).count("Fatal Python error") == 1
    assert last_lines("Fatal Python error: " + "y" * TAIL_BYTES_MAX + "\n" + "z\n" * 9) == "z\n" * 9


@pytest.mark.parametrize(
    ("record", "shown"),
    [
        ({"event": "tool.wrote", "level": "info", "line": "a\x1b[31m b"}, "a␛[31m b\n"),
        ({"event": "tool.wrote", "level": "info"}, "\n"),
        ({"event": "agent.started", "level": "info", "line": "no"}, ""),
        ({"event": 1, "line": 2}, ""),
        ([1], ""),
    ],
)
def test_the_end_of_the_output_has_what_tools_wrote(record, shown):
    """It came as a record of the call, and is what was said last, as any other line."""
    tail = Tail()
    tail.add(b"before\n\x1e" + json.dumps(record).encode() + b"\nafter\n")

    assert tail.text() == f"before\n{shown}after\n"
