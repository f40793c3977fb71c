"""Plays cases on a virtual clock: what happens at one moment happens in the order of its causes."""

import heapq
from dataclasses import dataclass
from itertools import count

from cmdc_runtime.reasons import ExitCode, Shutdown, StartFailed
from tests.conformance.audit import named
from tests.conformance.script import ENDS, EXIT_CODE, KILLED, RAISED, TERMINATED, Life
from tests.conformance.stage import Stage

GARBAGE = StartFailed(stage="handshake", message="it said nothing that can be read")
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
        self.late_s = {}
        """By how much timers of a kind go off too late."""
        self._now_s = 1000.0
        self._agenda = []
        self._order = count()
        self._pids = count(1)
        self._processes = {}

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
            assert next_s < until_s, f"{what} never came: {self.log}"
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
            self._timers[timer] = self.at(late_s, lambda: Stage._due(self, timer))
        else:
            super()._due(timer)

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

    def kill(self, process, blamed):
        process.is_killed = True
        if process.life.killable:
            self._die(process, blamed or KILLED)

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
        super().close()
