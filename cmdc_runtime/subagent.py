"""Subagents: what the model may give a task to, as an application says it and as it travels.

What it may give the session itself to travels so, too: ``handoff`` takes it from an application.

A field that is None is the parent's. ``options.parse`` checks a ``SubAgent``, ``spec.agent_spec``
makes a ``SubagentSpec`` of it, and ``child_spec.child_request`` merges that with the parent. To add
a field, add it to both classes and to ``child_spec``.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.redaction import printed, printed_fields

TASK_TOOL: Final = "task"
"""The built-in tool by which the model starts a subagent."""
REASON_TOOL: Final = "reason"
"""The built-in tool by which the model starts a reasoning run."""
STARTERS: Final = (TASK_TOOL, REASON_TOOL)
"""Tools that start sessions."""
SKILLS_PLUGIN: Final = "skills"
"""The built-in plugin that knows the skills of a session."""
SKILLS_TOOL: Final = "load_skill"
"""The built-in tool by which the model reads one."""
OF_SKILLS: Final = (SKILLS_PLUGIN, SKILLS_TOOL)
MEMORY_PLUGIN: Final = "memory_loader"
"""The built-in plugin that shows memory files."""
MEMORY_LABEL: Final = "memory"
"""What that plugin is called on its way where the option ``memory`` brings it."""
MEMORY_FILES: Final = ("AGENTS.md",)
"""What that plugin shows where it is given nothing else."""
CLIENT_TOOL: Final = "client_tool"
"""The built-in that stands for a tool which runs in the program that has attached it."""
TRANSFER_TOOL: Final = "transfer"
"""The built-in by which the model gives the session over; no application names it."""
TRANSFER_PREFIX: Final = "transfer_to_"
"""What it is called begins with this, and ends with the name of an agent."""
STRATEGY_TOOL: Final = "reasoning_strategy"
"""What the same tool is called as the session's own strategy, which its cycles open with."""


class SubAgent(msgspec.Struct, frozen=True, metaclass=Checked):
    """A kind of agent that the model may give a task to; None means: as the parent has it.

    Fields have the types and bounds of ``Options``. The parent's model reads in ``description``
    what this agent is good for. A subagent starts without the parent's messages and todos.
    """

    __repr__ = printed
    __rich_repr__ = printed_fields

    name: str
    description: str
    system_prompt: str | None = None
    model: Any = None  # "provider:model_id" or a ModelSource
    provider_opts: dict[str, Any] | None = None
    """The parent's are used with the parent's provider alone: keys go to no other one."""
    tools: list[Any] | None = None  # tools, decorated functions, classes or "module:name"
    plugins: list[Any] | None = None  # plugins, classes, (class, options) or "module:Class"
    user_data: dict[str, Any] | None = None
    prompt_mode: str | None = "task"
    group_id: str | None = None
    max_turns: int | None = None
    skills_dirs: list[Any] | None = None  # folders of skills, or (word, folder)


class SubagentSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A ``SubAgent`` with its tools packed."""

    __repr__ = printed
    __rich_repr__ = printed_fields

    name: str
    description: str
    system_prompt: str | None = None
    model: str | None = None
    provider_opts: dict[str, Any] | None = None  # Any: litellm's own arguments
    tools: tuple[Packed, ...] | None = None
    plugins: tuple[Packed, ...] | None = None
    user_data: dict[str, Any] | None = None  # Any: the application's own
    prompt_mode: str | None = "task"
    group_id: str | None = None
    max_turns: int | None = None
    skills: tuple[Packed, ...] | None = None
    """The plugin and the tool for its own skills; none where it has none."""


GENERAL_PURPOSE: Final = SubagentSpec(
    name="general-purpose",
    description=(
        "Works on any self-contained task with your own tools, and reports the result. It knows"
        " nothing of this conversation: tell it all that it needs."
    ),
)
"""Every session that may delegate has it; a ``SubAgent`` of this name takes its place."""


# --- handoffs -----------------------------------------------------------------------------------


class HandoffSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A ``Handoff`` with its tools packed; ``is_own``: it is the session's own agent."""

    __repr__ = printed
    __rich_repr__ = printed_fields

    agent: SubagentSpec
    identity: str = ""
    sees_all: bool = True
    history: Packed | None = None
    is_own: bool = False


def transfer_name(agent: str) -> str:
    """Return what the tool is called that gives the session over to this agent."""
    return f"{TRANSFER_PREFIX}{agent}"


def transfer_tools(handoffs: Sequence[HandoffSpec], acting: str) -> tuple[Packed, ...]:
    """Return the tools by which the agent of this name gives the session over to the others."""
    return tuple(_transfer_tool(one.agent) for one in handoffs if one.agent.name != acting)


def _transfer_tool(agent: SubagentSpec) -> Packed:
    name = transfer_name(agent.name)
    options = {"agent": agent.name, "name": name, "about": agent.description}
    data = msgspec.msgpack.encode(options)
    return Packed(kind="ref", label=name, ref=TRANSFER_TOOL, data=data)
