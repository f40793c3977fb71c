"""Plugins that hear what is published: in order, one at a time, with a bound, at nobody's cost."""

import asyncio
import threading

import pytest
from structlog.testing import capture_logs

from cmdc_runtime import foreign
from cmdc_runtime.events import AgentStart, PluginCrashed
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.plugin import Plugin
from workers import pipeline as module
from workers.pipeline import Observers, Pipeline, PluginServices
from workers.plugin_slot import Slot

CONTEXT = PluginContext(session_id="s-1")
WAIT_S = 10.0


class Mute(Exception):
    """Has no text to show."""

    def __str__(self):
        raise ValueError("no text")


FAILURES = {
    "bad": ValueError("bad"),
    "exit": SystemExit("bye"),
    "generator": GeneratorExit(),
    "interrupt": KeyboardInterrupt(),
    "cancel": asyncio.CancelledError(),
    "mute": Mute(),
}


class Hearing(Plugin):
    """Notes what it hears in a thread."""

    def __init__(self):
        super().__init__()
        self.heard, self.threads = [], set()

    def observe(self, event, context):
        self.threads.add(threading.current_thread())
        if isinstance(event, AgentStart) and event.command_id in FAILURES:
            raise FAILURES[event.command_id]
        self.heard.append(event)


class Awaiting(Hearing):
    """Notes what it hears on the loop."""

    async def observe(self, event, context):
        await asyncio.sleep(0)
        Hearing.observe(self, event, context)


class Stuck(Plugin):
    """Never returns."""

    def __init__(self):
        super().__init__()
        self.gate, self.calls = threading.Event(), 0

    def observe(self, event, context):
        self.calls += 1
        self.gate.wait(WAIT_S)


def start(command_id):
    return AgentStart(command_id=command_id)


def crashes_of(plugin, *events, rounds=1):
    """Publish events, wait until they are heard, and return what crashed."""
    crashes = []

    async def scenario():
        made = Observers(lambda: CONTEXT, lambda slot, why: crashes.append((slot.plugin.name, why)))
        made.watch([Slot(plugin)])
        for _ in range(rounds):
            for event in events:
                made.notify(event)
            await made.drained(WAIT_S)

    with capture_logs():
        asyncio.run(scenario())
    return crashes


@pytest.mark.parametrize("kind", [Hearing, Awaiting])
def test_events_are_heard_in_their_order(kind):
    """Many at once, in one go; more later."""
    plugin = kind()
    events = [start(str(at)) for at in range(600)]

    assert crashes_of(plugin, *events, rounds=2) == []
    assert plugin.heard == events * 2
    is_at_home = plugin.threads == {threading.current_thread()}
    assert is_at_home == (kind is Awaiting)


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("kind", [Hearing, Awaiting])
def test_a_crash_costs_one_event(kind, failure):
    """It is reported by name, whatever it was; the rest is heard."""
    plugin = kind()
    why = foreign.summary_of(FAILURES[failure])
    if kind is Awaiting and failure == "cancel":  # nobody else has
        why += ": its own code has cancelled it"

    assert crashes_of(plugin, start("a"), start(failure), start("b")) == [(plugin.name, why)]
    assert plugin.heard == [start("a"), start("b")]


def test_a_plugin_hears_of_no_crash_of_its_own_here():
    """Else one crash would be the reason of the next."""
    plugin = Hearing()
    own = PluginCrashed(plugin="hearing", hook="observe", error="x")
    other = PluginCrashed(plugin="hearing", hook="before_prompt", error="x")
    crashes_of(plugin, own, other)

    assert plugin.heard == [other]


def test_a_full_queue_drops_what_is_new(monkeypatch):
    """The log says how much."""
    monkeypatch.setattr(module, "QUEUE_MAX", 3)
    plugin = Hearing()

    async def scenario():
        made = Observers(lambda: CONTEXT, lambda *_: None)
        made.watch([Slot(plugin)])
        for at in range(5):
            made.notify(start(str(at)))
        await made.drained(WAIT_S)

    with capture_logs() as logs:
        asyncio.run(scenario())
    assert [event.command_id for event in plugin.heard] == ["0", "1", "2"]
    assert [(entry["event"], entry["dropped"]) for entry in logs] == [
        ("plugin_observer.overrun", 2)
    ]


def test_a_plugin_that_does_not_return_hears_no_more(monkeypatch):
    """Nobody waits for it longer than the bound."""
    monkeypatch.setattr(module, "BATCH_TIMEOUT_S", 0.02)
    plugin = Stuck()
    try:
        crashes = crashes_of(plugin, start("a"), rounds=2)
    finally:
        plugin.gate.set()

    assert crashes == [("stuck", "it took longer than 0.02 s")]
    assert plugin.calls == 1


def test_who_is_detached_hears_no_more():
    """What waits for it is dropped; who stays misses nothing."""
    stays, goes = Hearing(), Hearing()

    async def scenario():
        made = Observers(lambda: CONTEXT, lambda *_: None)
        first, second = Slot(stays), Slot(goes)
        made.watch([first, second])
        made.notify(start("a"))
        made.watch([first])
        made.notify(start("b"))
        await made.drained(WAIT_S)

    asyncio.run(scenario())
    assert [event.command_id for event in stays.heard] == ["a", "b"]
    assert goes.heard == []


def test_the_end_waits_no_longer_than_it_may():
    """A plugin that is stuck does not hold up the end of its session."""
    plugin = Stuck()

    async def scenario():
        made = Observers(lambda: CONTEXT, lambda *_: None)
        made.watch([Slot(plugin)])
        made.notify(start("a"))
        await made.drained(0.02)

    try:
        asyncio.run(scenario())
    finally:
        plugin.gate.set()
    assert plugin.calls == 1


class Failing(Plugin):
    """Fails wherever it is asked outside of hooks."""

    fail = "disable"

    def __init__(self):
        super().__init__()
        self.asked = []

    def observe(self, event, context):
        self.asked.append(event)
        raise ValueError("o")

    def filter_output(self, channel, context):
        self.asked.append(channel)
        raise ValueError("f")

    def after_turn(self, event, context):
        self.asked.append(event)


@pytest.mark.parametrize("where", ["observe", "filter_output"])
def test_a_plugin_that_is_to_be_disabled_is_asked_no_more(where):
    """A failure outside of hooks puts it out of all of them."""
    plugin, crashes = Failing(), []

    async def scenario():
        services = PluginServices(crashed=lambda *crash: crashes.append(crash))
        made = Pipeline([plugin], lambda: CONTEXT, services)
        for _ in range(2):
            if where == "observe":
                made.observe(start("a"))
                await made.observed()
            else:
                made.filters()
        made.observe(start("b"))
        await made.observed()
        return made.hooks, made.filters()

    with capture_logs():
        left = asyncio.run(scenario())
    why = {"observe": "o", "filter_output": "f"}[where]
    assert crashes == [("failing", where, f"ValueError: {why}; the plugin is off from here on")]
    assert plugin.asked == [start("a") if where == "observe" else "text"]
    assert left == (frozenset(), None)
