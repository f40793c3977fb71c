"""Hot tools and models: attached, detached, replaced and switched, in every state alike."""

import pytest
from msgspec.structs import replace

from cmdc_runtime.commands import (
    TOOLS_MAX,
    AttachTools,
    DetachTools,
    ReplaceTools,
    SwitchModel,
    ToolsDiff,
)
from cmdc_runtime.errors import (
    AlreadyAttached,
    InvalidTool,
    ToolNotFound,
    ToolValidationFailed,
    UsageError,
)
from cmdc_runtime.events import ModelSwitched, ToolAttached, ToolDetached, ToolsUpdated
from cmdc_runtime.messages import OpeningCall
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.subagent import STARTERS
from workers.core.inputs import FoundTool, ToolsLoaded
from workers.core.records import ModelChanged, ToolsChanged
from workers.core.state import Memory, State, ToolFacts
from workers.core.step import CallModel, ChangeTools, Complete, LoadTools

ATTACH, REPLACE = AttachTools(tools=()), ReplaceTools(tools=())
SINGLE = AttachTools(tools=(), single=True)
every_state = pytest.mark.parametrize("state", State)


def packed(name):
    return Packed(kind="ref", label=name, ref=f"tools:{name}")


def found(name):
    return FoundTool(name, ToolFacts(name, packed=packed(name)))


def broken(label):
    return FoundTool(label, None, f"{label} cannot be imported")


def loaded(session, command, *packed):
    return session.post(ToolsLoaded("c", command, tuple(packed)))


def names(session):
    return [tool.name for tool in session.memory.tools]


def outcome(session):
    (settled,) = session.of(Complete)
    return settled.outcome


def having(session, *present):
    return session.new(Memory(model="x:m", tools=tuple(map(ToolFacts, present))))


# --- tools --------------------------------------------------------------------------------------


@every_state
@pytest.mark.parametrize("command", [ATTACH, REPLACE], ids=["attach", "replace"])
def test_packed_code_is_opened_by_the_shell(session, state, command):
    """Nothing else changes before it is known what is in them, and the command has no outcome."""
    before = session.at(state)
    after = before.give(command, "c")

    assert after.effects == (LoadTools("c", command),)
    assert after.stands_as(before)


@every_state
def test_tools_are_attached_as_a_batch(session, state):
    """One record, an event for each, then the summary; the running work goes on."""
    before = session.at(state)
    after = loaded(before, ATTACH, found("x"), found("y"))
    (record,) = after.records()

    assert names(after) == [*names(before), "x", "y"]
    assert [tool.packed for tool in record.attached] == [packed("x"), packed("y")]
    assert after.events() == [
        ToolAttached(name="x"),
        ToolAttached(name="y"),
        ToolsUpdated(attached=("x", "y"), detached=()),
    ]
    assert outcome(after) == ("x", "y")
    assert after.effects[-1] == ChangeTools("c", ("x", "y"), ())
    assert (after.state, after.memory.work) == (before.state, before.memory.work)


@pytest.mark.parametrize(
    ("packed", "problems"),
    [
        ((found("new"), broken("odd")), [("odd", "invalid_tool")]),
        ((found("new"), found("read")), [("read", "already_attached")]),
        ((found("new"), found("new")), [("new", "duplicate_in_list")]),
        ((broken("odd"), found("read")), [("odd", "invalid_tool"), ("read", "already_attached")]),
    ],
    ids=["invalid", "attached", "twice", "all"],
)
def test_one_bad_tool_refuses_the_batch(session, packed, problems):
    """Every problem is reported; nothing is attached, and what was loaded is dropped."""
    before = having(session, "read")
    after = loaded(before, ATTACH, *packed)

    assert isinstance(outcome(after), ToolValidationFailed)
    assert outcome(after).problems == problems
    assert after.effects[1:] == (ChangeTools("c", (), ()),)
    assert after.memory == before.memory


@pytest.mark.parametrize(
    ("packed_", "error", "word"),
    [
        (broken("odd"), InvalidTool, "odd cannot be imported"),
        (found("read"), AlreadyAttached, "'read'"),
    ],
    ids=["invalid", "attached"],
)
def test_a_single_tool_has_errors_of_its_own(session, packed_, error, word):
    """The caller of ``attach_tool`` gets the class of its one problem."""
    after = loaded(having(session, "read"), SINGLE, packed_)

    assert type(outcome(after)) is error
    assert word in str(outcome(after))


@pytest.mark.parametrize(("command", "fits"), [(ATTACH, False), (REPLACE, True)], ids=["a", "r"])
def test_a_session_has_a_bound_on_its_tools(session, command, fits):
    """Counted with those that it has, unless they are replaced."""
    full = having(session, *(f"t-{number}" for number in range(TOOLS_MAX)))
    after = loaded(full, command, found("one more"))

    assert (len(after.memory.tools) == TOOLS_MAX) != fits
    assert isinstance(outcome(after), ToolValidationFailed) != fits


def test_as_many_tools_as_may_be_are_taken(session):
    """One by one up to the bound, and as a whole table."""
    some = having(session, *(f"t-{number}" for number in range(TOOLS_MAX - 1)))
    table = [found(f"new-{number}") for number in range(TOOLS_MAX)]

    assert len(loaded(some, ATTACH, found("the last")).memory.tools) == TOOLS_MAX
    assert len(loaded(some, REPLACE, *table).memory.tools) == TOOLS_MAX


def test_a_single_tool_too_many_says_so(session):
    """There is nothing wrong with the tool itself."""
    full = having(session, *(f"t-{number}" for number in range(TOOLS_MAX)))
    after = loaded(full, SINGLE, found("one more"))

    assert isinstance(outcome(after), InvalidTool)
    assert str(TOOLS_MAX) in str(outcome(after))


@pytest.mark.parametrize("name", ["reason", "task"])
@pytest.mark.parametrize("command", [ATTACH, SINGLE, REPLACE])
def test_a_tool_that_starts_sessions_needs_a_level_for_them(session, name, command):
    """Where there is none it would be there for nothing; it may be called whatever one likes."""
    starter = FoundTool(name, ToolFacts("mine", packed=Packed(kind="ref", label=name, ref=name)))
    empty = session.new(Memory(model="x:m"), subagents=frozenset())
    after = loaded(empty, command, starter)

    assert isinstance(outcome(after), InvalidTool | ToolValidationFailed)
    assert "mine" in str(outcome(after))
    assert "max_depth" in str(outcome(after))
    assert names(after) == []


def test_attaching_nothing_changes_nothing(session):
    """Also where the runtime's own tools take a session beyond the bound."""
    full = having(session, *(f"t-{number}" for number in range(TOOLS_MAX + 1)))
    after = loaded(full, ATTACH)

    assert outcome(after) == ()
    assert (after.memory, after.records(), after.events()) == (full.memory, [], [])


@every_state
def test_tools_are_replaced_by_name(session, state):
    """What has a kept name stays as it is; the others go and come."""
    before = session.at(state)
    after = loaded(before, REPLACE, found("write"), found("new"))

    assert names(after) == ["write", "new"]
    assert after.memory.tool("write") == before.memory.tool("write")
    assert outcome(after) == ToolsDiff(attached=("new",), detached=("read", "thread"))
    assert after.events() == [
        ToolDetached(name="read"),
        ToolDetached(name="thread"),
        ToolAttached(name="new"),
        ToolsUpdated(attached=("new",), detached=("read", "thread")),
    ]
    assert after.of(ChangeTools) == [ChangeTools("c", ("new",), ("read", "thread"))]


@every_state
def test_a_kept_name_with_other_code_is_exchanged(session, state):
    """The new code takes the place of the old one, and both are reported; the same code stays."""
    before = loaded(session.at(state), REPLACE, found("new"), found("same"))
    other = Packed(kind="value", label="new", data=b"other")
    given = FoundTool("new", ToolFacts("new", packed=other))
    after = loaded(before, REPLACE, given, found("same"))

    assert outcome(after) == ToolsDiff(attached=("new",), detached=("new",))
    assert after.memory.tool("new").packed == other
    assert names(after) == ["same", "new"]
    assert after.of(ChangeTools) == [ChangeTools("c", ("new",), ("new",))]


def test_replacing_tools_by_themselves_changes_nothing(session):
    """There is nothing to publish and nothing to write down."""
    before = having(session, "read")
    after = loaded(before, REPLACE, found("read"))

    assert outcome(after) == ToolsDiff(attached=(), detached=())
    assert (after.memory, after.records(), after.events()) == (before.memory, [], [])


def test_a_new_table_leaves_what_opens_each_cycle(session):
    """It came by another option, and every cycle of the session begins with it."""
    tools = tuple(map(ToolFacts, ("think", "read")))
    opens = OpeningCall(name="think", text_as="question")
    before = session.new(Memory(model="x:m", tools=tools), opening_call=opens)
    after = loaded(before, REPLACE, found("write"))

    assert names(after) == ["think", "write"]
    assert outcome(after) == ToolsDiff(attached=("write",), detached=("read",))


@pytest.mark.parametrize(
    ("packed", "problems"),
    [
        ((found("x"), found("x")), [("x", "duplicate_in_list")]),
        ((broken("odd"),), [("odd", "invalid_tool")]),
    ],
    ids=["twice", "invalid"],
)
def test_a_bad_table_replaces_nothing(session, packed, problems):
    """The tools of before stay, all of them."""
    before = having(session, "read")
    after = loaded(before, REPLACE, *packed)

    assert outcome(after).problems == problems
    assert after.memory == before.memory


@every_state
def test_tools_are_detached_as_a_batch(session, state):
    """Each name once; calls that run go on to their ends."""
    before = session.at(state)
    after = before.give(DetachTools(names=("write", "read", "write")), "c")

    assert names(after) == ["thread"]
    assert after.records() == [ToolsChanged(attached=(), detached=("write", "read"))]
    assert after.events() == [
        ToolDetached(name="write"),
        ToolDetached(name="read"),
        ToolsUpdated(attached=(), detached=("write", "read")),
    ]
    assert outcome(after) == ("write", "read")
    assert after.effects[-1] == ChangeTools("c", (), ("write", "read"))
    assert after.memory.calls == before.memory.calls


@pytest.mark.parametrize(("present", "known"), [(("read",), "read"), ((), "none")], ids=str)
@pytest.mark.parametrize(("single", "error"), [(True, ToolNotFound), (False, ToolValidationFailed)])
def test_one_missing_name_detaches_nothing(session, present, known, single, error):
    """The error names it, and a single one also what there is."""
    before = having(session, *present)
    after = before.give(DetachTools(names=("gone", *present), single=single))

    assert type(outcome(after)) is error
    assert "gone" in str(outcome(after))
    assert not single or str(outcome(after)).endswith(known)
    assert (after.memory, len(after.effects)) == (before.memory, 1)


@pytest.mark.parametrize(
    ("starter", "subagents", "problem"),
    [
        (False, (), None),
        (True, ("any",), None),
        (True, (), "it starts sessions, and max_depth allows none below this one"),
    ],
    ids=["another tool", "above the depth", "at the depth"],
)
def test_what_starts_sessions_needs_a_depth_below(session, starter, subagents, problem):
    """At the depth allowed it is refused; any other tool is not."""
    ref = STARTERS[0] if starter else "tools:x"
    facts = ToolFacts("x", packed=Packed(kind="ref", label="x", ref=ref))
    before = session.new(Memory(model="x:m"), subagents=frozenset(subagents))
    after = loaded(before, ATTACH, FoundTool("x", facts))

    assert names(after) == ([] if problem else ["x"])
    assert problem is None or problem in str(outcome(after))


# --- models -------------------------------------------------------------------------------------


@every_state
def test_a_model_is_switched_at_once_for_the_next_request(session, state):
    """The request under way is not disturbed; options stay those in force unless given."""
    before = session.at(state)
    after = before.give(SwitchModel(model="y:n"), "c")

    assert after.memory.model == "y:n"
    assert after.records() == [ModelChanged(model="y:n", provider_opts={})]
    assert after.events() == [ModelSwitched(from_="x:m", to="y:n", provider_opts_changed=False)]
    assert outcome(after) is None
    assert (after.state, after.memory.work) == (before.state, before.memory.work)


def test_the_next_request_goes_to_the_new_model(session):
    """That of the turn after the running one."""
    after = session.at(State.RUNNING).give(SwitchModel(model="y:n"), "c").call("read:a").end("a")

    assert after.of(CallModel)[0].model == "y:n"


def test_provider_options_may_change_alone(session):
    """The event says that they did."""
    after = session.new().give(SwitchModel(model="x:m", provider_opts={"temperature": 0}))

    assert after.memory.provider_opts == {"temperature": 0}
    assert after.events() == [ModelSwitched(from_="x:m", to="x:m", provider_opts_changed=True)]


@pytest.mark.parametrize("opts", [None, {"seed": 1}])
def test_the_same_model_is_no_switch(session, opts):
    """Nothing is published and nothing written down."""
    idle = session.new()
    memory = replace(idle.memory, provider_opts={"seed": 1})
    before = idle.remembering(memory)
    after = before.give(SwitchModel(model="x:m", provider_opts=opts))

    assert after.effects == (Complete("c", None),)
    assert after.memory == before.memory


@pytest.mark.parametrize(
    ("given", "opts"), [(None, {"seed": 1}), ({"seed": 2}, {"seed": 2})], ids=["kept", "given"]
)
def test_a_model_of_a_vendor_that_is_mistyped_is_refused(session, given, opts):
    """Who knows the vendors is asked with the options that would hold."""
    asked = []

    def problem_of(model, provider_opts):
        asked.append((model, provider_opts))
        return "did you mean y:n?"

    idle = session.new()
    policy = replace(idle.memory.policy, vendor_problem_of=problem_of)
    before = idle.remembering(replace(idle.memory, policy=policy, provider_opts={"seed": 1}))
    after = before.give(SwitchModel(model="yy:n", provider_opts=given))

    (complete,) = after.effects
    assert complete.outcome.args == ("model: did you mean y:n?",)
    assert (after.memory, asked) == (before.memory, [("yy:n", opts)])


@every_state
@pytest.mark.parametrize("model", ["", "nobody", "x:", ":m"])
def test_a_model_needs_a_provider(session, state, model):
    """The error says what would have been right, and the model stays."""
    before = session.at(state)
    after = before.give(SwitchModel(model=model))

    assert isinstance(outcome(after), UsageError)
    assert "provider:model_id" in str(outcome(after))
    assert after.memory == before.memory
