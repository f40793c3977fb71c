"""Plugins to run in a pipeline, and what runs them."""

import asyncio
import threading

import msgspec
import pytest
import structlog

from cmdc_runtime.extensions.actions import Intervene
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.plugin import Plugin, hook
from workers.pipeline import Pipeline

WAIT_S = 10.0
CONTEXT = PluginContext(session_id="s-1", user_data={"user_id": "u-1"})


@pytest.fixture
def logged():
    """Return what is logged, which then is not printed."""
    with structlog.testing.capture_logs() as entries:
        yield entries


class Counter(Plugin):
    """Counts the prompts that it hears; a text with ``?`` makes it fail half-way."""

    fail = "open"

    class State(msgspec.Struct):
        """How many."""

        seen: int = 0

    def before_prompt(self, event, context):
        """Count first, then answer."""
        self.state.seen += 1
        if "?" in event.text:
            raise ValueError("a question")
        return Intervene(f"{self.name} {self.state.seen}")


class Gated(Plugin):
    """Blocks its thread until the gate opens; ``entered`` counts who came in."""

    fail = "open"

    class State(msgspec.Struct):
        """How often it came through."""

        passed: int = 0

    def __init__(self):
        """Be closed."""
        super().__init__()
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)
        self.left = threading.Semaphore(0)

    def before_prompt(self, event, context):
        """Wait, then count."""
        self.entered.release()
        self.gate.wait(WAIT_S)
        self.state.passed += 1
        self.left.release()
        return Intervene("late")


class HastyGated(Gated):
    """Has little time."""

    before_prompt = hook(timeout=0.02)(Gated.before_prompt)


@pytest.fixture
def counter():
    """Return a plugin that counts prompts."""
    return Counter()


@pytest.fixture
def gated():
    """Return a plugin that blocks until its gate opens."""
    return Gated()


@pytest.fixture
def hasty():
    """Return a plugin that blocks for longer than it may."""
    return HastyGated()


@pytest.fixture
def plugin_of():
    """Return a function that makes a plugin which answers one hook by calling ``answer``."""

    def make(answer, kind="before_prompt", **members):
        members = {
            kind: lambda self, event, context: answer(),
            "name": "odd",
            "fail": "open",
            **members,
        }
        return type("Odd", (Plugin,), members)()

    return make


@pytest.fixture
def pipeline_of():
    """Return a function that makes a pipeline of plugins."""

    def make(*plugins):
        return Pipeline(plugins, lambda: CONTEXT)

    return make


@pytest.fixture
def run():
    """Return a function that runs hooks one after the other and returns the last verdict."""

    async def run_all(pipeline, hooks):
        for one in hooks:
            verdict = await pipeline.run(one)
        return verdict

    def run_here(pipeline, *hooks):
        return asyncio.run(run_all(pipeline, hooks))

    return run_here
