"""A tree that keeps what it is told, so that an incident of production can be played again. Pure.

``RecordedTree`` stands in the place of a ``Tree``; ``recorder.lines()`` is the record, to be
written wherever its holder likes.

Room is bounded. What happened to a supervisor below a dynamic one, and to all below it, is
forgotten when it is gone for good: its siblings know nothing of it. So a daemon keeps the story of
the sessions that it has. What ends with its own supervisor is kept, since that one waited for it.
Where all this is not enough, the oldest inputs go and the head counts them.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterator
from typing import Final, ParamSpec

import msgspec

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.reasons import AnyReason, PlainReason
from cmdc_runtime.reasons import Exception as Raised
from supervisor.core.tree.crew import Mode
from supervisor.core.tree.recording import (
    RAISED,
    VERSION,
    ChildRecord,
    Head,
    SupervisorRecord,
    Taken,
    letters,
    name_of,
)
from supervisor.core.tree.specs import SUPERVISOR, ChildSpec, SupervisorSpec
from supervisor.core.tree.tree import AS_SPECIFIED, Tree
from supervisor.core.tree.words import Effect, Ending, Path, Ref, Stop, SupervisorEnded, Timer

RECORDS_MAX: Final = 50_000
"""Inputs that are kept: a dozen for each of 4,000 sessions, some 10 MB."""

P = ParamSpec("P")


class Recorder:
    """The inputs of one tree, as lines."""

    def __init__(self, spec: SupervisorSpec, records_max: int = RECORDS_MAX) -> None:
        """Have kept nothing yet of the tree of ``spec``."""
        self._spec = SupervisorRecord.of(spec)
        self._records_max = records_max
        self._lines: OrderedDict[int, tuple[bytes, deque[int] | None]] = OrderedDict()
        """Each with the story that it is part of."""
        self._stories: dict[Path, deque[int]] = {}
        """Which lines are about what may be gone for good; no story is within another."""
        self._taken = self._dropped = self._calls = 0

    def keep(self, taken: Taken) -> None:
        """Keep one input behind the others; where there is no room the oldest goes."""
        self._taken += 1
        story = self._story_of(taken.place)
        self._lines[self._taken] = _ENCODER.encode(taken), story
        if story is not None:
            story.append(self._taken)
        if len(self._lines) > self._records_max:
            _, (_, lost) = self._lines.popitem(last=False)
            if lost:  # a session may live for months: its story must not grow with that
                lost.popleft()
            self._dropped += 1

    def new_call(self) -> int:
        """Return the number of one more call."""
        self._calls += 1
        return self._calls

    def begun(self, path: Path) -> None:
        """Take note that the last line made what nobody depends on once it is gone."""
        if self._story_of(path) is None and self._taken in self._lines:
            line, _ = self._lines[self._taken]
            self._stories[path] = deque([self._taken])
            self._lines[self._taken] = line, self._stories[path]

    def take_back(self) -> None:
        """Forget the last line: nothing came of it."""
        _, story = self._lines.pop(self._taken, (b"", None))
        if story:
            story.pop()

    def over(self, path: Path, *, is_forgotten: bool) -> None:
        """Take note that ``path`` is gone, and forget what was about it unless others knew."""
        story = self._stories.pop(path, ())
        if is_forgotten:
            for number in story:
                self._lines.pop(number, None)

    def _story_of(self, place: Path) -> deque[int] | None:
        paths = (place[:depth] for depth in range(1, len(place) + 1))
        return next((self._stories[path] for path in paths if path in self._stories), None)

    def lines(self, note: str = "") -> Iterator[bytes]:
        """Yield the record as it is now, a line each."""
        head = Head(version=VERSION, spec=self._spec, dropped=self._dropped, note=note)
        return iter([_ENCODER.encode(head), *(line for line, _ in self._lines.values())])


class RecordedTree(Tree):
    """A supervisor and all that is below it, with what it was told."""

    def __init__(self, spec: SupervisorSpec, records_max: int = RECORDS_MAX) -> None:
        """Be the tree of ``spec``, not yet started.

        Raises:
            InvalidOptions: with one line for each problem.
        """
        super().__init__(spec)
        self.recorder = Recorder(spec, records_max)

    def begin(self, now_s: float) -> list[Effect]:
        """Start the root's children."""
        return self._kept(Taken(at_s=now_s, input="begin"), super().begin, now_s)

    def up(
        self, ref: Ref, now_s: float, handle: object = None, extra: object = None
    ) -> list[Effect]:
        """Take note that a process is ready."""
        path, child, generation = ref
        taken = Taken(
            at_s=now_s,
            input="up",
            path=path,
            child=child,
            generation=generation,
            handle=name_of(handle),
        )
        return self._kept(taken, super().up, ref, now_s, handle, extra)

    def ignored(self, ref: Ref, now_s: float) -> list[Effect]:
        """Take note that a child wants no process."""
        path, child, generation = ref
        taken = Taken(at_s=now_s, input="ignored", path=path, child=child, generation=generation)
        return self._kept(taken, super().ignored, ref, now_s)

    def exited(self, ref: Ref, reason: AnyReason, ending: Ending, now_s: float) -> list[Effect]:
        """Take note that a process is gone."""
        path, child, generation = ref
        if isinstance(reason, Raised):
            told: AnyReason = msgspec.structs.replace(reason, traceback="")
        else:
            told = reason
        taken = Taken(
            at_s=now_s,
            input="exited",
            path=path,
            child=child,
            generation=generation,
            reason=told,
            ending=ending,
        )
        return self._kept(taken, super().exited, ref, reason, ending, now_s)

    def condemn(self, ref: Ref, blamed: PlainReason, now_s: float) -> list[Effect]:
        """Kill a process that hangs or uses too much."""
        path, child, generation = ref
        taken = Taken(
            at_s=now_s,
            input="condemn",
            path=path,
            child=child,
            generation=generation,
            reason=blamed,
        )
        return self._kept(taken, super().condemn, ref, blamed, now_s)

    def due(self, timer: Timer, now_s: float) -> list[Effect]:
        """Take note that a timer went off."""
        path, child, kind = timer
        taken = Taken(at_s=now_s, input="due", path=path, child=child, timer=kind)
        return self._kept(taken, super().due, timer, now_s)

    def stop(self, why: str, deadline_s: float | None, now_s: float) -> list[Effect]:
        """End everything."""
        taken = Taken(at_s=now_s, input="stop", why=why, deadline_s=deadline_s)
        return self._kept(taken, super().stop, why, deadline_s, now_s)

    def kill(self, path: Path, now_s: float) -> list[Effect]:
        """End a supervisor as SIGKILL ends a process."""
        return self._kept(Taken(at_s=now_s, input="kill", path=path), super().kill, path, now_s)

    def start_child(self, path: Path, spec: ChildSpec, call: object, now_s: float) -> list[Effect]:
        """Add a child and start it."""
        taken = Taken(
            at_s=now_s,
            input="start_child",
            path=path,
            child=str(spec.id),
            call=self.recorder.new_call(),
            child_spec=ChildRecord.of(spec),
        )
        effects = self._kept(taken, super().start_child, path, spec, call, now_s)
        if self._is_passing(path):
            if self.child(path, spec.id) is None:
                self.recorder.take_back()  # it was refused for those who may be forgotten
            elif spec.type == SUPERVISOR:
                self.recorder.begun(taken.place)
        return effects

    def terminate_child(
        self, path: Path, child_id: str, call: object, now_s: float, stop: Stop = AS_SPECIFIED
    ) -> list[Effect]:
        """End a child."""
        taken = Taken(
            at_s=now_s,
            input="terminate_child",
            path=path,
            child=child_id,
            call=self.recorder.new_call(),
            why=stop.why,
            deadline_s=stop.deadline_s,
        )
        return self._kept(taken, super().terminate_child, path, child_id, call, now_s, stop)

    def rest_child(
        self, path: Path, child_id: str, call: object, now_s: float, stop: Stop
    ) -> list[Effect]:
        """End a child that is up and keep its specification."""
        taken = Taken(
            at_s=now_s,
            input="rest_child",
            path=path,
            child=child_id,
            call=self.recorder.new_call(),
            why=stop.why,
            deadline_s=stop.deadline_s,
        )
        return self._kept(taken, super().rest_child, path, child_id, call, now_s, stop)

    def restart_child(self, path: Path, child_id: str, call: object, now_s: float) -> list[Effect]:
        """Start a child that is down."""
        number = self.recorder.new_call()
        taken = Taken(at_s=now_s, input="restart_child", path=path, child=child_id, call=number)
        return self._kept(taken, super().restart_child, path, child_id, call, now_s)

    def wake_child(self, path: Path, child_id: str, call: object, now_s: float) -> list[Effect]:
        """Start a child that rests."""
        number = self.recorder.new_call()
        taken = Taken(at_s=now_s, input="wake_child", path=path, child=child_id, call=number)
        return self._kept(taken, super().wake_child, path, child_id, call, now_s)

    def delete_child(self, path: Path, child_id: str, call: object, now_s: float) -> list[Effect]:
        """Forget a child that is down."""
        number = self.recorder.new_call()
        taken = Taken(at_s=now_s, input="delete_child", path=path, child=child_id, call=number)
        return self._kept(taken, super().delete_child, path, child_id, call, now_s)

    def reconfigure(self, path: Path, spec: SupervisorSpec, now_s: float) -> list[Effect]:
        """Change a supervisor's flags and its children's specifications."""
        record = SupervisorRecord.of(spec)
        taken = Taken(at_s=now_s, input="reconfigure", path=path, spec=record)
        return self._kept(taken, super().reconfigure, path, spec, now_s)

    def _kept(
        self,
        taken: Taken,
        given: Callable[P, list[Effect]],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> list[Effect]:
        """Return what comes of an input, and keep it unless it was refused as wrong."""
        try:
            effects = given(*arguments, **named)
        except InvalidOptions:
            raise
        except Exception:
            self.recorder.keep(msgspec.structs.replace(taken, did=RAISED))
            raise
        self.recorder.keep(msgspec.structs.replace(taken, did=letters(effects)))
        ended = {effect.path for effect in effects if type(effect) is SupervisorEnded}
        for path in ended:
            if path and self.child(path[:-1], path[-1]) is None:
                self.recorder.over(path, is_forgotten=self._was_alone(path, ended))
        return effects

    def _was_alone(self, path: Path, ended: Container[Path]) -> bool:
        """Say whether a supervisor did not end because one above it ends."""
        above = [path[:depth] for depth in range(len(path))]
        supervisors = [self._supervisors.get(one) for one in above if one not in ended]
        return len(supervisors) == len(above) and all(
            one is not None and one.mode is Mode.UP for one in supervisors
        )

    def _is_passing(self, path: Path) -> bool:
        """Say whether the children of this supervisor come and go without a trace."""
        supervisor = self._supervisors.get(path)
        return supervisor is not None and supervisor.is_dynamic


_ENCODER: Final = msgspec.json.Encoder()
