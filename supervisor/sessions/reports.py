"""The reports of the supervision tree: lines of the log, and events on a topic of their own.

The fields are those of OTP's supervisor reports, flat, and what an operator needs beyond them: the
generation, how much of the restart budget is used, and when the next attempt is.
"""

from collections.abc import Mapping
from typing import Final

import structlog

from cmdc_runtime.clock import now_ms
from cmdc_runtime.ids import SUPERVISOR, EventIndex
from cmdc_runtime.wire.codec import encode
from cmdc_runtime.wire.frames import Batch
from supervisor.adapters.hub import Hub
from supervisor.core.limits import REPORTS_KEPT_MAX
from supervisor.core.tree.messages import Label, Report

log = structlog.get_logger()

EVENT_KIND: Final = "supervisor_report"
"""The kind of the event; the daemon knows of events no more than that."""

# fmt: off
_SAYERS: Final[Mapping[Label, tuple[str, str]]] = {
    Label.PROGRESS:         ("debug",   "child.started"),
    Label.START_ERROR:      ("error",   "child.not_started"),
    Label.CHILD_TERMINATED: ("error",   "child.terminated"),
    Label.SHUTDOWN_ERROR:   ("warning", "child.shut_down_badly"),
    Label.SHUTDOWN:         ("error",   "supervisor.shut_down"),
    Label.UNKILLABLE:       ("error",   "child.not_killed"),
    Label.UNEXPECTED:       ("debug",   "report.unexpected"),
}
# fmt: on
"""How loud each report is, and under which name. Total; a test says so."""


class Reports:
    """Tells what the tree reports; the events go out by ``hub``."""

    def __init__(self, hub: Hub) -> None:
        """Open the topic; its indexes begin above those of every earlier daemon."""
        self._hub = hub
        hub.open_channel(SUPERVISOR, REPORTS_KEPT_MAX, EventIndex(now_ms()))

    def publish(self, report: Report) -> None:
        """Log and publish one report."""
        fields = report_fields(report)
        level, name = _SAYERS[report.label]
        getattr(log, level)(name, **fields)  # tidy: the names stand in the table above
        first = EventIndex(self._hub.taken_index(SUPERVISOR) + 1)
        body = encode([(now_ms(), {"kind": EVENT_KIND, **fields})])
        self._hub.take(SUPERVISOR, Batch(first=first, count=1, durable=False), body)


def report_fields(report: Report) -> dict[str, object]:
    """Return every field of a report under its name."""
    child = report.child
    return {
        "report": report.label.value,
        "supervisor": "/".join(("root", *report.path)),
        "context": report.context,
        "reason": None if report.reason is None else str(report.reason),
        "pid": report.handle,
        "generation": report.generation,
        "restarts": report.restarts,
        "in_window": report.in_window,
        "max_restarts": report.max_restarts,
        "next_attempt_s": report.next_attempt_s,
        "child": None if child is None else child.id,
        "child_type": None if child is None else child.type,
        "restart_type": None if child is None else child.restart,
        "significant": child is not None and child.significant,
        "shutdown": None if child is None else child.shutdown,
    }
