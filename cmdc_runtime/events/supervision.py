"""What supervisors tell of their children, on the topic of the supervision tree."""

from cmdc_runtime.events.base import Event
from cmdc_runtime.ids import Incarnation
from cmdc_runtime.lines import one_line
from cmdc_runtime.reasons import LINE_CHARS_MAX


class SupervisorReport(Event, frozen=True, kw_only=True):
    """One fact about one child of a supervisor; ``subscribe("_supervisor")`` hears all of them.

    ``report`` is OTP's word: progress, start_error, child_terminated, shutdown_error, shutdown; or
    unkillable or unexpected. ``supervisor`` is the path from the root; ``in_window`` of
    ``max_restarts`` restarts count at the moment.
    """

    durable = False
    level = "debug"

    report: str
    supervisor: str
    context: str
    reason: str | None = None
    pid: int | None = None
    generation: Incarnation = Incarnation(0)
    restarts: int = 0
    in_window: int = 0
    max_restarts: int = 0
    next_attempt_s: float | None = None
    child: str | None = None
    child_type: str | None = None
    restart_type: str | None = None
    significant: bool = False
    shutdown: float | None = None

    def _line(self) -> str:
        path = "/".join(filter(None, (self.supervisor, self.child)))
        why = one_line(self.reason or self.context, LINE_CHARS_MAX)
        count = f" (restart {self.in_window} of {self.max_restarts})"
        return f"{self.report} {one_line(path, LINE_CHARS_MAX)}: {why}" + (
            count if self.next_attempt_s is not None else ""
        )
