"""Plans: a goal and the steps to it, as a value that can be read from and written as a checklist.

Everything here is pure, and a plan never changes: each method returns another one. How a step may
go from one status to the next is the table ``TRANSITIONS``. In Markdown a step is an item of a task
list as GitHub writes it, with three marks of our own besides: ``[~]`` in progress, ``[!]`` failed
and ``[-]`` skipped.

To add a status: its name in ``StepStatus``, its row and column in the table, and its mark in
``_MARKS``.
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, Literal, Self, TypeAlias, get_args

import msgspec

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.errors import UsageError

StepStatus: TypeAlias = Literal["pending", "in_progress", "completed", "failed", "skipped"]
STATUSES: Final[tuple[StepStatus, ...]] = get_args(StepStatus)
STEPS_MAX: Final = 200
"""Of one plan; a longer list is no plan that anybody follows."""
NOTES_MAX: Final = 50
"""Of one step."""
LINE_CHARS_MAX: Final = 500
"""Of a goal, a title or a note, each of which is one line; a longer one is cut, and ends with …"""

# fmt: off
_YES, _NO = True, False
_ROWS: Final[Mapping[StepStatus, tuple[bool, ...]]] = {
    # from \ to     pending  in_progress  completed  failed  skipped
    "pending":     (_NO,     _YES,        _YES,      _YES,   _YES),
    "in_progress": (_NO,     _NO,         _YES,      _YES,   _NO),
    "completed":   (_NO,     _NO,         _NO,       _NO,    _NO),
    "failed":      (_NO,     _NO,         _NO,       _NO,    _NO),
    "skipped":     (_NO,     _NO,         _NO,       _NO,    _NO),
}
TRANSITIONS: Final[Mapping[tuple[StepStatus, StepStatus], bool]] = MappingProxyType({
    (status, to): word
    for status, row in _ROWS.items()
    for to, word in zip(STATUSES, row, strict=True)
})
"""Whether a step of the first status may get the second one."""
_MARKS: Final[Mapping[StepStatus, str]] = {
    "pending":     " ",
    "in_progress": "~",
    "completed":   "x",
    "failed":      "!",
    "skipped":     "-",
}
# fmt: on
_LEGEND: Final = "Marks: [ ] pending, [~] in progress, [x] completed, [!] failed, [-] skipped."
TERMINAL: Final = frozenset({"completed", "failed", "skipped"})
"""The statuses in which a step is over."""
_STATUS_OF: Final = {mark: status for status, mark in _MARKS.items()}
_ITEM: Final = re.compile(r"\s*[-*+]\s+\[([ x~!-])\]\s+(.*)", re.IGNORECASE)
_NOTE: Final = re.compile(r"\s+>\s*(.*)")
_ID: Final = re.compile(r"step-(\d+)")


class IllegalTransition(UsageError, ValueError):
    """A step cannot get this status from the one that it has."""

    def __init__(self, step_id: str, from_: StepStatus, to: StepStatus) -> None:
        """Say where the step could go instead."""
        self.step_id, self.from_, self.to = step_id, from_, to
        ways = [status for status in STATUSES if TRANSITIONS[from_, status]]
        rest = f"only {', '.join(ways)}" if ways else "it is over"
        super().__init__(f"{step_id} is {from_} and cannot become {to}, {rest}")


class PlanStep(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """One step of a plan."""

    id: str
    """``step-1``, ``step-2`` and so on, unique within the plan."""
    title: str
    status: StepStatus = "pending"
    notes: tuple[str, ...] = ()

    @property
    def is_terminal(self) -> bool:
        """Whether the step is over, done or not."""
        return self.status in TERMINAL


class PlanProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How many steps of a plan have which status."""

    total: int
    completed: int
    in_progress: int
    pending: int
    failed: int
    skipped: int
    percentage: float
    """Of the steps those that are completed, with one decimal; 0.0 where there are none."""


class Plan(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """A goal and the steps to it."""

    goal: str
    steps: tuple[PlanStep, ...] = ()
    approved_at_ms: int | None = None
    """When somebody agreed to the plan, in ms since 1970; None where nobody has."""

    @classmethod
    def new(cls, goal: str, titles: Iterable[str] = ()) -> Self:
        """Return a plan with a pending step for each title.

        Raises:
            ValueError: a title is empty, or there are more than ``STEPS_MAX``.
        """
        plan = cls(goal=_line(goal))
        for title in titles:
            plan = plan.add_step(title)
        return plan

    @classmethod
    def from_markdown(cls, goal: str, text: str) -> Self:
        """Return the plan whose steps are the items of the task lists in ``text``, in their order.

        Items are ``- [ ] title``, with ``*`` or ``+`` too, indented or not; what else stands in the
        text is left out, but for quoted lines below an item: these are its notes. Without items the
        plan has no steps.

        Raises:
            ValueError: there are more than ``STEPS_MAX`` items.
        """
        steps: list[PlanStep] = []
        for line in text.splitlines():
            item, note = _ITEM.fullmatch(line), _NOTE.fullmatch(line)
            if item is not None and (title := _line(item[2])):
                status = _STATUS_OF[item[1].lower()]
                steps.append(PlanStep(id=f"step-{len(steps) + 1}", title=title, status=status))
            elif note is not None and steps:
                steps[-1] = _noted(steps[-1], note[1])
        _refuse_too_many(len(steps))
        return cls(goal=_line(goal), steps=tuple(steps))

    # --- what it says ---------------------------------------------------------------------------

    @property
    def is_approved(self) -> bool:
        """Whether somebody agreed to the plan."""
        return self.approved_at_ms is not None

    @property
    def current_step(self) -> PlanStep | None:
        """The first step in progress, else the first pending one, else None."""
        for status in ("in_progress", "pending"):
            for step in self.steps:
                if step.status == status:
                    return step
        return None

    @property
    def all_completed(self) -> bool:
        """Whether there are steps, and each of them was done."""
        return bool(self.steps) and all(step.status == "completed" for step in self.steps)

    @property
    def all_terminal(self) -> bool:
        """Whether there are steps, and each of them is over: done, failed or skipped."""
        return bool(self.steps) and all(step.is_terminal for step in self.steps)

    @property
    def progress(self) -> PlanProgress:
        """How far the plan has come."""
        counts = dict.fromkeys(STATUSES, 0)
        for step in self.steps:
            counts[step.status] += 1
        total = len(self.steps)
        percentage = round(100 * counts["completed"] / total, 1) if total else 0.0
        return PlanProgress(total=total, percentage=percentage, **counts)

    def step(self, step_id: str) -> PlanStep:
        """Return a step by its id.

        Raises:
            LookupError: there is none of this id.
        """
        for step in self.steps:
            if step.id == step_id:
                return step
        known = ", ".join(step.id for step in self.steps) or "none at all"
        raise LookupError(f"the plan has no step {step_id!r}, only {known}")

    # --- how it goes on -------------------------------------------------------------------------

    def start(self, step_id: str) -> Self:
        """Return the plan with this step in progress; errors are those of ``move``."""
        return self.move(step_id, "in_progress")

    def complete(self, step_id: str) -> Self:
        """Return the plan with this step completed; errors are those of ``move``."""
        return self.move(step_id, "completed")

    def fail(self, step_id: str) -> Self:
        """Return the plan with this step failed; errors are those of ``move``."""
        return self.move(step_id, "failed")

    def skip(self, step_id: str) -> Self:
        """Return the plan with this step skipped; errors are those of ``move``."""
        return self.move(step_id, "skipped")

    def move(self, step_id: str, to: StepStatus) -> Self:
        """Return the plan with this step in another status.

        Raises:
            IllegalTransition: the step cannot go there from where it is.
            LookupError: there is no step of this id.
        """
        step = self.step(step_id)
        if not TRANSITIONS[step.status, to]:
            raise IllegalTransition(step_id, step.status, to)
        return self._with(msgspec.structs.replace(step, status=to))

    def add_step(self, title: str) -> Self:
        """Return the plan with one more pending step at its end; its number is the next free one.

        Raises:
            ValueError: the title is empty, or the plan has ``STEPS_MAX`` steps already.
        """
        if not (line := _line(title)):
            raise ValueError(f"a step needs a title, got {title!r}")
        _refuse_too_many(len(self.steps) + 1)
        numbers = (_ID.fullmatch(step.id) for step in self.steps)
        highest = max((int(number[1]) for number in numbers if number is not None), default=0)
        step = PlanStep(id=f"step-{highest + 1}", title=line)
        return msgspec.structs.replace(self, steps=(*self.steps, step))

    def add_note(self, step_id: str, text: str) -> Self:
        """Return the plan with one more note on this step.

        A step keeps its latest ``NOTES_MAX`` notes; an empty note is none.

        Raises:
            LookupError: there is no step of this id.
        """
        return self._with(_noted(self.step(step_id), text))

    def approve(self, at_ms: int) -> Self:
        """Return the plan as approved at ``at_ms``; the first approval counts."""
        if self.is_approved:
            return self
        return msgspec.structs.replace(self, approved_at_ms=at_ms)

    # --- how it reads ---------------------------------------------------------------------------

    def to_markdown(self) -> str:
        """Return the plan as a heading and a task list, which ``from_markdown`` reads.

        An approval is not in it.
        """
        return f"# {self.goal}\n\n{self._items()}\n"

    def to_prompt_section(self) -> str:
        """Return the plan as a model should read it: goal, progress, task list, what comes next."""
        progress, current = self.progress, self.current_step
        done = f"{progress.completed} of {progress.total} steps ({progress.percentage}%)"
        following = "All steps are over." if current is None else f"Current step: {current.title}"
        return f"Goal: {self.goal}\nCompleted: {done}\n{following}\n\n{self._items()}\n\n{_LEGEND}"

    def _items(self) -> str:
        lines = []
        for step in self.steps:
            lines.append(f"- [{_MARKS[step.status]}] {step.title}")
            lines += (f"  > {note}" for note in step.notes)
        return "\n".join(lines)

    def _with(self, changed: PlanStep) -> Self:
        steps = tuple(changed if step.id == changed.id else step for step in self.steps)
        return msgspec.structs.replace(self, steps=steps)


def _noted(step: PlanStep, text: str) -> PlanStep:
    if not (line := _line(text)):
        return step
    return msgspec.structs.replace(step, notes=(*step.notes, line)[-NOTES_MAX:])


def _line(text: str) -> str:
    """Return ``text`` as one line without needless blanks, cut where it is too long."""
    line = " ".join(text.split())
    return line if len(line) <= LINE_CHARS_MAX else f"{line[: LINE_CHARS_MAX - 1]}…"


def _refuse_too_many(count: int) -> None:
    if count > STEPS_MAX:
        raise ValueError(f"a plan takes at most {STEPS_MAX} steps, got {count}: split it up")
