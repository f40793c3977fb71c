"""What a ``Boss`` does to several children at once, and its own beginning and end.

A job is a generator that yields while it waits for a child: so the order of starts and stops stands
here as it stands in the contract. Calls and exits wait in the mailbox while a job runs.
"""

import math
from collections import deque

from cmdc_runtime.reasons import Shutdown
from tests.model.otp_children import KILLED, Children

SUBTREE_SHARE = 0.8


class Groups(Children):
    """The children of one supervisor, and the job under way."""

    def __init__(self, otp, path, spec, seat):
        super().__init__(otp, path, spec)
        self.seat = seat
        self.phase = "starting"
        self.job, self.turning = None, False
        self.mail = deque()
        self.spent = []  # when each restart was, and whose
        self.group_ending = ()  # who is ended by the group restart under way
        self.retry = None  # whose failed start the group waits for
        self.deadline, self.why_it_ends = math.inf, None

    grouped = property(lambda self: self.flags.strategy in ("one_for_all", "rest_for_one"))
    dynamic = property(lambda self: self.flags.strategy == "dynamic")
    busy = property(lambda self: self.job is not None or self.phase == "starting")

    # --- jobs and mail ----------------------------------------------------------------------

    def do(self, job):
        self.job, self.group_ending = job, ()
        self.turn()

    def turn(self):
        """Let the job go on as far as it can, then read the mail."""
        if self.turning:
            return
        self.turning = True
        while self.job is not None:
            job = self.job
            if next(job, "done") != "done":
                break
            if self.job is job:
                self.job = None
        self.turning = False
        while self.mail and not self.busy and self.phase == "up":
            self.mail.popleft()[1]()

    def read(self, call, letter):
        """Do it now, or when the job is done."""
        if self.busy:
            self.mail.append((call, letter))
        else:
            letter()

    # --- its own life -----------------------------------------------------------------------

    def begin(self):
        if self.phase != "starting" or self.job:
            return
        if not self.flags.resumes:
            self.do(self.first_start())
            return
        self.rise()
        if self.grouped:
            self.do(self.bring_up(list(self.kids)))
        else:
            for kid in list(self.kids.values()):
                if kid.state == "down":
                    self.start(kid)

    def rise(self):
        self.phase = "up"
        self.otp.say("supervisor up", self.path)
        self.send_above(lambda above, seat: above.up(seat))

    def first_start(self):
        """In order, each when the one before is ready; the first failure ends it."""
        for kid in list(self.kids.values()):
            if kid.state != "down" or kid.id not in self.kids:
                continue  # it is stuck, or it was and is forgotten
            self.start(kid)
            while kid.state == "starting":
                yield
        self.rise()

    def send_above(self, letter):
        seat = self.seat
        if seat is not None:
            above, generation = self.otp.bosses[self.path[:-1]], seat.generation
            self.otp.letters.append(
                lambda: letter(above, seat) if seat.generation == generation else None
            )

    def stop(self, deadline):
        self.deadline = min(self.deadline, math.inf if deadline is None else deadline)
        if self.phase != "stopping":
            self.leave(Shutdown(), "normal")
            return
        for kid in self.leaving:
            if kid.state == "stopping":
                self.end(kid, self.share(kid))

    def leave(self, reason, ending):
        """Nothing is started any more; children end in reverse, those of one kind together."""
        if self.phase in ("stopping", "over"):
            return
        self.phase, self.why_it_ends, self.retry = "stopping", (reason, ending), None
        for call, _ in self.mail:
            if call is not None:
                self.otp.say("reply", call, "noproc")
        self.mail.clear()
        for kid in list(self.kids.values()):
            if kid.state == "restarting":
                self.call_off(kid)
            self.let_down(kid)
        self.leaving = list(self.kids.values())
        self.do(self.wind_down())

    def wind_down(self):
        if self.dynamic:
            for kid in self.leaving:
                if kid.alive:
                    self.end(kid, self.share(kid))
        while self.leaving:
            kid = self.leaving[-1]
            if kid.alive:
                self.end(kid, self.share(kid))
            while kid.alive:
                yield
            self.leaving.pop()
        reason, ending = self.why_it_ends
        self.otp.say("supervisor ended", self.path, type(reason).__name__)
        self.phase = "over"
        self.otp.bosses.pop(self.path)
        for name, kid in self.kids.items():
            if kid.state == "unkillable":
                self.otp.stuck[self.path, name] = kid
        if self.seat is None:
            self.otp.ended = reason
        self.send_above(lambda above, seat: above.exited(seat, reason, ending))

    def share(self, kid):
        """Until when a child must be gone; a subtree leaves some of the time to those after it."""
        is_last = kid is self.leaving[0]
        if kid.boss is None or self.dynamic or is_last or self.deadline == math.inf:
            return self.deadline
        return self.otp.now + (self.deadline - self.otp.now) * SUBTREE_SHARE

    def killed(self):
        self.deadline = self.otp.now
        self.leave(KILLED, "crash")
        for kid in list(self.kids.values()):
            if kid.boss is not None:
                kid.boss.killed()
            elif kid.alive:
                self.end(kid, self.otp.now)

    def call_off(self, kid):
        """It was to be restarted, and is not."""
        if self.retry == kid.id:
            self.retry = None
            for other in self.kids.values():
                self.let_down(other)
        self.down(kid)
        self.settle(kid, comes_back=False)
        self.let_down(kid)
        self.answer(kid.enders, "ok")
        self.forget_if_done(kid)

    # --- groups -----------------------------------------------------------------------------

    def group(self, kid):
        ids = list(self.kids)
        if self.flags.strategy == "one_for_all":
            return ids
        first = ids.index(kid.id)
        return ids[first if self.retry is None else min(first, ids.index(self.retry)) :]

    def try_again(self, kid, generation):
        if self.retry == kid.id and kid.generation == generation:
            self.do(self.restart_group(kid, None))

    def restart_group(self, kid, pause):
        """End the group in reverse, and after the pause start it in order."""
        names = self.group(kid)
        if self.retry in names and self.flags.strategy == "rest_for_one":
            # Whoever fails behind the one that waits comes back with it.
            kid = self.kids[next(name for name in names if name in (kid.id, self.retry))]
        self.retry = None
        self.cancel(kid)
        for one in (self.kids[name] for name in names):
            if one is not kid and one.state == "restarting" and one.unread is None:
                self.down(one)
        self.group_ending = names
        for name in reversed(names):
            one = self.kids.get(name)
            if one is not None and one.alive and one.state != "stopping":
                self.end(one, math.inf)
            while one is not None and one.alive:
                yield
            if one is not None and one.spec.restart == "temporary" and one.state == "restarting":
                self.call_off(one)
        self.group_ending = ()
        if pause is not None:
            self.retry = kid.id
            self.set(kid, "delay", pause)
            return
        yield from self.bring_up(names)

    def bring_up(self, names):
        for name in names:
            kid = self.kids.get(name)
            if kid is not None and kid.state in ("down", "restarting"):
                self.start(kid)
                while kid.state == "starting":
                    yield
