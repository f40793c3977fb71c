"""The planning: when it asks for a plan, how it reads replies, what it reports of them."""

import pytest

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.extensions.actions import Emit, Intervene, UpdateSystemContext
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import AfterResponse, BeforePrompt
from cmdc_runtime.messages import Message, ToolCall
from cmdc_runtime.packing import pack_plugin
from cmdc_runtime.plan import STEPS_MAX, Plan
from cmdc_runtime.plugins import Planning as Options
from cmdc_runtime.plugins.thinking import DIRECTIVE
from workers.builtin.plugins.planning import CARRY_OUT, REMINDER, Planning, checklist, follow

CONTEXT = PluginContext(session_id="s-1")
ASK = "Build a house with a garden."
LIST = "Here it is:\n\n- [ ] Dig\n- [ ] Build\n"
CALL = ToolCall(call_id="c-1", name="dig")
PLAN = Plan.new(ASK, ["Dig", "Build"])


def prompt(plugin, text=ASK):
    """Return what the plugin says to a prompt."""
    return plugin.before_prompt(BeforePrompt(text), CONTEXT)


def reply(plugin, text, *calls):
    """Return what the plugin says to a reply."""
    return plugin.after_response(AfterResponse(Message.assistant(text, calls)), CONTEXT)


def section(plan):
    """Return the order to show the plan in the system prompt; None is to remove it."""
    text = "" if plan is None else plan.to_prompt_section()
    return Emit(UpdateSystemContext(key="Plan", text=text))


def completed(plan, step_id):
    """Return the event that a step of this plan is done."""
    return Emit("plan_step_completed", {"step": plan.step(step_id), "progress": plan.progress})


@pytest.fixture
def planned():
    """A plugin with an open plan of two steps."""
    plugin = Planning()
    prompt(plugin)
    reply(plugin, LIST, CALL)
    return plugin


# --- asking -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text", "answer"),
    [
        ({}, "x" * 20, [Intervene(DIRECTIVE)]),
        ({}, "x" * 19, []),
        ({}, f"   {'x' * 19}   ", []),
        ({"min_prompt_length": 0}, "", [Intervene(DIRECTIVE)]),
        ({"directive": "Plan!"}, ASK, [Intervene("Plan!")]),
        ({"plan_first": False}, ASK, []),
    ],
)
def test_long_prompts_want_a_plan(options, text, answer):
    """From the length on that the options name, without blanks around it."""
    assert prompt(Planning(**options), text) == answer


def test_an_open_plan_is_gone_on_with(planned):
    """The next prompt asks for no other plan, and the section stays."""
    assert prompt(planned) == []
    assert planned.state.plan == PLAN


def test_a_plan_that_is_over_is_put_away(planned):
    """With the next prompt its section is removed, and a new plan is asked for."""
    reply(planned, "- [x] Dig\n- [-] Build")

    assert planned.state.plan is not None
    assert prompt(planned, "And now paint all of it blue.") == [section(None), Intervene(DIRECTIVE)]
    assert planned.state.plan is None
    assert prompt(planned, "Go on") == []


# --- taking over --------------------------------------------------------------------------------


def test_the_first_checklist_is_the_plan():
    """Observers get it, the system prompt shows it, and its goal is the prompt."""
    plugin = Planning()
    prompt(plugin)

    assert reply(plugin, LIST, CALL) == [Emit("plan_generated", PLAN), section(PLAN)]
    assert plugin.state.plan == PLAN
    assert not plugin.state.is_wanted


def test_a_reply_with_nothing_but_the_plan_does_not_end_the_cycle():
    """The model is asked to carry it out; once."""
    plugin = Planning()
    prompt(plugin)

    assert reply(plugin, LIST) == [
        Emit("plan_generated", PLAN),
        Intervene(CARRY_OUT),
        section(PLAN),
    ]
    assert reply(plugin, LIST) == [section(PLAN)]


def test_a_plan_that_nobody_asked_for_is_followed_too():
    """It is reported and shown, and the model may end there."""
    plugin = Planning(plan_first=False)
    prompt(plugin)

    assert reply(plugin, LIST) == [Emit("plan_generated", PLAN), section(PLAN)]


def test_a_plan_may_be_over_at_once():
    """A model that has done everything and then says so is believed."""
    plugin = Planning()
    prompt(plugin)
    done = PLAN.complete("step-1").complete("step-2")

    assert reply(plugin, "- [x] Dig\n- [x] Build") == [
        Emit("plan_generated", done),
        Emit("plan_completed", done),
        section(done),
    ]


def test_the_model_is_reminded_some_times():
    """Then it may go on without a plan, until the next prompt."""
    plugin = Planning()
    prompt(plugin)
    answers = [reply(plugin, "1. Dig\n2. Build") for _ in range(4)]

    assert answers == [[Intervene(REMINDER)], [Intervene(REMINDER)], [], []]
    assert prompt(plugin) == [Intervene(DIRECTIVE)]
    assert reply(plugin, "No.") == [Intervene(REMINDER)]


def test_there_may_be_no_reminder():
    """A limit of 0 leaves it at the directive."""
    plugin = Planning(max_plan_attempts=0)
    prompt(plugin)

    assert reply(plugin, "No.") == []


@pytest.mark.parametrize("plugin", [Planning(), Planning(plan_first=False)])
def test_a_reply_without_a_plan_is_fine_where_none_is_wanted(plugin):
    """Neither a short prompt nor a plugin that does not ask leads to reminders."""
    prompt(plugin, "Hi")

    assert reply(plugin, "Hello!") == []


def test_a_list_without_end_is_no_plan():
    """More steps than a plan takes count as none."""
    plugin = Planning()
    prompt(plugin)

    assert reply(plugin, "- [ ] step\n" * (STEPS_MAX + 1)) == [Intervene(REMINDER)]
    assert checklist("goal", "- [ ] a\n" * (STEPS_MAX + 1)) == Plan(goal="goal")


# --- following ----------------------------------------------------------------------------------


def test_steps_are_checked_off(planned):
    """Observers hear of each completed step once, and at last of the plan."""
    dug = PLAN.complete("step-1")
    built = dug.complete("step-2")

    assert reply(planned, "- [x] Dig\n- [ ] Build", CALL) == [
        completed(dug, "step-1"),
        section(dug),
    ]
    assert reply(planned, "Still at it.", CALL) == [section(dug)]
    assert reply(planned, "- [x] Dig\n- [x] Build\n\nDone.") == [
        completed(built, "step-2"),
        Emit("plan_completed", built),
        section(built),
    ]
    assert reply(planned, "- [x] Dig\n- [x] Build") == [section(built)]


def test_several_steps_are_reported_one_by_one(planned):
    """In the order of the plan."""
    built = PLAN.complete("step-1").complete("step-2")

    assert reply(planned, "- [x] Build\n- [x] Dig") == [
        completed(built, "step-1"),
        completed(built, "step-2"),
        Emit("plan_completed", built),
        section(built),
    ]


def test_a_plan_is_over_without_every_step_done(planned):
    """Failed and skipped steps are over as well, and no step completed is reported for them."""
    over = PLAN.fail("step-1").skip("step-2")

    assert reply(planned, "- [!] Dig\n- [-] Build") == [Emit("plan_completed", over), section(over)]


def test_a_foreign_checklist_takes_the_place_of_an_open_plan(planned):
    """The model has thought again; nothing is asked of it."""
    other = Plan.new(ASK, ["Buy a house"])

    assert reply(planned, "- [ ] Buy a house") == [Emit("plan_generated", other), section(other)]


def test_a_foreign_checklist_after_the_end_is_no_plan(planned):
    """It may be the very thing that the user asked for."""
    done = PLAN.complete("step-1").complete("step-2")
    reply(planned, "- [x] Dig\n- [x] Build")

    assert reply(planned, "- [ ] Water the garden") == [section(done)]


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("- [x] Dig", PLAN.complete("step-1")),
        ("- [~] Build", PLAN.start("step-2")),
        ("- [x] **dig**.", PLAN.complete("step-1")),
        ("- [x] ~~Dig~~", PLAN.complete("step-1")),
        ("- [x] Dig\n  > by hand", PLAN.complete("step-1").add_note("step-1", "by hand")),
        ("- [ ] Dig\n- [ ] Paint", PLAN.add_step("Paint")),
        ("- [ ] Dig\n- [x] Paint", PLAN.add_step("Paint").complete("step-3")),
        ("- [ ] Paint\n- [x] Roof", None),
        ("- [x] Digging", None),
    ],
)
def test_a_newer_checklist_changes_the_plan(text, after):
    """Known steps get new marks and notes, new ones are added; without a known one it is none."""
    assert follow(PLAN, Plan.from_markdown("", text)) == after


def test_a_step_that_is_over_stays_so():
    """A list that is older than it looks takes nothing back."""
    dug = PLAN.complete("step-1").start("step-2")

    assert follow(dug, Plan.from_markdown("", "- [ ] Dig\n- [ ] Build")) == dug
    assert follow(dug, Plan.from_markdown("", "- [!] Dig")) == dug


def test_equal_titles_are_distinguished_by_their_order():
    """The second one of a title is the second one in the plan."""
    plan = Plan.new("goal", ["Test", "Fix", "Test"])
    after = follow(plan, Plan.from_markdown("", "- [x] Test\n- [x] Fix\n- [ ] Test"))

    assert [step.status for step in after.steps] == ["completed", "completed", "pending"]


def test_notes_are_taken_over_once():
    """A list that is repeated repeats its notes."""
    text = "- [~] Dig\n  > by hand"
    once = follow(PLAN, Plan.from_markdown("", text))

    assert once.steps[0].notes == ("by hand",)
    assert follow(once, Plan.from_markdown("", text)) == once


def test_a_plan_does_not_grow_beyond_its_limit():
    """What would be too much is left out; the rest of the list counts."""
    plan = Plan.new("goal", [f"step {at}" for at in range(STEPS_MAX)])
    after = follow(plan, Plan.from_markdown("", "- [x] step 0\n- [ ] one more"))

    assert after == plan.complete("step-1")


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"min_prompt_length": -1}, "min_prompt_length"),
        ({"directive": ""}, "directive"),
        ({"max_plan_attempts": -1}, "max_plan_attempts"),
        ({"max_plan_attempts": 11}, "max_plan_attempts"),
        ({"plan_first": 1}, "plan_first"),
    ],
)
def test_bad_options_are_refused(options, named):
    """Before the session starts, with the option."""
    with pytest.raises(InvalidOptions, match=named):
        pack_plugin(Options(**options), "plugins[0]")
    with pytest.raises(InvalidOptions, match=named):
        Planning(**options)
