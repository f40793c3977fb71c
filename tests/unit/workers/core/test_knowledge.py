"""Folders of skills and memory files that come while a session lives, in every state alike."""

import msgspec
import pytest
from msgspec.structs import replace

from cmdc_runtime.commands import AddMemory, AddSkillsDirs, AttachPlugin, AttachTools
from cmdc_runtime.errors import AlreadyAttached, InvalidOptions
from cmdc_runtime.knowledge import memory_parts, skills_parts
from cmdc_runtime.packed_code import Packed
from workers.core.inputs import FoundTool, PluginLoaded, ToolsLoaded
from workers.core.state import Memory, PluginFacts, State, ToolFacts
from workers.core.step import ChangePlugins, ChangeTools, Complete, LoadPlugin, LoadTools
from workers.core.verdict import Verdict

DIRS = AddSkillsDirs(dirs=(("team", "b"), ("", "c")))
FILES = AddMemory(files=("b.md", "a.md"))
every_state = pytest.mark.parametrize("state", State)


def having(session, state, plugins=(), tools=()):
    """Return a session in a state, with these plugins and tools."""
    memory = session.at(state).memory
    facts = tuple(PluginFacts(one.ref, frozenset(), one) for one in plugins)
    named = tuple(ToolFacts(one.ref, packed=one) for one in tools)
    return session.new(replace(memory, plugins=facts, tools=named))


def loaded(session, state, plugins=(), tools=(), command=DIRS):
    """Return a session that was given a command, and what it has the shell load."""
    after = having(session, state, plugins, tools).give(command, "c")
    return after, after.effects


@every_state
def test_a_session_without_skills_gets_plugin_and_tool(session, state):
    """The same that the option brings; the command ends when both are there."""
    plugin, tool = skills_parts([("team", "b"), "c"])
    after, effects = loaded(session, state)
    assert effects == (LoadPlugin("c", AttachPlugin(plugin=plugin, tools=(tool,))),)
    [load] = effects
    facts = PluginFacts("skills", frozenset(), plugin)
    after = after.post(PluginLoaded("c", load.command, facts, Verdict()))
    attach = AttachTools(tools=(tool,), is_update=True)
    assert after.of(LoadTools) == [LoadTools("c", attach)]
    assert after.of(Complete) == []
    found = (FoundTool("load_skill", ToolFacts("load_skill", packed=tool)),)
    after = after.post(ToolsLoaded("c", attach, found))

    assert [one.outcome for one in after.of(Complete)] == [("load_skill",)]
    assert [one.packed for one in after.memory.plugins] == [plugin]
    assert after.memory.tools[-1].packed == tool
    assert after.of(ChangeTools) == [ChangeTools("c", ("load_skill",), ())]


@every_state
def test_folders_are_added_behind_those_that_are_there(session, state):
    """One that was there comes last; other options and the place of the tool stay."""
    plugin, tool = skills_parts(["a", ("team", "b")])
    options = msgspec.msgpack.decode(plugin.data)
    plugin = replace(plugin, data=msgspec.msgpack.encode({**options, "tokens": 200}))
    other = Packed(kind="ref", label="shell", ref="shell")
    after, [load] = loaded(session, state, (plugin,), (tool, other))
    [new_tool] = load.command.tools
    dirs = [["", "a"], ["team", "b"], ["", "c"]]
    assert load.command.is_update
    assert msgspec.msgpack.decode(load.command.plugin.data) == {"dirs": dirs, "tokens": 200}
    assert msgspec.msgpack.decode(new_tool.data) == {"dirs": dirs}
    facts = PluginFacts("skills", frozenset(), load.command.plugin)
    after = after.post(PluginLoaded("c", load.command, facts, Verdict()))
    attach = AttachTools(tools=(new_tool,), is_update=True)
    found = (FoundTool("load_skill", ToolFacts("load_skill", packed=new_tool)),)
    after = after.post(ToolsLoaded("c", attach, found))

    assert [one.packed for one in after.memory.tools] == [new_tool, other]


def test_what_was_done_before_a_crash_is_not_done_again(session):
    """The command comes again: what is there is left out, and what is missing comes in."""
    plugin, tool = skills_parts(["a"])
    new_plugin, new_tool = skills_parts(["a", ("team", "b"), "c"])
    _, effects = loaded(session, State.IDLE, (new_plugin,), (tool,))
    _, nothing = loaded(session, State.IDLE, (new_plugin,), (new_tool,))

    shown = memory_parts(["b.md", "a.md"], ())
    _, nothing_more = loaded(session, State.IDLE, shown, command=FILES)

    assert effects == (LoadTools("c", AttachTools(tools=(new_tool,), is_update=True)),)
    assert nothing == (Complete("c", ()),)
    assert nothing_more == (Complete("c", ""),)
    assert plugin != new_plugin


@every_state
def test_memory_files_are_added_behind_those_that_are_shown(session, state):
    """A session without any gets the plugin that the option brings."""
    _, [first] = loaded(session, state, command=FILES)
    [own] = memory_parts(["a.md"], ())
    after, [more] = loaded(session, state, (own,), command=FILES)
    default = Packed(kind="ref", label="memory_loader", ref="memory_loader")
    _, [of_default] = loaded(session, state, (default,), command=FILES)

    assert (first.command.plugin,) == memory_parts(["b.md", "a.md"], ())
    assert msgspec.msgpack.decode(more.command.plugin.data)["memory_files"] == ["a.md", "b.md"]
    assert msgspec.msgpack.decode(of_default.command.plugin.data) == {
        "memory_files": ["AGENTS.md", "b.md", "a.md"]
    }
    facts = PluginFacts("memory_loader", frozenset(), more.command.plugin)
    after = after.post(PluginLoaded("c", more.command, facts, Verdict()))
    assert [one.outcome for one in after.of(Complete)] == ["memory_loader"]
    assert after.of(ChangePlugins) == [ChangePlugins("c", attached=True, detached=())]


def test_a_plugin_of_ones_own_is_not_replaced(session):
    """It has the name of the built-in one, and the error says to give the directories to it."""
    memory = Memory(
        model="x:m",
        plugins=(PluginFacts("skills", frozenset(), Packed(kind="ref", label="m:S", ref="m:S")),),
    )
    [refused] = session.new(memory).give(DIRS, "c").effects
    named = PluginFacts("clerk", frozenset(), Packed(kind="ref", label="m:C", ref="m:C"))
    [load] = session.new(replace(memory, plugins=(named,))).give(DIRS, "c").effects

    assert isinstance(refused.outcome, AlreadyAttached)
    assert load.command.plugin.ref == "skills"


def test_what_the_plugin_refuses_is_refused(session):
    """As too many folders; nothing has changed."""
    after, [load] = loaded(session, State.IDLE)
    after = after.post(PluginLoaded("c", load.command, None, Verdict(), "too many"))

    assert isinstance(after.of(Complete)[0].outcome, InvalidOptions)
    assert after.memory.plugins == ()
    assert after.of(LoadTools) == []
