"""A plugin has its time and its state, and neither holds up an abort or gets lost."""

import asyncio
import threading
from datetime import datetime, timedelta, tzinfo
from typing import Any

import msgspec
import pytest

from cmdc_runtime.extensions.actions import Emit, Intervene
from cmdc_runtime.extensions.hooks import (
    BeforeFinish,
    BeforePrompt,
)
from cmdc_runtime.extensions.plugin import Plugin, hook
from workers import plugin_slot as module
from workers.core.verdict import Verdict
from workers.plugin_slot import STATE_BYTES_MAX, STRAY_THREADS_MAX

WAIT_S = 10.0

pytestmark = pytest.mark.usefixtures("logged")


async def enter(semaphore):
    """Wait, with a bound, until a thread has come to a point."""
    assert await asyncio.to_thread(semaphore.acquire, timeout=WAIT_S)


def test_slow_plugin_is_cut_off(pipeline_of, hasty):
    """A plugin has the time that ``@hook`` gives it, and its thread is left alone."""

    async def scenario():
        verdict = await pipeline_of(hasty).run(BeforePrompt("hi"))
        hasty.gate.set()
        await enter(hasty.left)
        return verdict

    verdict = asyncio.run(scenario())

    assert verdict == Verdict(
        crashed=(("hasty_gated", "before_prompt", "it took longer than 0.02 s"),)
    )


def test_slow_async_plugin_is_cut_off(monkeypatch, run, pipeline_of, plugin_of):
    """Without ``@hook`` the bound of the pipeline holds, for async methods too."""
    monkeypatch.setattr(module, "HOOK_TIMEOUT_S", 0.02)

    async def forever(self, event, context):
        await asyncio.Event().wait()

    verdict = run(pipeline_of(plugin_of(None, before_prompt=forever)), BeforePrompt("hi"))

    assert verdict.crashed == (("odd", "before_prompt", "it took longer than 0.02 s"),)


def test_cancel_does_not_wait_for_a_thread(pipeline_of, gated):
    """An abort is through at once, and what the thread returns is discarded."""
    pipeline = pipeline_of(gated)

    async def scenario():
        task = asyncio.create_task(pipeline.run(BeforePrompt("hi")))
        await enter(gated.entered)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not gated.gate.is_set()
        gated.gate.set()
        await enter(gated.left)
        return await pipeline.run(BeforePrompt("again"))

    verdict = asyncio.run(scenario())

    # The stray run counted in the instance that it has to itself.
    assert verdict.states == (("gated", msgspec.msgpack.encode({"passed": 1})),)
    assert gated.state.passed == 1


def test_cancel_reaches_who_waits_for_a_turn(pipeline_of, gated):
    """A run that waits for another one can be cancelled as well."""
    pipeline = pipeline_of(gated)

    async def scenario():
        first = asyncio.create_task(pipeline.run(BeforePrompt("hi")))
        await enter(gated.entered)
        second = asyncio.create_task(pipeline.run(BeforePrompt("hi")))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        gated.gate.set()
        return await first

    assert asyncio.run(scenario()).text == "late"


def test_cancel_cannot_be_kept_by_a_plugin(pipeline_of, plugin_of):
    """A plugin that catches the cancellation does not hold up the abort."""
    started = asyncio.Event()

    async def stubborn(self, event, context):
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return Intervene("still here")

    pipeline = pipeline_of(plugin_of(None, before_prompt=stubborn))

    async def scenario():
        task = asyncio.create_task(pipeline.run(BeforePrompt("hi")))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())


def test_loop_that_ends_is_no_failure_of_the_plugin(logged, pipeline_of, plugin_of):
    """A run that is thrown away with its loop ends quietly."""

    async def forever(self, event, context):
        await asyncio.Event().wait()

    async def scenario():
        pipeline = pipeline_of(plugin_of(None, before_prompt=forever))
        running = pipeline.run(BeforePrompt("hi"))
        running.send(None)
        running.close()

    asyncio.run(scenario())

    assert logged == []


def test_stray_threads_are_bounded(pipeline_of, hasty):
    """A plugin whose threads never return is not asked any more until some of them do."""
    pipeline = pipeline_of(hasty)

    async def scenario():
        for _ in range(STRAY_THREADS_MAX):
            await pipeline.run(BeforePrompt("hi"))
        refused = await pipeline.run(BeforePrompt("hi"))
        hasty.gate.set()
        for _ in range(STRAY_THREADS_MAX):
            await enter(hasty.left)
        return refused, await pipeline.run(BeforePrompt("hi"))

    refused, after = asyncio.run(scenario())

    assert refused.crashed[0][2] == f"{STRAY_THREADS_MAX} of its earlier runs have not returned yet"
    assert after.text == "late"


class Stalled(tzinfo):
    """A zone of a time that hangs whoever reads it, until the gate opens."""

    def __init__(self, gated):
        """Hang as this plugin does."""
        self.gated = gated

    def utcoffset(self, _time):
        """Hang, then be at Greenwich."""
        self.gated.entered.release()
        self.gated.gate.wait(WAIT_S)
        self.gated.left.release()
        return timedelta()


class Unread(Exception):
    """Its text hangs, too."""

    def __str__(self):
        """Hang, then have none."""
        self.args[0].utcoffset()
        return ""


def failing(error):
    raise error


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("what", ["payload", "list", "state", "error"])
def test_what_a_run_leaves_is_read_within_its_time(what, is_async, pipeline_of, plugin_of, gated):
    """Reading it may run the plugin's own code, so it has the plugin's time and its policy."""
    stalled = datetime(2026, 1, 1, tzinfo=Stalled(gated))

    def now(self, event, context):
        match what:
            case "payload":
                return Emit("seen", stalled)
            case "list":
                return [Emit([("seen", {"all": stalled})])]
            case "state":
                self.state.seen = stalled
                return None
            case _:
                return failing(Unread(stalled))

    async def later(self, event, context):
        return await asyncio.to_thread(now, self, event, context)

    class State(msgspec.Struct):
        seen: Any = None

    method = hook(timeout=0.05)(later if is_async else now)
    pipeline = pipeline_of(plugin_of(None, before_prompt=method, State=State))

    async def scenario():
        verdict = await asyncio.wait_for(pipeline.run(BeforePrompt("hi")), WAIT_S)
        assert gated.entered.acquire(blocking=False)
        gated.gate.set()
        await enter(gated.left)
        return verdict

    if what == "error" and is_async:
        gated.gate.set()  # what an async method raises has its text in the loop, as all its code
        assert asyncio.run(scenario()).crashed == (("odd", "before_prompt", "Unread"),)
    else:
        late = ("odd", "before_prompt", "it took longer than 0.05 s")
        assert asyncio.run(scenario()) == Verdict(crashed=(late,))


def test_changed_state_is_reported_once(run, pipeline_of, plugin_of, counter):
    """A verdict has the state of each plugin that changed since the last one, encoded."""
    pipeline = pipeline_of(counter, plugin_of(lambda: None, "before_finish"))
    seen = run(pipeline, BeforePrompt("a"), BeforePrompt("b")).states
    quiet = run(pipeline, BeforeFinish()).states

    assert seen == (("counter", msgspec.msgpack.encode({"seen": 2})),)
    assert quiet == ()


def test_failed_run_leaves_no_trace_in_the_state(run, pipeline_of, counter):
    """What a plugin did to its state before it raised is undone, as it is not journaled."""
    verdict = run(pipeline_of(counter), BeforePrompt("a"), BeforePrompt("b?"))

    assert verdict.crashed[0][2] == "ValueError: a question"
    assert verdict.states == ()
    assert counter.state.seen == 1


def test_change_of_a_cancelled_run_is_reported_by_the_next(pipeline_of, counter, gated):
    """A plugin that had finished keeps its change, and the next verdict journals it."""
    pipeline = pipeline_of(counter, gated)

    async def scenario():
        task = asyncio.create_task(pipeline.run(BeforePrompt("hi")))
        await enter(gated.entered)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        gated.gate.set()
        return await pipeline.run(BeforeFinish())

    assert asyncio.run(scenario()).states == (("counter", msgspec.msgpack.encode({"seen": 1})),)


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (threading.Lock, "its state can't be kept: "),
        (lambda: "x" * STATE_BYTES_MAX, f"more than {STATE_BYTES_MAX}"),
    ],
    ids=["lock", "large"],
)
def test_state_that_cannot_be_kept_is_a_failure(state, error, run, pipeline_of):
    """A state that could not be journaled does not come into being."""

    class Hoarder(Plugin):
        class State(msgspec.Struct):
            seen: Any = 0

        def before_prompt(self, event, context):
            self.state.seen = state()

    hoarder = Hoarder()
    verdict = run(pipeline_of(hoarder), BeforePrompt("a"))

    assert error in verdict.crashed[0][2]
    assert hoarder.state.seen == 0


def test_state_comes_back_after_a_crash(run, pipeline_of, counter):
    """A new process goes on with the states of the last one; others begin anew."""
    pipeline = pipeline_of(counter)
    pipeline.restore({"counter": msgspec.msgpack.encode({"seen": 4}), "gone": b""})
    verdict = run(pipeline, BeforePrompt("a"))

    assert verdict.text == "counter 5"
    assert verdict.states == (("counter", msgspec.msgpack.encode({"seen": 5})),)


@pytest.mark.parametrize("state", [msgspec.msgpack.encode({"seen": "x"}), b"\xc1"])
def test_state_that_no_longer_fits_begins_anew(logged, state, run, pipeline_of, counter):
    """A plugin of a newer version that cannot read its old state starts fresh, and keeps that."""
    pipeline = pipeline_of(counter)
    pipeline.restore({"counter": state})

    assert run(pipeline, BeforeFinish()).states == (
        ("counter", msgspec.msgpack.encode({"seen": 0})),
    )
    assert [entry["event"] for entry in logged] == ["plugin_state.discarded"]
