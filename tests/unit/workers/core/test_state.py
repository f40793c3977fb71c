"""What a memory says of itself, and what a state that says little is read as."""

from typing import get_args

import msgspec
import pytest

from cmdc_runtime.commands import StateName
from cmdc_runtime.extensions.hooks import AfterTool, BeforeRequest, BeforeTool
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.options import Options
from cmdc_runtime.requests import SessionPhase
from workers.core import state
from workers.core.snapshot import SnapshotFields
from workers.core.state import (
    Answering,
    Calling,
    Compacting,
    Cycle,
    Memory,
    OpenCall,
    PluginFacts,
    Policy,
    State,
    ToolFacts,
)
from workers.core.step import AskPlugins

LIMITS = [
    *("max_turns", "max_queued_prompts", "max_steering_queue", "max_retries", "max_cycle_crashes"),
    *("stall_timeout", "loop_threshold", "loop_abort", "max_children", "max_spawns"),
]
IN_SECONDS = {"stall_timeout"}
LITTLE = {
    SnapshotFields: {},
    Answering: {},
    ToolFacts: {"name": "t"},
    Cycle: {"command_id": "p-1", "first": 3, "usage_before": {}},
    OpenCall: {"call": {"call_id": "c-1", "name": "t"}},
}
"""By class, what the least that was ever written of it has."""


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_that_nobody_gives_is_that_of_the_options(name):
    """What is said of the options is what the tables are tested with."""
    (option,) = (one for one in msgspec.structs.fields(Options) if one.name == name)

    assert getattr(Policy(), f"{name}_s" if name in IN_SECONDS else name) == option.default


def test_a_policy_counts_no_system_prompt_that_it_was_not_given():
    """The estimate of a request's size has nothing in it that is not sent."""
    assert Policy().system_chars == 0


@pytest.mark.parametrize("kind", LITTLE)
def test_what_a_state_does_not_say_has_not_been(kind):
    """An older program wrote no such count and no such flag: nothing of it had happened yet."""
    read = msgspec.convert(LITTLE[kind], kind)
    found = {name: getattr(read, name) for name in kind.__annotations__ if name not in LITTLE[kind]}
    counts = {name: value for name, value in found.items() if isinstance(value, int)}

    assert counts
    # An answer whose cost is not known is what has to be said.
    assert {name for name, value in counts.items() if value} == {"is_costed"} & found.keys()


@pytest.mark.parametrize(
    ("limit_s", "due_ms"), [(None, None), (0.5, 1_500), (2.0, 3_000), (0.0004, 1_000)]
)
def test_a_cycle_is_due_so_long_after_its_first_beginning(limit_s, due_ms):
    """In wall time, to the millisecond; without a limit it is never due."""
    cycle = Cycle("p-1", 0, TokenUsage(), started_at_ms=1_000)

    assert Memory(policy=Policy(cycle_timeout_s=limit_s), cycle=cycle).cycle_due_ms == due_ms


def test_a_session_at_rest_is_due_at_no_time():
    """The limit is of a cycle."""
    assert Memory(policy=Policy(cycle_timeout_s=1.0)).cycle_due_ms is None


@pytest.mark.parametrize(
    ("hook", "window", "turn"),
    [("before_prompt", None, 0), ("before_request", None, 1), ("before_compact", 100, 1)],
)
def test_a_turn_has_begun_where_plugins_are_asked_of_its_request(session, hook, window, turn):
    """People read which turn it is in the status: it is none yet while they hear of the prompt."""
    old = tuple(Message(id=f"m-{n}", role="user", content="x" * 50) for n in range(12))
    memory = Memory(model="x:m", messages=old)
    asked = session.new(memory, hooks={hook}, window_of=lambda _model: window).prompt()

    assert len(asked.of(AskPlugins)) == 1
    assert (asked.memory.turns_begun, asked.memory.turns) == (turn, 0)


@pytest.mark.parametrize(("is_judged", "point"), [(True, "before_compact"), (False, None)])
def test_a_call_may_have_plugins_asked_of_a_compaction(is_judged, point):
    """That is what a session waits for, besides its calls, until they have spoken."""
    calling = Calling(Compacting(2, "request", "a:compact-1"), is_judged=is_judged)

    assert Memory(activity=calling).point == point


def test_a_hook_is_heard_by_who_names_it():
    """One plugin of several is enough."""
    plugins = (
        PluginFacts("one", frozenset({"before_tool"})),
        PluginFacts("two", frozenset({"after_tool"})),
    )
    memory = Memory(plugins=plugins)

    assert (memory.has_hook(BeforeTool), memory.has_hook(AfterTool)) == (True, True)
    assert memory.has_hook(BeforeRequest) is False
    assert Memory().has_hook(BeforeTool) is False


def test_a_tool_is_found_by_its_name():
    """None for one that the session does not have."""
    read, write = ToolFacts("read"), ToolFacts("write")
    memory = Memory(tools=(read, write))

    assert (memory.tool("read"), memory.tool("write"), memory.tool("gone")) == (read, write, None)


def test_nothing_of_a_memory_is_changed_in_place():
    """What a step began with is compared with what it leaves, so both have to stay."""
    structs = [one for one in vars(state).values() if isinstance(one, msgspec.StructMeta)]

    assert len(structs) > 10
    assert [one.__name__ for one in structs if not one.__struct_config__.frozen] == []


def test_every_state_is_one_that_type_checkers_know():
    """Of an agent and of the daemon; the file to edit is cmdc_runtime/commands.py."""
    found = {*map(str, State), *get_args(SessionPhase), "unresponsive"} - {"up"}

    assert {*get_args(StateName)} == found
