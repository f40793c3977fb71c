"""What the supervision tree reports, as a log line and as an event."""

import asyncio

import pytest
import zmq
from structlog.testing import capture_logs

from cmdc_runtime.events import SupervisorReport
from cmdc_runtime.ids import SUPERVISOR
from cmdc_runtime.reasons import Signal
from cmdc_runtime.wire.codec import encode
from supervisor.adapters.hub import Hub
from supervisor.core.tree.messages import Label, Report
from supervisor.core.tree.specs import ChildSpec
from supervisor.sessions import tree_runtime
from supervisor.sessions.tree_runtime import _SAYERS, EVENT_KIND, Reports, report_fields

NOW_MS = 1_700_000_000_000


def report_of(label):
    """Return the least that a report says."""
    return Report(label=label, path=("sessions",), context="of a test", child=None)


def known_to_hub(tmp_path, reports):
    """Return what a hub without a journal has of these: its newest indexes, and its answer."""

    async def main():
        with zmq.Context() as context:
            hub = Hub(context, journal=None)
            hub.bind(f"ipc://{tmp_path}/events")
            try:
                publisher = Reports(hub)
                before = hub.last_index(SUPERVISOR)
                for report in reports:
                    publisher.publish(report)
                return before, await hub.replay(SUPERVISOR, before, before + 100)
            finally:
                hub.close()

    return asyncio.run(main())


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


@pytest.mark.parametrize(
    ("label", "level", "event"),
    [
        (Label.PROGRESS, "debug", "child.started"),
        (Label.SHUTDOWN_ERROR, "warning", "child.shut_down_badly"),
        (Label.SHUTDOWN, "error", "supervisor.shut_down"),
    ],
)
def test_a_report_is_a_line_of_the_log(tmp_path, label, level, event):
    """As loud as it is meant, with every field."""
    report = report_of(label)
    with capture_logs() as lines:
        known_to_hub(tmp_path, [report])

    assert lines == [{"log_level": level, "event": event, **report_fields(report)}]


def test_reports_are_published_at_once_one_index_after_another(tmp_path, monkeypatch):
    """Above those of every earlier daemon; none waits for the journal, which does not get them."""
    monkeypatch.setattr(tree_runtime, "now_ms", lambda: NOW_MS)
    reports = [report_of(label) for label in (Label.PROGRESS, Label.SHUTDOWN, Label.PROGRESS)]

    before, replayed = known_to_hub(tmp_path, reports)

    assert before == NOW_MS
    assert [(one.first, one.count) for one in replayed.batches] == [
        (NOW_MS + number, 1) for number in (1, 2, 3)
    ]
    assert [one.body for one in replayed.batches] == [
        encode([(NOW_MS, {"kind": EVENT_KIND, **report_fields(report)})]) for report in reports
    ]
    assert replayed.last == NOW_MS + len(reports)
