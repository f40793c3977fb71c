"""Where the spans of a session stand among those of its family, computed from names alone.

The process of a session and those of its subagents never speak of spans: each computes the ids that
the other one gives, so a child's spans are in its parent's whichever of them dies and is begun
anew. A trace is one cycle of a topmost session, with all that its subagents do in it.
"""

from hashlib import blake2b
from typing import Final, NamedTuple

from cmdc_runtime.ids import CallId, CommandId, SessionId

_TRACE_BYTES: Final = 16
_SPAN_BYTES: Final = 8
_FORM: Final = "00-{}-{}-01"


class SpanParent(NamedTuple):
    """The span that another process's spans are in, as W3C's ``traceparent`` has it, in hex."""

    trace_id: str
    span_id: str

    @classmethod
    def parse(cls, text: str) -> "SpanParent":
        """Return what ``str`` has made."""
        _, trace_id, span_id, _ = text.split("-")
        return cls(trace_id, span_id)

    def __str__(self) -> str:
        """Return the header's value."""
        return _FORM.format(self.trace_id, self.span_id)


def trace_id_of(session_id: SessionId, cycle_id: CommandId, trace_parent: str | None) -> str:
    """Return the trace of a cycle, which is its parent's where the session has one."""
    if trace_parent is not None:
        return SpanParent.parse(trace_parent).trace_id
    return _hex(_TRACE_BYTES, session_id, cycle_id)


def cycle_span_id(session_id: SessionId, cycle_id: CommandId) -> str:
    """Return the id of a cycle's span in the process that began the cycle."""
    return _hex(_SPAN_BYTES, session_id, "cycle", cycle_id)


def call_span_id(session_id: SessionId, call_id: CallId) -> str:
    """Return the id of a call's span."""
    return _hex(_SPAN_BYTES, session_id, "call", call_id)


def branch_span_id(session_id: SessionId, ref: str) -> str:
    """Return the id of the span of a branch, whose ``ref`` is ``ids.branch_ref``."""
    return _hex(_SPAN_BYTES, session_id, "branch", ref)


def _hex(size: int, *words: str) -> str:
    return blake2b("\0".join(words).encode(), digest_size=size).hexdigest()
