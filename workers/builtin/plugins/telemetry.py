"""Reports what the session does as OpenTelemetry's traces and metrics.

It observes events in the session's own loop, where it only notes when each came. What they
amount to is found out, and sent, in a thread of its own (``telemetry.outlet``), which imports
OpenTelemetry at the first event and sleeps while nothing happens. So no hook waits for it, but the
end of a session, for a second at most; one that ends while OpenTelemetry is still imported, as on a
busy machine, waits for that too, up to ``IMPORT_S``. Which spans and metrics there are says
``telemetry.tracker``.

A subagent that has the plugin reports its cycle within the span of the call or branch that started
it; one that a plugin started, within the cycle's. A crash loses what is open and what has not been
sent; the next process goes on in the cycle's trace, with a new ``invoke_agent`` span and in it an
event "session.restart".
"""

import asyncio
import importlib.util
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import structlog

from cmdc_runtime import plugins
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.events import AgentAbort, AgentError, AgentHibernated
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import SessionEnd
from cmdc_runtime.extensions.plugin import Observed, Plugin
from cmdc_runtime.plugins.observers import CONSOLE
from workers.builtin.telemetry.outlet import Outlet
from workers.builtin.telemetry.spans import Facts
from workers.builtin.telemetry.tracker import TRACKED, Tracker

log = structlog.get_logger()

FLUSH_S: Final = 1.0
"""For what has not been sent, when the process ends."""
IMPORT_S: Final = 2.0
"""For OpenTelemetry to be imported before that: 0.5 s where nobody else works. All plugins together
have 3.5 s at the end, less what it took to end running work, and no less than 1.5 s."""
_SDK: Final = ("opentelemetry.sdk.trace", "opentelemetry-sdk")
_OTLP: Final = ("opentelemetry.exporter.otlp.proto.http", "opentelemetry-exporter-otlp-proto-http")
_LAST: Final = (AgentAbort, AgentError, AgentHibernated)
"""After these the process may end without an end of the session."""


class ObservedEvent(NamedTuple):
    """One event with what was known when it came; None is the end of the session."""

    event: Observed | None
    facts: Facts
    at_ns: int


class Telemetry(Plugin):
    """Sends to a collector what the session does."""

    name = "telemetry"
    priority = 995
    fail = "open"
    Config = plugins.Telemetry

    def __init__(self, **config: Any) -> None:  # Any: options as they come
        """Check the options, and that OpenTelemetry is there; nothing of it is imported yet.

        Raises:
            InvalidOptions: options are unknown or wrong, or packages are missing; it names each.
        """
        super().__init__(**config)
        is_otlp = self.config.exporter is None and self.config.endpoint != CONSOLE
        wanted = (_SDK, _OTLP) if is_otlp else (_SDK,)
        if missing := [package for name, package in wanted if not _is_installed(name)]:
            problem = (
                f"plugin {self.name!r}: {' and '.join(missing)} must be installed where the daemon"
                ' runs: pip install "cmdc-runtime[otel]"'
            )
            raise InvalidOptions([problem])
        self._is_late = False
        self._outlet: Outlet[ObservedEvent] = Outlet(
            f"cmdc-{self.name}", partial(_Reporter, self.config), self.config.export_interval
        )

    async def observe(self, event: Observed, context: PluginContext) -> None:
        """Take down when an event came, and wait only where the process may end with it."""
        if type(event) in TRACKED:
            self._put(event, context)
        if isinstance(event, _LAST):
            # Whoever is late once is not waited for until it is in time again.
            await asyncio.to_thread(self._flush, 0.0 if self._is_late else FLUSH_S)

    def session_end(self, event: SessionEnd, context: PluginContext) -> None:  # noqa: ARG002 - the contract of the hook
        """Send all that there is."""
        self._put(None, context)
        self._flush(FLUSH_S)

    def _put(self, event: Observed | None, context: PluginContext) -> None:
        facts = Facts.of(context, with_messages=self.config.capture_content)
        self._outlet.put(ObservedEvent(event, facts, time.time_ns()))

    def _flush(self, timeout_s: float) -> None:
        prepare_s = IMPORT_S if timeout_s else 0.0
        is_done = self._outlet.flush(timeout_s, prepare_s=prepare_s)
        was_late, self._is_late = self._is_late, not is_done
        if self._is_late and not was_late:
            log.warning("telemetry.late", after_s=timeout_s, import_s=prepare_s)


class _Reporter:
    """Turns what was observed into spans and metrics, and sends them: the work of the thread."""

    def __init__(self, config: plugins.Telemetry) -> None:
        from workers.builtin.telemetry.exporting import Telemeter  # noqa: PLC0415 - OpenTelemetry

        self._tracker = Tracker(captures=config.capture_content)
        self._telemeter = Telemeter(config)
        self._last: ObservedEvent | None = None

    def work(self, things: Sequence[ObservedEvent]) -> None:
        """Report these events."""
        for observed in things:
            event, facts, at_ns = self._last = observed
            if event is None:
                self._telemeter.apply(self._tracker.end(facts, at_ns))
            else:
                self._telemeter.apply(self._tracker.track(event, facts, at_ns))
        self._telemeter.send()

    def close(self) -> None:
        """End what is open, and let go of the exporters: the plugin was detached."""
        if self._last is not None:
            self._telemeter.apply(self._tracker.end(self._last.facts, self._last.at_ns))
        self._telemeter.close()


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of a package above it
        return False


create = Telemetry
