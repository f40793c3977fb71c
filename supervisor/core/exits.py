"""From the evidence of an exit to its reason. Pure; the shell gathers the evidence.

A start that failed is told as that, and a process that the daemon killed by why it did so. Else
the kernel's word comes before the process's own: last words of a process that was killed while it
said goodbye do not make its end a normal one, and status 0 without a goodbye is no normal end
either. That a process ran out of memory is told by the kernel's count of such kills; signal 9 alone
says only that somebody sent it.

``classify`` gives the reason, ``killed_by`` says whose signal it was, ``ending_of`` what the
restart types have to know, and ``evidence_of`` makes of it all what a Down carries.

To add a rule: a row of ``VERDICTS``, or a word of ``Told`` or ``Said`` with its rows; a test names
the rows that are missing.
"""

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from cmdc_runtime import reasons
from cmdc_runtime.heartbeats import REBUILDING
from cmdc_runtime.ids import EventIndex
from cmdc_runtime.reasons import (
    Exception as Raised,
)
from cmdc_runtime.reasons import (
    ExitCode,
    KilledBy,
    MaxTurnsExceeded,
    Normal,
    Other,
    OutOfMemory,
    PlainReason,
    PluginAborted,
    ProviderTimeout,
    Shutdown,
    Signal,
    StartFailed,
)
from supervisor.core.stderr import (
    OUTPUT_BYTES_MAX,
    STACK_BYTES_MAX,
    bounded_end,
    bounded_stack,
    bounded_start,
    split_output,
)
from supervisor.core.tree.messages import Ending

MESSAGE_BYTES_MAX: Final = 4 * 2**10
"""Of an exception's message in a reason; some libraries put a whole response there."""
TRACEBACK_BYTES_MAX: Final = 32 * 2**10
"""Of its traceback, whose end is kept: there it was raised. Some 200 frames."""
TOOLS_MAX: Final = 16
"""Names of tools in flight that a Down tells; more rarely run at once."""
NAME_CHARS_MAX: Final = 128
"""Of one of them."""

_GOODBYES: Final = (Normal, Shutdown)
_CHOSEN: Final = (MaxTurnsExceeded, ProviderTimeout, PluginAborted)
"""What ``exit_on`` may name: the process ends by itself, and the session with it."""
_FAULTS: Final = frozenset(
    {
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGSEGV,
        signal.SIGSYS,
        signal.SIGTRAP,
    }
)
"""What code provokes by itself."""


class Asked(StrEnum):
    """The strongest thing that the daemon has done to end a process."""

    NOTHING = "nothing"
    POLITELY = "politely"  # a Terminate frame
    SIGTERM = "sigterm"
    SIGKILL = "sigkill"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about one exit and decides on its reason.

    ``status`` is the exit code or minus the signal's number, None where nobody could tell it.
    ``fail_reason`` is why we killed the process ourselves, ``last_words`` what it said of its own
    end. ``asked`` is how far we went to make it end. ``oom_kills`` is how many processes of its
    cgroup the kernel killed for want of memory since the count was read last, which must not be
    long ago: a tool call that was killed for it in an earlier turn says nothing about this end.
    Peak and limit are of the same cgroup.
    """

    status: int | None
    last_words: PlainReason | None = None
    not_started: StartFailed | None = None
    fail_reason: PlainReason | None = None
    core_dumped: bool = False
    asked: Asked = Asked.NOTHING
    oom_kills: int = 0
    memory_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSeen:
    """What a process was and did when it was seen last; it does not change the reason.

    ``opening`` is the step of the parcel that it opened for a command, 0 for none. ``output`` is
    the end of what it wrote to standard error, as it was written.
    """

    pid: int | None = None
    lived_ms: int | None = None
    state: str = ""
    turns: int = 0
    tools: tuple[str, ...] = ()
    opening: int = 0
    last_index: EventIndex | None = None
    max_rss_bytes: int | None = None
    user_us: int | None = None
    system_us: int | None = None
    output: str = ""


class Told(StrEnum):
    """What the kernel told of the end."""

    NOTHING = "nothing"  # the status was lost
    ZERO = "exit status 0"
    CODE = "another exit status"
    SIGNAL = "a signal"
    OUT_OF_MEMORY = "SIGKILL and an OOM kill"


class Said(StrEnum):
    """What the process said of its own end."""

    NOTHING = "nothing"
    GOODBYE = "goodbye"
    CHOSEN = "an end that exit_on names"
    RAISED = "an exception"
    OTHER = "anything else"


class Verdict(StrEnum):
    """Whose word is the reason."""

    WORDS = "what it said"
    CODE = "ExitCode"
    SIGNAL = "Signal"
    MEMORY = "OutOfMemory"
    LOST = "Other"


_SAYING: Final[Mapping[Said, tuple[type[PlainReason], ...]]] = {
    Said.GOODBYE: _GOODBYES,
    Said.CHOSEN: _CHOSEN,
    Said.RAISED: (Raised,),
}
_SENT: Final[Mapping[Asked, frozenset[int]]] = {
    Asked.NOTHING: frozenset(),
    Asked.POLITELY: frozenset(),
    Asked.SIGTERM: frozenset({signal.SIGTERM}),
    Asked.SIGKILL: frozenset({signal.SIGTERM, signal.SIGKILL}),
}
"""The signals that the daemon has sent by then."""

# fmt: off
VERDICTS: Final[Mapping[tuple[Told, Said], Verdict]] = {
    (Told.NOTHING,       Said.NOTHING): Verdict.LOST,
    (Told.NOTHING,       Said.GOODBYE): Verdict.WORDS,
    (Told.NOTHING,       Said.CHOSEN):  Verdict.WORDS,
    (Told.NOTHING,       Said.RAISED):  Verdict.WORDS,
    (Told.NOTHING,       Said.OTHER):   Verdict.WORDS,
    (Told.ZERO,          Said.NOTHING): Verdict.CODE,
    (Told.ZERO,          Said.GOODBYE): Verdict.WORDS,
    (Told.ZERO,          Said.CHOSEN):  Verdict.WORDS,
    (Told.ZERO,          Said.RAISED):  Verdict.WORDS,
    (Told.ZERO,          Said.OTHER):   Verdict.CODE,
    (Told.CODE,          Said.NOTHING): Verdict.CODE,
    (Told.CODE,          Said.GOODBYE): Verdict.CODE,
    (Told.CODE,          Said.CHOSEN):  Verdict.CODE,
    (Told.CODE,          Said.RAISED):  Verdict.WORDS,
    (Told.CODE,          Said.OTHER):   Verdict.WORDS,
    (Told.SIGNAL,        Said.NOTHING): Verdict.SIGNAL,
    (Told.SIGNAL,        Said.GOODBYE): Verdict.SIGNAL,
    (Told.SIGNAL,        Said.CHOSEN):  Verdict.SIGNAL,
    (Told.SIGNAL,        Said.RAISED):  Verdict.WORDS,
    (Told.SIGNAL,        Said.OTHER):   Verdict.SIGNAL,
    (Told.OUT_OF_MEMORY, Said.NOTHING): Verdict.MEMORY,
    (Told.OUT_OF_MEMORY, Said.GOODBYE): Verdict.MEMORY,
    (Told.OUT_OF_MEMORY, Said.CHOSEN):  Verdict.MEMORY,
    (Told.OUT_OF_MEMORY, Said.RAISED):  Verdict.MEMORY,
    (Told.OUT_OF_MEMORY, Said.OTHER):   Verdict.MEMORY,
}
# fmt: on
"""The reason of an end that was neither at the start nor our doing. Total; a test says so."""


def classify(evidence: Evidence) -> PlainReason:
    """Return the reason of an exit."""
    ours = evidence.not_started or evidence.fail_reason
    if ours is not None:
        return _bounded(ours)
    told, said = told_by_kernel(evidence), _said(evidence.last_words)
    match VERDICTS[told, said]:
        case Verdict.WORDS:
            assert evidence.last_words is not None  # noqa: S101 - the table: it said something
            return _bounded(evidence.last_words)
        case Verdict.CODE:
            assert evidence.status is not None  # noqa: S101 - the table: there is a status
            return ExitCode(code=evidence.status)
        case Verdict.SIGNAL:
            assert evidence.status is not None  # noqa: S101 - as above
            return _signal(-evidence.status, core_dumped=evidence.core_dumped)
        case Verdict.MEMORY:
            return OutOfMemory(
                rss_bytes=evidence.memory_peak_bytes or 0,
                limit_bytes=evidence.memory_limit_bytes or 0,
            )
        case Verdict.LOST:  # pragma: no branch - the last of the enumeration
            return Other(detail="its exit status was lost with the zygote")


def told_by_kernel(evidence: Evidence) -> Told:
    """Return which column of the table the kernel's word is in."""
    status = evidence.status
    if status is None:
        return Told.NOTHING
    if status >= 0:
        return Told.CODE if status else Told.ZERO
    if status == -signal.SIGKILL and evidence.oom_kills > 0 and evidence.asked is not Asked.SIGKILL:
        return Told.OUT_OF_MEMORY
    return Told.SIGNAL


def killed_by(evidence: Evidence) -> KilledBy:
    """Say whose signal ended the process; "" where none did or the process raised it itself.

    A signal that stands for a fault (SIGSEGV, SIGABRT) is the process's own: the kernel does not
    tell one that somebody sent from one that the code provoked.
    """
    number = _deadly(evidence)
    if number is None or number in _FAULTS:
        return ""
    if number in _SENT[evidence.asked if evidence.fail_reason is None else Asked.SIGKILL]:
        return "daemon"
    return "kernel" if told_by_kernel(evidence) is Told.OUT_OF_MEMORY else "outside"


def ending_of(reason: PlainReason, *, said_hopeless: bool = False) -> Ending:
    """Return what the restart types have to know of ``reason``.

    ``said_hopeless``: the process itself told the daemon that starting can never work. Its status
    says nothing of that, since any code that it opened may have ended it with any number.
    """
    if isinstance(reason, _CHOSEN) or said_hopeless:
        return Ending.FINAL
    return Ending.NORMAL if isinstance(reason, _GOODBYES) else Ending.CRASH


def fell_at(seen: LastSeen) -> int | None:
    """Return the step that a dead process was at, None where it was at none.

    Rebuilding its session has steps, and so has opening what a command brings.
    """
    return seen.turns if seen.state == REBUILDING else seen.opening or None


def evidence_of(evidence: Evidence, seen: LastSeen) -> reasons.Evidence:
    """Return what a Down tells of an exit beside its reason; every text has a bound.

    A traceback that did not become the reason is not lost: it stands where the stack would.
    """
    output, stack = split_output(seen.output)
    words = evidence.last_words
    if not stack and isinstance(words, Raised) and not isinstance(classify(evidence), Raised):
        stack = words.traceback
    return reasons.Evidence(
        pid=seen.pid,
        status=evidence.status,
        core_dumped=evidence.core_dumped,
        killed_by=killed_by(evidence),
        lived_ms=seen.lived_ms,
        state=seen.state[:NAME_CHARS_MAX],
        tools=tuple(name[:NAME_CHARS_MAX] for name in seen.tools[:TOOLS_MAX]),
        last_index=seen.last_index,
        max_rss_bytes=seen.max_rss_bytes,
        user_ms=_ms(seen.user_us),
        system_ms=_ms(seen.system_us),
        oom_kills=evidence.oom_kills,
        memory_peak_bytes=evidence.memory_peak_bytes,
        output=bounded_end(output, OUTPUT_BYTES_MAX),
        stack=bounded_stack(stack, STACK_BYTES_MAX),
    )


def _deadly(evidence: Evidence) -> int | None:
    """Return the signal that ended the process, or that it obeyed when it ended itself."""
    if evidence.status is not None and evidence.status < 0:
        return -evidence.status
    return evidence.last_words.number if isinstance(evidence.last_words, Signal) else None


def _said(words: PlainReason | None) -> Said:
    if words is None:
        return Said.NOTHING
    return next((said for said, kinds in _SAYING.items() if isinstance(words, kinds)), Said.OTHER)


def _bounded(words: PlainReason) -> PlainReason:
    """Return what a process said with every text cut to its bound."""
    cut: dict[str, str] = {}
    for name, value in msgspec.structs.asdict(words).items():
        if name == "traceback":
            cut[name] = bounded_end(value, TRACEBACK_BYTES_MAX)
        elif isinstance(value, str):
            is_name = isinstance(words, Raised) and name == "type"
            cut[name] = (
                value[:NAME_CHARS_MAX] if is_name else bounded_start(value, MESSAGE_BYTES_MAX)
            )
    return msgspec.structs.replace(words, **cut)


def _ms(us: int | None) -> int | None:
    return None if us is None else us // 1000


def _signal(number: int, *, core_dumped: bool) -> Signal:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"SIG{number}"
    return Signal(number=number, name=name, core_dumped=core_dumped)
