"""Standard error taken apart: as Python 3.11 to 3.14 write it, cut, and mixed with other lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.output import bounded_end, bounded_stack, bounded_start, split_output

CRASHED = """\
Current thread 0x00007f05ed85cb80 (most recent call first):
  File "/lib/ctypes/__init__.py", line 519 in string_at
  File "<string>", line 11 in f"""
PARKED = """\
Thread 0x00007f05e77fe6c0 (most recent call first):
  File "<string>", line 4 in park
  File "/lib/threading.py", line 982 in run"""
DUMP = f"""\
Fatal Python error: Segmentation fault

{PARKED}

{CRASHED}

Extension modules: msgspec._core, zmq.backend.cython._zmq (total: 2)
"""
STACK = f"""\
Fatal Python error: Segmentation fault

{CRASHED}

{PARKED}

Extension modules: msgspec._core, zmq.backend.cython._zmq (total: 2)"""
TRACEBACK = """\
Traceback (most recent call last):
  File "<string>", line 8, in <module>
ZeroDivisionError: division by zero"""
NEW = """\
Fatal Python error: Aborted

Current thread 0x00007fffb2d3c740 [cmdc agent s] (most recent call first):
  Garbage-collecting
  File "x.py", line ??? in call
  <truncated rest of calls>

Current thread's C stack trace (most recent call first):
  Binary file "/lib/libc.so.6", at abort+0x29 [0x7fffb2c3]
  Binary file "python" [0x55d0]
  ..."""


@pytest.mark.parametrize(
    ("text", "output", "stack"),
    [
        ("", "", ""),
        ("a\nb\n", "a\nb", ""),
        (TRACEBACK, TRACEBACK, ""),
        (DUMP, "", STACK),
        (f"a\n\n{TRACEBACK}\n{DUMP}", f"a\n\n{TRACEBACK}", STACK),
        (f"a\n{DUMP}\nSegmentation fault\n", "a\n\nSegmentation fault", STACK),
        (f"a\n{NEW}\n", "a", NEW),
        (f"Timeout (0:00:30)!\n{PARKED}", "", f"Timeout (0:00:30)!\n\n{PARKED}"),
        (f"{CRASHED}\nb\n{CRASHED}\nc", f"{CRASHED}\nb\nc", CRASHED),
        (
            CRASHED.replace("string_at\n", "string_at\nb\nb\n").join([f"{PARKED}\na\n", "\nc"]),
            "a\nb\nb\nc",
            f"{CRASHED}\n\n{PARKED}",
        ),
        (f"{PARKED}\n" + "b\n" * 21 + CRASHED, f"{PARKED}\n" + "b\n" * 20 + "b", CRASHED),
        (
            (
                "none_dealloc: x\nFatal Python error: none_dealloc: x\n"
                f"Python runtime state: initialized\n\n{CRASHED}"
            ),
            "none_dealloc: x",
            "Fatal Python error: none_dealloc: x\nPython runtime state: initialized\n\n" + CRASHED,
        ),
        (
            'b>", line 3 in f\n  File "x", line 4 in g\n\n' + CRASHED,
            'b>", line 3 in f',
            '  File "x", line 4 in g\n\n' + CRASHED,
        ),
        ("  ...\n  <x>\nPython runtime state: x", "  ...\n  <x>\nPython runtime state: x", ""),
        (
            f"a\n{PARKED}\n" + "b\n" * 20 + CRASHED,
            "a\n" + "b\n" * 19 + "b",
            f"{CRASHED}\n\n{PARKED}",
        ),
        (f"{PARKED}\nb\n{PARKED}\nb\n\n  ...\n", "b\nb\n\n  ...", f"{PARKED}\n\n{PARKED}"),
        ("Thread 0x1 is slow", "Thread 0x1 is slow", ""),
    ],
    ids=[
        "nothing",
        "no dump",
        "a traceback",
        "a dump",
        "a dump behind a traceback",
        "a line behind it",
        "Python 3.14",
        "asked for",
        "the second of two",
        "others write in between",
        "one long before",
        "the interpreter's own",
        "its beginning is gone",
        "not without a beginning",
        "as many lines in between as may be",
        "what comes behind others is theirs",
        "only alike",
    ],
)
def test_a_dump_is_distinguished_from_output(text, output, stack):
    """The last one is the stack, with the thread that crashed first; the rest is the output."""
    assert split_output(text) == (output, stack)


@given(st.lists(st.sampled_from(["a", "", *DUMP.splitlines(), *NEW.splitlines()])))
def test_no_line_is_lost(lines):
    """Each is in one of the two, however they are mixed."""
    output, stack = split_output("\n".join(lines))
    found = [line for line in f"{output}\n{stack}".splitlines() if line]

    assert sorted(found) == sorted(line for line in lines if line)


@given(st.text(), st.integers(8, 40))
def test_a_bound_holds_and_a_cut_shows(text, most):
    """In bytes, and never within a character."""
    start, end = bounded_start(text, most), bounded_end(text, most)
    is_short = len(text.encode()) <= most

    assert len(start.encode()) <= most
    assert len(end.encode()) <= most
    assert ((start, end) == (text, text)) if is_short else (start[-1] == end[0] == "…")


@pytest.mark.parametrize(
    ("text", "most", "kept"),
    [
        ("one\ntwo\nthree", 12, "…\nthree"),
        ("one\ntwo\nthree", 13, "one\ntwo\nthree"),
        ("0123456789", 9, "…56789"),
        ("0123456789\n", 9, "…6789\n"),
    ],
    ids=["whole lines", "all", "one long line", "and its end"],
)
def test_the_end_begins_with_a_whole_line(text, most, kept):
    """Unless that would leave nothing."""
    assert bounded_end(text, most) == kept


def test_long_stacks_lose_the_names_of_modules_first():
    """They say least; a short one keeps them."""
    frames = "\n".join([CRASHED] * 10)
    stack = f"{frames}\n\nExtension modules: {', '.join(['zmq'] * 1000)} (total: 1000)"

    assert bounded_stack(stack, 10_000) == stack
    assert bounded_stack(stack, len(stack)) == stack
    assert bounded_stack(stack, len(frames) + 1) == f"{frames}\n"
    assert bounded_stack(stack, 100) == f"{frames[:97]}…"


def test_text_that_is_no_unicode_is_shown_all_the_same():
    """Lone surrogates come from bytes that were no UTF-8."""
    assert bounded_start("a\udc80", 10) == bounded_end("a\udc80", 10) == "a?"
