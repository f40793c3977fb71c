"""What is printed is cut and folded, and every cut leaves a mark."""

from scripts.incidents import shown

TRACEBACK = """\
process 1 of s is down: exception: E: no
    traceback:
    | Traceback (most recent call last):
    |   File "/usr/lib/python3.11/asyncio/events.py", line 80, in _run
    |     self._context.run(self._callback, *self._args)
    |   File "/srv/shop/shop.py", line 28, in booked
    |     raise E("no")
    |           ^^^^^^^
    | E: no
    standard error:
    | loading"""
STACK = """\
    stack:
    | Fatal Python error: Segmentation fault
    |
    | Current thread 0x00007f5c1a2b3740 (most recent call first):
    |   File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
    |   File "/srv/shop/shop.py", line 36 in render
    |   File "/usr/lib/python3.11/threading.py", line 982 in run
    |
    | Thread 0x00007f5c1a2b3740 (most recent call first):
    |   File "/usr/lib/python3.11/threading.py", line 327 in wait
    |
    | Extension modules: zmq (total: 1)"""
REPORT = (
    "03:12:07 [error    ] child.terminated               child=agent child_type=worker "
    "context=child_terminated generation=1 reason='exit status 3' report=child_terminated "
    "restart_type=transient shutdown=None significant=True supervisor=root/sessions/session:s"
)
WROTE = "03:12:07 [info     ] worker.wrote       incarnation=1 line={!r} pid=4001 stream=err"


def test_of_a_traceback_the_applications_own_frames_are_left():
    """With their code, but without the marks below it, and with what was raised."""
    assert shown.part("monitor", TRACEBACK).splitlines()[2:] == [
        "    | Traceback (most recent call last):",
        "    | …",
        '    |   File "/srv/shop/shop.py", line 28, in booked',
        '    |     raise E("no")',
        "    | …",
        "    | E: no",
        "    standard error:",
        "    | loading",
    ]


def test_of_stacks_the_thread_that_crashed_is_left():
    """One mark stands for all that is cut in a row."""
    assert shown.part("monitor", STACK).splitlines() == [
        "    stack:",
        "    | Fatal Python error: Segmentation fault",
        "    | …",
        "    | Current thread 0x00007f5c1a2b3740 (most recent call first):",
        "    | …",
        '    |   File "/srv/shop/shop.py", line 36 in render',
        "    | …",
    ]


def test_a_report_has_what_differs():
    """And says that something was cut; any other line of the log is whole."""
    assert " ".join(shown.part("log", REPORT).split()) == (
        "03:12:07 [error ] child.terminated child=agent generation=1 reason='exit status 3' "
        "supervisor=root/sessions/session:s …"
    )
    assert shown.part("log", "03:12:07 [info] process.ended report=1") == (
        "03:12:07 [info] process.ended report=1"
    )


def test_a_stack_in_the_log_is_cut_as_well():
    """What the process wrote beside it is not."""
    lines = ["loading", *STACK.replace("    | ", "").splitlines()[4:6]]
    text = shown.part("log", "\n".join(WROTE.format(line) for line in lines))

    assert " ".join(text.split()).count("worker.wrote") == 2
    assert ("string_at" in text, "render" in text, "…" in text) == (False, True, True)


def test_a_long_line_is_folded():
    """Where a blank is, and below it is indented."""
    first, second = shown.part("ps", f"{'x' * 60} {'y' * 60}").splitlines()

    assert (first, second) == ("x" * 60, " " * shown.INDENT + "y" * 60)


def test_a_block_holds_what_was_typed_and_printed():
    """One piece after the other, with a line between them."""
    pieces = [shown.prompted("cmdc ps", "a  \nb"), shown.prompted("cmdc tree", "")]

    assert shown.block(pieces) == "```console\n$ cmdc ps\na\nb\n\n$ cmdc tree\n```"
