"""How long does a hook take with no plugin, with one, and with twenty that have nothing to say?

Expected, in us: 5 without a plugin, where an agent makes no run at all; 15 to 25 for each ``async
def``, where a bare call of it takes 0.1 to 0.3; 100 to 150 for each ``def``, which has a new thread
of its own, where a bare hand-over to a thread that is there already takes 40 to 60.
"""  # noqa: D400 - a question

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

from benchmarks.metrics import Metric, at_most, measured
from benchmarks.settings import Settings
from cmdc_runtime.extensions.actions import Actions
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import BeforeRequest
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.ids import SessionId
from cmdc_runtime.messages import Message
from workers.pipeline import Pipeline

MANY: Final = 20
BLOCK: Final = 20
"""Runs of one kind before it is the next one's turn; a sample is what one of them took."""
WARM_UP: Final = 3
"""Blocks that are not counted."""
HOOK: Final = BeforeRequest((Message.system("Be brief."), Message.user("hi")))
CONTEXT: Final = PluginContext(session_id=SessionId("benchmark"))
THREAD: Final = at_most(3)

Run = Callable[[], Awaitable[Any]]  # Any: nobody looks at what comes back
Samples = Mapping[str, list[float]]


class Quick(Plugin):
    """Answers nothing, at once, in the session's task."""

    async def before_request(self, event: BeforeRequest, context: PluginContext) -> Actions:
        """Answer nothing."""


class Threaded(Plugin):
    """Answers nothing, at once, in a thread."""

    def before_request(self, event: BeforeRequest, context: PluginContext) -> Actions:
        """Answer nothing."""


def run(settings: Settings) -> Iterator[Metric]:
    """Yield every metric of the subject."""
    found = asyncio.run(_measured(settings.repeats))
    yield measured("hooks.none", "us", found["none"], baseline=found["call_1"])
    for count in (1, MANY):
        calls = found[f"call_{count}"]
        for kind in ("async", "sync"):
            name = f"{kind}_{count}"
            yield measured(f"hooks.{name}", "us", found[name], baseline=calls)
    for count in (1, MANY):
        name, beside = f"sync_{count}", found[f"thread_{count}"]
        yield measured(f"hooks.{name}_by_thread", "us", found[name], baseline=beside, bar=THREAD)


async def _measured(repeats: int) -> Samples:
    """Return the us that a run of each kind takes, as often as asked for."""
    found: dict[str, list[float]] = defaultdict(list)
    runs = _runs()
    for block in range(WARM_UP + repeats):
        for name, once in runs.items():
            start = time.perf_counter()
            for _ in range(BLOCK):
                await once()
            took_us = (time.perf_counter() - start) / BLOCK * 1e6
            if block >= WARM_UP:
                found[name].append(took_us)
    return found


def _runs() -> Mapping[str, Run]:
    """Return everything that is measured, by name."""
    runs: dict[str, Run] = {"none": _asked(())}
    for count in (1, MANY):
        runs[f"call_{count}"] = _called(count)
        runs[f"async_{count}"] = _asked([_named(Quick, at) for at in range(count)])
        runs[f"thread_{count}"] = _handed_over(count)
        runs[f"sync_{count}"] = _asked([_named(Threaded, at) for at in range(count)])
    return runs


def _named(kind: type[Plugin], at: int) -> Plugin:
    plugin = kind()
    plugin.name = f"{kind.__name__.lower()}-{at}"
    return plugin


def _asked(plugins: "list[Plugin] | tuple[()]") -> Run:
    pipeline = Pipeline(plugins, lambda *_: CONTEXT)
    return lambda: pipeline.run(HOOK)


def _called(count: int) -> Run:
    plugin = Quick()

    async def once() -> None:
        for _ in range(count):
            await plugin.before_request(HOOK, CONTEXT)

    return once


def _handed_over(count: int) -> Run:
    plugin = Threaded()

    async def once() -> None:
        for _ in range(count):
            await asyncio.to_thread(plugin.before_request, HOOK, CONTEXT)

    return once
