"""Telemetry of sessions by CMDC's names, made of their events: for logs, metrics and audit tables.

``Telemeter`` turns envelopes into ``TelemetryEvent`` as they come, ``attach_logger`` logs these
while you develop, and an ``AuditEvent`` is a row of a table of who did what. No prompt, answer or
argument is in any of them. The plugin ``Telemetry`` has spans and metrics of OpenTelemetry, and the
time of plugins, which no event has.

To add a name: its rows in ``NAMES`` and ``_MAKERS``.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from cmdc_runtime import events
from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.client.default import client as default_client
from cmdc_runtime.client.sync.stream import EventStream
from cmdc_runtime.closing import Closing
from cmdc_runtime.errors import CmdcError, UsageError
from cmdc_runtime.events import Envelope
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import AfterTurn
from cmdc_runtime.plain import short

SCHEMA_VERSION: Final = 1
OPEN_MAX: Final = 10_000
"""Turns, requests and calls whose ends are waited for; the oldest is forgotten, and has no stop."""
CLOSE_S: Final = 5.0
"""For the thread of a logger to end."""
REASON_CHARS_MAX: Final = 200
NAMES: Final = (
    "agent.turn.start",
    "agent.turn.stop",
    "llm.request.start",
    "llm.request.stop",
    "tool.exec.start",
    "tool.exec.stop",
    "subagent.run.start",
    "subagent.run.stop",
    "compactor.run",
    "checkpoint.save",
    "plugin.crash",
    "session.restart",
    "session.hibernate",
    "session.wake",
)
AUDITED: Final = NAMES[:6]
"""What an audit table has rows of."""

_TURN: Final = "agent.turn"
_REQUEST: Final = "llm.request"
_CALL: Final = "tool.exec"
_SUBAGENT: Final = "subagent.run"


class TelemetryEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that began, ended or happened; ``metadata`` says what and where."""

    name: str
    """One of ``NAMES``."""
    measurements: dict[str, int | float]
    """``at_ms``; of a stop ``duration_ms``; of a request ``tokens_in`` and ``tokens_out``."""
    metadata: dict[str, Any]  # Any: texts, numbers and flags
    """``session_id`` and ``schema_version``, and what the name has of its own."""


_Made: TypeAlias = Iterator[TelemetryEvent]


class Telemeter:
    """Makes the telemetry of sessions from the envelopes that it is given, in their order.

    It begins in the middle of things: what ended without having begun here is left out.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._open: OrderedDict[tuple[str, str, str], tuple[int, dict[str, Any]]] = OrderedDict()

    def take(self, envelope: Envelope) -> tuple[TelemetryEvent, ...]:
        """Return what is made of an event, nothing for most of them."""
        maker = _MAKERS.get(type(envelope.event))
        return () if maker is None else tuple(maker(self, envelope, envelope.event))

    # Any: texts, numbers and flags.
    def happened(self, name: str, envelope: Envelope, **metadata: Any) -> TelemetryEvent:
        """Return an event of a moment."""
        base = {"session_id": envelope.session_id, "schema_version": SCHEMA_VERSION}
        measurements: dict[str, int | float] = {"at_ms": envelope.at_ms}
        return TelemetryEvent(name=name, measurements=measurements, metadata={**base, **metadata})

    # Any: as above.
    def began(self, what: str, key: str, envelope: Envelope, **metadata: Any) -> TelemetryEvent:
        """Return the start of something, and remember when that was."""
        self._open[what, envelope.session_id, key] = (envelope.at_ms, metadata)
        if len(self._open) > OPEN_MAX:
            self._open.popitem(last=False)
        return self.happened(f"{what}.start", envelope, **metadata)

    # Any: as above.
    def ended(self, what: str, key: str, envelope: Envelope, **metadata: Any) -> _Made:
        """Yield the stop of something that began here, once."""
        begun = self._open.pop((what, envelope.session_id, key), None)
        if begun is None:
            return
        at_ms, first = begun
        counts: dict[str, int] = {one: metadata.pop(one) for one in _COUNTS if one in metadata}
        stop = self.happened(f"{what}.stop", envelope, **{**first, **metadata})
        stop.measurements.update({"duration_ms": max(0, envelope.at_ms - at_ms), **counts})
        yield stop

    def close(self, envelope: Envelope, outcome: str) -> _Made:
        """Yield the stops of all of a session that is still open: its cycle is over."""
        own = [one for one in self._open if one[1] == envelope.session_id]
        for what, _, key in reversed(own):
            ends = {"outcome": outcome} if what == _TURN else {"error": outcome != "finished"}
            yield from self.ended(what, key, envelope, **ends)


_COUNTS: Final = ("tokens_in", "tokens_out")
_Maker: TypeAlias = Callable[[Telemeter, Envelope, Any], _Made]  # Any: the event of its row


def _turn(meter: Telemeter, envelope: Envelope, event: events.AgentStart) -> _Made:
    yield meter.began(_TURN, "", envelope, cycle_id=event.command_id)


def _finished(meter: Telemeter, envelope: Envelope, _event: events.AgentEnd) -> _Made:
    yield from meter.close(envelope, "finished")


def _aborted(meter: Telemeter, envelope: Envelope, _event: events.AgentAbort) -> _Made:
    yield from meter.close(envelope, "aborted")


def _failed(meter: Telemeter, envelope: Envelope, _event: events.AgentError) -> _Made:
    yield from meter.close(envelope, "failed")


def _request(meter: Telemeter, envelope: Envelope, event: events.RequestStart) -> _Made:
    yield from meter.ended(_REQUEST, "", envelope, error=True)  # it is made again
    yield meter.began(_REQUEST, "", envelope, model=event.model, messages=event.messages)


def _answered(meter: Telemeter, envelope: Envelope, event: events.ResponseComplete) -> _Made:
    used = event.usage
    counts = {"tokens_in": used.prompt_tokens, "tokens_out": used.completion_tokens}
    yield from meter.ended(_REQUEST, "", envelope, error=False, **counts)


def _not_answered(meter: Telemeter, envelope: Envelope, _event: events.Event) -> _Made:
    yield from meter.ended(_REQUEST, "", envelope, error=True)


def _call(meter: Telemeter, envelope: Envelope, event: events.ToolExecutionStart) -> _Made:
    facts = {"tool": event.name, "call_id": event.call_id}
    yield meter.began(_CALL, event.call_id, envelope, **facts)


def _returned(meter: Telemeter, envelope: Envelope, event: events.ToolExecutionEnd) -> _Made:
    yield from meter.ended(_CALL, event.call_id, envelope, error=not event.ok)


def _subagent(meter: Telemeter, envelope: Envelope, event: events.SubagentStart) -> _Made:
    facts = {"subagent_type": event.subagent_type, "child_session_id": event.child_session_id}
    yield meter.began(_SUBAGENT, event.child_session_id, envelope, **facts)


def _subagent_ended(meter: Telemeter, envelope: Envelope, event: events.SubagentEnd) -> _Made:
    yield from meter.ended(_SUBAGENT, event.child_session_id, envelope, error=not event.ok)


def _compacted(meter: Telemeter, envelope: Envelope, event: events.ConversationCompacted) -> _Made:
    facts = {"trigger": event.trigger, "before": event.before, "after": event.after}
    yield meter.happened("compactor.run", envelope, **facts)


def _crashed(meter: Telemeter, envelope: Envelope, event: events.PluginCrashed) -> _Made:
    yield meter.happened("plugin.crash", envelope, plugin=event.plugin, hook=event.hook)


def _published(meter: Telemeter, envelope: Envelope, event: events.PluginEvent) -> _Made:
    if event.name == "auto_checkpoint_saved" and isinstance(event.payload, Mapping):
        facts = {name: event.payload.get(name) for name in ("checkpoint_id", "trigger")}
        yield meter.happened("checkpoint.save", envelope, **facts)


def _recovered(meter: Telemeter, envelope: Envelope, event: events.AgentRecovered) -> _Made:
    facts = {"incarnation": event.incarnation, "resumed": event.resumed}
    yield meter.happened("session.restart", envelope, **facts)


def _hibernated(meter: Telemeter, envelope: Envelope, _event: events.AgentHibernated) -> _Made:
    yield meter.happened("session.hibernate", envelope)


def _woken(meter: Telemeter, envelope: Envelope, event: events.AgentWoken) -> _Made:
    yield meter.happened("session.wake", envelope, incarnation=event.incarnation)


# fmt: off
_MAKERS: Final[Mapping[type[events.Event], _Maker]] = {
    events.AgentStart:            _turn,
    events.AgentEnd:              _finished,
    events.AgentAbort:            _aborted,
    events.AgentError:            _failed,
    events.RequestStart:          _request,
    events.ResponseComplete:      _answered,
    events.StreamError:           _not_answered,
    events.RequestCut:            _not_answered,
    events.ToolExecutionStart:    _call,
    events.ToolExecutionEnd:      _returned,
    events.SubagentStart:         _subagent,
    events.SubagentEnd:           _subagent_ended,
    events.ConversationCompacted: _compacted,
    events.PluginCrashed:         _crashed,
    events.PluginEvent:           _published,
    events.AgentRecovered:        _recovered,
    events.AgentHibernated:       _hibernated,
    events.AgentWoken:            _woken,
}
# fmt: on
"""What is made of each event; of the others nothing is."""


# --- logged ---------------------------------------------------------------------------------------


class _Subscribes(Protocol):
    """A client, for threads."""

    def subscribe_all(self) -> EventStream:
        """Return the events of all sessions from now on."""


class TelemetryLogger(Closing):
    """Logs telemetry in a thread of its own until it is closed, or its daemon has gone."""

    def __init__(self, stream: EventStream, logger: logging.Logger, level: int) -> None:
        """Read ``stream``, which is closed with this."""
        self._stream, self._logger, self._level = stream, logger, level
        self._thread = threading.Thread(target=self._log, name="cmdc-telemetry", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Log nothing more."""
        self._stream.close()
        self._thread.join(CLOSE_S)

    def _log(self) -> None:
        meter = Telemeter()
        try:
            for envelope in self._stream:
                for one in meter.take(envelope):
                    facts = {**one.metadata, **one.measurements}
                    text = " ".join(f"{name}={value}" for name, value in facts.items())
                    self._logger.log(self._level, "%s %s", one.name, text, extra={"cmdc": facts})
        except CmdcError as error:
            self._logger.warning("telemetry has ended: %s", error)


def attach_logger(
    client: _Subscribes | None = None,
    *,
    logger: logging.Logger | None = None,
    level: int = logging.INFO,
) -> TelemetryLogger:
    """Log the telemetry of all sessions of a client from now on, while you develop.

    Without ``client`` it is that of the functions of the module; the logger is
    ``cmdc.telemetry`` unless another one is given.

    Raises:
        CmdcError: there is no daemon.
    """
    stream = (default_client if client is None else client).subscribe_all()
    return TelemetryLogger(stream, logger or logging.getLogger("cmdc.telemetry"), level)


# --- audited --------------------------------------------------------------------------------------


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """A row of an audit table: who did what, with what outcome, for how much. It is JSON as it is.

    Every field has to be given; None is what is not known or does not apply.
    """

    name: str
    """One of ``AUDITED``."""
    session_id: str
    at_ms: int
    user_id: str | None
    """``user_data["user_id"]`` of the session, where it is there."""
    model: str | None
    tool: str | None
    call_id: str | None
    outcome: str | None
    """Of a turn "finished", "aborted" or "failed"; of a request or call "ok" or "error"."""
    reason: str | None
    """Why a turn was aborted, its first characters."""
    duration_ms: int | None
    tokens_in: int | None
    tokens_out: int | None
    cost_usd: float | None
    schema_version: int

    @classmethod
    def from_turn(cls, turn: AfterTurn, context: PluginContext) -> "AuditEvent":
        """Return the row of a cycle, from what a plugin gets at its end."""
        used = turn.token_usage_diff
        reason = turn.abort_reason
        return cls(
            name="agent.turn.stop",
            session_id=context.session_id,
            at_ms=turn.ended_at_ms,
            user_id=_user_of(context.user_data),
            model=context.model or None,
            tool=None,
            call_id=None,
            outcome=turn.outcome,
            reason=None if reason is None else str(reason)[:REASON_CHARS_MAX],
            duration_ms=turn.duration_ms,
            tokens_in=used.prompt_tokens,
            tokens_out=used.completion_tokens,
            cost_usd=used.cost_usd,
            schema_version=SCHEMA_VERSION,
        )

    @classmethod
    def from_telemetry(
        cls,
        name: str,
        measurements: Mapping[str, int | float],
        metadata: Mapping[str, Any],  # Any: texts, numbers and flags
    ) -> "AuditEvent":
        """Return the row of a start or stop of a turn, a request or a call.

        Raises:
            UsageError: audit tables have no rows of this name, or it has no session and time.
        """
        if name not in AUDITED:
            raise UsageError(f"name: expected one of {', '.join(AUDITED)}, got {short(name)}")
        if "at_ms" not in measurements or "session_id" not in metadata:
            raise UsageError("expected at_ms among the measurements, session_id in the metadata")
        outcome = metadata.get("outcome")
        if outcome is None and "error" in metadata:
            outcome = "error" if metadata["error"] else "ok"
        duration, counts = measurements.get("duration_ms"), [measurements.get(n) for n in _COUNTS]
        return cls(
            name=name,
            session_id=str(metadata["session_id"]),
            at_ms=int(measurements["at_ms"]),
            user_id=_user_of(metadata),
            model=_text_of(metadata, "model"),
            tool=_text_of(metadata, "tool"),
            call_id=_text_of(metadata, "call_id"),
            outcome=outcome,
            reason=None,
            duration_ms=None if duration is None else int(duration),
            tokens_in=None if counts[0] is None else int(counts[0]),
            tokens_out=None if counts[1] is None else int(counts[1]),
            cost_usd=None,
            schema_version=SCHEMA_VERSION,
        )


def _user_of(facts: Mapping[str, Any]) -> str | None:  # Any: the application's own
    return _text_of(facts, "user_id")


def _text_of(facts: Mapping[str, Any], name: str) -> str | None:  # Any: as above
    found = facts.get(name)
    return None if found is None else str(found)
