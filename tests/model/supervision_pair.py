"""The supervision engine and its reference side by side: ``Pair`` gives each input to both.

It compares at once: who is started, asked and killed, in which order; who is said to be gone, and
whether to come back; each answer; each report; every timer; the children of every supervisor. So
what happens while starts and ends are under way is compared too. The rules that need no reference
are those of ``scripts.simulate``.
"""

from collections import Counter

from cmdc_runtime.reasons import Signal
from scripts.simulate.audit import Audit
from supervisor.core.tree import messages
from supervisor.core.tree.messages import (
    Begin,
    ChildExited,
    Due,
    Ending,
    Ignored,
    KillSupervisor,
    Reconfigure,
    StartChild,
    Stop,
    Up,
)
from supervisor.core.tree.specs import SupervisorSpec
from supervisor.core.tree.tree import Tree
from tests.model.otp import Otp

KILLED = Signal(number=9, name="SIGKILL")
REPORTS = ("child_terminated", "start_error", "shutdown_error", "shutdown", "unkillable")
"""Labels that both know; progress is one for each ``up``."""
IN_ORDER = ("start", "ask", "term", "kill")


CALLS = {
    "terminate_child": messages.TerminateChild,
    "hibernate_child": messages.HibernateChild,
    "restart_child": messages.RestartChild,
    "wake_child": messages.WakeChild,
    "delete_child": messages.DeleteChild,
}
WORDS = {
    messages.Launch: "start",
    messages.Ask: "ask",
    messages.Terminate: "term",
    messages.Kill: "kill",
    messages.SupervisorUp: "supervisor up",
}


def said(effect):
    """Return an effect as the reference says it, None where it has no word for it."""
    match effect:
        case messages.ProcessEnded(ref=ref, restarting=restarting, reason=reason):
            return ("gone", *ref, restarting, type(reason).__name__)
        case messages.SupervisorEnded(path=path, reason=reason):
            return ("supervisor ended", path, type(reason).__name__)
        case messages.Replied(call=call, result=answer):
            return ("reply", call, answer.outcome.value)
        case messages.Report(label=label, path=path, child=child):
            return ("report", label.value, path, child.id) if label in REPORTS else None
    word = WORDS.get(type(effect))
    if word is None:
        return None
    return (word, *effect.ref) if hasattr(effect, "ref") else (word, effect.path)


class Pair:
    """The engine and the reference, and the processes, timers and calls of both."""

    def __init__(self, spec):
        self.tree, self.otp = Tree(spec), Otp(spec)
        self.audit = Audit(self.tree, spec)
        self.now, self.calls, self.steps = 0.0, 0, 0
        self.live, self.old, self.killed = {}, [], set()
        self.timers = {}
        self.specs = {}
        self.hosts, self.places = [], []
        self.learn(spec, ())
        self.take("begin", lambda: self.tree.handle(Begin(), self.now))

    def learn(self, spec, path):
        """Record the places below a supervisor."""
        if path not in self.hosts:
            self.hosts.append(path)
        for child in spec.children:
            self.learn_child(path, child)

    def learn_child(self, path, child):
        if (path, child.id) not in self.places:
            self.places.append((path, child.id))
        if isinstance(child.start, SupervisorSpec):
            self.learn(child.start, (*path, child.id))

    def take(self, what, of_tree, *about):
        """Give both one input and compare."""
        self.steps += 1
        self.audit.now_s = self.now
        effects = of_tree()
        for effect in effects:
            self.audit.see[type(effect)](effect)
            self.note(effect)
        self.audit.note_enders()
        self.compare([said(one) for one in effects], self.otp.take(self.now, what, *about))

    def note(self, effect):
        """Keep the processes and timers that there are."""
        match effect:
            case messages.Launch(ref=ref):
                self.live[ref] = True
            case messages.Kill(ref=ref):
                self.killed.add(ref)
            case messages.SetTimer(timer=timer, delay_s=delay_s):
                self.timers[timer] = self.now + delay_s
            case messages.CancelTimer(timer=timer):
                del self.timers[timer]

    def compare(self, ours, theirs):
        ours = [one for one in ours if one is not None]
        for kind in IN_ORDER, ("report",), ("gone",), ("reply",):
            assert pick(ours, kind) == pick(theirs, kind)
        assert Counter(map(repr, ours)) == Counter(map(repr, theirs))
        assert {tuple(one): round(at, 6) for one, at in self.timers.items()} == {
            one: round(at, 6) for one, at in self.otp.timers.items()
        }
        for path in self.hosts:
            if self.tree.end is None:
                self.compare_children(path)
        assert (self.tree.end is None) == (self.otp.ended is None)
        assert self.audit.problems == []

    def compare_children(self, path):
        views, boss = self.tree.which_children(path), self.otp.bosses.get(path)
        assert (views is None) == (boss is None)
        if views is not None:
            assert [(one.id, one.state.value, one.generation, one.restarts) for one in views] == [
                (kid.id, kid.state, kid.generation, kid.restarts) for kid in boss.kids.values()
            ]

    # --- inputs -----------------------------------------------------------------------------

    def up(self, ref):
        self.audit.ready(ref)
        self.take("hear", lambda: self.tree.handle(Up(ref), self.now), *ref, "up")

    def ignore(self, ref):
        self.forget(ref)
        self.audit.ignored(ref)
        self.take("hear", lambda: self.tree.handle(Ignored(ref), self.now), *ref, "ignored")

    def exit(self, ref, end):
        self.forget(ref)
        record = f"record of {ref}"
        self.audit.gone(ref, record)
        self.exit_again(ref, end, record)

    def exit_again(self, ref, end, record="late"):
        reason, ending = end
        self.take(
            "hear",
            lambda: self.tree.handle(ChildExited(ref, reason, ending, record), self.now),
            *ref,
            "exited",
            reason,
            ending.value,
        )

    def forget(self, ref):
        self.live.pop(ref, None)
        self.old.append(ref)

    def pass_time(self, seconds):
        """Let time go by; timers that come due go off at their time."""
        until = self.now + seconds
        while self.timers and min(self.timers.values()) <= until:
            timer = min(self.timers, key=lambda one: (self.timers[one], one))
            self.now = max(self.now, self.timers[timer])
            self.go_off(timer)
        self.now = until

    def go_off(self, timer):
        del self.timers[timer]
        self.audit.timers.discard(timer)
        self.take("due", lambda: self.tree.handle(Due(timer), self.now), *timer)

    def stray(self, timer):
        """Have a timer go off that is not set."""
        if timer not in self.timers:
            self.take("due", lambda: self.tree.handle(Due(timer), self.now), *timer)

    def call(self, what, path, name, *more):
        """Make a call; ``more`` is what it says beside the child's name."""
        self.calls += 1
        self.audit.called(self.calls, what.removesuffix("_child"), (path, name))
        given = CALLS[what](path, name, self.calls, *(("away", *more) if more else ()))
        self.take(
            "call",
            lambda: self.tree.handle(given, self.now),
            path,
            what,
            self.calls,
            name,
            *more,
        )

    def start_child(self, path, spec):
        self.calls += 1
        number = self.calls
        self.learn_child(path, spec)
        self.audit.expect(spec, path)
        self.audit.called(number, "start", (path, spec.id))
        self.take(
            "call",
            lambda: self.tree.handle(StartChild(path, spec, number), self.now),
            path,
            "start_child",
            number,
            spec,
        )

    def reconfigure(self, path, spec):
        self.learn(spec, path)
        self.audit.learn(spec, path)
        self.take(
            "reconfigure", lambda: self.tree.handle(Reconfigure(path, spec), self.now), path, spec
        )

    def stop(self, grace):
        self.audit.stopped()
        deadline = None if grace is None else self.now + grace
        self.take("stop", lambda: self.tree.handle(Stop("stop", deadline), self.now), deadline)

    def kill(self, path):
        self.audit.killed(path)
        self.take("kill", lambda: self.tree.handle(KillSupervisor(path), self.now), path)

    def state_of(self, ref):
        """Return how the engine sees a process; "" for one that it has given up."""
        view = self.tree.child(ref.path, ref.child)
        return view.state.value if view is not None and view.generation == ref.generation else ""

    def finish(self):
        """Stop everything, let each process end, and look at what is left."""
        self.stop(0.0)
        while self.live and not self.tree.end:
            self.exit(next(iter(self.live)), (KILLED, Ending.CRASH))
        self.audit.close()

        assert self.tree.end is not None
        assert self.audit.problems == []


def pick(actions, kinds):
    """Return the actions of some kinds, in their order."""
    return [one for one in actions if one[0] in kinds]
