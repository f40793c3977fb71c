"""Telemetry made of events, and rows of an audit table made of that."""

import json

import msgspec
import pytest

from cmdc_runtime import events, telemetry
from cmdc_runtime.errors import UsageError
from cmdc_runtime.events import Envelope
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import AfterTurn
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.reasons import Signal
from cmdc_runtime.telemetry import AUDITED, NAMES, AuditEvent, Telemeter

SECRET = "the prompt itself"
USED = TokenUsage(prompt_tokens=7, completion_tokens=2, total_tokens=9, cost_usd=0.5)
LIFE = [
    events.PromptReceived(text=SECRET, queued=False, command_id="c-1"),
    events.AgentStart(command_id="c-1"),
    events.RequestStart(model="openai:x", messages=2),
    events.StreamError(reason=SECRET),
    events.RequestStart(model="openai:x", messages=2),
    events.ResponseComplete(message=Message.assistant(SECRET), usage=USED),
    events.ToolExecutionStart(name="shell", call_id="t-1", args={"command": SECRET}),
    events.SubagentStart(
        call_id="t-1", subagent_type="scout", child_session_id="s-2", description=SECRET
    ),
    events.SubagentEnd(call_id="t-1", child_session_id="s-2", ok=True, text=SECRET, usage=USED),
    events.ToolExecutionEnd(name="shell", call_id="t-1", ok=False, text=SECRET),
    events.ConversationCompacted(trigger="size", before=9, after=3, history_file=None),
    events.PluginCrashed(plugin="p", hook="before_tool", error=SECRET),
    events.PluginEvent(
        name="auto_checkpoint_saved", payload={"checkpoint_id": "k", "trigger": "t"}
    ),
    events.AgentHibernated(),
    events.AgentWoken(incarnation=2),
    events.AgentRecovered(incarnation=3, reason=Signal(number=9, name="SIGKILL"), resumed="idle"),
    events.AgentEnd(messages=(), usage=USED, command_id="c-1"),
]


def measured(*given, session="s-1", meter=None):
    """Return the telemetry of events that come a millisecond after one another."""
    meter = meter or Telemeter()
    envelopes = (
        Envelope(session_id=session, index=at, at_ms=1000 + at, event=event)
        for at, event in enumerate(given, 1)
    )
    return [one for envelope in envelopes for one in meter.take(envelope)]


def test_a_life_has_every_name():
    """Starts and stops in their order, with times and counts, and no text of anybody."""
    found = measured(*LIFE)
    by_name = {one.name: one for one in found}

    assert set(by_name) == set(NAMES)
    assert [one.name for one in found][:5] == [
        "agent.turn.start",
        "llm.request.start",
        "llm.request.stop",
        "llm.request.start",
        "llm.request.stop",
    ]
    assert by_name["llm.request.stop"].measurements == {
        "at_ms": 1006,
        "duration_ms": 1,
        "tokens_in": 7,
        "tokens_out": 2,
    }
    assert by_name["tool.exec.stop"].metadata == {
        "session_id": "s-1",
        "schema_version": 1,
        "tool": "shell",
        "call_id": "t-1",
        "error": True,
    }
    assert by_name["agent.turn.stop"].measurements["duration_ms"] == len(LIFE) - 2
    assert by_name["agent.turn.stop"].metadata["outcome"] == "finished"
    assert SECRET not in str(found)


def test_every_row_is_reported_by_some_life():
    """An event of the table that this life has not would be reported by nothing here."""
    rows = set(telemetry._MAKERS)

    assert rows - {type(one) for one in LIFE} == {
        events.AgentAbort,
        events.AgentError,
        events.RequestCut,
    }


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (events.AgentAbort(reason="enough"), "aborted"),
        (events.AgentError(reason="no", retryable=False, command_id="c-1"), "failed"),
    ],
)
def test_what_is_open_ends_with_its_cycle(end, outcome):
    """Requests and calls as errors, the inmost first; another session goes on."""
    meter = Telemeter()
    measured(LIFE[1], session="s-2", meter=meter)
    found = measured(LIFE[1], LIFE[2], LIFE[6], end, meter=meter)
    rest = measured(LIFE[-1], session="s-2", meter=meter)

    assert [one.name for one in found[3:]] == [
        "tool.exec.stop",
        "llm.request.stop",
        "agent.turn.stop",
    ]
    assert [one.metadata.get("error") for one in found[3:5]] == [True, True]
    assert found[-1].metadata["outcome"] == outcome
    assert [one.name for one in rest] == ["agent.turn.stop"]


def test_what_ended_without_having_begun_is_not_reported():
    """As for who comes in the middle."""
    assert measured(LIFE[5], LIFE[9], LIFE[8], LIFE[-1]) == []


def test_what_waits_for_its_end_is_bounded(monkeypatch):
    """The oldest is forgotten."""
    monkeypatch.setattr(telemetry, "OPEN_MAX", 2)
    calls = [events.ToolExecutionStart(name="shell", call_id=f"t-{at}", args={}) for at in range(3)]
    ends = [
        events.ToolExecutionEnd(name="shell", call_id=f"t-{at}", ok=True, text="")
        for at in range(3)
    ]

    found = measured(*calls, *ends)[3:]

    assert [one.metadata["call_id"] for one in found] == ["t-1", "t-2"]


def test_a_turn_is_a_row():
    """With who it was for, and what it took."""
    turn = AfterTurn(
        outcome="aborted",
        abort_reason="x" * 500,
        messages_diff=(),
        token_usage_diff=USED,
        started_at_ms=5,
        ended_at_ms=9,
        duration_ms=4,
    )
    context = PluginContext(session_id="s-1", model="openai:x", user_data={"user_id": 7})
    row = AuditEvent.from_turn(turn, context)

    assert (row.name, row.session_id, row.user_id) == ("agent.turn.stop", "s-1", "7")
    assert (row.outcome, len(row.reason), row.cost_usd) == ("aborted", 200, 0.5)
    assert json.loads(msgspec.json.encode(row))["tokens_in"] == 7
    with pytest.raises(TypeError):
        AuditEvent(name="agent.turn.stop")


def test_telemetry_of_six_names_is_a_row():
    """What an application has of it comes back; other names have no rows."""
    rows = [
        AuditEvent.from_telemetry(one.name, one.measurements, one.metadata)
        for one in measured(*LIFE)
        if one.name in AUDITED
    ]

    assert {row.name for row in rows} == set(AUDITED)
    assert {(row.name, row.outcome) for row in rows if row.outcome} == {
        ("llm.request.stop", "error"),
        ("llm.request.stop", "ok"),
        ("tool.exec.stop", "error"),
        ("agent.turn.stop", "finished"),
    }
    assert all(row.session_id == "s-1" and row.at_ms > 1000 for row in rows)
    with pytest.raises(UsageError, match="expected one of agent"):
        AuditEvent.from_telemetry("plugin.crash", {"at_ms": 1}, {"session_id": "s"})
    with pytest.raises(UsageError, match="at_ms"):
        AuditEvent.from_telemetry("tool.exec.stop", {}, {"session_id": "s"})
