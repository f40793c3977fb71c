"""A task and a thread: whatever a tool does there, its call has one ending, and the agent lives."""

import asyncio
import sys
import threading

import pytest

from cmdc_runtime.extensions import Context, Effect, Tool, ToolError
from cmdc_runtime.wire.codec import encode
from workers.performers.tools import ToolThreads, in_task
from workers.toolhost.wire import RESULT_CHARS_MAX, Crashed, Refused, Returned

CONTEXT = Context(session_id="s", call_id="a")
PATIENCE_S = 10.0


class Async(Tool):
    """A coroutine that does what a test says."""

    name = "tool"

    def __init__(self, do):
        self.do = do

    async def execute(self, args, context):
        return self.do()


class Sync(Async):
    """The same in a thread."""

    def execute(self, args, context):
        return self.do()


def in_thread(do):
    return asyncio.run(ToolThreads().run_tool(Sync(do), {}, CONTEXT))


def as_task(do):
    async def whole():
        return await in_task(Async(do), {}, CONTEXT)

    return asyncio.run(whole())


BOTH = pytest.mark.parametrize("run", [in_thread, as_task], ids=["thread", "task"])


def raising(error):
    def fail():
        raise error

    return fail


class Mute(Exception):
    """Has no text to show."""

    def __str__(self):
        raise ValueError("no text")

    __repr__ = __str__


class MuteToolError(ToolError):
    """The same, expected."""

    __str__ = Mute.__str__


class Unprintable:
    """A result whose text ends the program."""

    def __str__(self):
        raise SystemExit

    __repr__ = __str__


class Faceless(Unprintable):
    """It does not even say what it is."""

    @property
    def __class__(self):
        raise SystemExit


class Sudden(BaseException):
    """What no tool should raise."""


ODD_ENDS = [
    StopIteration("x"), StopAsyncIteration("x"), SystemExit(3), asyncio.CancelledError(),
    KeyboardInterrupt(), GeneratorExit(), RecursionError("deep"), Sudden("x"), Mute(),
]  # fmt: skip


@BOTH
@pytest.mark.parametrize("error", ODD_ENDS, ids=lambda error: type(error).__name__)
def test_a_tool_may_end_as_it_likes(run, error):
    """Its call has an ending that names what was raised, and the process goes on."""
    ending = run(raising(error))

    assert not isinstance(ending, Returned)
    assert type(error).__name__ in ending.text or "StopIteration" in ending.text


@BOTH
def test_a_failure_without_a_text_is_reported_by_its_type(run):
    """Whether one had to expect it or not."""
    unexpected, expected = run(raising(Mute())), run(raising(MuteToolError()))

    assert unexpected.text == "Mute: <Mute has no text: its __str__ failed>"
    assert expected == Refused(text="<MuteToolError has no text: its __str__ failed>")


@BOTH
@pytest.mark.parametrize("make", [Unprintable, lambda: [Unprintable()], Faceless])
def test_a_result_without_a_text_is_reported_as_one(run, make):
    """Making text of a result runs the code of its class; that the tool has run is said first."""
    ending = run(make)

    assert isinstance(ending, Refused)
    assert ending.text.startswith("the tool has run, but its result cannot be kept: SystemExit")


@BOTH
def test_a_tool_that_exits_ends_its_call_only(run):
    """What ``sys.exit`` says is the result, and no reason to try again."""
    ending = run(lambda: sys.exit("bye"))

    assert ending == Refused(text="the tool tried to end its process: SystemExit: bye")


@BOTH
def test_a_failure_is_expected_or_not(run):
    """The model reads the tool's own words, or what was raised; the log gets the traceback."""
    expected, unexpected = run(raising(ToolError("no file"))), run(raising(ValueError("oops")))

    assert expected == Refused(text="no file")
    assert (type(unexpected), unexpected.text) == (Crashed, "ValueError: oops")
    assert unexpected.detail.startswith("Traceback")


@BOTH
@pytest.mark.parametrize(("value", "text"), [(None, "None"), (5, "5"), ("", ""), ("né", "né")])
def test_a_result_is_text_that_can_be_sent(run, value, text):
    """Whatever the tool returned."""
    ending = run(lambda: value)

    assert ending == Returned(text=text)
    assert encode(ending.text)


@BOTH
def test_a_result_that_is_no_text_is_reported(run):
    """A file name that is no UTF-8: the model reads what is wrong, and nothing in its place."""
    ending = run(lambda: "\udcff!")

    assert type(ending) is Refused
    assert "half a surrogate pair (U+DCFF) at 0" in ending.text


@BOTH
def test_an_effect_comes_with_its_payload(run):
    """As the name and a payload beside the text."""
    assert run(lambda: Effect("x", {"n": 1}, "t")) == Returned(text="t", effect=("x", {"n": 1}))


def test_a_sync_tool_may_return_an_awaitable():
    """It is awaited in the loop."""

    async def fine():
        return "fine"

    assert in_thread(fine) == Returned(text="fine")


def test_a_long_result_is_cut():
    """The model reads how long it was."""
    ending = in_thread(lambda: "x" * (RESULT_CHARS_MAX + 1))
    notice = f"\n[cut: the result had {RESULT_CHARS_MAX + 1} characters]"

    assert ending.text == "x" * RESULT_CHARS_MAX + notice
    assert in_thread(lambda: "x" * RESULT_CHARS_MAX).text == "x" * RESULT_CHARS_MAX


def test_a_thread_that_is_left_alone_is_counted_until_it_ends():
    """A session with one is not at rest."""
    go, begun = threading.Event(), threading.Event()

    def work():
        begun.set()
        go.wait(PATIENCE_S)

    async def whole():
        threads = ToolThreads()
        call = asyncio.create_task(threads.run_tool(Sync(work), {}, CONTEXT))
        await asyncio.to_thread(begun.wait, PATIENCE_S)
        call.cancel()
        await asyncio.wait({call})
        left = len(threads)
        go.set()
        while len(threads):  # noqa: ASYNC110 - the thread notifies nobody else
            await asyncio.sleep(0)
        return left

    assert asyncio.run(whole()) == 1
