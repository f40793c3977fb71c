"""Blueprints to start from: ``create_agent(blueprint=cmdc.blueprints.CodingAgent, model=…)``.

Each is a ``Blueprint`` with other defaults: a value that is extended and overridden as any other,
``CodingAgent(memory=[]).add_tools(mine)``. What an application gives beside it outranks it. To add
one: a class here, and a test that plays it.
"""

from typing import Any

import msgspec
from msgspec import field

from cmdc_runtime import plugins, tools
from cmdc_runtime.blueprint import Blueprint, tool_name
from cmdc_runtime.options import Options
from cmdc_runtime.skills import STANDARD_DIRS
from cmdc_runtime.subagent import SubAgent

_READING = (tools.ReadFile, tools.ListDir, tools.Grep, tools.Glob)


class CodingAgent(Blueprint, frozen=True, kw_only=True):
    """Works on the repository in its working folder: reads, edits, runs the tests.

    It reads ``AGENTS.md`` or ``CLAUDE.md``, has the skills of the user and of the project, and the
    guard against commands that destroy. Give it the folder: ``working_dir=…``.
    """

    name: str = "a careful software engineer"
    purpose: str = "change the repository in the working folder as the user asks, and no more"
    system_prompt: str | None = (
        "Read the code that you are about to change, and its tests. Make the smallest change that"
        " does what is asked, in the style that is there. Run the tests before you say that you are"
        " done, and say what you ran and what came of it. Where a call was cut short, look at what"
        " is there before you repeat it. Never commit or push unless the user asks for it."
    )
    tools: list[Any] = field(
        default_factory=lambda: [
            *_READING,
            tools.WriteFile,
            tools.EditFile,
            tools.ApplyPatch,
            tools.Shell,
            tools.WriteTodos,
        ]
    )
    plugins: list[Any] = field(
        default_factory=lambda: [
            plugins.SecurityGuard(),
            plugins.PatchToolCalls(),
            plugins.PromptCache(),
        ]
    )
    memory: list[Any] = field(default_factory=lambda: ["AGENTS.md"])
    skills_dirs: list[Any] = field(default_factory=lambda: [*STANDARD_DIRS])


class ResearchAgent(Blueprint, frozen=True, kw_only=True):
    """Answers a question from many documents: readers look side by side, one writes it together.

    A reader is a subagent with the tools for reading. ``add_tools`` gives both the search of your
    own: a reader has the tools of its parent.
    """

    name: str = "a researcher"
    purpose: str = "answer questions from sources that can be checked"
    system_prompt: str | None = (
        "Split the question into parts that do not need each other, and give each to a reader, all"
        " in one reply. Tell a reader all that it has to know. Then put together what they found:"
        " every claim with its source, contradictions said openly, and what nobody found named as"
        " such. Use no knowledge that has no source."
    )
    tools: list[Any] = field(default_factory=lambda: [*_READING, tools.WriteTodos])
    subagents: list[SubAgent] = field(
        default_factory=lambda: [
            SubAgent(
                "reader",
                "Looks one thing up in the sources and reports it with the places where it stands.",
                system_prompt=(
                    "Find what you are asked for in the sources. Report what they say, each"
                    " statement with the file and line or the address where it stands, and say"
                    " what you looked for and did not find."
                ),
            )
        ]
    )
    plugins: list[Any] = field(
        default_factory=lambda: [
            plugins.PatchToolCalls(),
            plugins.LargeResultOffload(),
            plugins.PromptCache(),
        ]
    )


class SupportAgent(Blueprint, frozen=True, kw_only=True):
    """Helps a customer: looks things up by itself, and does nothing without a person's leave.

    ``tools`` are those that look things up. Each call of one of ``actions``, a refund for example,
    waits for ``approve`` or ``reject``, ten minutes at the most, and runs when it is approved.
    """

    name: str = "a support agent"
    purpose: str = "solve the customer's problem with what the tools say"
    system_prompt: str | None = (
        "Look things up before you answer, and promise nothing that a tool has not confirmed. Ask"
        " the customer where something is missing. An action waits for a colleague's approval: if"
        " it is rejected, say so kindly, give the reason if you know one, and offer what else can"
        " be done. Never repeat an action that was rejected or may have been carried out."
    )
    tools: list[Any] = field(default_factory=lambda: [tools.AskUser])
    actions: list[Any] = field(default_factory=list)  # tools that change something
    plugins: list[Any] = field(default_factory=lambda: [plugins.PatchToolCalls()])
    approval_timeout_ms: int = 600_000
    """For one call of an action; then it counts as rejected."""

    def to_options(self) -> Options:
        """Return the options that this describes, its actions guarded.

        Raises:
            InvalidOptions: as for every blueprint.
            InvalidTool: an action is no tool.
        """
        names = [tool_name(one) for one in self.actions]
        guards = []
        if names:
            guard = plugins.HumanApproval(
                require_approval_for=tuple(names), mode="hold", timeout_ms=self.approval_timeout_ms
            )
            guards.append(guard)
        whole = self.override(
            tools=[*self.tools, *self.actions], plugins=[*self.plugins, *guards], actions=[]
        )
        return msgspec.structs.replace(super(SupportAgent, whole).to_options(), blueprint=self)


__all__ = ["CodingAgent", "ResearchAgent", "SupportAgent"]
