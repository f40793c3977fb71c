"""A small language for supervision cases, in which each is written once and played twice.

A case says what its children do (``Life``, ``child``), how they are kept (``one_for_one`` and so
on), what happens (``stage.crash``, ``stage.call`` ...), and asserts what the log of the stage says.
``SimStage`` plays it on a virtual clock, ``ProcStage`` with real processes; both perform the
effects of the same ``Tree``.

Rules that hold in every case are not asserted in each: ``Audit`` looks at every step, whatever the
case is about.

To add a case: a row in ``cases.toml``, and a test with ``@case("C73")`` that takes ``stage`` (both
performers), ``sim``, ``proc``, or fixtures of a real daemon. ``make docs`` then makes its row in
``docs/reference/conformance.md``.
"""

from dataclasses import dataclass

from supervisor.core.tree.crew import Mode
from supervisor.core.tree.tree import Tree
from supervisor.core.tree.words import (
    Ask,
    CancelTimer,
    Departed,
    Kill,
    Launch,
    Replied,
    Report,
    SetTimer,
    SupervisorEnded,
    SupervisorUp,
    Terminate,
)
from tests.conformance.audit import Audit, named
from tests.conformance.script import ending_of


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that happened; ``who`` is ``inner/a2``: the second process of ``a``."""

    at_s: float
    what: str
    who: str
    fact: object = None


@dataclass(slots=True, eq=False)
class Call:
    """One call to the tree, and its answer."""

    name: str
    answer: object = None
    asked_s: float = 0.0
    answered_s: float = 0.0


class Stage:
    """A tree, the processes of its children, and the log of what happened.

    A performer has ``now()``, ``wait(condition, bound_s)``, ``pass_time(seconds)``, ``at(delay_s,
    work)``, which returns what ``cancel`` takes, and one method for each thing that a process is
    told: ``launch``, ``ask``, ``terminate``, ``kill``, ``order``.
    """

    is_real = False
    """Whether times are those of a clock, and so only about right."""

    def __init__(self):
        self.tree = None
        self.log = []
        self.audit = Audit()
        self.begun_s = 0.0
        self._timers = {}

    # --- what a case does -------------------------------------------------------------------

    def open(self, spec):
        """Begin the tree of ``spec`` and do not wait for it."""
        self.begun_s = self.now()
        self.tree = Tree(spec)
        for one in spec.children:
            self.audit.expects(one)
        self.perform(self.tree.begin(self.now()))
        return self

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
        mark = self.mark()
        self.order(process, how)
        self.wait(lambda: named(process.ref) in self.told("exit", mark), f"{name} to end")

    def call(self, name, *given, path=(), **more):
        """Send one call to the supervisor at ``path``; its answer is waited for elsewhere."""
        call = Call(name, asked_s=self.now())
        if name == "start_child":
            self.audit.expects(given[0], path)
        effects = getattr(self.tree, name)(path, *given, call, self.now(), **more)
        self.perform(effects)
        return call

    def answer(self, call):
        """Wait for the answer of a call."""
        self.wait(lambda: call.answer is not None, f"the answer of {call.name}")
        return call.answer

    def ask_for(self, name, *given, path=(), **more):
        """Send one call and return its outcome as a word."""
        return str(self.answer(self.call(name, *given, path=path, **more)).outcome)

    def begin_stop(self, why="shutdown", within_s=None):
        """Ask the root to end, within some time."""
        deadline_s = None if within_s is None else self.now() + within_s
        self.perform(self.tree.stop(why, deadline_s, self.now()))

    def stop(self, why="shutdown", within_s=None):
        """End the tree and return how long that took."""
        since = self.now()
        self.begin_stop(why, within_s)
        self.wait(self.has_ended, "the stop")
        return self.now() - since

    def kill_supervisor(self, path=()):
        """End a supervisor as SIGKILL would, were it a process."""
        self.perform(self.tree.kill(path, self.now()))

    def reconfigure(self, spec, path=()):
        """Change a supervisor's specification."""
        effects = self.tree.reconfigure(path, spec, self.now())
        for one in spec.children:
            self.audit.expects(one, path)
        self.perform(effects)

    def until_up(self, *names, path=()):
        """Wait until these processes are up, named by child and generation."""
        whole = ["/".join((*path, name)) for name in names]
        self.wait(lambda: set(whole) <= set(self.told("up")), f"{names} to be up")

    # --- what a case asserts ----------------------------------------------------------------

    def told(self, what, mark=0):
        """Return who it was told of, in order: ``stage.told("launch") == ["a1", "b1"]``."""
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
        """Return what watchers were told of a process at last."""
        return [note.fact for note in self.log if (note.what, note.who) == ("down", who)][-1]

    def states(self, path=()):
        """Return the state of each child, by id."""
        return {view.id: str(view.state) for view in self.tree.which_children(path)}

    def view(self, name, path=()):
        """Return what ``which_children`` tells of a child, None where there is none."""
        return self.tree.child(path, name)

    def pids(self, *names, path=()):
        """Return the process ids of these children."""
        return [self.view(name, path).handle for name in names]

    def is_up(self, path=()):
        """Say whether all children of a supervisor were started."""
        return "/".join(path) in self.told("sup_up")

    def has_ended(self):
        """Say whether the root is gone."""
        return self.tree.end is not None

    # --- playing ----------------------------------------------------------------------------

    def write(self, what, who, fact=None):
        """Note something down."""
        self.log.append(Note(self.now(), what, who, fact))

    def perform(self, effects):
        """Do what the tree decided, in its order."""
        for effect in effects:
            self._perform(effect)
        self.audit.stopping = {
            path for path, one in self.tree._supervisors.items() if one.mode is Mode.STOPPING
        }

    def _perform(self, effect):  # noqa: C901 - one case for each effect
        match effect:
            case Launch(ref=ref, start=script):
                self.audit.launched(ref)
                self.write("launch", named(ref))
                self.launch(ref, script.life(ref.generation))
            case Ask(ref=ref, reason=why):
                self.write("ask", named(ref), why)
                self.ask(self._process(ref), why)
            case Terminate(ref=ref):
                self.write("term", named(ref))
                self.terminate(self._process(ref))
            case Kill(ref=ref, blamed=blamed):
                self.write("kill", named(ref), blamed)
                self.kill(self._process(ref), blamed)
            case SetTimer(timer=timer, delay_s=delay_s):
                self._cancel(timer)
                self.audit.timers.add(timer)
                self._timers[timer] = self.at(delay_s, lambda: self._due(timer))
            case CancelTimer(timer=timer):
                assert timer in self.audit.timers
                self._cancel(timer)
            case Departed(ref=ref):
                self.audit.told(effect)
                self.write("down", named(ref), effect)
            case Replied(call=call, answer=answer):
                assert call.answer is None, f"{call.name} was answered twice"
                call.answer, call.answered_s = answer, self.now()
                self.write("reply", call.name, answer)
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

    def _due(self, timer):
        self.audit.timers.discard(timer)
        self._timers.pop(timer, None)
        self.perform(self.tree.due(timer, self.now()))

    # --- what processes say -----------------------------------------------------------------

    def up(self, process, handle, extra=None):
        """A process is ready."""
        self.write("up", named(process.ref), extra)
        self.audit.due_back.discard((*process.ref.path, process.ref.child))
        self.perform(self.tree.up(process.ref, self.now(), handle, extra))

    def exited(self, process, reason):
        """A process is gone."""
        self.audit.ended(process.ref)
        if process.has_ignored:
            self.write("ignored", named(process.ref))
            self.perform(self.tree.ignored(process.ref, self.now()))
            return
        self.write("exit", named(process.ref), reason)
        ending = ending_of(reason)
        self.perform(self.tree.exited(process.ref, reason, ending, self.now()))

    def process_of(self, name, path=()):
        """Return the living process of a child."""
        return self._process(self.audit.alive[(*path, name)])

    def close(self):
        """End the tree, if it has not ended, and check that nothing is left of it."""
        if self.tree is not None and not self.has_ended():
            self.stop(within_s=0.2)
        self.audit.is_over()
