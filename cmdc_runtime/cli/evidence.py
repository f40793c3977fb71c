"""What is known of the end of a process, as lines below the one that tells of it.

To show another field of ``Evidence``: a line in ``evidence_lines``; what is not known has none.
What the process wrote is neutral and stands behind a bar, so that nobody takes it for ours.
"""

from collections.abc import Iterator
from typing import Final

from cmdc_runtime.lines import duration, neutral, one_line
from cmdc_runtime.reasons import (
    AnyReason,
    Down,
    Evidence,
    Exception,  # noqa: A004 - the contract's name
    RestartIntensityExceeded,
    size_text,
)

_INDENT: Final = "    "
_BAR: Final = f"{_INDENT}| "


def evidence_lines(down: Down) -> list[str]:
    """Return the lines, indented; none where nothing is known."""
    evidence = down.evidence
    facts = (_life(evidence), _work(evidence), _usage(evidence), _memory(evidence))
    quoted = (
        ("traceback", _traceback(down.reason)),
        ("stack", evidence.stack),
        ("standard error", evidence.output),
    )
    return [
        *(f"{_INDENT}{fact}" for fact in facts if fact),
        *(line for title, text in quoted for line in _quoted(title, text)),
    ]


def _life(evidence: Evidence) -> str:
    lived = "" if evidence.lived_ms is None else f"it lived for {duration(evidence.lived_ms)}"
    index = evidence.last_index
    last = (
        "" if index is None else f"its last event is {index}" if index else "it published nothing"
    )
    return ", ".join(filter(None, (lived, last)))


def _work(evidence: Evidence) -> str:
    if not evidence.state and not evidence.tools:
        return ""
    tools = one_line(", ".join(evidence.tools))
    state = one_line(evidence.state) or "at work"
    return f"it was {state}" + (f", with these tools: {tools}" if tools else "")


def _usage(evidence: Evidence) -> str:
    resident = evidence.max_rss_bytes
    times = (("user", evidence.user_ms), ("system", evidence.system_ms))
    used = [f"{duration(ms)} {name}" for name, ms in times if ms is not None]
    parts = [
        "" if resident is None else f"{size_text(resident)} resident at most",
        f"CPU {', '.join(used)}" if used else "",
    ]
    return ", ".join(filter(None, parts))


def _memory(evidence: Evidence) -> str:
    peak, kills = evidence.memory_peak_bytes, evidence.oom_kills
    parts = [
        "" if peak is None else f"all its processes together {size_text(peak)} at most",
        f"the kernel killed {kills} of them for want of memory" if kills else "",
    ]
    return ", ".join(filter(None, parts))


def _traceback(reason: AnyReason) -> str:
    if isinstance(reason, RestartIntensityExceeded):
        reason = reason.last
    return reason.traceback if isinstance(reason, Exception) else ""


def _quoted(title: str, text: str) -> Iterator[str]:
    if text.strip():
        yield f"{_INDENT}{title}:"
        yield from (f"{_BAR}{line}".rstrip() for line in neutral(text).strip("\n").split("\n"))
