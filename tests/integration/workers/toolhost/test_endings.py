"""How a call in a process ends: by itself in any way, by a bound, or because it is given up."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cmdc_runtime.extensions import Context, ToolError, tool
from tests.ended import has_ended

pytestmark = pytest.mark.process

DIED = "Error: the tool's process died: "


def end_by(how):
    """Return a tool that ends in a way that a word names."""

    @tool(effects="write")
    def end(how: str = how) -> str:
        """End as it is asked to."""
        return ENDS[how]()

    return end


def fail(error):
    raise error


async def later():
    return "later"


def fork_and_return():
    """Return while a fork that shares the pipe lives on."""
    if os.fork() == 0:
        time.sleep(3600)  # tidy: a fork that lives on
    return "left one"


def write_garbage():
    for fd in range(3, 64):
        try:
            os.write(fd, b"\xff" * 64)
        except OSError:
            continue
    return "unheard"


class Unprintable:
    """A result whose text ends the program."""

    def __str__(self):
        raise SystemExit(4)

    __repr__ = __str__


ENDS = {
    "text": lambda: "né",
    "none": lambda: None,
    "odd": lambda: "\udcff",
    "unprintable": Unprintable,
    "long": lambda: "x" * 400_001,
    "awaitable": later,
    "expected": lambda: fail(ToolError("no file")),
    "unexpected": lambda: fail(ValueError("oops")),
    "exit": lambda: sys.exit("bye"),
    "interrupt": lambda: fail(KeyboardInterrupt()),
    "hard exit": lambda: os._exit(3),
    "silent exit": lambda: os._exit(0),
    "segfault": lambda: ctypes.string_at(0),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "aborted": os.abort,
    "closed": lambda: os.closerange(0, 64),
    "garbage": write_garbage,
    "fork": fork_and_return,
}


@pytest.mark.parametrize(
    ("how", "ok", "text"),
    [
        ("text", True, "né"),
        ("none", True, "None"),
        ("odd", False, "the tool has run, but its result cannot be kept"),
        ("unprintable", False, "the tool has run, but its result cannot be kept: SystemExit"),
        ("long", True, "x" * 400_000 + "\n[cut: the result had 400001 characters]"),
        ("awaitable", True, "later"),
        ("expected", False, "no file"),
        ("unexpected", False, "ValueError: oops"),
        ("exit", False, "the tool tried to end its process: SystemExit: bye"),
        ("interrupt", False, "the tool tried to end its process: KeyboardInterrupt"),
        ("hard exit", False, f"{DIED}exit status 3"),
        ("silent exit", False, f"{DIED}exit status 0"),
        ("segfault", False, f"{DIED}killed by signal 11 (SIGSEGV"),
        ("killed", False, f"{DIED}killed by signal 9 (SIGKILL)"),
        ("aborted", False, f"{DIED}killed by signal 6 (SIGABRT"),
        ("closed", False, f"{DIED}exit status 70"),
        ("garbage", False, f"{DIED}something else was written to its pipe"),
        ("fork", True, "left one"),
    ],
)
def test_however_a_tool_ends_its_call_has_a_result(opened, facts_tool, how, ok, text):
    """And the next call of the session runs."""

    async def scenario():
        async with opened(end_by(how), facts_tool) as stage:
            result = await stage.result("end")
            return result, await stage.texts("report")

    result, after = asyncio.run(scenario())

    assert (result.ok, result.text[: len(text)]) == (ok, text)
    assert after == ["reported"]


@pytest.mark.parametrize(
    ("effects", "own", "times"),
    [("read", None, 3), ("idempotent", 1, 2), ("write", None, 1), ("write", 1, 1)],
)
def test_a_death_is_tried_again_only_where_that_does_no_harm(opened, folder, effects, own, times):
    """Nobody knows how far a write came, so its own ``max_retries`` is not for this."""

    @tool(effects=effects, max_retries=own)
    def die() -> str:
        """Leave a mark and die."""
        with Path("log").open("a") as log:
            log.write("x")
        os._exit(1)

    async def scenario():
        async with opened(die) as stage:
            return await stage.result("die")

    result = asyncio.run(scenario())

    assert result.text == f"{DIED}exit status 1"
    assert len((folder / "log").read_text()) == times


def test_a_call_that_takes_too_long_is_killed_with_all_it_started(opened, stay, ends):
    """When the model reads of it, nothing of it runs any more."""

    async def scenario():
        async with opened(stay, timeout_s=0.5) as stage:
            texts = await stage.texts("stay")
            return texts, [has_ended(stage.emitted[0][0]), ends(stage.emitted[0][1])]

    texts, ended = asyncio.run(scenario())

    assert texts == ["stay took longer than 0.5 s and was ended"]
    assert ended == [True, True]


def test_a_cancelled_call_is_killed_and_the_loop_never_waits(opened, stay, ends):
    """A tool that burns a core delays nothing: to cancel it is a matter of microseconds."""

    async def scenario():
        async with opened(stay) as stage:
            tasks = stage.start("stay", "stay")
            pids = await stage.until_emitted(2)
            start = time.monotonic()
            stage.runner.cancel_calls(["c0", "c1"])
            took_s = time.monotonic() - start
            await asyncio.wait(tasks)
            ended = [ends(pid) for pair in pids for pid in pair]
            return took_s, ended, [task.cancelled() for task in tasks], stage.runner.is_idle

    took_s, ended, cancelled, is_idle = asyncio.run(scenario())

    assert took_s < 0.1
    assert ended == [True] * 4
    assert cancelled == [True, True]
    assert is_idle


def test_what_a_returned_call_left_running_is_killed(opened, ends):
    """A tool's group ends with it, however it ended."""

    @tool
    def leave(*, context: Context) -> str:
        """Leave a child."""
        context.session.emit("pid", subprocess.Popen(["sleep", "3600"]).pid)
        return "left"

    async def scenario():
        async with opened(leave) as stage:
            texts = await stage.texts("leave")
            return texts, ends(stage.emitted[0])

    assert asyncio.run(scenario()) == (["left"], True)
