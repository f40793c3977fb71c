"""The children of one ``Boss``, one by one: started, asked to end, timed, reported.

Nothing here knows of other children: what an end means is the boss's. The rungs of an end are the
contract's: the request, SIGTERM after half of the grace, SIGKILL at its end, and ten seconds later
the place is given up. A deadline from above is never moved back.
"""

import math
from dataclasses import dataclass, field

from cmdc_runtime.reasons import Normal, Shutdown, Signal, Unkillable
from supervisor.core.tree.specs import SupervisorSpec

KILLED = Signal(number=9, name="SIGKILL")
STUCK = Unkillable(seconds=10.0)
ALIVE = {"starting", "up", "stopping"}
KINDS = ("start", "delay", "term", "kill", "unkillable")
TERM_SHARE, UNKILLABLE_AFTER_S = 0.5, 10.0


@dataclass(eq=False)
class Kid:
    """One child; ``boss`` is there while it is a supervisor that runs."""

    spec: object
    generation: int
    restarts: int
    state: str = "down"
    boss: object = None
    failure: tuple | None = None  # of its last start
    unread: object = None  # its exit waits in the mailbox
    promised: bool = False  # its Down said that it comes back
    new: bool = False  # made by a call that waits for it
    rests: bool = False
    forgot_start: bool = False  # a temporary child that was added: nobody can start it again
    brutal: bool = False
    kill_at: float = math.inf
    starters: list = field(default_factory=list)
    enders: list = field(default_factory=list)

    @property
    def id(self):
        return self.spec.id

    @property
    def alive(self):
        return self.state in ALIVE


class Children:
    """Those of one supervisor, in start order; ``otp`` is the whole tree."""

    def __init__(self, otp, path, spec):
        self.otp, self.path = otp, path
        self.spec, self.flags = spec, spec.flags
        self.static = {one.id for one in spec.children}
        self.kids = {}
        for one in spec.children:
            self.add(one)
        for place in [one for one in otp.stuck if one[0] == path]:
            kid = self.kids[place[1]] = otp.stuck.pop(place)
            kid.new = kid.new or kid.id not in self.static

    def add(self, spec):
        place = (self.path, spec.id)
        before = self.otp.generations.get(place, 0) if spec.id in self.static else 0
        kid = self.kids[spec.id] = Kid(spec, max(before, spec.generation), spec.restarts)
        return kid

    def drop(self, kid):
        self.let_down(kid)
        self.kids.pop(kid.id, None)
        if kid.id not in self.static:
            self.otp.forget((*self.path, kid.id))

    def start(self, kid):
        self.cancel(kid)
        self.settle(kid, comes_back=True)
        kid.generation += 1
        if kid.id in self.static:
            self.otp.generations[self.path, kid.id] = kid.generation
        kid.state, kid.failure, kid.kill_at = "starting", None, math.inf
        kid.brutal = kid.rests = False
        if isinstance(kid.spec.start, SupervisorSpec):
            kid.boss = self.otp.employ((*self.path, kid.id), kid)
            return
        self.otp.say("start", self.path, kid.id, kid.generation)
        if kid.spec.start_timeout is not None:
            self.set(kid, "start", kid.spec.start_timeout)

    def end(self, kid, deadline, *, own_grace=True):
        """Ask it to end; SIGTERM after half of the grace, SIGKILL at its end, never later."""
        grace = kid.spec.shutdown if own_grace or deadline == math.inf else None
        kill_at = min(self.otp.now + (math.inf if grace is None else grace), deadline)
        if (self.path, kid.id, "unkillable") in self.otp.timers:
            kid.state = "stopping"
            return
        first = kid.state != "stopping"
        if not first and kill_at >= kid.kill_at:
            return
        kid.state, kid.kill_at = "stopping", kill_at
        if kid.boss is not None:
            kid.boss.stop(None if kill_at == math.inf else kill_at)
            return
        left = kill_at - self.otp.now
        if left <= 0:
            kid.brutal = first
            self.kill(kid)
            return
        if first:
            self.cancel(kid)
            self.otp.say("ask", self.path, kid.id, kid.generation)
        if left < math.inf:
            self.set(kid, "term", left * TERM_SHARE)
            self.set(kid, "kill", left)

    def kill(self, kid):
        self.cancel(kid)
        self.otp.say("kill", self.path, kid.id, kid.generation)
        self.set(kid, "unkillable", UNKILLABLE_AFTER_S)

    def down(self, kid, state="down"):
        self.cancel(kid)
        kid.state, kid.boss = state, None

    def set(self, kid, kind, delay):
        self.otp.timers[self.path, kid.id, kind] = self.otp.now + delay

    def cancel(self, kid):
        for kind in KINDS:
            self.otp.timers.pop((self.path, kid.id, kind), None)

    def gone(self, kid, reason, comes_back=False):
        """Say that a process is gone, and whether another one follows."""
        kid.promised = comes_back
        if kid.boss is None and not isinstance(kid.spec.start, SupervisorSpec):
            self.otp.say(
                "gone", self.path, kid.id, kid.generation, comes_back, type(reason).__name__
            )

    def let_down(self, kid):
        if kid.promised and kid.state == "down":
            self.gone(kid, Shutdown())

    def settle(self, kid, *, comes_back):
        """An exit that nobody has read is reported when the job has decided what follows."""
        reason, kid.unread = kid.unread, None
        if reason is not None:
            self.note_end(kid, reason)
            self.gone(kid, reason, comes_back)

    def note_end(self, kid, reason):
        """Report an end that was wanted, unless it went as it should."""
        was_expected = isinstance(reason, (Normal, Shutdown)) or (kid.brutal and reason == KILLED)
        if not was_expected:
            self.report("shutdown_error", kid)

    def report(self, label, kid):
        self.otp.say("report", label, self.path, kid.id)

    def answer(self, calls, outcome):
        for call in calls:
            self.otp.say("reply", call, outcome)
        calls.clear()

    def forget_if_done(self, kid):
        if (
            (kid.spec.restart == "temporary" or self.dynamic)
            and kid.state == "down"
            and not kid.rests
        ):
            self.drop(kid)
