"""A plugin that keeps commands from the shell: ``BlockTool``, which the model reads as an error.

It runs as it is, with a model that plays a script; CMDC_MODEL=openai:gpt-4o-mini names a real one.
A list of words stops mistakes and not malice, for ``sh -c`` is another program: ``SecurityGuard``
of ``cmdc.plugins`` knows more tricks, and what nothing gets around is the system's own sandbox.

python examples/plugins/01_dangerous_commands.py
"""

import os
import shlex
from pathlib import PurePath

import msgspec

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ScriptedModel, ToolCalls, ToolUse

SIGNS = "();<>|&\n"


def programs_of(command: str) -> set[str]:
    """Return the programs that a shell command names: its first word, and that after each sign."""
    words = shlex.shlex(command, posix=True, punctuation_chars=SIGNS)
    words.whitespace, words.commenters, words.whitespace_split = " \t\r", "", True
    found, is_first = set(), True
    for word in words:
        is_sign = set(word) <= set(SIGNS)
        if is_first and not is_sign and "=" not in word:  # X=1 before a program is no program
            found.add(PurePath(word).name)
            is_first = False
        is_first = is_sign or is_first
    return found


class DangerousCommands(cmdc.Plugin):
    """Blocks shell commands by the programs in them."""

    priority = 50
    fail = "closed"  # a guard that fails must not open the door

    class Config(msgspec.Struct, frozen=True):
        """The programs that may not run."""

        denied: frozenset[str] = frozenset({"curl", "dd", "mkfs", "rm", "sudo", "wget"})

    @cmdc.hook(tools=["shell"])
    def before_tool(
        self, event: cmdc.BeforeTool, _context: cmdc.PluginContext
    ) -> cmdc.BlockTool | None:
        """Refuse what cannot be read, too."""
        try:
            hits = sorted(programs_of(event.args["command"]) & self.config.denied)
        except ValueError as error:
            return cmdc.BlockTool(f"The command cannot be read: {error}.")
        return cmdc.BlockTool(f"{', '.join(hits)} may not be used here.") if hits else None


SCRIPT = ScriptedModel(
    [
        ToolCalls(ToolUse("shell", {"command": "cd . && LANG=C /usr/bin/curl --version"})),
        ToolCalls(ToolUse("shell", {"command": "echo curl is a word here"})),
        "I may not use curl.",
    ]
)

with (
    SCRIPT,
    cmdc.create_agent(
        model=os.environ.get("CMDC_MODEL") or SCRIPT,
        tools=[cmdc.tools.Shell],
        plugins=[DangerousCommands],
    ) as session,
):
    for message in session.run("Which version of curl is here?").messages:
        calls = [call.arguments.get("command") for call in message.tool_calls]
        print(f"{message.role}: {message.content.strip() or calls}")
