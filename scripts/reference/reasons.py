"""``reasons.md``: why a process or a session ended, and what is known of it.

Each reason has a sample, which prints itself and is asked what the restart types make of it. To add
a reason: its sample here; a test says which is missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, get_type_hints

from cmdc_runtime import reasons
from cmdc_runtime.reasons import DownReason
from scripts.reference import markdown
from scripts.reference.annotations import type_text
from scripts.reference.sources import Field, declared, fields_of
from supervisor.core import exits
from supervisor.core.exits import VERDICTS, Reported, Said, Verdict
from supervisor.core.tree.messages import Ending
from supervisor.core.tree.supervisor import RESTARTS

_INTRO: Final = (
    "What a Down, a `SessionNotAlive` and the log say of an end. A reason travels under its kind."
    " What it counts as decides, with the session's restart type, whether another process follows."
    " A crash at a step that the next process is to leave out counts as fell: it is followed as a"
    " crash is, and costs none of `max_restarts`, within the bounds of"
    " [ADR 0032](../adr/0032-what-kills-is-set-aside.md)."
)
_HEAD: Final = ("reason", "kind", "fields", "counts as", "on whose word", "meaning", "as a line")
_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Sample:
    """A reason, and whether the process may have said by it that no start can work."""

    reason: reasons.AnyReason
    hopeless: tuple[bool, ...] = (False,)
    """None where it is of no process's end."""


_KILLED: Final = reasons.Signal(number=9, name="SIGKILL")
SAMPLES: Final[Mapping[type[DownReason], Sample]] = {
    type(sample.reason): sample
    for sample in (
        Sample(reasons.Normal()),
        Sample(reasons.Shutdown(detail="the user left")),
        Sample(reasons.Exception(type="KeyError", message="'path'", traceback="Traceback …")),
        Sample(reasons.Signal(number=11, name="SIGSEGV", core_dumped=True)),
        Sample(reasons.OutOfMemory(rss_bytes=512 * _MIB, limit_bytes=512 * _MIB)),
        Sample(reasons.Unresponsive(silent_ms=30_000)),
        Sample(reasons.Unkillable(seconds=10.0, state="D", wchan="rpc_wait_bit_killable"), ()),
        Sample(reasons.ExitCode(code=3)),
        Sample(reasons.StartFailed(stage="load", message="no tool x"), (False, True)),
        Sample(reasons.MaxTurnsExceeded(max_turns=25)),
        Sample(reasons.ProviderTimeout(model="openai:gpt-4o", seconds=120.0)),
        Sample(reasons.PluginAborted(plugin="cost_guard", why="over budget")),
        Sample(reasons.NoProcess(), ()),
        Sample(reasons.NurseryLost()),
        Sample(reasons.Other(detail="its records could not be journaled: the disk is full")),
        Sample(reasons.RestartIntensityExceeded(restarts=3, seconds=5.0, last=_KILLED), ()),
    )
}


def page() -> str:
    """Return the page."""
    return markdown.page(
        "Reasons",
        _INTRO,
        markdown.table(_HEAD, map(_row, declared(DownReason))),
        "## How one is found",
        markdown.prose((exits.__doc__ or "").split("\n\n")[1]),
        _verdicts(),
        "## Whether another process follows",
        _restarts(),
        "## What a Down says beside the reason",
        markdown.prose(reasons.Down.__doc__),
        markdown.prose(reasons.Evidence.__doc__),
        markdown.table(("evidence", "type"), map(_evidence_row, fields_of(reasons.Evidence))),
    )


def endings_of(kind: type[DownReason]) -> list[str]:
    """Return what a reason of this kind counts as; none where no process ends with it."""
    sample = SAMPLES[kind]
    reason = sample.reason
    if isinstance(reason, reasons.RestartIntensityExceeded):
        return []  # the end of a session, not of a process
    return [
        exits.ending_of(reason, said_hopeless=is_said) + is_said * " where the process says so"
        for is_said in sample.hopeless
    ]


def _row(kind: type[DownReason]) -> tuple[str, ...]:
    fields = (
        f"`{field.name}: {field.annotation}{field.default and ' = ' + field.default}`"
        for field in fields_of(kind)
    )
    return (
        markdown.code(kind.__name__),
        markdown.code(kind.__struct_config__.tag),
        ", ".join(fields),
        ", ".join(endings_of(kind)),
        kind.decided_by,
        markdown.prose(kind.__doc__),
        markdown.code(SAMPLES[kind].reason),
    )


def _verdicts() -> str:
    head = ("the kernel reported", *(f"the process said: {said}" for said in Said))
    rows = (
        (reported, *(_verdict(VERDICTS[reported, said]) for said in Said)) for reported in Reported
    )
    return markdown.table(head, rows)


def _verdict(verdict: Verdict) -> str:
    return str(verdict) if verdict is Verdict.WORDS else markdown.code(verdict)


def _restarts() -> str:
    types = list(dict.fromkeys(restart for restart, _ in RESTARTS))
    rows = (
        (
            markdown.code(restart),
            *("yes" if RESTARTS[restart, ending] else "no" for ending in Ending),
        )
        for restart in types
    )
    return markdown.table(("restart type", *Ending), rows)


def _evidence_row(field: Field) -> tuple[str, str]:
    annotation = get_type_hints(reasons.Evidence)[field.name]
    return markdown.code(field.name), markdown.code(type_text(annotation))
