"""Has the model plan before it acts, and keeps the plan in the system prompt up to date.

A prompt that is long enough, while no plan is open, is followed by the directive. The first reply
with a checklist brings the plan; if that reply does nothing besides, the model is asked to carry
the plan out, so that the cycle does not end with it. From then on each checklist in a reply is
compared with the plan, title by title: known steps get the new marks where that is legal, new ones
are added. A checklist without a single known step takes the place of a plan that is open. When all
steps are over, the plan leaves the system prompt with the next prompt.

Observers get ``plan_generated`` with the plan, ``plan_step_completed`` with the step and the
progress, and ``plan_completed`` with the plan whose steps are all over, be they done or not.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from cmdc_runtime import plugins
from cmdc_runtime.extensions.actions import Action, Emit, Intervene, UpdateSystemContext
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import AfterResponse, BeforePrompt
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.plan import STEPS_MAX, TRANSITIONS, Plan, PlanStep

SECTION: Final = "Plan"
"""The title of the plan's section in the system prompt."""
CARRY_OUT: Final = (
    "Now carry out this plan, step by step. Repeat the checklist with the new marks as steps get"
    " done. Your last message answers the request in full."
)
REMINDER: Final = (
    "Your reply has no plan in it. Write one now, a Markdown checklist with one item `- [ ] step`"
    " for each step, and carry it out. If everything is done already, give your answer again in"
    " full, with the checklist of what was done, each item as `- [x] step`, above it."
)
_DECORATION: Final = re.compile(r"[*_`~]")


class Planning(Plugin):
    """Asks for a plan and follows it."""

    name = "planning"
    priority = 200
    fail = "open"
    emits = ("plan_completed", "plan_generated", "plan_step_completed")
    Config = plugins.Planning

    class State(msgspec.Struct):
        """The plan, and whether one is wanted."""

        plan: Plan | None = None
        goal: str = ""
        is_wanted: bool = False
        reminders: int = 0

    def before_prompt(
        self,
        event: BeforePrompt,
        context: PluginContext,  # noqa: ARG002 - the contract of the hook
    ) -> list[Action]:
        """Put a plan away that is over; ask for one where none is open."""
        actions: list[Action] = []
        state, config = self.state, self.config
        if state.plan is not None and state.plan.all_terminal:
            state.plan = None
            actions.append(_section(""))
        if state.plan is None:
            state.goal = Plan.new(event.text).goal
        is_long = len(event.text.strip()) >= config.min_prompt_length
        state.is_wanted = bool(config.plan_first and state.plan is None and is_long)
        state.reminders = 0
        if state.is_wanted:
            actions.append(Intervene(config.directive))
        return actions

    def after_response(
        self,
        event: AfterResponse,
        context: PluginContext,  # noqa: ARG002 - the contract of the hook
    ) -> list[Action]:
        """Take over what the reply says of the plan, or ask again for one."""
        found = checklist(self.state.goal, event.message.content)
        actions = list(self._heard(found, is_idle=not event.message.tool_calls))
        if self.state.plan is not None:
            actions.append(_section(self.state.plan.to_prompt_section()))
        return actions

    def _heard(self, found: Plan, *, is_idle: bool) -> Iterator[Action]:
        """Yield what follows from the checklist of a reply, which is idle if it calls no tool."""
        plan = self.state.plan
        if plan is None:
            yield from self._adopt(found, is_idle=is_idle) if found.steps else self._remind()
        elif found.steps:
            followed = follow(plan, found)
            if followed is not None:
                self.state.plan = followed
                yield from _news(plan, followed)
            elif not plan.all_terminal:
                yield from self._adopt(found, is_idle=is_idle)

    def _adopt(self, plan: Plan, *, is_idle: bool) -> Iterator[Action]:
        was_wanted = self.state.is_wanted
        self.state.plan, self.state.is_wanted = plan, False
        yield Emit("plan_generated", plan)
        if plan.all_terminal:
            yield Emit("plan_completed", plan)
        elif was_wanted and is_idle:
            yield Intervene(CARRY_OUT)

    def _remind(self) -> Iterator[Action]:
        state = self.state
        if not state.is_wanted:
            return
        if state.reminders >= self.config.max_plan_attempts:
            state.is_wanted = False
            return
        state.reminders += 1
        yield Intervene(REMINDER)


def checklist(goal: str, text: str) -> Plan:
    """Return the checklist in a reply as a plan, without steps where there is no usable one."""
    try:
        return Plan.from_markdown(goal, text)
    except ValueError:  # more steps than a plan takes
        return Plan.new(goal)


def follow(plan: Plan, found: Plan) -> Plan | None:
    """Return the plan after a newer checklist, or None where the two have no step in common.

    A step that is over stays so. Steps beyond the limit of a plan are left out.
    """
    known = list(plan.steps)
    new: list[PlanStep] = []
    for item in found.steps:
        step = next((step for step in known if _is_same(step, item)), None)
        if step is None:
            new.append(item)
        else:
            known.remove(step)
            plan = _taken_over(plan, step, item)
    if len(new) == len(found.steps):
        return None
    for item in new[: STEPS_MAX - len(plan.steps)]:
        plan = plan.add_step(item.title)
        plan = _taken_over(plan, plan.steps[-1], item)
    return plan


def _taken_over(plan: Plan, step: PlanStep, item: PlanStep) -> Plan:
    """Return the plan with the item's mark and notes at the step."""
    if TRANSITIONS[step.status, item.status]:
        plan = plan.move(step.id, item.status)
    for note in item.notes:
        if note not in step.notes:
            plan = plan.add_note(step.id, note)
    return plan


def _is_same(step: PlanStep, item: PlanStep) -> bool:
    return _plain(step.title) == _plain(item.title)


def _plain(title: str) -> str:
    """Return a title without what a model changes in passing: case, emphasis, a full stop."""
    return _DECORATION.sub("", title).casefold().strip(" .:;!")


def _news(before: Plan, after: Plan) -> Iterator[Emit]:
    """Yield the events of the way from one plan to the next."""
    done = {step.id for step in before.steps if step.status == "completed"}
    for step in after.steps:
        if step.status == "completed" and step.id not in done:
            yield Emit("plan_step_completed", {"step": step, "progress": after.progress})
    if after.all_terminal and not before.all_terminal:
        yield Emit("plan_completed", after)


def _section(text: str) -> Emit:
    return Emit(UpdateSystemContext(key=SECTION, text=text))


create = Planning
