"""Plays cases on a virtual clock: what happens at one moment happens in the order of its causes."""

import heapq
from dataclasses import dataclass
from itertools import count

from cmdc_runtime.reasons import ExitCode, Other, Shutdown
from supervisor.core.tree.messages import (
    Ask,
    Begin,
    CancelTimer,
    ChildExited,
    Due,
    Ignored,
    Kill,
    KillSupervisor,
    Launch,
    ProcessEnded,
    Reconfigure,
    Replied,
    Report,
    SetTimer,
    Stop,
    SupervisorEnded,
    SupervisorPhase,
    SupervisorUp,
    Terminate,
    Up,
)
from supervisor.core.tree.tree import Tree
from tests.conformance.audit import named
from tests.conformance.script import (
    ENDS,
    EXIT_CODE,
    HOPELESS,
    KILLED,
    RAISED,
    TERMINATED,
    Life,
    ending_of,
)
from tests.conformance.stage import Call, Stage, call_of

GARBAGE = Other(detail="it broke the contract of the wire: not a message of this protocol")
FAR_S = 10_000.0
"""Nothing that a case waits for is further away."""


@dataclass(slots=True, eq=False)
class SimProcess:
    """One scripted process; ``reason`` is that of its end, None while it lives."""

    ref: object
    life: Life
    pid: int
    reason: object = None
    is_stopping: bool = False
    is_killed: bool = False
    has_ignored: bool = False


class SimStage(Stage):
    """A stage without processes, on which hours take milliseconds."""

    def __init__(self):
        super().__init__()
        self._timers = {}
        self.late_s = {}
        """By how much timers of a kind go off too late."""
        self._now_s = 1000.0
        self._agenda = []
        self._order = count()
        self._pids = count(1)
        self._processes, self._records = {}, {}

    # --- what a case does -------------------------------------------------------------------

    def open(self, spec):
        self.begun_s = self.now()
        self.tree = Tree(spec)
        for one in spec.children:
            self.audit.expects(one)
        self.perform(self.tree.handle(Begin(), self.now()))
        return self

    def call(self, name, *given, path=(), **more):
        call = Call(name, asked_s=self.now())
        if name == "start_child":
            self.audit.expects(given[0], path)
        effects = self.tree.handle(call_of(name, path, *given, call, **more), self.now())
        self.perform(effects)
        return call

    def begin_stop(self, why="shutdown", within_s=None):
        deadline_s = None if within_s is None else self.now() + within_s
        self.perform(self.tree.handle(Stop(why, deadline_s), self.now()))

    def kill_supervisor(self, path=()):
        self.perform(self.tree.handle(KillSupervisor(path), self.now()))

    def reconfigure(self, spec, path=()):
        effects = self.tree.handle(Reconfigure(path, spec), self.now())
        for one in spec.children:
            self.audit.expects(one, path)
        self.perform(effects)

    def has_ended(self):
        return self.tree.end is not None

    # --- playing ----------------------------------------------------------------------------

    def perform(self, effects):
        """Do what the tree decided, in its order."""
        for effect in effects:
            self._perform(effect)
        self.audit.stopping = {
            path
            for path, one in self.tree._supervisors.items()
            if one.phase is SupervisorPhase.STOPPING
        }

    def _perform(self, effect):  # noqa: C901 - one case for each effect
        match effect:
            case Launch(ref=ref, start=script):
                self.audit.launched(ref)
                self._records.pop(ref, None)  # one that was added again counts anew
                self.write("launch", named(ref))
                self.launch(ref, script.life(ref.generation))
            case Ask(ref=ref, reason=why):
                self.write("ask", named(ref), why)
                self.ask(self._process(ref), why)
            case Terminate(ref=ref):
                self.write("term", named(ref))
                self.terminate(self._process(ref))
            case Kill(ref=ref, fail_reason=fail_reason):
                self.write("kill", named(ref), fail_reason)
                self.kill(self._process(ref), fail_reason)
            case SetTimer(timer=timer, delay_s=delay_s):
                self._cancel(timer)
                self.audit.timers.add(timer)
                self._timers[timer] = self.at(delay_s, lambda: self._due(timer))
            case CancelTimer(timer=timer):
                assert timer in self.audit.timers
                self._cancel(timer)
            case ProcessEnded(ref=ref):
                self.audit.delivered(effect)
                known = self._records.get(ref)
                assert effect.record is known, f"{named(ref)} is reported with {effect.record}"
                self.write("down", named(ref), effect)
            case Replied(call=call, result=answer):
                self.replied(call, answer)
            case Report(label=label):
                self.write("report", str(label), effect)
            case SupervisorUp(path=path):
                self.write("sup_up", "/".join(path))
            case SupervisorEnded(path=path):
                self.audit.stopping.discard(path)
                self.write("sup_end", "/".join(path), effect)

    def _cancel(self, timer):
        self.audit.timers.discard(timer)
        if timer in self._timers:
            self.cancel(self._timers.pop(timer))

    def _go_off(self, timer):
        self.audit.timers.discard(timer)
        self._timers.pop(timer, None)
        self.perform(self.tree.handle(Due(timer), self.now()))

    # --- what processes say -----------------------------------------------------------------

    def up(self, process, handle, extra=None):
        """A process is ready."""
        self.write("up", named(process.ref), extra)
        self.audit.due_back.discard((*process.ref.path, process.ref.child))
        self.perform(self.tree.handle(Up(process.ref, handle, extra), self.now()))

    def exited(self, process, reason):
        """A process is gone."""
        self.audit.ended(process.ref)
        if process.has_ignored:
            self.write("ignored", named(process.ref))
            self.perform(self.tree.handle(Ignored(process.ref), self.now()))
            return
        self.write("exit", named(process.ref), reason)
        given = ChildExited(process.ref, reason, ending_of(reason), record=object())
        self._records[process.ref] = given.record
        self.perform(self.tree.handle(given, self.now()))

    def process_of(self, name, path=()):
        """Return the living process of a child."""
        return self._process(self.audit.alive[(*path, name)])

    # --- time -------------------------------------------------------------------------------

    def now(self):
        return self._now_s

    def at(self, delay_s, work):
        entry = [self._now_s + delay_s, next(self._order), work]
        heapq.heappush(self._agenda, entry)
        return entry

    def cancel(self, entry):
        entry[2] = None

    def wait(self, condition, what):
        until_s = self._now_s + FAR_S
        while not condition():
            next_s = self._agenda[0][0] if self._agenda else until_s
            assert next_s < until_s, f"{what} never came: {self.story_of_all()}"
            self._play_next()

    def pass_time(self, seconds):
        until_s = self._now_s + seconds
        while self._agenda and self._agenda[0][0] <= until_s:
            self._play_next()
        self._now_s = until_s

    def settle(self):
        """Play what happens at this moment."""
        self.pass_time(0.0)

    def _play_next(self):
        at_s, _, work = heapq.heappop(self._agenda)
        if work is not None:
            self._now_s = max(self._now_s, at_s)
            work()

    def _due(self, timer):
        late_s = self.late_s.get(timer.kind, 0.0)
        if late_s:
            self._timers[timer] = self.at(late_s, lambda: self._go_off(timer))
        else:
            self._go_off(timer)

    # --- processes --------------------------------------------------------------------------

    def _process(self, ref):
        return self._processes[ref]

    def launch(self, ref, life):
        process = self._processes[ref] = SimProcess(ref, life, next(self._pids))
        if life.start != "never":
            self.at(life.start_s, lambda: self._come_up(process))

    def _come_up(self, process):
        if process.is_stopping or process.reason is not None:
            return
        match process.life.start:
            case "up":
                self.up(process, process.pid, process.life.extra or None)
                if process.life.ends_s is not None:
                    self.at(process.life.ends_s, lambda: self.order(process, process.life.end))
            case "ignore":
                process.has_ignored = True
                self._die(process, Shutdown())
            case "raise":
                self._die(process, RAISED)
            case "exit":
                self._die(process, ExitCode(code=EXIT_CODE))
            case "hopeless":
                self._die(process, HOPELESS)
            case "garbage":
                self._die(process, GARBAGE)

    def order(self, process, how):
        self._die(process, ENDS[how][2])

    def ask(self, process, why):
        life = process.life
        if life.stop in {"ignore", "deaf"} or process.is_stopping:
            return
        process.is_stopping = True
        reason = Shutdown(detail=why) if life.stop == "obey" else ENDS[life.stop][2]
        self.at(life.stop_s, lambda: self._clean_up(process, reason))

    def _clean_up(self, process, reason):
        if process.reason is None:
            self.write("cleaned", named(process.ref))
            self._die(process, reason)

    def terminate(self, process):
        if process.life.stop == "deaf":
            self.at(process.life.stop_s, lambda: self._die(process, TERMINATED))

    def kill(self, process, fail_reason):
        process.is_killed = True
        if process.life.killable:
            self._die(process, fail_reason or KILLED)

    def release(self):
        """Let the processes go that SIGKILL did not end."""
        for process in list(self._processes.values()):
            if process.is_killed:
                self._die(process, KILLED)
        self.settle()

    def _die(self, process, reason):
        if process.reason is None:
            process.reason = reason
            self.at(0.0, lambda: self.exited(process, reason))

    def close(self):
        if self.tree is not None and not self.has_ended():
            self.stop(within_s=0.2)
        self.release()
        if self.tree is not None and not self.has_ended():
            self.stop(within_s=0.2)
        self.audit.is_over()
