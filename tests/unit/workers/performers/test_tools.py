"""A batch of calls: each one ends with one result, whatever its tool does.

Calls in processes need a tool host: see tests/integration/workers/toolhost.
"""

import asyncio
import threading
from pathlib import Path
from typing import Annotated

import pytest
from msgspec import Meta
from structlog.testing import capture_logs

from cmdc_runtime import bounded_check, foreign
from cmdc_runtime.extensions.context import SessionFacts
from cmdc_runtime.extensions.tool import Tool, ToolError, tool
from cmdc_runtime.messages import ToolCall
from cmdc_runtime.packed_code import Packed
from tests.unit.workers.performers.cancelled import forever
from workers.core.inputs import ToolBegun, ToolReturned
from workers.core.step import RunTools
from workers.performers.tools import LoadedTool, ToolRunner, ToolSettings

FACTS = SessionFacts(todos=({"content": "x", "status": "pending"},), tools=("a",))
SETTINGS = ToolSettings(
    session_id="s",
    incarnation=2,
    group_id="g",
    working_dir="/w",
    user_data={"k": 1},
    parallel_max=2,
    timeout_s=300.0,
    retries_max=2,
    runtime_dir=Path("/nowhere"),
)
ONE = ToolCall(call_id="a", name="tool", arguments={"x": 1})
SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
PATIENCE_S = 10.0


class Async(Tool):
    """A tool that is a coroutine; ``do`` is awaited with the context."""

    name = "tool"

    def __init__(self, do, **attributes):
        self.do, self.calls = do, []
        vars(self).update(attributes)

    async def execute(self, args, context):
        self.calls.append((args, context))
        return await self.do()


class Sync(Async):
    """A tool of a thread; ``do`` is called there."""

    isolation = "thread"

    def execute(self, args, context):
        self.calls.append((args, context))
        return self.do()


class Picky(Tool):
    """A tool with a schema, and a check of its own that may be broken."""

    name = "tool"
    parameters = SCHEMA

    async def execute(self, args, context):
        return "ran"


class Broken(Picky):
    def check(self, arguments):
        raise KeyError("what")


class Runner:
    """A tool runner, what it posted, and when it waited for the journal; it is its own link."""

    def __init__(self, *tools, calls=(ONE,), is_suspect=False):
        self.posted, self.calls, self.is_suspect = [], calls, is_suspect
        loaded = [LoadedTool(tool, Packed(kind="ref", label=tool.name)) for tool in tools]
        self.runner = ToolRunner(loaded, SETTINGS, self.posted.append, self)
        self.synced_after = []
        self.is_contained = True

    async def contained(self):
        await come(lambda: self.is_contained)

    async def synced(self):
        self.synced_after.append(list(self.posted))

    def start(self):
        batch = RunTools(7, 3, "m", tuple(self.calls), is_suspect=self.is_suspect)
        return self.runner.run(batch, FACTS)

    async def whole(self):
        await asyncio.gather(*self.start())
        return self

    @property
    def results(self):
        return [one for one in self.posted if isinstance(one, ToolReturned)]


async def fine():
    return "fine"


async def come(condition):
    """Return when the condition holds."""
    while not condition():  # noqa: ASYNC110 - the loop only has to turn
        await asyncio.sleep(0)


def failing(error):
    async def fail():
        raise error

    return fail


def raising(error):
    def fail():
        raise error

    return fail


def result_of(*tools, calls=(ONE,), run=asyncio.run):
    """Run a batch of one call; return its only result."""
    (result,) = run(Runner(*tools, calls=calls).whole()).results
    return result


@pytest.mark.parametrize("tool", [Async(fine), Sync(lambda: "fine")], ids=["task", "thread"])
def test_a_call_begins_and_returns(tool):
    """Both name their work; the tool gets its arguments and its place in the world."""
    begun, returned = asyncio.run(Runner(tool).whole()).posted
    ((args, context),) = tool.calls

    assert (type(begun), begun.work, begun.call_id) == (ToolBegun, 7, "a")
    assert (returned.work, returned.ok, returned.text) == (7, True, "fine")
    assert begun.at_ms <= returned.at_ms
    assert args == {"x": 1}
    assert (context.session_id, context.call_id, context.turn, context.model) == ("s", "a", 3, "m")
    assert (context.working_dir, context.group_id, context.incarnation) == ("/w", "g", 2)
    assert context.user_data == {"k": 1}
    assert (context.todos, context.tools) == (FACTS.todos, FACTS.tools)


def test_a_tool_that_nobody_has_is_reported():
    """It never begins, and the model reads which ones there are."""
    runner = asyncio.run(Runner(calls=(ToolCall(call_id="a", name="zap"),)).whole())
    (result,) = runner.posted

    assert (result.ok, result.is_unknown) == (False, True)
    assert "'zap'" in result.text


@pytest.mark.parametrize(
    ("tool", "call", "said"),
    [
        (Picky(), ToolCall(call_id="a", name="tool", malformed='{"x": '), "no JSON object"),
        (Picky(), ToolCall(call_id="a", name="tool"), "x"),
        (Picky(), ONE, "string"),
        (Broken(), ONE, "KeyError"),
    ],
    ids=["malformed", "missing", "wrong type", "broken check"],
)
def test_arguments_that_do_not_fit_are_a_result(tool, call, said):
    """The model reads what is wrong; nothing runs, and no journal is waited for."""
    runner = asyncio.run(Runner(tool, calls=(call,)).whole())
    (result,) = runner.posted

    assert not result.ok
    assert said in result.text
    assert runner.synced_after == []


@tool
def by_signature(x: Annotated[str, Meta(pattern="^(a+)+$")]) -> str:
    """Take what takes years to be matched."""
    return x


class ByHand(Picky):
    name = "by_hand"
    parameters = {"type": "object", "properties": {"x": {"pattern": "^(a+)+$"}}}  # noqa: RUF012


@pytest.mark.parametrize("found", [by_signature, ByHand()], ids=["signature", "by hand"])
def test_a_check_without_an_end_is_a_result(found, monkeypatch):
    """The model chose the text: it reads so, and the session goes on."""
    monkeypatch.setattr(bounded_check, "CHECK_CPU_S", 0.05)
    call = ToolCall(call_id="a", name=found.name, arguments={"x": "a" * 40 + "b"})
    with capture_logs() as logs:
        result = result_of(found, calls=(call,))

    assert not result.ok
    assert "they cannot be checked: it took more than 0.05 s of CPU time. A pattern" in result.text
    assert [entry["event"] for entry in logs] == ["tool.check_ended"]


@pytest.mark.parametrize(
    ("effects", "own", "times"),
    [
        ("read", None, 3),
        ("idempotent", None, 3),
        ("write", None, 1),
        ("write", 1, 2),
        ("read", 0, 1),
    ],
)
@pytest.mark.parametrize("kind", [Async, Sync])
def test_an_unexpected_failure_is_retried_as_its_effects_allow(kind, effects, own, times):
    """A write is not tried again unless the tool itself says so; then the model reads of it."""
    fail = (failing if kind is Async else raising)(ValueError("oops"))
    tool = kind(fail, effects=effects, max_retries=own)
    with capture_logs() as logs:
        result = result_of(tool)

    assert len(tool.calls) == times
    assert (result.ok, result.text) == (False, "ValueError: oops")
    assert [entry["event"] for entry in logs] == ["tool.crashed"]


def test_a_retry_may_succeed():
    """Only the last attempt counts."""
    outcomes = [ValueError("first"), "fine"]

    async def do():
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert result_of(Async(do, effects="read")).text == "fine"


@pytest.mark.parametrize(("kind", "failure"), [(Async, failing), (Sync, raising)])
def test_an_expected_failure_is_not_retried(kind, failure):
    """The model reads the tool's own words."""
    tool = kind(failure(ToolError("no file")), effects="read")
    result = result_of(tool)

    assert (len(tool.calls), result.ok, result.text) == (1, False, "no file")
    assert not result.is_cut


@pytest.mark.parametrize(("own", "bound"), [(None, "300"), (5.0, "5")])
def test_a_call_has_its_time(run, own, bound):
    """The tool's own bound, or the session's; a call that took too long is not tried again."""
    tool = Async(forever, effects="read", timeout=own)
    result = result_of(tool, run=run)

    assert result.text == f"tool took longer than {bound} s and was ended"
    assert result.is_cut
    assert len(tool.calls) == 1


def test_a_time_out_of_the_tools_own_is_a_failure():
    """It is distinguished from ours, and retried like any unexpected exception."""
    tool = Async(failing(TimeoutError("mine")), effects="read")

    assert result_of(tool).text == "TimeoutError: mine"
    assert len(tool.calls) == 3


def test_a_write_waits_until_it_is_written_down():
    """Its start is in the journal before it runs; a read does not wait."""
    write = Async(fine, name="write")
    read = Async(fine, name="read", effects="read")
    calls = [ToolCall(call_id=name, name=name) for name in ("write", "read")]
    runner = asyncio.run(Runner(write, read, calls=calls).whole())
    (seen,) = runner.synced_after

    assert seen[0].call_id == "write"
    assert "write" not in [one.call_id for one in seen if isinstance(one, ToolReturned)]


def test_nothing_runs_before_its_process_is_contained():
    """Also a read: what it starts and hides would never be found again."""
    read = Async(fine, effects="read")

    async def run():
        runner = Runner(read)
        runner.is_contained = False
        tasks = runner.start()
        await come(lambda: runner.posted)
        for _ in range(10):
            await asyncio.sleep(0)
        before = list(read.calls)
        runner.is_contained = True
        await asyncio.gather(*tasks)
        return before, runner.results

    before, (result,) = asyncio.run(run())

    assert before == []
    assert (result.text, len(read.calls)) == ("fine", 1)


def test_a_read_waits_too_where_the_cycle_has_cost_a_process():
    """One that kills at once would else never be counted."""
    read = Async(fine, name="read", effects="read")
    calls = [ToolCall(call_id="read", name="read")]
    runner = asyncio.run(Runner(read, calls=calls, is_suspect=True).whole())
    (seen,) = runner.synced_after

    assert [type(one) for one in seen] == [ToolBegun]


def test_only_so_many_calls_run_at_a_time():
    """They begin in the order of the batch, the next one when one is done."""
    running, most = set(), []
    calls = [ToolCall(call_id=str(number), name="tool") for number in range(7)]

    async def do():
        running.add(asyncio.current_task())
        most.append(len(running))
        for _ in range(3):
            await asyncio.sleep(0)
        running.discard(asyncio.current_task())
        return "fine"

    runner = asyncio.run(Runner(Async(do, effects="read"), calls=calls).whole())
    begun = [one.call_id for one in runner.posted if isinstance(one, ToolBegun)]

    assert max(most) == SETTINGS.parallel_max
    assert begun == [call.call_id for call in calls]
    assert len(runner.results) == 7


def test_a_cancelled_call_returns_nothing():
    """Running or waiting for its turn; its cleanup has run when it is settled."""
    cleaned = []

    async def do():
        try:
            await forever()
        finally:
            await asyncio.sleep(0)
            cleaned.append(None)

    async def cancel():
        calls = [ToolCall(call_id=str(number), name="tool") for number in range(3)]
        runner = Runner(Async(do, effects="read"), calls=calls)
        tasks = runner.start()
        await come(lambda: len(runner.posted) == SETTINGS.parallel_max)
        runner.runner.cancel()
        await runner.runner.closed()
        return runner.results, [task.cancelled() for task in tasks]

    assert asyncio.run(cancel()) == ([], [True] * 3)
    assert len(cleaned) == SETTINGS.parallel_max


def test_a_cancelled_call_is_not_tried_again():
    """Not even where the tool turns the cancellation into a failure of its own."""

    async def do():
        try:
            await forever()
        except asyncio.CancelledError:
            raise ConnectionError("closed") from None

    async def cancel():
        tool = Async(do, effects="read")
        runner = Runner(tool)
        (task,) = runner.start()
        await come(lambda: tool.calls)
        runner.runner.cancel()
        await runner.runner.closed()
        return len(tool.calls), runner.results, task.cancelled()

    assert asyncio.run(cancel()) == (1, [], True)


class Hasty(Picky):
    """Cancels the task in which it is asked something."""

    parameters = Tool.parameters

    def meta(self, arguments):
        asyncio.current_task().cancel()
        return "hasty"


def test_a_call_whose_task_nobody_of_us_has_cancelled_is_a_failure():
    """What a tool is asked before it runs, it is asked in the call's own task."""
    result = result_of(Hasty())

    assert not result.ok
    assert foreign.OWN_CANCEL in result.text


def test_a_tool_that_cancels_itself_has_failed():
    """It is tried again as any failure is, and has its result."""

    async def do():
        asyncio.current_task().cancel()
        await forever()

    tool = Async(do, effects="read")
    result = result_of(tool)

    assert (result.ok, result.text) == (False, f"CancelledError: {foreign.OWN_CANCEL}")
    assert len(tool.calls) == 3


def test_a_tool_that_keeps_its_own_cancellation_goes_on(run):
    """It returns what it returns, and its time is bounded as ever."""

    async def do():
        asyncio.current_task().cancel()
        try:
            await forever()
        except asyncio.CancelledError:
            return "fine"

    async def hang():
        await do()
        await forever()

    assert result_of(Async(do)).text == "fine"
    assert result_of(Async(hang), run=run).text == "tool took longer than 300 s and was ended"


def test_only_the_named_calls_are_cancelled():
    """At once, without a wait; the others of the batch go on to their results."""
    go = []

    async def do():
        await come(lambda: go)
        return "fine"

    async def cancel():
        calls = [ToolCall(call_id=name, name="tool") for name in ("a", "b")]
        runner = Runner(Async(do), calls=calls)
        tasks = runner.start()
        await come(lambda: len(runner.synced_after) == 2)
        runner.runner.cancel_calls(("a", "nobody"))
        go.append(None)
        await asyncio.wait(tasks)
        return [result.call_id for result in runner.results], runner.runner.is_idle

    assert asyncio.run(cancel()) == (["b"], True)


def test_who_hears_of_the_last_result_finds_the_runner_idle():
    """A session that rests after the batch must not take its end for a call that runs on."""
    seen = []

    async def whole():
        runner = Runner(Async(fine))
        runner.runner._post = lambda _result: seen.append(runner.runner.is_idle)
        await runner.whole()

    asyncio.run(whole())

    assert seen == [False, True]


def test_what_a_thread_returns_after_a_cancel_is_discarded():
    """It can't be ended, so it runs on alone, and the runner is not idle before it is done."""
    begun, go, done = threading.Event(), threading.Event(), threading.Event()

    def do():
        begun.set()
        go.wait(PATIENCE_S)
        done.set()
        return "too late"

    async def cancel():
        runner = Runner(Sync(do))
        runner.start()
        await asyncio.to_thread(begun.wait, PATIENCE_S)
        (thread,) = [one for one in threading.enumerate() if one.name == "tool"]
        runner.runner.cancel()
        await runner.runner.closed()
        was_idle = runner.runner.is_idle
        go.set()
        await asyncio.to_thread(thread.join, PATIENCE_S)
        await asyncio.sleep(0)
        return runner.results, was_idle, runner.runner.is_idle

    assert asyncio.run(cancel()) == ([], False, True)
    assert done.is_set()
