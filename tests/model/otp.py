"""A small ``supervisor`` after OTP's contract, to hold the engine against.

Each ``Boss`` is a process with a mailbox, as in OTP; ``otp_groups`` has its jobs, ``otp_children``
what it does to one child. Where children are independent nobody waits for another one's start.

``Otp`` takes the inputs of a ``Tree`` and returns what is to be done as plain tuples. It shares the
specifications and the reasons with the engine, and nothing else.
"""

import math
from collections import deque
from dataclasses import replace

from cmdc_runtime.reasons import RestartIntensityExceeded, Shutdown
from tests.model.otp_children import STUCK
from tests.model.otp_groups import Groups


class Otp:
    """The whole tree: who is where, timers, and messages between supervisors."""

    def __init__(self, spec):
        self.now, self.said, self.letters = 0.0, [], deque()
        self.timers = {}
        self.generations = {}  # of static children: never one twice
        self.stuck = {}  # place -> kid that SIGKILL did not end, while its supervisor is gone
        self.bosses = {}
        self.ended = None
        self.root = self.bosses[()] = Boss(self, (), spec, None)

    def take(self, now, what, *about):
        """Do one input and return what is to be done."""
        self.now = now
        getattr(self, what)(*about)
        while self.letters:
            self.letters.popleft()()
        said, self.said = self.said, []
        return said

    def say(self, *action):
        self.said.append(action)

    def employ(self, path, seat):
        """Return a supervisor for the place of a kid; it begins within this input."""
        boss = self.bosses[path] = Boss(self, path, seat.spec.start, seat)
        self.letters.append(boss.begin)
        return boss

    def forget(self, path):
        """Forget how often a child, and whoever is below it, was started."""
        for at, name in list(self.generations):
            if (*at, name)[: len(path)] == path:
                del self.generations[at, name]

    def begin(self):
        self.root.begin()

    def stop(self, deadline):
        self.root.stop(deadline)

    def kill(self, path):
        if path in self.bosses:
            self.bosses[path].killed()

    def hear(self, path, child, generation, event, *about):
        """Hear of a process; of an earlier one there is nothing to hear."""
        kid = self.stuck.get((path, child))
        if kid is not None and kid.generation == generation and event == "exited":
            kid.state = "down"
            del self.stuck[path, child]
            return
        boss = self.bosses.get(path)
        kid = boss and boss.kids.get(child)
        if kid and kid.generation == generation:
            getattr(boss, event)(kid, *about)

    def reconfigure(self, path, spec):
        """Change one supervisor, and what those above it know of it."""
        boss = self.bosses[path]
        boss.reconfigure(spec)
        while boss.seat is not None:
            seat, above = boss.seat, self.bosses[boss.path[:-1]]
            seat.spec = replace(seat.spec, start=boss.spec)
            children = (seat.spec if one.id == seat.id else one for one in above.spec.children)
            above.spec = replace(above.spec, children=tuple(children))
            boss = above

    def due(self, path, child, kind):
        if self.timers.pop((path, child, kind), None) is not None:
            boss = self.bosses[path]
            boss.due(boss.kids[child], kind)

    def call(self, path, what, call, *about):
        boss = self.bosses.get(path)
        if boss is None or boss.phase == "stopping":
            self.say("reply", call, "noproc")
        else:
            boss.read(call, lambda: getattr(boss, what)(call, *about))


class Boss(Groups):
    """One supervisor."""

    # --- what is heard of children ------------------------------------------------------------

    def up(self, kid):
        if kid.state == "starting":
            self.cancel(kid)
            kid.forgot_start = kid.new and kid.spec.restart == "temporary" and kid.boss is None
            kid.state, kid.new, kid.promised = "up", False, False
            self.answer(kid.starters, "ok")
            self.turn()

    def ignored(self, kid):
        if kid.state == "starting":
            self.down(kid)
            kid.new = False
            self.let_down(kid)
            self.answer(kid.starters, "ok")
            self.forget_if_done(kid)
            self.turn()
        elif kid.state in ("stopping", "unkillable"):
            self.exited(kid, Shutdown(), "normal")

    def exited(self, kid, reason, ending):
        if kid.state == "stopping" or (kid.alive and self.phase == "stopping"):
            self.stopped(kid, reason)
        elif kid.state == "up" and kid.id in self.group_ending:
            self.stopped(kid, reason)  # the real reason of a child that was dead already
        elif kid.state == "up" and self.busy:
            kid.unread = reason
            self.down(kid, "restarting")
            self.mail.append((None, lambda: self.exit_read(kid, reason, ending)))
        elif kid.state == "up":
            self.died(kid, reason, ending)
        elif kid.state == "starting":
            self.not_started(kid, reason, ending)
        elif kid.state == "unkillable":
            self.down(kid)
            if kid.new:
                self.drop(kid)
            self.forget_if_done(kid)

    def exit_read(self, kid, reason, ending):
        if kid.unread is reason and self.kids.get(kid.id) is kid:
            kid.unread = None
            self.died(kid, reason, ending)

    def stopped(self, kid, reason):
        """It was to end, and has."""
        self.note_end(kid, reason)
        comes_back = kid.id in self.group_ending and kid.spec.restart != "temporary" and not kid.new
        self.down(kid)
        self.gone(kid, reason, comes_back)
        if kid.new:
            kid.new = False
            self.drop(kid)
        self.answer(kid.starters, "error")
        self.answer(kid.enders, "ok")
        if not comes_back:
            self.forget_if_done(kid)
        self.turn()

    def not_started(self, kid, reason, ending):
        is_first = self.phase == "starting"
        if not (is_first or kid.starters):
            if kid.spec.restart == "temporary" or ending == "final":
                self.died(kid, reason, ending)
            else:
                self.restart(kid, reason, "start_error")
            return
        self.report("start_error", kid)
        self.down(kid)
        self.gone(kid, reason)
        if kid.new:
            kid.new = False
            self.drop(kid)
        self.answer(kid.starters, "error")
        if is_first:
            self.report("shutdown", kid)
            self.leave(reason, "crash")
        self.turn()

    def due(self, kid, kind):
        if kind == "start" and kid.state == "starting":
            self.kill(kid)
        elif kind == "delay" and kid.state == "restarting":
            if self.retry == kid.id:
                generation = kid.generation
                self.read(None, lambda: self.try_again(kid, generation))
            else:
                self.start(kid)
        elif kind == "term" and kid.state == "stopping":
            self.otp.say("term", self.path, kid.id, kid.generation)
        elif kind == "kill" and kid.state == "stopping":
            self.kill(kid)
        elif kind == "unkillable" and kid.state in ("stopping", "starting"):
            self.give_place_up(kid)

    def give_place_up(self, kid):
        self.report("unkillable", kid)
        self.cancel(kid)
        kid.state = "unkillable"
        self.gone(kid, STUCK)
        self.answer(kid.starters, "error")
        self.answer(kid.enders, "error")
        if self.phase == "starting":
            self.leave(STUCK, "crash")
        self.turn()

    # --- restarts ---------------------------------------------------------------------------

    def died(self, kid, reason, ending):
        """Permanent: always; transient: after a crash; temporary: never."""
        kind = kid.spec.restart
        if ending != "final" and (
            kind == "permanent" or (kind == "transient" and ending == "crash")
        ):
            self.restart(kid, reason, "child_terminated")
            return
        if ending != "normal":
            self.report("child_terminated", kid)
        self.down(kid)
        self.gone(kid, reason)
        self.forget_if_done(kid)
        if (ending == "final" and kind != "temporary") or self.ends_it(kid):
            self.leave(Shutdown(), "normal")
        self.turn()

    def ends_it(self, kid):
        rule = self.flags.auto_shutdown
        others = [one for one in self.kids.values() if one.spec.significant]
        is_last = not any(one.alive or one.state == "restarting" for one in others)
        return kid.spec.significant and (
            rule == "any_significant" or (rule == "all_significant" and is_last)
        )

    def restart(self, kid, reason, label):
        """Charge, and begin it or give up."""
        self.report(label, kid)
        now = self.otp.now
        self.spent = [one for one in self.spent if now - one[0] <= self.flags.max_seconds]
        self.spent.append((now, kid.id))
        if len(self.spent) > self.flags.max_restarts:
            self.report("shutdown", kid)
            last = Shutdown() if isinstance(reason, RestartIntensityExceeded) else reason
            spent = RestartIntensityExceeded(restarts=0, seconds=0, last=last)
            self.down(kid)
            self.gone(kid, spent)
            self.drop(kid)
            self.leave(spent, "normal")
            return
        wait = self.back_off(kid)
        # A child that waits makes its own restarts no older.
        self.spent = [(then + wait * (whose == kid.id), whose) for then, whose in self.spent]
        kid.restarts += 1
        self.down(kid, "restarting")
        self.gone(kid, reason, comes_back=True)
        if self.grouped:
            pause = wait if wait > 0 or label == "start_error" else None
            self.do(self.restart_group(kid, pause))
        elif wait > 0:
            self.set(kid, "delay", wait)
        else:
            self.start(kid)

    def back_off(self, kid):
        earlier = sum(whose == kid.id for _, whose in self.spent) - 1
        first, longest = kid.spec.restart_delay
        return 0.0 if earlier == 0 else min(first * 2 ** (earlier - 1), longest)

    def reconfigure(self, spec):
        """Have other flags at once; who is added is not started, who is missing goes on behind."""
        self.flags = replace(spec.flags, resumes=self.flags.resumes)
        self.spec = replace(spec, flags=self.flags)
        self.static |= {one.id for one in spec.children}
        others, self.kids = self.kids, {}
        for one in spec.children:
            kid = others.pop(one.id, None)
            if kid is None:
                self.add(one)
            else:
                kid.spec, kid.forgot_start = one, False
                self.otp.generations[self.path, one.id] = kid.generation
                self.kids[one.id] = kid
        self.kids |= others

    # --- calls ------------------------------------------------------------------------------

    def start_child(self, call, spec):
        kid = self.kids.get(spec.id)
        if kid is not None:
            self.otp.say(
                "reply", call, "already_present" if kid.state == "down" else "already_started"
            )
        elif self.flags.max_children is not None and len(self.kids) >= self.flags.max_children:
            self.otp.say("reply", call, "max_children")
        else:
            kid = self.add(spec)
            kid.new = True
            self.start_one(kid, call)

    def start_one(self, kid, call):
        if call is not None:
            kid.starters.append(call)
        if self.grouped:
            self.do(self.bring_up([kid.id]))
        else:
            self.start(kid)

    def terminate_child(self, call, name, deadline):
        kid = self.kids.get(name)
        if kid is None:
            self.otp.say("reply", call, "not_found")
            return
        kid.rests = False
        self.end_one(kid, call, deadline)

    def hibernate_child(self, call, name, deadline):
        kid = self.kids.get(name)
        if kid is None or kid.state != "up":
            self.otp.say("reply", call, "not_found" if kid is None else "restarting")
        elif kid.forgot_start:
            self.otp.say("reply", call, "error")
        else:
            kid.rests = True
            self.end_one(kid, call, deadline)

    def end_one(self, kid, call, deadline):
        kid.enders.append(call)
        if kid.alive:
            self.end(kid, math.inf if deadline is None else deadline, own_grace=False)
        elif kid.state == "restarting":
            self.call_off(kid)
        elif kid.state == "unkillable":
            self.answer(kid.enders, "error")
        else:
            self.answer(kid.enders, "ok")
            self.forget_if_done(kid)

    def presence(self, kid):
        if kid is None:
            return "not_found"
        return {"down": "ok", "restarting": "restarting"}.get(kid.state, "running")

    def restart_child(self, call, name):
        kid = self.kids.get(name)
        if self.presence(kid) == "ok":
            self.start_one(kid, call)
        else:
            self.otp.say("reply", call, self.presence(kid))

    def wake_child(self, call, name):
        kid = self.kids.get(name)
        self.otp.say("reply", call, self.presence(kid))
        if self.presence(kid) == "ok":
            self.start_one(kid, None)

    def delete_child(self, call, name):
        kid = self.kids.get(name)
        outcome = self.presence(kid)
        if outcome == "ok":
            self.drop(kid)
        self.otp.say("reply", call, outcome)
