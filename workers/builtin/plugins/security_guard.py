"""Blocks calls that touch secret files or would destroy something, before they run.

Every argument of every tool that sounds like a path is one, and every ``command`` is shell text. A
path counts by where it leads: relative to the working folder, links and ``..`` resolved. The model
reads what was blocked and why, so that it can go on without it.
"""

import os
import posixpath
import pwd
import re
from functools import lru_cache
from typing import Any, Final

from cmdc_runtime import plugins
from cmdc_runtime.extensions.actions import BlockTool, Emit
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import BeforeTool
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.plugins.guards import BLOCKED_PATHS, REGEX_MARK
from workers.builtin.guarding.blocked_paths import BlockedPaths
from workers.builtin.guarding.guarded_arguments import PathGuard, arguments_of
from workers.builtin.guarding.guarded_shell import Finding, ShellGuard, ShellRules
from workers.builtin.guarding.shell_paths import Surroundings

ARGUMENTS_MAX: Final = 1000
"""Paths and commands of one call."""
SUBJECT_CHARS_MAX: Final = 200
"""Of what is published about a blocked path or command."""


class SecurityGuard(Plugin):
    """Guards files and the machine."""

    name = "security_guard"
    priority = 10
    fail = "closed"
    emits = ("security_audit",)
    Config = plugins.SecurityGuard

    def __init__(self, **config: Any) -> None:  # Any: options as they come
        """Compile the blocked commands."""
        super().__init__(**config)
        self._phrases = [(one, _expression(one)) for one in self.config.blocked_commands]
        self._guards_of = lru_cache(maxsize=1)(self._guards)

    def before_tool(self, event: BeforeTool, context: PluginContext) -> list[BlockTool | Emit]:
        """Block a call with the first argument that is not allowed."""
        finding = self._finding(event, context.working_dir)
        if finding is None:
            return []
        entry = {
            "tool": event.name,
            "call_id": event.call_id,
            "kind": finding.kind,
            "subject": finding.subject[:SUBJECT_CHARS_MAX],
            "rule": finding.rule,
        }
        audit = [Emit("security_audit", entry)] if self.config.audit else []
        return [*audit, BlockTool(_reason(finding))]

    def _finding(self, event: BeforeTool, working_dir: str) -> Finding | None:
        paths, shell = self._guards_of(posixpath.abspath(working_dir))
        arguments = arguments_of(event.args, self.config.path_arguments)
        for count, argument in enumerate(arguments):
            if count >= ARGUMENTS_MAX:
                rule = f"it names more than {ARGUMENTS_MAX} paths and commands"
                return Finding("unreadable", "the call", rule)
            judge = shell.judge if argument.is_command else paths.judge
            if (found := judge(argument.text)) is not None:
                return found
        return paths.of_search(event.name, event.args)

    def _guards(self, working_dir: str) -> tuple[PathGuard, ShellGuard]:
        config = self.config
        defaults = BLOCKED_PATHS if config.default_blocked_paths else ()
        home = os.environ.get("HOME") or posixpath.expanduser("~")
        around = Surroundings(home=home, user=_user(), working_dir=working_dir)
        paths = BlockedPaths([*defaults, *config.blocked_paths], working_dir, around.home)
        rules = ShellRules(
            destructive=config.default_blocked_commands,
            phrases=self._phrases,
            searches=config.guard_searches,
            undecidable=config.undecidable_commands == "block",
        )
        guard = PathGuard(paths, working_dir, guards_searches=config.guard_searches)
        return guard, ShellGuard(paths, rules, around)


def _expression(phrase: str) -> re.Pattern[str]:
    """Return what finds a blocked command: a regular expression, or words as such."""
    if phrase.startswith(REGEX_MARK):
        return re.compile(phrase.removeprefix(REGEX_MARK))
    words = r"\s+".join(map(re.escape, phrase.split()))
    begin = r"(?<![\w-])" if re.match(r"[\w-]", phrase.strip()) else ""
    end = r"(?![\w-])" if re.search(r"[\w-]$", phrase.strip()) else ""
    return re.compile(begin + words + end, re.IGNORECASE)


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # as in a container, whose user may have no name
        return str(os.getuid())


def _reason(finding: Finding) -> str:
    subject = finding.subject[:SUBJECT_CHARS_MAX]
    if finding.kind == "unreadable":
        return (
            f"Blocked by the security guard, since {subject} cannot be checked: {finding.rule}."
            " Write it shorter and simpler, in steps that say openly what they do."
        )
    if finding.kind == "command":
        return (
            f"Blocked by the security guard: {subject}; {finding.rule}. Do not try to get the same"
            " done in another way; if the task needs it, tell the user what to run."
        )
    return (
        f"Blocked by the security guard: {subject} is protected ({finding.rule}). Do not try to"
        " reach it in another way; work without it, or tell the user what you need from it."
    )


create = SecurityGuard
