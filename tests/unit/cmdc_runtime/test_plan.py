"""Plans: how they are read and written, how their steps go on, and how far they have come."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.plan import (
    LINE_CHARS_MAX,
    NOTES_MAX,
    STATUSES,
    STEPS_MAX,
    TERMINAL,
    TRANSITIONS,
    IllegalTransition,
    Plan,
    PlanProgress,
    PlanStep,
)

MOVES = {
    "start": "in_progress",
    "complete": "completed",
    "fail": "failed",
    "skip": "skipped",
}
LEGAL = {
    ("pending", "in_progress"),
    ("pending", "completed"),
    ("pending", "failed"),
    ("pending", "skipped"),
    ("in_progress", "completed"),
    ("in_progress", "failed"),
}
lines = st.text(min_size=1).filter(str.strip)


def plan_of(*statuses):
    """Return a plan with a step in each of these statuses."""
    steps = [
        PlanStep(id=f"step-{at}", title=f"title {at}", status=status)
        for at, status in enumerate(statuses, 1)
    ]
    return Plan(goal="goal", steps=tuple(steps))


@st.composite
def plans(draw):
    """Draw plans as their methods make them."""
    plan = Plan.new(draw(lines), draw(st.lists(lines, max_size=8)))
    for step in plan.steps:
        for status in draw(st.lists(st.sampled_from(STATUSES), max_size=3)):
            if TRANSITIONS[plan.step(step.id).status, status]:
                plan = plan.move(step.id, status)
        for note in draw(st.lists(st.text(), max_size=3)):
            plan = plan.add_note(step.id, note)
    return plan


# --- making -------------------------------------------------------------------------------------


def test_new_plan_has_a_pending_step_for_each_title():
    """Steps are numbered from 1, in the order of the titles, each title one line."""
    plan = Plan.new(" ship\n it ", ["build", " test \n all "])

    assert plan.goal == "ship it"
    assert plan.steps == (
        PlanStep(id="step-1", title="build"),
        PlanStep(id="step-2", title="test all"),
    )
    assert {step.status for step in plan.steps} == {"pending"}


@pytest.mark.parametrize("title", ["", " \n"])
def test_a_step_needs_a_title(title):
    """A title without a word is refused."""
    with pytest.raises(ValueError, match="a step needs a title"):
        Plan.new("goal", ["one", title])


def test_a_plan_is_bounded():
    """More steps than the limit are refused, whichever way they come."""
    full = Plan.new("goal", ["step"] * STEPS_MAX)
    text = "- [ ] step\n" * (STEPS_MAX + 1)

    with pytest.raises(ValueError, match=f"at most {STEPS_MAX} steps, got {STEPS_MAX + 1}"):
        full.add_step("one more")
    with pytest.raises(ValueError, match=f"at most {STEPS_MAX} steps, got {STEPS_MAX + 1}"):
        Plan.from_markdown("goal", text)


def test_lines_and_notes_are_bounded():
    """A line is cut with a sign of it; of notes the latest stay."""
    plan = Plan.new("g" * 1000, ["t" * 1000, "t" * LINE_CHARS_MAX])
    for at in range(NOTES_MAX + 2):
        plan = plan.add_note("step-1", f"note {at}")

    assert len(plan.goal) == len(plan.steps[0].title) == LINE_CHARS_MAX
    assert plan.goal.endswith("g…")
    assert plan.steps[1].title == "t" * LINE_CHARS_MAX
    assert len(plan.steps[0].notes) == NOTES_MAX
    assert plan.steps[0].notes[-1] == f"note {NOTES_MAX + 1}"


def test_added_step_gets_the_next_free_number():
    """The highest number counts, not how many steps there are."""
    steps = (PlanStep(id="step-7", title="a"), PlanStep(id="extra", title="b"))

    assert Plan(goal="goal", steps=steps).add_step(" c ").steps[-1].id == "step-8"
    assert Plan(goal="goal").add_step("a").steps == (PlanStep(id="step-1", title="a"),)


# --- Markdown -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("- [ ] read", ("read", "pending")),
        ("- [x] read", ("read", "completed")),
        ("- [X] read", ("read", "completed")),
        ("- [~] read", ("read", "in_progress")),
        ("- [!] read", ("read", "failed")),
        ("- [-] read", ("read", "skipped")),
        ("* [ ]  read  twice ", ("read twice", "pending")),
        ("+ [ ] read", ("read", "pending")),
        ("    - [ ] read", ("read", "pending")),
        ("- [ ] [x] read", ("[x] read", "pending")),
        ("1. read", None),
        ("1. [ ] read", None),
        ("- read", None),
        ("- [ ]", None),
        ("- [ ]  ", None),
        ("-[ ] read", None),
        ("- [ ]read", None),
        ("- [] read", None),
        ("- [?] read", None),
        ("so - [ ] read", None),
        ("- [link](https://example.org) read", None),
        ("", None),
    ],
)
def test_items_of_task_lists_are_steps(line, found):
    """A bullet with a box and a title is a step; a numbered or a plain item is none."""
    steps = Plan.from_markdown("goal", f"Well:\n{line}\nSo be it.").steps

    assert [(step.title, step.status) for step in steps] == ([found] if found else [])


def test_checklist_is_read_wherever_it_stands():
    """Prose, fences and several lists are no hindrance; notes belong to the item above."""
    text = """Sure! Here is the plan:
> a quote that is no note
```markdown
# Plan
- [x] Look
  > found it
  > > twice
  1. not a step
```
Then:
* [ ] Leap
"""

    assert Plan.from_markdown("goal", text).steps == (
        PlanStep(id="step-1", title="Look", status="completed", notes=("found it", "> twice")),
        PlanStep(id="step-2", title="Leap"),
    )


def test_plan_is_written_as_a_task_list():
    """The heading is the goal, and each status has a mark of its own."""
    plan = plan_of(*STATUSES).add_note("step-2", "half of it")

    assert plan.to_markdown() == (
        "# goal\n\n- [ ] title 1\n- [~] title 2\n  > half of it\n- [x] title 3\n- [!] title 4\n"
        "- [-] title 5\n"
    )


@given(plans())
def test_what_is_written_is_read_again(plan):
    """A plan comes back from its Markdown with every title, status and note."""
    assert Plan.from_markdown(plan.goal, plan.to_markdown()) == plan


@given(plans())
def test_a_plan_travels(plan):
    """A plan comes back from MessagePack as it was."""
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=Plan) == plan


@given(st.text(), st.text())
def test_any_text_can_be_read(goal, text):
    """Whatever a model writes, reading it fails at the limit of steps alone."""
    plan = Plan.from_markdown(goal, text)

    assert [step.id for step in plan.steps] == [f"step-{at + 1}" for at in range(len(plan.steps))]


def test_prompt_section_says_where_the_plan_is():
    """Goal, progress, what comes next, the list, and what the marks mean."""
    plan = plan_of("completed", "pending", "pending")

    assert plan.to_prompt_section() == (
        "Goal: goal\nCompleted: 1 of 3 steps (33.3%)\nCurrent step: title 2\n\n"
        "- [x] title 1\n- [ ] title 2\n- [ ] title 3\n\n"
        "Marks: [ ] pending, [~] in progress, [x] completed, [!] failed, [-] skipped."
    )
    assert "\nAll steps are over.\n" in plan_of("completed", "failed").to_prompt_section()


# --- statuses -----------------------------------------------------------------------------------


def test_transitions_are_total():
    """Every pair of statuses has a word, and the legal ones are these."""
    pairs = set(itertools.product(STATUSES, repeat=2))

    assert set(TRANSITIONS) == pairs, f"missing in cmdc_runtime/plan.py: {pairs - set(TRANSITIONS)}"
    assert {pair for pair, is_legal in TRANSITIONS.items() if is_legal} == LEGAL
    assert {s for s in STATUSES if not any(TRANSITIONS[s, to] for to in STATUSES)} == TERMINAL


@pytest.mark.parametrize(("method", "to"), MOVES.items())
@pytest.mark.parametrize("status", STATUSES)
def test_steps_go_where_the_table_lets_them(status, method, to):
    """A legal move changes that step alone; an illegal one says from where to where."""
    plan = plan_of("pending", status)
    if (status, to) in LEGAL:
        moved = getattr(plan, method)("step-2")

        assert [step.status for step in moved.steps] == ["pending", to]
        assert plan.steps[1].status == status
    else:
        with pytest.raises(IllegalTransition) as caught:
            getattr(plan, method)("step-2")

        assert (caught.value.step_id, caught.value.from_, caught.value.to) == ("step-2", status, to)


def test_illegal_move_says_what_is_legal():
    """Whoever reads the error knows where the step could go."""
    with pytest.raises(
        IllegalTransition,
        match="step-1 is in_progress and cannot become skipped, only completed, failed",
    ):
        plan_of("in_progress").skip("step-1")
    with pytest.raises(IllegalTransition, match="cannot become failed, it is over"):
        plan_of("completed").fail("step-1")


@pytest.mark.parametrize(
    "ask",
    [lambda plan: plan.start("step-9"), lambda plan: plan.add_note("step-9", "hm")],
    ids=["move", "note"],
)
def test_unknown_step_is_named(ask):
    """A step that is not there is an error with those that are."""
    with pytest.raises(LookupError, match="no step 'step-9', only step-1, step-2"):
        ask(plan_of("pending", "pending"))
    with pytest.raises(LookupError, match="only none at all"):
        ask(Plan(goal="goal"))


# --- how far it is ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statuses", "current"),
    [
        ((), None),
        (("pending", "pending"), "step-1"),
        (("completed", "pending", "in_progress"), "step-3"),
        (("pending", "in_progress", "in_progress"), "step-2"),
        (("failed", "skipped", "pending"), "step-3"),
        (("completed", "skipped"), None),
    ],
)
def test_current_step_is_the_first_in_progress_else_the_first_pending(statuses, current):
    """What is begun comes before what is not."""
    step = plan_of(*statuses).current_step

    assert (step and step.id) == current


@pytest.mark.parametrize(
    ("statuses", "completed", "terminal"),
    [
        ((), False, False),
        (("completed", "completed"), True, True),
        (("completed", "failed", "skipped"), False, True),
        (("completed", "pending"), False, False),
        (("completed", "in_progress"), False, False),
    ],
)
def test_a_plan_is_over_when_all_its_steps_are(statuses, completed, terminal):
    """Completed is stricter than over; a plan without steps is neither."""
    plan = plan_of(*statuses)

    assert (plan.all_completed, plan.all_terminal) == (completed, terminal)


def test_progress_counts_steps():
    """The percentage has one decimal, and is of the completed ones."""
    assert plan_of("completed", "pending", "pending").progress.percentage == 33.3
    assert plan_of(*STATUSES, "completed").progress == PlanProgress(
        total=6, completed=2, in_progress=1, pending=1, failed=1, skipped=1, percentage=33.3
    )
    assert plan_of().progress.percentage == 0.0


def test_the_first_approval_counts():
    """The time is given, and stays."""
    plan = plan_of("pending")
    approved = plan.approve(1000)

    assert (plan.is_approved, plan.approved_at_ms) == (False, None)
    assert (approved.is_approved, approved.approved_at_ms) == (True, 1000)
    assert approved.approve(2000) is approved


def test_empty_note_is_none():
    """A note without a word leaves the plan as it is."""
    plan = plan_of("pending")

    assert plan.add_note("step-1", " \n") == plan
