"""From an exit's record to its reason, and to what is tried again. Pure; the shell gathers it.

A start that failed is reported as that, and a process that the daemon killed by why it did so. Else
the kernel's word comes before the process's own: what a process said that was killed while it
said goodbye does not make its end a normal one, and status 0 without a goodbye is no normal end
either. That a process ran out of memory is shown by the kernel's count of such kills; signal 9
alone says only that somebody sent it.

``judge`` fills in the reason (``classify``) and what the restart types have to know
(``ending_of``); ``killed_by`` says whose signal it was, and ``evidence_of`` makes of it all what a
Down carries.

A process says on the heartbeat table which step of rebuilding its session it takes next, so that
its death, however hard, counts for it (``fell_at``). ``Falls`` are such deaths of one session: what
has killed ``DEATHS_MAX`` processes is left out by the next one.

To add a rule: a row of ``VERDICTS``, or a word of ``Reported`` or ``Said`` with its rows; a test
names the rows that are missing.
"""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec

from cmdc_runtime import reasons
from cmdc_runtime.heartbeats import (
    DROPPED_STEP,
    GREETING_STEP,
    PACKED_STEP,
    REBUILDING,
    RESUME_STEP,
)
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
from supervisor.core.output import (
    OUTPUT_BYTES_MAX,
    STACK_BYTES_MAX,
    bounded_end,
    bounded_stack,
    bounded_start,
    split_output,
)
from supervisor.core.tree.messages import Ending

# --- one exit -------------------------------------------------------------------------------------

NOT_JUDGED: Final = "the daemon failed to judge how it ended; its log says why"
MESSAGE_BYTES_MAX: Final = 4 * 2**10
"""Of an exception's message in a reason; some libraries put a whole response there."""
TRACEBACK_BYTES_MAX: Final = 32 * 2**10
"""Of its traceback, whose end is kept: there it was raised. Some 200 frames."""
TOOLS_MAX: Final = 16
"""Names of tools in flight that a Down gives; more rarely run at once."""
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


@dataclass(slots=True, kw_only=True)
class ExitRecord:
    """What is known of the end of one process, from the kernel's status to the Down.

    It is filled in as it passes: the reaper has the status, the containment what the process was
    and did last, the agent what it had said and how far we had gone; ``judge`` says what all that
    amounts to.
    """

    status: int | None = field(default=None, kw_only=False)
    """The exit code or minus the signal's number, None where nobody could report it."""
    pid: int | None = None
    exited_at: float = 0.0
    """Monotonic seconds, when this process noticed."""
    core_dumped: bool = False
    """False also where only the zygote could report the status."""

    lived_ms: int | None = None
    state: str = ""
    turns: int = 0
    tools: tuple[str, ...] = ()
    opening: int = 0
    """The step of the packed code that it opened for a command, 0 for none."""
    last_index: EventIndex | None = None
    max_rss_bytes: int | None = None
    user_us: int | None = None
    system_us: int | None = None
    output: str = ""
    """The end of what it wrote to standard error, as it was written."""
    oom_kills: int = 0
    """How many processes of its cgroup the kernel killed for want of memory since the count was
    read last, which must not be long ago: a tool call that was killed for it in an earlier turn
    says nothing about this end."""
    memory_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None
    """Peak and limit are of the same cgroup."""

    said: PlainReason | None = None
    """What it said of its own end."""
    not_started: StartFailed | None = None
    fail_reason: PlainReason | None = None
    """Why we killed it ourselves."""
    asked: Asked = Asked.NOTHING
    """How far we went to make it end."""

    reason: PlainReason = field(default_factory=lambda: Other(detail=NOT_JUDGED))
    ending: Ending = Ending.CRASH
    """Both are what ``judge`` has found."""


class Reported(StrEnum):
    """What the kernel said of the end."""

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
VERDICTS: Final[Mapping[tuple[Reported, Said], Verdict]] = {
    (Reported.NOTHING,       Said.NOTHING): Verdict.LOST,
    (Reported.NOTHING,       Said.GOODBYE): Verdict.WORDS,
    (Reported.NOTHING,       Said.CHOSEN):  Verdict.WORDS,
    (Reported.NOTHING,       Said.RAISED):  Verdict.WORDS,
    (Reported.NOTHING,       Said.OTHER):   Verdict.WORDS,
    (Reported.ZERO,          Said.NOTHING): Verdict.CODE,
    (Reported.ZERO,          Said.GOODBYE): Verdict.WORDS,
    (Reported.ZERO,          Said.CHOSEN):  Verdict.WORDS,
    (Reported.ZERO,          Said.RAISED):  Verdict.WORDS,
    (Reported.ZERO,          Said.OTHER):   Verdict.CODE,
    (Reported.CODE,          Said.NOTHING): Verdict.CODE,
    (Reported.CODE,          Said.GOODBYE): Verdict.CODE,
    (Reported.CODE,          Said.CHOSEN):  Verdict.CODE,
    (Reported.CODE,          Said.RAISED):  Verdict.WORDS,
    (Reported.CODE,          Said.OTHER):   Verdict.WORDS,
    (Reported.SIGNAL,        Said.NOTHING): Verdict.SIGNAL,
    (Reported.SIGNAL,        Said.GOODBYE): Verdict.SIGNAL,
    (Reported.SIGNAL,        Said.CHOSEN):  Verdict.SIGNAL,
    (Reported.SIGNAL,        Said.RAISED):  Verdict.WORDS,
    (Reported.SIGNAL,        Said.OTHER):   Verdict.SIGNAL,
    (Reported.OUT_OF_MEMORY, Said.NOTHING): Verdict.MEMORY,
    (Reported.OUT_OF_MEMORY, Said.GOODBYE): Verdict.MEMORY,
    (Reported.OUT_OF_MEMORY, Said.CHOSEN):  Verdict.MEMORY,
    (Reported.OUT_OF_MEMORY, Said.RAISED):  Verdict.MEMORY,
    (Reported.OUT_OF_MEMORY, Said.OTHER):   Verdict.MEMORY,
}
# fmt: on
"""The reason of an end that was neither at the start nor our doing. Total; a test says so."""


def classify(record: ExitRecord) -> PlainReason:
    """Return the reason of an exit."""
    ours = record.not_started or record.fail_reason
    if ours is not None:
        return _bounded(ours)
    by_kernel, said = reported_by_kernel(record), _said(record.said)
    match VERDICTS[by_kernel, said]:
        case Verdict.WORDS:
            assert record.said is not None  # noqa: S101 - the table: it said something
            return _bounded(record.said)
        case Verdict.CODE:
            assert record.status is not None  # noqa: S101 - the table: there is a status
            return ExitCode(code=record.status)
        case Verdict.SIGNAL:
            assert record.status is not None  # noqa: S101 - as above
            return _signal(-record.status, core_dumped=record.core_dumped)
        case Verdict.MEMORY:
            return OutOfMemory(
                rss_bytes=record.memory_peak_bytes or 0,
                limit_bytes=record.memory_limit_bytes or 0,
            )
        case Verdict.LOST:  # pragma: no branch - the last of the enumeration
            return Other(detail="its exit status was lost with the zygote")


def reported_by_kernel(record: ExitRecord) -> Reported:
    """Return which column of the table the kernel's word is in."""
    status = record.status
    if status is None:
        return Reported.NOTHING
    if status >= 0:
        return Reported.CODE if status else Reported.ZERO
    if status == -signal.SIGKILL and record.oom_kills > 0 and record.asked is not Asked.SIGKILL:
        return Reported.OUT_OF_MEMORY
    return Reported.SIGNAL


def killed_by(record: ExitRecord) -> KilledBy:
    """Say whose signal ended the process; "" where none did or the process raised it itself.

    A signal that stands for a fault (SIGSEGV, SIGABRT) is the process's own: the kernel does not
    distinguish one that somebody sent from one that the code provoked.
    """
    number = _deadly(record)
    if number is None or number in _FAULTS:
        return ""
    if number in _SENT[record.asked if record.fail_reason is None else Asked.SIGKILL]:
        return "daemon"
    return "kernel" if reported_by_kernel(record) is Reported.OUT_OF_MEMORY else "outside"


def judge(record: ExitRecord) -> None:
    """Fill in the reason, and what the restart types have to know of it."""
    record.reason = classify(record)
    record.ending = ending_of(record.reason, said_hopeless=record.not_started is not None)


def ending_of(reason: PlainReason, *, said_hopeless: bool = False) -> Ending:
    """Return what the restart types have to know of ``reason``.

    ``said_hopeless``: the process itself reported that starting can never work. Its status
    says nothing of that, since any code that it opened may have ended it with any number.
    """
    if isinstance(reason, _CHOSEN) or said_hopeless:
        return Ending.FINAL
    return Ending.NORMAL if isinstance(reason, _GOODBYES) else Ending.CRASH


def fell_at(record: ExitRecord) -> int | None:
    """Return the step that a dead process was at, None where it was at none.

    Rebuilding its session has steps, and so has opening what a command brings. One that was judged
    to have ended otherwise than by a crash did not die of a step.
    """
    if record.ending is not Ending.CRASH:
        return None
    return record.turns if record.state == REBUILDING else record.opening or None


def evidence_of(record: ExitRecord) -> reasons.Evidence:
    """Return what a Down says of an exit beside its reason; every text has a bound.

    A traceback that did not become the reason is not lost: it stands where the stack would.
    """
    output, stack = split_output(record.output)
    words = record.said
    if not stack and isinstance(words, Raised) and not isinstance(classify(record), Raised):
        stack = words.traceback
    return reasons.Evidence(
        pid=record.pid,
        status=record.status,
        core_dumped=record.core_dumped,
        killed_by=killed_by(record),
        lived_ms=record.lived_ms,
        state=record.state[:NAME_CHARS_MAX],
        tools=tuple(name[:NAME_CHARS_MAX] for name in record.tools[:TOOLS_MAX]),
        last_index=record.last_index,
        max_rss_bytes=record.max_rss_bytes,
        user_ms=_ms(record.user_us),
        system_ms=_ms(record.system_us),
        oom_kills=record.oom_kills,
        memory_peak_bytes=record.memory_peak_bytes,
        output=bounded_end(output, OUTPUT_BYTES_MAX),
        stack=bounded_stack(stack, STACK_BYTES_MAX),
    )


def _deadly(record: ExitRecord) -> int | None:
    """Return the signal that ended the process, or that it obeyed when it ended itself."""
    if record.status is not None and record.status < 0:
        return -record.status
    return record.said.number if isinstance(record.said, Signal) else None


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


# --- deaths at a step, one after another ----------------------------------------------------------

DEATHS_MAX: Final = 2
"""Processes that die of one step before it is left out: one death may be anything's doing."""
STEPS_MAX: Final = 8
"""Steps that are left out at one start; a journal with more of them is not worth the processes."""
SPARED_MAX: Final = DEATHS_MAX * STEPS_MAX
"""Deaths in a row, whatever their steps, that cost no restart."""


@dataclass(slots=True)
class Falls:
    """The deaths of one session's processes at a step since one came through.

    They cost no restart, since each brings the session nearer to a process that comes through. They
    have two bounds: that of each step, and that of all steps together.
    """

    deaths: dict[int, int] = field(default_factory=dict)
    total: int = 0
    """All of them, those included that a step is no longer counted for."""

    def note(self, step: int | None, *, was_up: bool = False) -> None:
        """Record that a process died at this step, or, with None, that it had come through.

        One that ``was_up`` and died of packed code had come through, but for packed code: a command
        brings them again. Other steps have other numbers by then.
        """
        if step is None:
            self.deaths.clear()
            self.total = 0
            return
        self.total += 1
        if was_up and _is_packed_code(step):
            self.deaths = {one: many for one, many in self.deaths.items() if _is_packed_code(one)}
        if step == DROPPED_STEP:  # what is gone on with next is another cycle: it has not done it
            self.deaths.pop(RESUME_STEP, None)
        self.deaths[step] = self.deaths.get(step, 0) + 1

    @property
    def set_aside(self) -> tuple[int, ...]:
        """The steps to be left out."""
        return tuple(sorted(step for step, count in self.deaths.items() if count >= DEATHS_MAX))

    def spares(self, step: int | None) -> bool:
        """Whether the death at this step, of which note was taken, costs no restart.

        One more than ``DEATHS_MAX`` shows that leaving the step out does not help.
        """
        is_early = step is not None and self.deaths[step] <= DEATHS_MAX
        return is_early and self.total <= SPARED_MAX

    @property
    def may_try_again(self) -> bool:
        """Whether another process is worth a try."""
        return sum(self.deaths.values()) <= DEATHS_MAX * STEPS_MAX


def _is_packed_code(step: int) -> bool:
    return PACKED_STEP <= step < GREETING_STEP
