"""Plugins are asked in order, one at a time, and none of them can hurt the session."""

import asyncio
import threading
from typing import ClassVar

import msgspec
import pytest

from cmdc_runtime import foreign
from cmdc_runtime.extensions.actions import (
    Abort,
    BadActionError,
    BlockTool,
    Emit,
    Intervene,
    Skip,
    SwitchModel,
)
from cmdc_runtime.extensions.hooks import (
    AfterTool,
    BeforeFinish,
    BeforePrompt,
    BeforeTool,
    OnToolError,
)
from cmdc_runtime.extensions.plugin import Plugin, hook
from workers.core.verdict import Aborted, Verdict, merges_of

CALL = BeforeTool("shell", "call_1", {"command": "ls"})

pytestmark = pytest.mark.usefixtures("logged")


def raising(error):
    """Return a function that raises."""

    def answer():
        raise error

    return answer


def test_plugins_are_asked_by_priority(run, pipeline_of, plugin_of):
    """Small priorities come first, equal ones in the order in which they were given."""
    plugins = [
        plugin_of(lambda name=name: Intervene(name), name=name, priority=priority)
        for name, priority in (("a", 500), ("b", 1), ("c", 500), ("d", 20))
    ]
    verdict = run(pipeline_of(*plugins), BeforePrompt("hi"))

    assert verdict.interventions == ("b", "d", "a", "c")


def test_only_those_who_hear_a_hook_are_asked(run, pipeline_of, plugin_of, counter):
    """The pipeline says which hooks are heard, and says nothing at others."""
    pipeline = pipeline_of(counter, plugin_of(lambda: None, "before_tool"))

    assert pipeline.hooks == {"before_prompt", "before_tool"}
    assert run(pipeline, BeforeFinish()) == Verdict()
    assert pipeline_of().hooks == frozenset()


def test_a_stop_leaves_out_who_follows(run, pipeline_of, plugin_of, counter):
    """After a skip no further plugin runs at all."""
    verdict = run(pipeline_of(plugin_of(Skip, priority=1), counter), BeforePrompt("hi"))

    assert verdict == Verdict(skipped="odd")
    assert counter.state.seen == 0


def test_async_methods_run_in_the_loop(pipeline_of):
    """An ``async def`` answers as part of the task that runs the hook."""

    class Later(Plugin):
        async def before_prompt(self, event, context):
            await asyncio.sleep(0)
            return Intervene(threading.current_thread().name)

    async def scenario():
        return await pipeline_of(Later()).run(BeforePrompt("hi"))

    assert asyncio.run(scenario()).text == threading.current_thread().name


def test_sync_entry_may_hand_on_to_an_async_method(run, pipeline_of):
    """One entry for all hooks may leave a hook to a method that is async."""

    class Mixed(Plugin):
        def handle_event(self, event, context):
            return super().handle_event(event, context)

        async def before_prompt(self, event, context):
            return Intervene(event.text)

    assert run(pipeline_of(Mixed()), BeforePrompt("hi")).text == "hi"


def test_decorator_picks_the_tools(run, pipeline_of):
    """A method that is about one tool hears of no other, at each hook about tools."""

    class Picky(Plugin):
        @hook(tools=["shell"])
        def handle_event(self, event, context):
            return Emit(event.kind)

    pipeline = pipeline_of(Picky())

    assert run(pipeline, CALL).emitted == (("before_tool", None),)
    assert run(pipeline, BeforeTool("grep", "call_2", {})).emitted == ()
    assert run(pipeline, AfterTool("grep", "call_2", "", is_error=False)).emitted == ()
    assert run(pipeline, BeforeFinish()).emitted == (("before_finish", None),)


def test_plugin_that_writes_into_arguments_harms_nobody(run, pipeline_of):
    """Each plugin has arguments of its own; only ``ReplaceToolArgs`` changes those of the call."""
    seen = []

    class Scribbler(Plugin):
        def before_tool(self, event, context):
            seen.append(dict(event.args))
            event.args["command"] = "rm"

    second = type("Second", (Scribbler,), {})()
    call = BeforeTool("shell", "call_1", {"command": "ls"})
    run(pipeline_of(Scribbler(), second), call)

    assert seen == [{"command": "ls"}] * 2
    assert call.args == {"command": "ls"}


def test_events_carry_the_user_data(run, pipeline_of, plugin_of):
    """Payloads that are dicts say whose session it was."""
    verdict = run(pipeline_of(plugin_of(lambda: Emit("a", {"x": 1}))), BeforePrompt("hi"))

    assert verdict.emitted == (("a", {"x": 1, "user_data": {"user_id": "u-1"}}),)


STOPPED = "a coroutine may not raise StopIteration, and Python says so"


class Mute(Exception):
    """Has no text to show."""

    def __str__(self):
        raise SystemExit


class MuteAction(BadActionError):
    """The same, of one of our own classes."""

    __str__ = Mute.__str__


class Stuck(Plugin):
    """Fails, and its state can't be read any more."""

    class State(msgspec.Struct):
        """Refuses to be made once somebody has failed."""

        is_stuck: ClassVar[bool] = False

        def __post_init__(self):
            if self.is_stuck:
                raise SystemExit

    asked = 0

    def before_prompt(self, event, context):
        self.asked += 1
        self.State.is_stuck = True
        raise ValueError("no")


class Sudden(BaseException):
    """What no plugin should raise."""


@pytest.mark.parametrize(
    "failure",
    [
        (raising(ValueError("no")), "ValueError: no"),
        (raising(TimeoutError("theirs")), "TimeoutError: theirs"),
        (raising(StopIteration("x")), STOPPED),
        (raising(SystemExit(3)), "SystemExit: 3"),
        (raising(KeyboardInterrupt()), "KeyboardInterrupt"),
        (raising(asyncio.CancelledError()), "CancelledError"),
        (raising(Sudden("x")), "Sudden: x"),
        (raising(GeneratorExit()), "GeneratorExit"),
        (raising(RecursionError("deep")), "RecursionError: deep"),
        (raising(Mute()), "Mute: <Mute has no text: its __str__ failed>"),
        (raising(MuteAction()), "<MuteAction has no text: its __str__ failed>"),
        (raising(ValueError("\ud800" + "x" * 2000)), "ValueError: �" + "x" * 999),
        (lambda: 7, "int is no action: return a cmdc action, a list of actions or None"),
        (lambda: Intervene(7), "intervene: Expected `str`, got `int` - at `$.text`"),
    ],
    ids=[
        "error", "timeout", "stop", "exit", "interrupt", "cancel", "base", "generator",
        "recursion", "mute", "mute action", "long", "unknown", "unfit",
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_failing_plugin_counts_as_continue(failure, is_async, run, pipeline_of, plugin_of):
    """Whatever a plugin raises or returns is reported, and the next one is asked all the same."""
    answer, error = failure
    if error is STOPPED:
        error = "RuntimeError: coroutine raised StopIteration" if is_async else "StopIteration: x"
    if error == "CancelledError" and is_async:
        error = f"CancelledError: {foreign.OWN_CANCEL}"
    second = plugin_of(lambda: Intervene("still here"), name="second")

    async def later(self, event, context):
        return answer()

    odd = plugin_of(answer, **({"before_prompt": later} if is_async else {}))
    verdict = run(pipeline_of(odd, second), BeforePrompt("hi"))

    assert verdict.crashed == (("odd", "before_prompt", error),)
    assert verdict.text == "still here"


def test_plugin_that_cannot_be_put_back_is_off(run, pipeline_of):
    """What it knows is not what was written down; the others are asked as before."""
    odd = Stuck()
    pipeline = pipeline_of(odd)
    first, second = (run(pipeline, BeforePrompt("hi")) for _ in range(2))

    assert first.crashed[0][2] == "ValueError: no; the plugin is off from here on"
    assert (second, odd.asked) == (Verdict(), 1)


def test_failure_is_logged_with_its_traceback(logged, run, pipeline_of, plugin_of):
    """The log names the plugin and the hook, and has the exception itself."""
    run(pipeline_of(plugin_of(raising(ValueError("no")))), BeforePrompt("hi"))
    trace = logged[0].pop("exception")

    assert "in answer" in trace
    assert trace.endswith("ValueError: no\n")
    assert logged == [
        {
            "event": "plugin.crashed",
            "log_level": "error",
            "plugin": "odd",
            "hook": "before_prompt",
            "fail": "open",
        }
    ]


def test_ignored_action_is_logged(logged, run, pipeline_of, plugin_of):
    """An action that its hook does not carry out is counted, and a debug log says so."""
    pipeline = pipeline_of(plugin_of(lambda: SwitchModel("x:m"), "on_tool_error"))
    verdict = run(pipeline, OnToolError("shell", "call_1", "no", 1))

    assert verdict == Verdict(ignored=(("odd", "switch_model"),))
    assert [(entry["event"], entry["action"]) for entry in logged] == [
        ("plugin_action.ignored", "switch_model")
    ]


@pytest.mark.parametrize(
    "answer",
    [lambda: Abort(object()), lambda: Abort({1: 2}), lambda: BlockTool("x"), lambda: "abort", Skip],
    ids=["no data", "no keys", "another hook's", "no action", "fit"],
)
@pytest.mark.parametrize(("given", "is_closed"), [({}, True), ({"fail": "open"}, False)], ids=str)
def test_an_answer_that_cannot_be_is_a_failure(answer, given, is_closed, run, pipeline_of):
    """Of a guard, which fails closed unless it says otherwise."""
    method = {"before_prompt": lambda self, event, context: answer()}
    odd = type("Odd", (Plugin,), {**method, **given})()
    verdict = run(pipeline_of(odd), BeforePrompt("hi"))
    is_fit = answer is Skip

    assert len(verdict.crashed) == (0 if is_fit else 1)
    assert (verdict.abort is not None) == (is_closed and not is_fit)


def test_who_answers_as_a_guard_is_one(run, pipeline_of):
    """Whatever its annotation says; it said that it may answer nothing of the kind."""

    class Sly(Plugin):
        def before_prompt(self, event, context) -> Emit | None:
            return Abort(object())

    sly = Sly()
    was, verdict = sly.fail, run(pipeline_of(sly), BeforePrompt("hi"))

    assert (was, sly.fail) == ("open", "closed")
    assert verdict.abort.plugin == "sly"


def test_a_reason_is_data(run, pipeline_of, plugin_of):
    """The verdict has it as the plugin said it."""
    guard = plugin_of(lambda: Abort({"rule": 7}))

    assert run(pipeline_of(guard), BeforePrompt("hi")).abort == Aborted("odd", {"rule": 7})


def test_failure_closed_aborts_and_names_the_plugin(run, pipeline_of, plugin_of, counter):
    """A guard that fails lets nothing through."""
    guard = plugin_of(raising(ValueError("no")), fail="closed")
    verdict = run(pipeline_of(guard, counter), BeforePrompt("hi"))

    assert verdict.abort == Aborted("odd", "plugin odd failed at before_prompt: ValueError: no")
    assert verdict.interventions == ()


def test_failure_may_switch_the_plugin_off(run, pipeline_of, plugin_of):
    """A plugin that wants it is not asked again in this process, and that is reported."""
    pipeline = pipeline_of(plugin_of(raising(ValueError("no")), fail="disable"))
    verdict = run(pipeline, BeforePrompt("hi"))

    assert verdict.crashed == (
        ("odd", "before_prompt", "ValueError: no; the plugin is off from here on"),
    )
    assert pipeline.hooks == frozenset()
    assert run(pipeline, BeforePrompt("hi")) == Verdict()


def test_runs_that_wait_for_a_plugin_see_it_go_off(pipeline_of, plugin_of):
    """Of two runs at once only the first hears of the failure."""
    pipeline = pipeline_of(plugin_of(raising(ValueError("no")), fail="disable"))

    async def scenario():
        return await asyncio.gather(*(pipeline.run(BeforePrompt("hi")) for _ in range(2)))

    assert [len(verdict.crashed) for verdict in asyncio.run(scenario())] == [1, 0]


def test_parallel_runs_take_turns(pipeline_of):
    """A plugin is never in two runs at once, so its state needs no lock."""
    inside = []

    class Counting(Plugin):
        class State(msgspec.Struct):
            seen: int = 0

        async def before_tool(self, event, context):
            inside.append(1)
            seen = self.state.seen
            await asyncio.sleep(0)
            self.state.seen = seen + 1
            inside.pop()
            return Emit("alone", len(inside))

    plugin = Counting()
    pipeline = pipeline_of(plugin)

    async def scenario():
        return await asyncio.gather(*(pipeline.run(CALL) for _ in range(8)))

    verdicts = asyncio.run(scenario())

    assert plugin.state.seen == 8
    assert {verdict.emitted for verdict in verdicts} == {(("alone", 0),)}


def test_guard_of_the_manual(run, pipeline_of):
    """The example of the contract blocks what it is asked to, and counts."""

    class Guard(Plugin):
        priority = 50
        fail = "closed"

        class Config(msgspec.Struct, frozen=True):
            denied: frozenset[str] = frozenset({"rm", "dd"})

        class State(msgspec.Struct):
            hits: int = 0

        def before_tool(self, event, context):
            if event.name == "shell" and event.args["command"].split()[0] in self.config.denied:
                self.state.hits += 1
                return BlockTool("on the deny list")
            return None

        def before_steering(self, event, context):
            return Abort("no")

    pipeline = pipeline_of(Guard(denied={"curl"}))
    blocked = run(pipeline, BeforeTool("shell", "call_1", {"command": "curl x"}))

    assert run(pipeline, CALL) == Verdict()
    assert blocked.blocked == "on the deny list"
    assert blocked.states == (("guard", msgspec.msgpack.encode(Guard.State(hits=1))),)


class Storing(Plugin):
    """Keeps as many bytes as a prompt says, and answers with as many."""

    fail = "open"

    class State(msgspec.Struct):
        """What it keeps."""

        kept: bytes = b""

    def __init__(self, name):
        """Be one of several."""
        super().__init__()
        self.name = name

    def before_prompt(self, event, _context):
        """Keep, or answer where it is a minus."""
        count = int(event.text)
        if count < 0:
            return [Intervene("x" * -count)] * 4
        self.state.kept = b"x" * count
        return None


def test_what_plugins_bring_together_has_a_bound(run, pipeline_of):
    """Who comes when there is no room left has failed, and is as it was before."""
    storing = [Storing(f"k{number}") for number in range(8)]
    pipeline = pipeline_of(*storing)
    first = run(pipeline, BeforePrompt("1000000"))
    smaller = run(pipeline, BeforePrompt("700000"))

    assert [name for name, _ in first.states] == ["k0", "k1", "k2", "k3", "k4", "k5"]
    assert [plugin for plugin, _, _ in first.crashed] == ["k6", "k7"]
    assert first.crashed[0][2] == (
        "its answer takes 1 bytes with user_data, and its new state 1,000,011; the plugins before "
        "it have taken 6,000,072 of the 6,291,456 that all of them together may have at one hook"
    )
    assert len(smaller.states) == 8
    assert smaller.crashed == ()


def test_answers_count_as_states_do(run, pipeline_of):
    """They are written down, or given out, in the same step."""
    found = run(pipeline_of(*map(Storing, "ab")), BeforePrompt("-1000000"))

    assert [plugin for plugin, _, _ in found.crashed] == ["b"]
    assert len(found.interventions) == 4


def test_a_state_that_no_run_has_reported_yet_counts(run, pipeline_of, plugin_of):
    """It is reported by the next run that comes to its end."""
    late = plugin_of(lambda: Intervene("x" * 400_000), "before_finish", name="late")
    pipeline = pipeline_of(*(Storing(f"k{number}") for number in range(6)), late)
    for slot in pipeline._slots[:6]:
        slot.state = b"x" * 1_000_000  # of runs that were cancelled behind these plugins
    found = run(pipeline, BeforeFinish())

    assert [plugin for plugin, _, _ in found.crashed] == ["late"]
    assert len(found.states) == 6


@pytest.mark.parametrize("payload", [{"n": 1}, {"n": 1, "_no_user_data": True}, [1], None])
def test_events_are_counted_with_the_user_data_that_they_are_emitted_with(payload):
    """Only these are emitted with any."""
    emit = Emit([("a", payload), ("b", payload)])

    assert merges_of(emit) == (2 if payload == {"n": 1} else 0)
    assert merges_of(Intervene("x")) == 0
