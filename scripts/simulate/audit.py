"""What holds after every step of every tree, whatever happens to it.

``Audit`` gets what goes in and sees every effect in its order. It keeps books of its own, and
asks the tree only for the order of children and for who is being ended. To add a rule: look where
its effect is seen, and call ``wrong`` with a line that says who and what.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cmdc_runtime.ids import Incarnation
from supervisor.core.tree.messages import (
    Ask,
    CancelTimer,
    ChildState,
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
)
from supervisor.core.tree.specs import ChildSpec, Flags, Strategy, SupervisorSpec
from supervisor.core.tree.tree import Tree

Key: TypeAlias = tuple[SupervisorPath, str]
"""One child: the path of its supervisor and its id."""

# fmt: off
OUTCOMES: Final[Mapping[str, frozenset[str]]] = {
    "start":     frozenset({"ok", "already_started", "already_present", "error", "max_children"}),
    "terminate": frozenset({"ok", "not_found", "error"}),
    "hibernate": frozenset({"ok", "not_found", "restarting", "error"}),
    "restart":   frozenset({"ok", "running", "restarting", "not_found", "error"}),
    "wake":      frozenset({"ok", "running", "restarting", "not_found"}),
    "delete":    frozenset({"ok", "running", "restarting", "not_found"}),
}
# fmt: on
"""How a call may end, beside ``noproc``."""
STARTING_CALLS: Final = frozenset({"start", "restart", "wake"})
ENDING_CALLS: Final = frozenset({"terminate", "hibernate"})
GROUPED: Final = frozenset({Strategy.ONE_FOR_ALL, Strategy.REST_FOR_ONE})


@dataclass(slots=True)
class Seen:
    """The last process of one child."""

    generation: int
    is_live: bool = True
    is_up: bool = False
    is_ending: bool = False
    is_reported: bool = False
    """It was reported as gone, or it never was there."""
    record: object = None
    """What was said of its end."""
    is_promised: bool = False
    """Its report says that another one follows."""
    is_follower: bool = False
    """The one before was reported as followed: if this one never runs, that has to be reported."""

    @property
    def is_starting(self) -> bool:
        """Whether it is on its way up; one whose place was given up is not."""
        return self.is_live and not (self.is_up or self.is_ending or self.is_reported)


class Audit:
    """The books of one tree."""

    def __init__(self, tree: Tree, spec: SupervisorSpec) -> None:
        """Watch a tree that has not begun."""
        self.tree = tree
        self.now_s = 0.0
        self.problems: list[str] = []
        self.timers: set[Timer] = set()
        self.calls: dict[int, tuple[str, Key]] = {}
        self.has_ended = False
        self.enders: set[SupervisorPath] = set()
        """Where somebody was asked to end in this step."""
        self._seen: dict[Key, Seen] = {}
        self._flags: dict[SupervisorPath, Flags] = {}
        self._charges: dict[SupervisorPath, deque[float]] = {}
        self._closing: set[SupervisorPath] = set()
        """Supervisors that end: nothing of theirs is started."""
        self._killed: set[SupervisorPath] = set()
        self._ups: set[SupervisorPath] = set()
        # Any: each sees its own class of effects
        self.see: Final[dict[type[Any], Callable[[Any], None]]] = {
            Launch: self._launch,
            Ask: self._end,
            Kill: self._kill,
            Terminate: self._terminate,
            SetTimer: self._set,
            CancelTimer: self._cancel,
            ProcessEnded: self._ended,
            SupervisorUp: self._up,
            SupervisorEnded: self._over,
            Replied: self._reply,
            Report: self._report,
        }
        self.learn(spec, ())

    def wrong(self, what: str) -> None:
        """Note one thing that does not hold."""
        self.problems.append(f"at {self.now_s:g} s: {what}")

    def generation(self, key: Key) -> Incarnation:
        """Return the last generation of a child."""
        return Incarnation(self._seen[key].generation if key in self._seen else 0)

    # --- what goes in -----------------------------------------------------------------------

    def ready(self, ref: Ref) -> None:
        """Record that a process is going to be reported as up."""
        seen = self._seen.get(ref[:2])
        if seen is not None and seen.generation == ref.generation:
            seen.is_up, seen.is_follower = True, False

    def ignored(self, ref: Ref) -> None:
        """Record that a process does not want to run."""
        seen = self._seen.get(ref[:2])
        if seen is not None and seen.generation == ref.generation:
            seen.is_live = False
            seen.is_reported |= not (seen.is_ending or seen.is_follower)

    def gone(self, ref: Ref, record: object) -> None:
        """Record that a process is going to be reported as gone, with this record of it."""
        seen = self._seen.get(ref[:2])
        if seen is not None and seen.generation == ref.generation and seen.is_live:
            seen.is_live, seen.record = False, record

    def called(self, call: int, kind: str, key: Key) -> None:
        """Record a call that is going to be given."""
        self.calls[call] = (kind, key)

    def expect(self, spec: ChildSpec, path: SupervisorPath) -> None:
        """Record a child that there may be below a supervisor."""
        if isinstance(spec.start, SupervisorSpec):
            self.learn(spec.start, (*path, spec.id))

    def learn(self, spec: SupervisorSpec, path: SupervisorPath) -> None:
        """Record a supervisor that there may be, and of those below it."""
        self._flags[path] = spec.flags
        for child in spec.children:
            self.expect(child, path)

    def stopped(self) -> None:
        """Record that the root is going to be stopped."""
        self._closing.add(())

    def killed(self, path: SupervisorPath) -> None:
        """Record that a supervisor is going to be killed."""
        self._killed.add(path)

    # --- what comes out ---------------------------------------------------------------------

    def _launch(self, effect: Launch) -> None:
        ref = effect.ref
        path, _, generation = ref
        last = self._seen.get(ref[:2])
        if last is not None:
            if last.is_live:
                self.wrong(f"{ref} is started, and {last} lives")
            if not last.is_reported:
                self.wrong(f"{ref} is started, and the end of the one before was not reported")
            if generation != last.generation + 1:
                self.wrong(f"{ref} is started after generation {last.generation}")
        if path in self._closing:
            self.wrong(f"{ref} is started, and its supervisor is ending")
        was_promised = last is not None and last.is_promised
        self._seen[ref[:2]] = Seen(generation, is_follower=was_promised)
        if self._flags[path].strategy in GROUPED:
            self._launch_in_order(ref)

    def _launch_in_order(self, ref: Ref) -> None:
        later = self._later_alive(ref)
        starting = [
            key for key, seen in self._seen.items() if key[0] == ref.path and seen.is_starting
        ]
        if len(starting) > 1:
            self.wrong(f"{ref} is started, and {starting} are starting")
        if later and not any(
            key == ref[:2] and kind in STARTING_CALLS for kind, key in self.calls.values()
        ):
            self.wrong(f"{ref} is started, and {later} behind it still live")

    def _later_alive(self, ref: Ref) -> list[Key]:
        """Return the processes of those that were started after a child, and of all below them."""
        path, child, _ = ref
        depth = len(path)
        beside = [
            (at, name)
            for (at, name), seen in self._seen.items()
            if seen.is_live and not seen.is_reported and at[:depth] == path
        ]
        if len(beside) <= 1:
            return []
        names = [view.id for view in self.tree.which_children(path) or []]
        if child not in names:
            return []
        behind = set(names[names.index(child) + 1 :])
        return [(at, name) for at, name in beside if (*at, name)[depth] in behind]

    def _kill(self, effect: Kill) -> None:
        if effect.fail_reason is None:
            self._end(effect)
        else:
            self._known(effect)  # it was not up in time: no end of its supervisor's

    def _end(self, effect: Ask | Kill) -> None:
        ref = effect.ref
        seen = self._known(effect)
        if seen is None or seen.is_ending:
            return
        seen.is_ending = True
        self.enders.add(ref.path)
        if self._flags[ref.path].strategy is Strategy.DYNAMIC or self._is_wanted_gone(ref):
            return
        later = self._later_alive(ref)
        if later:
            self.wrong(f"{ref} is to end, and {later} behind it still live")

    def _is_wanted_gone(self, ref: Ref) -> bool:
        """Say whether somebody wants the end of this very child, or everything is killed."""
        if self._killed and any(ref.path[: len(path)] == path for path in self._killed):
            return True
        return any(kind in ENDING_CALLS and key == ref[:2] for kind, key in self.calls.values())

    def _terminate(self, effect: Terminate) -> None:
        self._known(effect)

    def _known(self, effect: Ask | Terminate | Kill) -> Seen | None:
        seen = self._seen.get(effect.ref[:2])
        if seen is None or not seen.is_live or seen.generation != effect.ref.generation:
            self.wrong(f"{effect} is for a process that is gone")
            return None
        return seen

    def _set(self, effect: SetTimer) -> None:
        self.timers.add(effect.timer)
        if effect.delay_s < 0:
            self.wrong(f"{effect} is in the past")

    def _cancel(self, effect: CancelTimer) -> None:
        if effect.timer not in self.timers:
            self.wrong(f"{effect.timer} is cancelled and was not set")
        self.timers.discard(effect.timer)

    def _ended(self, effect: ProcessEnded) -> None:
        ref = effect.ref
        seen = self._seen.get(ref[:2])
        if seen is None or seen.generation != ref.generation:
            self.wrong(f"{ref} is reported, and is not the last one")
            return
        if seen.is_reported:
            if not seen.is_promised or effect.restarting or not effect.asked:
                self.wrong(f"the end of {ref} is reported twice")
        elif seen.is_live:
            self.wrong(f"the end of {ref} is reported, and it is not gone")
        if effect.record != seen.record:
            self.wrong(f"the end of {ref} is reported with {effect.record}, not {seen.record}")
        seen.is_reported, seen.is_promised = True, effect.restarting

    def _up(self, effect: SupervisorUp) -> None:
        if effect.path in self._ups:
            self.wrong(f"{effect.path} is up twice")
        self._ups.add(effect.path)

    def _over(self, effect: SupervisorEnded) -> None:
        path = effect.path
        depth = len(path)
        for key, seen in self._seen.items():
            if seen.is_live and not seen.is_reported and key[0][:depth] == path:
                self.wrong(f"{path} ended, and {key} lives")
        for timer in self.timers:
            if timer.path[:depth] == path:
                self.wrong(f"{path} ended, and {timer} is set")
        self._charges.pop(path, None)
        for notes in (self._ups, self._closing, self._killed):
            notes.discard(path)
        if not path:
            if self.has_ended:
                self.wrong("the root ended twice")
            self.has_ended = True

    def _reply(self, effect: Replied) -> None:
        call, answer = effect.call, effect.result
        kind, key = self.calls.pop(call, ("", ((), "")))  # type: ignore[call-overload]  # an int
        if not kind:
            self.wrong(f"call {call} is answered twice: {answer}")
            return
        outcome = answer.outcome
        if outcome is not Outcome.NO_PROCESS and outcome.value not in OUTCOMES[kind]:
            self.wrong(f"{kind} of {key} is answered with {outcome}")
        seen = self._seen.get(key)
        if outcome is not Outcome.OK or seen is None or not seen.is_live:
            return
        if kind in ENDING_CALLS:
            self.wrong(f"{kind} of {key} is done, and it lives")
        if kind in {"start", "restart"} and not seen.is_up:
            self.wrong(f"{kind} of {key} is done, and it is not up")

    def _report(self, effect: Report) -> None:
        if effect.next_attempt_s is not None:
            self._charge(effect.path)
        elif effect.label is Label.UNKILLABLE and effect.child is not None:
            seen = self._seen[effect.path, effect.child.id]
            seen.is_reported = seen.is_promised = True  # what is to be reported of it follows
        elif effect.label is Label.SHUTDOWN:
            self._closing.add(effect.path)

    def _charge(self, path: SupervisorPath) -> None:
        flags = self._flags[path]
        charges = self._charges.setdefault(path, deque())
        while charges and self.now_s - charges[0] > flags.max_seconds:
            charges.popleft()
        charges.append(self.now_s)
        if len(charges) > flags.max_restarts:
            self.wrong(f"{path} restarts {len(charges)} times within {flags.max_seconds:g} s")
        if path in self._closing:
            self.wrong(f"{path} restarts, and is ending")

    # --- between steps ----------------------------------------------------------------------

    def note_enders(self) -> None:
        """Note the supervisors that were asked to end in the step that is over."""
        for path in self.enders:
            for depth in range(len(path), 0, -1):
                above = self.tree.child(path[: depth - 1], path[depth - 1])
                if above is None or above.state is not ChildState.STOPPING:
                    break
                self._closing.add(path[:depth])
        self.enders.clear()

    def rest(self) -> None:
        """Check that nobody waits where no process starts or ends and no timer is set."""
        if self.timers or any(
            seen.is_starting or (seen.is_live and seen.is_ending and not seen.is_reported)
            for seen in self._seen.values()
        ):
            return
        for key, seen in self._seen.items():
            if seen.is_promised:
                self.wrong(f"{key} was reported as restarting, and nothing is under way: {seen}")
        for kind, key in self.calls.values():
            self.wrong(f"{kind} of {key} is not answered, and nothing is under way")

    def close(self) -> None:
        """Check what is left when everything was stopped and nothing is under way any more."""
        if not self.has_ended or self.tree.end is None:
            self.wrong("the root has not ended")
        for key, seen in self._seen.items():
            if seen.is_live and not seen.is_reported:
                self.wrong(f"{key} lives after the end: {seen}")
            if not seen.is_live and not seen.is_reported:
                self.wrong(f"the end of {key} was not reported: {seen}")
            if seen.is_promised:
                self.wrong(f"{key} was reported as restarting and never was: {seen}")
        for timer in self.timers:
            self.wrong(f"{timer} is set after the end")
        for kind, key in self.calls.values():
            self.wrong(f"{kind} of {key} is never answered")
