"""A small language for supervision cases, in which each is written once and played twice.

A case says what its children do (``Life``, ``child``), how they are kept (``one_for_one`` and so
on), what happens (``stage.crash``, ``stage.call`` ...), and asserts what the log of the stage says.
``SimStage`` plays it on the tree alone, and performs its effects by itself; ``ProcStage`` plays it
on the daemon's own runtime and child handlers, over real processes. Both have a virtual clock.

Rules that hold in every case are not asserted in each: ``Audit`` looks at every step, whatever the
case is about.

To add a case: a row in ``cases.toml``, and a test with ``@case("C73")`` that takes ``stage`` (both
performers), ``sim``, ``proc``, or fixtures of a real daemon. ``make docs`` then makes its row in
``docs/reference/conformance.md``.
"""

import time
from dataclasses import dataclass, field

from supervisor.core.tree import messages
from tests.conformance.audit import Audit, named

CALLS = {
    "start_child": messages.StartChild,
    "terminate_child": messages.TerminateChild,
    "hibernate_child": messages.HibernateChild,
    "restart_child": messages.RestartChild,
    "wake_child": messages.WakeChild,
    "delete_child": messages.DeleteChild,
}


def call_of(name, path, what, call, stop=None):
    """Return the input of a call; ``stop`` says how a child is to end, where it is to."""
    more = () if stop is None else (stop.why, stop.deadline_s)
    return CALLS[name](path, what, call, *more)


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that happened; ``who`` is ``inner/a2``: the second process of ``a``."""

    at_s: float
    what: str
    who: str
    fact: object = None
    machine_s: float = field(default_factory=time.monotonic)
    """By the machine's clock, which processes have too."""


@dataclass(slots=True, eq=False)
class Call:
    """One call to the tree, and its answer."""

    name: str
    answer: object = None
    asked_s: float = 0.0
    answered_s: float = 0.0


class Stage:
    """A tree, the processes of its children, and the log of what happened.

    A performer has a clock (``now``, ``wait``, ``pass_time``, ``settle``), the inputs of the tree
    (``open``, ``call``, ``begin_stop``, ``kill_supervisor``, ``reconfigure``), ``order``, which has
    a process end by itself, ``process_of`` and ``has_ended``.
    """

    is_real = False
    """Whether there are processes."""
    tree = None

    def __init__(self):
        self.log = []
        self.audit = Audit()
        self.begun_s = 0.0

    # --- what a case does -------------------------------------------------------------------

    def start(self, spec):
        """Begin the tree of ``spec`` and wait until it is up or has ended."""
        self.open(spec)
        self.wait(lambda: self.is_up() or self.has_ended(), "the start")
        return self

    def end(self, name, how="kill", path=()):
        """Have the process of a child end by itself."""
        self.order(self.process_of(name, path), how)

    def crash(self, name, how="kill", path=()):
        """Have the process of a child end, and wait until that is known."""
        process = self.process_of(name, path)
        who, mark = named(self.audit.alive[(*path, name)]), self.mark()
        self.order(process, how)
        self.wait(lambda: who in self.noted("exit", mark), f"{name} to end")

    def answer(self, call):
        """Wait for the answer of a call."""
        self.wait(lambda: call.answer is not None, f"the answer of {call.name}")
        return call.answer

    def ask_for(self, name, *given, path=(), **more):
        """Send one call and return its outcome as a word."""
        return str(self.answer(self.call(name, *given, path=path, **more)).outcome)

    def stop(self, why="shutdown", within_s=None):
        """End the tree and return how long that took."""
        since = self.now()
        self.begin_stop(why, within_s)
        self.wait(self.has_ended, "the stop")
        return self.now() - since

    def until_up(self, *names, path=()):
        """Wait until these processes are up, named by child and generation."""
        whole = ["/".join((*path, name)) for name in names]
        self.wait(lambda: set(whole) <= set(self.noted("up")), f"{names} to be up")

    # --- what a case asserts ----------------------------------------------------------------

    def noted(self, what, mark=0):
        """Return of whom it was noted, in order: ``stage.noted("launch") == ["a1", "b1"]``."""
        return [note.who for note in self.log[mark:] if note.what == what]

    def story(self, *kinds, mark=0):
        """Return the notes of these kinds in order: ``["ask b1", "exit b1"]``."""
        return [f"{note.what} {note.who}" for note in self.log[mark:] if note.what in kinds]

    def note(self, what, who):
        """Return the one note of this kind about a process."""
        (found,) = [note for note in self.log if (note.what, note.who) == (what, who)]
        return found

    def when(self, what, who):
        """Return when it happened, from the begin of the tree."""
        return self.note(what, who).at_s - self.begun_s

    def mark(self):
        """Return where the log is now, to read on from there."""
        return len(self.log)

    def reported(self, label, mark=0):
        """Return the reports of a label."""
        facts = [note.fact for note in self.log[mark:] if note.what == "report"]
        return [report for report in facts if report.label == label]

    def down(self, who):
        """Return the last Down of a process."""
        return [note.fact for note in self.log if (note.what, note.who) == ("down", who)][-1]

    def states(self, path=()):
        """Return the state of each child, by id."""
        return {view.id: str(view.state) for view in self.tree.which_children(path)}

    def view(self, name, path=()):
        """Return what ``which_children`` has of a child, None where there is none."""
        return self.tree.child(path, name)

    def pids(self, *names, path=()):
        """Return the process ids of these children."""
        return [self.view(name, path).handle for name in names]

    def is_up(self, path=()):
        """Say whether all children of a supervisor were started."""
        return "/".join(path) in self.noted("sup_up")

    def story_of_all(self):
        """Return the whole log as a person reads it."""
        return [f"{note.at_s:.3f} {note.what} {note.who}" for note in self.log]

    # --- playing ----------------------------------------------------------------------------

    def write(self, what, who, fact=None):
        """Note something down."""
        self.log.append(Note(self.now(), what, who, fact))

    def replied(self, call, answer):
        """Take the answer of a call."""
        assert call.answer is None, f"{call.name} was answered twice"
        call.answer, call.answered_s = answer, self.now()
        self.write("reply", call.name, answer)
