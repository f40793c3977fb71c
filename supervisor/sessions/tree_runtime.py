"""The tree runtime: gives the supervision tree its inputs and the time, and performs its effects.

A worker's specification carries a ``ChildHandler`` as its ``start``: the object that performs the
effects about that child. Inputs are handled one at a time: one that a handler gives while an effect
is performed waits until the step is over.

The tree's reports become lines of the log, and events on a topic of their own. Their fields are
those of OTP's supervisor reports, flat, and what an operator needs beyond them: the generation, how
much of the restart budget is used, and when the next attempt is.

The inputs of the tree are written down for a test that plays them again: when the root gives up,
and whenever the daemon gets SIGUSR1. ``python -m scripts.simulate --replay FILE`` plays them and
says where today's tree decides otherwise.
"""

import asyncio
import os
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import structlog

from cmdc_runtime.clock import now_ms
from cmdc_runtime.ids import SUPERVISOR, EventIndex
from cmdc_runtime.reasons import AnyReason, PlainReason, Shutdown, StartFailed
from cmdc_runtime.reasons import NurseryLost as ZygoteLostReason
from cmdc_runtime.wire.codec import encode
from cmdc_runtime.wire.frames import Batch
from supervisor.adapters.hub import Hub
from supervisor.adapters.tasks import BackgroundTasks
from supervisor.adapters.zygote import Zygote, ZygoteFailed, ZygoteLost
from supervisor.core.exits import ExitRecord
from supervisor.core.limits import REPORTS_KEPT_MAX
from supervisor.core.tree import messages
from supervisor.core.tree.messages import (
    Ask,
    CallResult,
    CancelTimer,
    Effect,
    Ending,
    Input,
    Kill,
    Label,
    Launch,
    Outcome,
    ProcessEnded,
    Ref,
    Replied,
    Report,
    SetTimer,
    SupervisorEnded,
    SupervisorPath,
    SupervisorUp,
    Terminate,
    Timer,
    TimerKind,
)
from supervisor.core.tree.recording import RecordedTree
from supervisor.core.tree.specs import ChildSpec, SupervisorSpec, spread

# --- reports --------------------------------------------------------------------------------------

log = structlog.get_logger()

EVENT_KIND: Final = "supervisor_report"
"""The kind of the event; the daemon knows of events no more than that."""

# fmt: off
_SAYERS: Final[Mapping[Label, tuple[str, str]]] = {
    Label.PROGRESS:         ("debug",   "child.started"),
    Label.START_ERROR:      ("error",   "child.not_started"),
    Label.CHILD_TERMINATED: ("error",   "child.terminated"),
    Label.SHUTDOWN_ERROR:   ("warning", "child.shut_down_badly"),
    Label.SHUTDOWN:         ("error",   "supervisor.shut_down"),
    Label.UNKILLABLE:       ("error",   "child.not_killed"),
    Label.UNEXPECTED:       ("debug",   "report.unexpected"),
}
# fmt: on
"""How loud each report is, and under which name. Total; a test says so."""


class Reports:
    """Logs and publishes what the tree reports; the events go out by ``hub``."""

    def __init__(self, hub: Hub) -> None:
        """Open the topic; its indexes begin above those of every earlier daemon."""
        self._hub = hub
        hub.open_channel(SUPERVISOR, REPORTS_KEPT_MAX, EventIndex(now_ms()))

    def publish(self, report: Report) -> None:
        """Log and publish one report."""
        fields = report_fields(report)
        level, name = _SAYERS[report.label]
        getattr(log, level)(name, **fields)  # tidy: the names stand in the table above
        first = EventIndex(self._hub.taken_index(SUPERVISOR) + 1)
        body = encode([(now_ms(), {"kind": EVENT_KIND, **fields})])
        self._hub.take(SUPERVISOR, Batch(first=first, count=1, durable=False), body)


def report_fields(report: Report) -> dict[str, object]:
    """Return every field of a report under its name."""
    child = report.child
    return {
        "report": report.label.value,
        "supervisor": "/".join(("root", *report.path)),
        "context": report.context,
        "reason": None if report.reason is None else str(report.reason),
        "pid": report.handle,
        "generation": report.generation,
        "restarts": report.restarts,
        "in_window": report.in_window,
        "max_restarts": report.max_restarts,
        "next_attempt_s": report.next_attempt_s,
        "child": None if child is None else child.id,
        "child_type": None if child is None else child.type,
        "restart_type": None if child is None else child.restart,
        "significant": child is not None and child.significant,
        "shutdown": None if child is None else child.shutdown,
    }


# --- the runtime ----------------------------------------------------------------------------------


REAP_LOOK_S: Final = 1.0
"""Between two looks at a dead process that is reaped late, since very many ended with it."""

Call: TypeAlias = Callable[[CallResult], None]


class ChildHandler(Protocol):
    """Performs the effects about one worker child; nothing here may block or raise."""

    def launch(self, ref: Ref) -> None:
        """Start the process; ``up`` or ``exited`` of the runtime follows."""

    def ask(self, ref: Ref, reason: str) -> None:
        """Ask it politely to end."""

    def terminate(self, ref: Ref) -> None:
        """Send SIGTERM."""

    def kill(self, ref: Ref, fail_reason: PlainReason | None) -> None:
        """Send SIGKILL to all of it."""

    def is_over(self) -> bool:
        """Say whether its process is gone, though ``exited`` has not been called yet."""

    def on_ended(self, ended: ProcessEnded) -> None:
        """Notify the monitors that it is gone, and what becomes of it."""


class TreeRuntime:
    """The tree, its timers and its child handlers."""

    def __init__(
        self,
        spec: SupervisorSpec,
        on_report: Callable[[Report], None],
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Hold the tree of ``spec``; ``begin`` starts it. ``chance`` is from 0 to 1."""
        self._chance = chance
        self.tree = RecordedTree(spec)
        self.ended: asyncio.Future[AnyReason] = asyncio.get_event_loop().create_future()
        """Done with the root's reason when it is gone."""
        self._on_report = on_report
        self._handlers: defaultdict[SupervisorPath, dict[str, ChildHandler]] = defaultdict(dict)
        self._on_end: dict[SupervisorPath, Callable[[SupervisorEnded], None]] = {}
        self._timers: dict[Timer, asyncio.TimerHandle] = {}
        self._inputs: deque[Input] = deque()
        self._is_stepping = False

    # --- inputs -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the tree."""
        self._take(messages.Begin())

    def up(self, ref: Ref, handle: object = None) -> None:
        """Say that a process is ready."""
        self._take(messages.Up(ref, handle))

    def exited(
        self, ref: Ref, reason: AnyReason, ending: Ending, record: ExitRecord | None = None
    ) -> None:
        """Say that a process is gone, or could not be started."""
        self._take(messages.ChildExited(ref, reason, ending, record))

    def fail(self, ref: Ref, reason: PlainReason) -> None:
        """Have a process killed that hangs or uses too much."""
        self._take(messages.Fail(ref, reason))

    def record(self, note: str) -> list[bytes]:
        """Return the recording of the tree, as lines that can be replayed."""
        return list(self.tree.recorder.lines(note))

    def stop(self, why: str, bound_s: float) -> None:
        """End everything within ``bound_s`` seconds."""
        self._take(messages.Stop(why, self._now_s() + bound_s))

    def start_child(
        self,
        path: SupervisorPath,
        spec: ChildSpec,
        call: Call,
        on_end: Callable[[SupervisorEnded], None] | None = None,
    ) -> None:
        """Add a child and start it; ``on_end`` is called when a supervisor that began has ended."""
        place = (*path, spec.id)

        def answered(answer: CallResult) -> None:
            if answer.outcome in {Outcome.NO_PROCESS, Outcome.MAX_CHILDREN}:
                self._on_end.pop(place, None)
            call(answer)

        if on_end is not None:
            self._on_end[place] = on_end
        self._take(messages.StartChild(path, spec, answered))

    def terminate_child(
        self, path: SupervisorPath, child_id: str, call: Call, why: str, grace_s: float | None
    ) -> None:
        """End a child within ``grace_s`` seconds, None: however long it takes."""
        deadline_s = None if grace_s is None else self._now_s() + grace_s
        self._take(messages.TerminateChild(path, child_id, call, why, deadline_s))

    def hibernate_child(self, ref: Ref, call: Call, why: str, grace_s: float) -> None:
        """End a child's process and keep the child, to be woken."""
        deadline_s = self._now_s() + grace_s
        self._take(messages.HibernateChild(ref.path, ref.child, call, why, deadline_s))

    def wake_child(self, ref: Ref, call: Call) -> None:
        """Start a child that hibernates."""
        self._take(messages.WakeChild(ref.path, ref.child, call))

    # --- steps ------------------------------------------------------------------------------

    def _take(self, given: Input) -> None:
        """Handle an input, after those that came before it."""
        self._inputs.append(given)
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._inputs:
                for effect in self._step(self._inputs.popleft()):
                    self._try(effect)
        finally:
            self._is_stepping = False

    def _step(self, given: Input) -> list[Effect]:
        return self.tree.handle(given, self._now_s())

    def _now_s(self) -> float:
        """Return the time, by the clock by which timers go off."""
        return asyncio.get_running_loop().time()

    def _try(self, effect: Effect) -> None:
        """Perform an effect; a bug of one handler leaves the effects of the others."""
        try:
            self._perform(effect)
        except Exception:
            log.exception("effect.failed", effect=type(effect).__name__)

    def _perform(self, effect: Effect) -> None:  # noqa: C901 - one case for each effect
        match effect:
            case Launch(ref=ref, start=start):
                self._handlers[ref.path][ref.child] = start  # type: ignore[assignment]  # see ChildHandler
                self._handler(ref).launch(ref)
            case Ask(ref=ref, reason=reason):
                self._handler(ref).ask(ref, reason)
            case Terminate(ref=ref):
                self._handler(ref).terminate(ref)
            case Kill(ref=ref, fail_reason=fail_reason):
                self._handler(ref).kill(ref, fail_reason)
            case ProcessEnded(ref=ref):
                self._handler(ref).on_ended(effect)
            case SetTimer(timer=timer, delay_s=delay_s):
                self._set(timer, delay_s)
            case CancelTimer(timer=timer):
                self._cancel(timer)
            case Replied(call=call, result=answer):
                call(answer)  # type: ignore[operator]  # whatever was given with the call: a Call
            case Report():
                self._on_report(effect)
            case SupervisorUp():
                pass  # who started it has the answer of its call
            case SupervisorEnded():
                self._forget(effect)

    def _handler(self, ref: Ref) -> ChildHandler:
        return self._handlers[ref.path][ref.child]

    def _set(self, timer: Timer, delay_s: float) -> None:
        self._cancel(timer)
        loop = asyncio.get_running_loop()
        if timer.kind is TimerKind.DELAY:
            delay_s = spread(delay_s, self._chance())
        self._timers[timer] = loop.call_later(delay_s, self._due, timer)

    def _cancel(self, timer: Timer) -> None:
        handle = self._timers.pop(timer, None)
        if handle is not None:
            handle.cancel()

    def _due(self, timer: Timer) -> None:
        if timer.kind is TimerKind.UNKILLABLE and self._handlers[timer.path][timer.child].is_over():
            self._set(timer, REAP_LOOK_S)  # SIGKILL has ended it; what it leaves is looked after
            return
        self._timers.pop(timer, None)
        self._take(messages.Due(timer))

    def _forget(self, ended: SupervisorEnded) -> None:
        self._handlers.pop(ended.path, None)
        on_end = self._on_end.pop(ended.path, None)
        if on_end is not None:
            on_end(ended)
        if not ended.path and not self.ended.done():
            self.ended.set_result(ended.reason)


def ignored(_answer: CallResult) -> None:
    """Take the answer of a call that nobody waits for."""


# --- recordings -----------------------------------------------------------------------------------

FOLDER: Final = "recordings"
RECORDINGS_KEPT_MAX: Final = 10
"""The oldest goes: one is some megabytes where thousands of sessions live."""


def write_recording(state_dir: Path, lines: Iterable[bytes]) -> Path | None:
    """Write a record below ``state_dir`` and return its path, None if that can't be.

    It may take a second; call it in a thread where somebody waits.
    """
    folder = state_dir / FOLDER
    path = folder / f"{now_ms()}.jsonl"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(line + b"\n" for line in lines)
        for old in sorted(folder.glob("*.jsonl"))[:-RECORDINGS_KEPT_MAX]:
            old.unlink(missing_ok=True)
    except OSError as error:
        log.error("recording.not_written", problem=str(error))
        return None
    log.info("recording.written", path=str(path))
    return path


# --- the zygote -----------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class ZygoteChild:
    """The child handler of the zygote; ``on_warm`` is called each time that one is warm.

    Agents live on without the zygote, and a session that needs a process waits for the next one.
    The tree charges each failure; when there were too many the root gives up, and with it the
    daemon.
    """

    zygote: Zygote
    on_warm: Callable[[], None]
    runtime: TreeRuntime = field(init=False)
    problem: str = ""
    """Why there is no zygote, empty while there is one or the first is being warmed."""
    _ref: Ref | None = None
    _tasks: BackgroundTasks = field(default_factory=BackgroundTasks)

    @property
    def state(self) -> str:
        """How the zygote stands, in the words of ``DaemonFacts``."""
        if self.zygote.is_warm:
            return "ready"
        return f"lost: {self.problem}" if self.problem else "warming"

    def lost(self, error: ZygoteLost) -> None:
        """Handle that a zygote that was warm is gone."""
        self._over(self._ref, str(error), ZygoteLostReason())

    def launch(self, ref: Ref) -> None:
        """Warm a zygote."""
        self._ref = ref
        self._tasks.spawn(self._warm(ref), "zygote")

    def ask(self, ref: Ref, reason: str) -> None:
        """Be without a zygote; the daemon closes it when the last worker is reaped."""
        self._tasks.cancel()
        self._ref = None
        self.runtime.exited(ref, Shutdown(detail=reason), Ending.NORMAL)

    def terminate(self, ref: Ref) -> None:
        """Do as ``ask`` does: that has ended the handler's work already."""

    def kill(self, ref: Ref, fail_reason: PlainReason | None) -> None:
        """End it at once."""
        self.ask(ref, "killed" if fail_reason is None else str(fail_reason))

    def is_over(self) -> bool:
        """Say no: whoever asks for its end gets it at once."""
        return False

    def on_ended(self, ended: ProcessEnded) -> None:
        """Say in the log that there is none, and when the next one is tried."""
        log.warning(
            "zygote.ended",
            reason=str(ended.reason),
            restarting=ended.restarting,
            next_attempt_s=ended.delay_s,
        )

    async def _warm(self, ref: Ref) -> None:
        try:
            report = await self.zygote.warm()
        except (ZygoteFailed, ZygoteLost) as error:
            self._over(ref, str(error), StartFailed(stage="zygote", message=str(error)))
            return
        except Exception as error:  # a bug of ours: without a word the tree would wait for ever
            log.exception("zygote.not_warmed")
            problem = f"{type(error).__name__}: {error}"
            self._over(ref, problem, StartFailed(stage="zygote", message=problem))
            return
        if self._ref == ref:
            self.problem = ""
            self.runtime.up(ref, report.pid)
            self.on_warm()

    def _over(self, ref: Ref | None, problem: str, reason: PlainReason) -> None:
        if ref is not None and self._ref == ref:
            self.problem, self._ref = problem, None
            self.runtime.exited(ref, reason, Ending.CRASH)
