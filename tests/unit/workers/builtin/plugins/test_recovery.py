"""The recovery: when it waits, which measure follows which, and what ends the affair."""

import asyncio

import pytest

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.extensions.actions import Abort, Emit, Intervene, SwitchModel
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import AfterTool, BeforePrompt, OnToolError
from cmdc_runtime.extensions.plugin import settings_of
from cmdc_runtime.packing import pack_plugin
from cmdc_runtime.plugins import Recovery as Options
from workers.builtin.plugins.recovery import (
    ERROR_CHARS_MAX,
    HOOK_TIMEOUT_S,
    WAIT_MS_MAX,
    Recovery,
    Streak,
    due,
    failed,
    measures,
    wait_ms,
)
from workers.pipeline import Pipeline

FALLBACK = "openai:large"


class Watched:
    """A recovery whose waits are noted in place of being waited for."""

    def __init__(self, **options):
        self.plugin = Recovery(**options)
        self.plugin._wait = self.wait
        self.waits = []
        self.turn = 0

    async def wait(self, seconds):
        """Note a wait."""
        self.waits.append(seconds)

    def context(self):
        """Return what the plugin sees."""
        return PluginContext(session_id="s-1", turn=self.turn)

    def error(self, tool="look", attempt=1, text="no"):
        """Report one failure, and return what the plugin says."""
        event = OnToolError(tool, "c-1", text, attempt)
        return asyncio.run(self.plugin.on_tool_error(event, self.context()))

    def result(self, tool="look", *, is_error=True, text="no"):
        """Report a result, and return what the plugin says."""
        return self.plugin.after_tool(AfterTool(tool, "c-1", text, is_error), self.context())

    def failing_turn(self, tool="look", attempts=1, text="no"):
        """Have a call fail for good in a turn of its own, and return what is done about it."""
        self.turn += 1
        for attempt in range(1, attempts + 1):
            self.error(tool, attempt, text)
        return self.result(tool, text=text)


def kinds(actions):
    """Return the actions as words, events by their names."""
    return [action.name if isinstance(action, Emit) else action.kind for action in actions]


# --- waiting ------------------------------------------------------------------------------------


def test_waits_double_until_the_retries_are_used_up():
    """The n-th failure in a row is followed by base x 2^(n-1), those after the last by none."""
    recovery = Watched(fallback_model=FALLBACK)
    for _ in range(5):
        recovery.failing_turn()

    assert recovery.waits == [1.0, 2.0, 4.0]


def test_attempts_of_the_session_count_as_those_of_the_model():
    """A call that the session makes again is waited for as one that the model makes again."""
    recovery = Watched(backoff_base_ms=100)
    recovery.failing_turn(attempts=2)
    recovery.failing_turn()

    assert recovery.waits == [0.1, 0.2, 0.4]


@pytest.mark.parametrize(
    ("base_ms", "failures", "found"),
    [(0, 1, 0), (0, 9, 0), (1000, 1, 1000), (1000, 2, 2000), (1000, 6, 32_000), (1000, 7, 60_000)],
)
def test_a_wait_is_capped(base_ms, failures, found):
    """No wait is longer than a minute."""
    assert wait_ms(base_ms, failures) == found


def test_the_longest_wait_is_no_timeout():
    """The hook has the time that it waits, and more."""
    assert settings_of(Recovery(), "on_tool_error").timeout_s == HOOK_TIMEOUT_S
    assert HOOK_TIMEOUT_S * 1000 > WAIT_MS_MAX


def test_observers_hear_of_each_wait():
    """With the tool, the attempt that failed, how long was waited, and why."""
    recovery = Watched()
    recovery.turn = 1

    assert recovery.error(text="x" * 2000) == Emit(
        "recovery_retry",
        {
            "tool": "look",
            "call_id": "c-1",
            "attempt": 1,
            "max_retries": 3,
            "delay_ms": 1000,
            "error": "x" * ERROR_CHARS_MAX,
        },
    )


def test_a_wait_can_be_cancelled():
    """Who aborts the cycle does not wait for it, and the failure counts as not heard of."""
    plugin = Recovery()
    waits = []

    async def wait_for_ever(seconds):
        waits.append(seconds)
        begun.set()
        await asyncio.Event().wait()

    async def run():
        task = asyncio.create_task(pipeline.run(OnToolError("look", "c-1", "no", 1)))
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    plugin._wait = wait_for_ever
    begun = asyncio.Event()
    pipeline = Pipeline([plugin], Watched().context)

    assert asyncio.run(run())
    assert waits == [1.0]
    assert plugin.state.streaks == {}


def test_it_really_waits():
    """Nothing else is awaited in a session than time."""
    assert Recovery._wait is asyncio.sleep


# --- counting -----------------------------------------------------------------------------------


def test_failures_side_by_side_count_as_one():
    """Many calls of one answer that fail for the same reason are no row of attempts."""
    recovery = Watched(max_retries=1)
    recovery.turn = 1
    said = [recovery.error() for _ in range(5)]

    assert recovery.plugin.state.streaks["look"].failures == 1
    assert [say is not None for say in said] == [True] + [False] * 4
    assert recovery.result() == []
    assert recovery.waits == [1.0]


def test_a_failure_that_is_heard_twice_counts_once():
    """After a crash a hook may be heard again."""
    once = failed(Streak(failures=2, turn=3), 4, 1)

    assert once.failures == 3
    assert failed(once, 4, 1) == once
    assert failed(once, 4, 2).failures == 4
    assert failed(failed(once, 4, 2), 5, 1).failures == 5


@pytest.mark.parametrize("end", ["success", "prompt"])
def test_a_success_or_a_prompt_begins_anew(end):
    """The row of failures is over, and so is what was done about it."""
    recovery = Watched(max_retries=1, fallback_model=FALLBACK)
    recovery.failing_turn()
    recovery.failing_turn()
    if end == "success":
        assert recovery.result(is_error=False) == []
    else:
        recovery.plugin.before_prompt(BeforePrompt("again"), recovery.context())

    assert recovery.plugin.state.streaks == {}
    assert recovery.failing_turn() == []
    assert kinds(recovery.failing_turn())[0] == "switch_model"


def test_each_tool_has_a_row_of_its_own():
    """The success of one says nothing of another."""
    recovery = Watched(max_retries=1)
    recovery.failing_turn("look")
    recovery.failing_turn("leap")
    recovery.result("leap", is_error=False)

    assert set(recovery.plugin.state.streaks) == {"look"}
    assert kinds(recovery.failing_turn("look")) == ["recovery_escalated"]


# --- measures -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (
            {"fallback_model": FALLBACK},
            [
                [],
                [],
                [],
                ["switch_model", "intervene", "recovery_fallback"],
                ["recovery_escalated"],
                ["recovery_failed", "abort"],
                [],
            ],
        ),
        ({}, [[], [], [], ["recovery_escalated"], ["recovery_failed", "abort"], []]),
        (
            {"escalation_event": False, "max_retries": 1},
            [[], ["recovery_failed", "abort"], [], ["recovery_failed", "abort"]],
        ),
        ({"max_retries": 0, "escalation_event": False}, [["recovery_failed", "abort"]] * 2),
    ],
    ids=["all", "defaults", "no event", "no retry"],
)
def test_measures_follow_each_other(options, found):
    """Once the retries are used up, each failure takes the next one; after the abort all is new."""
    recovery = Watched(**options)

    assert [kinds(recovery.failing_turn()) for _ in found] == found


def test_there_is_one_measure_a_turn():
    """Of calls that fail side by side the first one counts: the model has not had a chance yet."""
    recovery = Watched(max_retries=0, fallback_model=FALLBACK)

    assert kinds(recovery.failing_turn())[0] == "switch_model"
    assert recovery.result() == []
    assert kinds(recovery.failing_turn()) == ["recovery_escalated"]


def test_a_failure_that_was_not_heard_of_is_none():
    """A result that says error without a failure before it is left alone."""
    assert Watched(max_retries=0).result() == []


def test_the_chain_is_what_the_options_say():
    """The abort is always its end."""
    assert measures(Options(fallback_model=FALLBACK)) == ("fallback", "escalate", "abort")
    assert measures(Options(escalation_event=False)) == ("abort",)
    assert due(Options(), Streak(failures=3), 1) is None
    assert due(Options(), Streak(failures=4), 1) == "escalate"


def test_the_fallback_model_reads_what_happened():
    """It reads which tool failed how often and with what, and to take another way."""
    recovery = Watched(max_retries=1, fallback_model=FALLBACK)
    recovery.failing_turn()
    switch, say, emit = recovery.failing_turn(text="Error: it hurts")

    assert switch == SwitchModel(FALLBACK)
    assert isinstance(say, Intervene)
    assert "'look' has failed 2 times in a row" in say.text
    assert "Error: it hurts" in say.text
    assert emit == Emit(
        "recovery_fallback",
        {
            "tool": "look",
            "call_id": "c-1",
            "failures": 2,
            "measures": ["retry"],
            "error": "Error: it hurts",
            "model": FALLBACK,
        },
    )


def test_the_report_says_what_was_tried():
    """Observers of the escalation and of the end read all of it, the caller the reason."""
    recovery = Watched(max_retries=0, fallback_model=FALLBACK)
    recovery.failing_turn()
    [escalated] = recovery.failing_turn()
    gone, abort = recovery.failing_turn(text="Error: " + "x" * 2000)

    assert escalated.payload["measures"] == ["retry", "fallback"]
    assert gone.payload["measures"] == ["retry", "fallback", "escalate"]
    assert gone.payload["failures"] == 3
    assert len(gone.payload["error"]) == ERROR_CHARS_MAX
    assert isinstance(abort, Abort)
    assert abort.reason.startswith(
        "tool 'look' failed 3 times in a row and recovery did not help; its last error: Error: xx"
    )


def test_a_single_failure_is_said_so():
    """Without retries the first failure is the end."""
    _, abort = Watched(max_retries=0, escalation_event=False).failing_turn()

    assert abort.reason.startswith("tool 'look' failed once and")


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_retries": -1}, "max_retries"),
        ({"max_retries": 11}, "max_retries"),
        ({"backoff_base_ms": -1}, "backoff_base_ms"),
        ({"backoff_base_ms": 60_001}, "backoff_base_ms"),
        ({"fallback_model": ""}, "fallback_model"),
        ({"escalation_event": "yes"}, "escalation_event"),
    ],
)
def test_bad_options_are_refused(options, named):
    """Before the session starts, with the option."""
    with pytest.raises(InvalidOptions, match=named):
        pack_plugin(Options(**options), "plugins[0]")
    with pytest.raises(InvalidOptions, match=named):
        Recovery(**options)
