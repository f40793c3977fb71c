"""What the supervision tree reports, as a log line and as an event."""

from cmdc_runtime.events import SupervisorReport
from cmdc_runtime.reasons import Signal
from supervisor.core.tree.messages import Label, Report
from supervisor.core.tree.specs import ChildSpec
from supervisor.sessions.tree_runtime import _SAYERS, EVENT_KIND, report_fields


def test_every_report_has_a_name_and_a_level():
    """The table is total, and its names are those of log lines."""
    assert set(_SAYERS) == set(Label)
    assert {level for level, _ in _SAYERS.values()} <= {"debug", "info", "warning", "error"}
    assert len({name for _, name in _SAYERS.values()}) == len(Label)


def test_event_has_every_field_of_a_report():
    """The daemon knows the event by its fields alone, so they must be the event's own."""
    assert SupervisorReport.__struct_config__.tag == EVENT_KIND
    child = ChildSpec(id="agent", start=None, restart="transient", significant=True)
    report = Report(
        label=Label.CHILD_TERMINATED,
        path=("sessions", "session:a"),
        context="child_terminated",
        child=child,
        reason=Signal(number=9, name="SIGKILL"),
        handle=123,
        generation=2,
        restarts=1,
        in_window=1,
        max_restarts=3,
        next_attempt_s=0.1,
    )
    event = SupervisorReport(**report_fields(report))

    assert set(report_fields(report)) == set(SupervisorReport.__struct_fields__)
    assert event.supervisor == "root/sessions/session:a"
    assert (event.child, event.child_type, event.shutdown) == ("agent", "worker", 5.0)
    assert event.reason == "killed by signal 9 (SIGKILL)"
