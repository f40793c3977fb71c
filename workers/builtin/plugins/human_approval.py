"""Asks a person about calls of some tools, but not about shell commands that only read.

The kernel has the approvals: it lists and journals them, publishes them, waits, and lets a call
with a leave run although it is asked for again. Here it is decided which calls are asked for, and
what "approve_always" means for one. A command that cannot be read is never safe.

Who approves a shell command for good allows its family: the program's name, with the subcommand of
a program that has some: ``rm``, ``git push``, ``docker compose up``. A command has no family, so
that only its very text can be approved, where the name says too little: the program runs whatever
it is asked to, an option makes it do so, or what the person saw is one use among harmless ones. To
let a program count with its subcommands, add it to ``_SUBCOMMANDS``; one that runs others, to
``_RUNS_ANYTHING``.
"""

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from cmdc_runtime import plugins
from cmdc_runtime.extensions.actions import DecideApproval, Emit, RequireApproval
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import BeforePrompt, BeforeTool
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.plugins.guards import ALL_TOOLS
from workers.builtin.plugins._safe_commands import (
    NARROWED,
    SafeCommands,
    is_harmless,
    is_plain,
    trick_of,
)
from workers.builtin.shell.programs import WRAPPERS
from workers.builtin.shell.reader import Command, Reading, Word, basename, read

# --- families of commands -------------------------------------------------------------------------

FAMILY_CHARS_MAX: Final = 128
"""What the kernel takes."""
JOINT: Final = " + "
"""Between the families of one command line."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_./~][A-Za-z0-9_./:@~-]*")
"""What a name in a family looks like; no blank, so that nothing reads as two."""
_VERSION: Final = re.compile(r"[-.\d]+$")

# fmt: off
_SUBCOMMANDS: Final = frozenset({
    "apt", "apt-get", "apk", "brew", "bun", "bundle", "cargo", "choco", "composer", "conda",
    "deno", "dnf", "docker", "dotnet", "gem", "git", "go", "gradle", "helm", "hg", "just",
    "kubectl", "make", "mix", "mvn", "npm", "pacman", "pip", "pip3", "pnpm", "podman", "poetry",
    "rustup", "snap", "svn", "systemctl", "terraform", "uv", "yarn", "yum", "zypper",
})
"""Programs whose first argument says what they do."""
_GROUPS: Final = frozenset({
    ("docker", "compose"), ("docker", "container"), ("docker", "image"), ("docker", "network"),
    ("docker", "system"), ("docker", "volume"), ("podman", "container"), ("podman", "image"),
    ("podman", "volume"), ("git", "remote"), ("git", "stash"), ("git", "worktree"),
    ("kubectl", "config"), ("kubectl", "rollout"), ("npm", "run"), ("pnpm", "run"), ("bun", "run"),
    ("yarn", "run"), ("uv", "pip"),
})
"""Subcommands with subcommands."""
_TWO_WORDS: Final = frozenset({"aws", "az", "doctl", "fly", "gh", "glab"})
"""Programs whose first two arguments say what they do."""
_RUNS_ANYTHING: Final = frozenset({
    # shells, and what a shell does itself: run others, or change what later words mean
    "ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "pwsh", "rbash", "sh", "tcsh", "zsh",
    ".", "[", "[[", "alias", "bind", "builtin", "command", "complete", "declare", "enable", "eval",
    "exec", "export", "getopts", "hash", "let", "local", "mapfile", "printf", "read", "readarray",
    "readonly", "set", "shopt", "source", "test", "trap", "typeset", "unalias", "unset",
    # programs that run what they find, beside those of ``WRAPPERS``
    "bunx", "expect", "npx", "pipx", "run-parts", "start-stop-daemon", "uvx",
    # languages
    "awk", "gawk", "mawk", "nawk", "bc", "clojure", "elixir", "erl", "gdb", "ghc", "ghci",
    "groovy", "guile", "iex", "irb", "java", "jshell", "julia", "lua", "luajit", "node", "nodejs",
    "ocaml", "osascript", "perl", "php", "pypy", "python", "racket", "R", "Rscript", "ruby",
    "sbcl", "scala", "sed", "swift", "tclsh", "ts-node", "tsx", "wish",
    # editors, pagers, clients and packers with a way to a shell
    "dd", "ed", "emacs", "ex", "ftp", "less", "man", "more", "mosh", "mysql", "nano", "nc", "ncat",
    "netcat", "nvim", "psql", "rsync", "scp", "sftp", "socat", "sqlite3", "ssh", "tar", "telnet",
    "vi", "vim", "zip",
}).union(WRAPPERS)
_SUBCOMMANDS_RUN_ANYTHING: Final = frozenset({
    ("bun", "x"), ("bundle", "exec"), ("conda", "run"), ("deno", "eval"), ("deno", "run"),
    ("docker", "exec"), ("docker", "run"), ("git", "bisect"), ("git", "config"),
    ("git", "difftool"), ("git", "filter-branch"), ("git", "mergetool"), ("git", "rebase"),
    ("git", "submodule"), ("go", "generate"), ("go", "run"), ("kubectl", "exec"), ("npm", "exec"),
    ("npm", "x"), ("pnpm", "dlx"), ("pnpm", "exec"), ("podman", "exec"), ("podman", "run"),
    ("poetry", "run"), ("uv", "run"), ("yarn", "dlx"), ("yarn", "exec"),
})
_FILES_RUN: Final = frozenset({"gradle", "just", "make", "mvn"})
"""Programs that run what a file says, and whose options name another file."""
_CALLING_OPTIONS: Final = (
    "checkpoint-action", "command", "compress-program", "config", "cwd", "dir", "directory",
    "editor", "eval", "exec", "execute", "file", "init-file", "makefile", "manifest-path", "pager",
    "plugin", "prefix", "project", "rcfile", "receive-pack", "rsh", "script", "shell",
    "to-command", "toolexec", "upload-pack", "use-compress-program", "working-directory",
)
"""Long options by which one program or another runs what the option names, or in its place."""
# fmt: on
_CALLING_WORDS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir", "-toolexec"})
_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]*=")
_OPTION_CHARS_MIN: Final = 3
"""Programs take the beginning of a long option for the option."""


def family_of(command: Command) -> str | None:
    """Return the family of one simple command, None if it has none."""
    words = command.words
    names = _leading_names(words)
    if not names or _stem(names[0]) in _RUNS_ANYTHING or tuple(names[:2]) in NARROWED:
        return None
    if (names[0],) in NARROWED or any(_calls(word) for word in words[1:]):
        return None
    if names[0] in _FILES_RUN and any(word.text.startswith("-") for word in words):
        return None
    depth = _depth(names)
    if len(names) < min(depth, len(words)):
        return None  # an option, or something computed, stands where the subcommand should
    head = tuple(names[:depth])
    return None if head[:2] in _SUBCOMMANDS_RUN_ANYTHING else " ".join(head)


def joined(families: Collection[str]) -> str | None:
    """Return the family of a command line with these, None where the kernel takes none so long."""
    text = JOINT.join(sorted(set(families)))
    return text if len(text) <= FAMILY_CHARS_MAX else None


def _leading_names(words: Sequence[Word]) -> list[str]:
    names: list[str] = []
    for word in words:
        if not (word.is_literal and _PLAIN.fullmatch(word.text)):
            break
        names.append(word.text)
    return names


def _depth(names: Sequence[str]) -> int:
    """Return how many words say what a program does."""
    if tuple(names[:2]) in _GROUPS or names[0] in _TWO_WORDS:
        return 3
    return 2 if names[0] in _SUBCOMMANDS else 1


def _stem(name: str) -> str:
    """Return a program's name without folder and version: ``/usr/bin/python3.12`` is ``python``."""
    base = basename(name)
    return _VERSION.sub("", base) or base


def _calls(word: Word) -> bool:
    """Say whether an argument makes its program run something that it names."""
    text = word.text
    if text in _CALLING_WORDS or "ext::" in text or _VARIABLE.match(text):
        return True
    option = text[2:].partition("=")[0]
    if not text.startswith("--") or len(option) < _OPTION_CHARS_MIN:
        return False
    return any(known.startswith(option) or option.startswith(known) for known in _CALLING_OPTIONS)


# --- the plugin -----------------------------------------------------------------------------------

CONFIRMED_MAX: Final = 16
"""Commands that a user confirmed and no call has used yet; the oldest gives way, so that its call
is asked for."""
_SHOWN_MAX: Final = 5
_SHOWN_CHARS_MAX: Final = 60
_EXACT: Final = "exactly "
"""What a family begins with that is one command line; a program's name has no blank."""
_BLANKS: Final = " \t\n"
"""What a shell takes for nothing around a command; a carriage return it does not."""
_SHELL_ARGUMENTS: Final = frozenset({"command", "timeout"})


class _Case(NamedTuple):
    """A call that needs a person."""

    family: str
    why: str
    can_be_for_good: bool = True


class HumanApproval(Plugin):
    """Lets people decide about calls."""

    name = "human_approval"
    priority = 60
    fail = "closed"
    Config = plugins.HumanApproval

    class State(msgspec.Struct):
        """Commands that users confirmed in advance, as digests, oldest first."""

        confirmed: list[str] = []

    def __init__(self, **config: Any) -> None:  # Any: options as they come
        """Read the list of safe commands."""
        super().__init__(**config)
        self._safe = SafeCommands(self.config.safe_commands)

    def before_prompt(self, event: BeforePrompt, context: PluginContext) -> Emit | None:
        """Take a command that the user confirms: for the call that waits, or for the next one."""
        command = self._confirmed_in(event.text, context)
        if command is None:
            return None
        for waiting in context.approvals:
            if self._shell_command(waiting.tool, waiting.args) == command:
                return Emit(DecideApproval(approval_id=waiting.id, decision="approve_once"))
        others = [known for known in self.state.confirmed if known != _digest(command)]
        self.state.confirmed = [*others, _digest(command)][-CONFIRMED_MAX:]
        return None

    def before_tool(self, event: BeforeTool, context: PluginContext) -> Emit | None:
        """Ask for a person's leave unless the call needs none or has it."""
        if not self._is_listed(event.name) or (event.name, "") in context.always_approved:
            return None
        command = self._shell_command(event.name, event.args)
        if command is None:
            return self._ask(self._case_of_other(event), context)
        if self._use_confirmation(command):
            return None
        approved = {family for tool, family in context.always_approved if tool == event.name}
        case = self._case_of(command, approved)
        return None if case is None else self._ask(case, context)

    def _is_listed(self, tool: str) -> bool:
        listed = self.config.require_approval_for
        return tool in listed or ALL_TOOLS in listed

    # Any: whatever the tool takes.
    def _shell_command(self, tool: str, args: Mapping[str, Any]) -> str | None:
        """Return the command of a call of a shell, None if the call is more than that."""
        command = args.get("command")
        is_known = self._is_listed(tool) and tool in self.config.shell_tools
        if not is_known or not isinstance(command, str) or not args.keys() <= _SHELL_ARGUMENTS:
            return None
        return _stripped(command)

    def _confirmed_in(self, text: str, context: PluginContext) -> str | None:
        """Return the command that a prompt confirms, None if it is any other text."""
        if context.parent_id is not None:  # the parent's model wrote it, and nobody speaks there
            return None
        said = text.strip(_BLANKS + "\r")
        for prefix in self.config.confirm_prefixes:
            if said.startswith(prefix) and (command := _stripped(said[len(prefix) :])):
                return command
        return None

    def _use_confirmation(self, command: str) -> bool:
        digest = _digest(command)
        if digest not in self.state.confirmed:
            return False
        self.state.confirmed = [known for known in self.state.confirmed if known != digest]
        return True

    def _case_of_other(self, event: BeforeTool) -> _Case:
        """Return the case of a call that is not just a shell command."""
        if event.name not in self.config.shell_tools:
            return _Case(family="", why="")
        family = f"{_EXACT}{_digest(ascii(sorted(event.args.items())))}"
        return _Case(family, "it is more than a command", can_be_for_good=False)

    def _case_of(self, command: str, approved: Collection[str]) -> _Case | None:
        """Return why a command needs a person, None if it needs none."""
        exact = f"{_EXACT}{_digest(command)}"
        if exact in approved:
            return None
        reading = read(command)
        if reading.opaque is not None:
            return _Case(exact, f"it cannot be read: {reading.opaque}", can_be_for_good=False)
        why = trick_of(command) or _reach_of(reading)
        if why is not None:
            return _Case(exact, why)
        unsafe = [one for one in reading.details if not self._safe.cover(one)]
        return self._case_of_programs(unsafe, approved, exact) if unsafe else None

    @staticmethod
    def _case_of_programs(
        unsafe: list[Command], approved: Collection[str], exact: str
    ) -> _Case | None:
        """Return why these need a person, None if they were approved for good."""
        why = f"not on the list of safe commands: {_names_of(unsafe)}"
        families = {family_of(one) for one in unsafe}
        if None in families:
            return _Case(exact, why)
        known = {family for family in families if family is not None}
        missing = known.difference(approved)
        if not missing or not {joined(known), joined(missing)}.isdisjoint(approved):
            return None
        return _Case(joined(missing) or exact, why)

    def _ask(self, case: _Case, context: PluginContext) -> Emit:
        config = self.config
        mode = config.mode or ("block" if context.parent_id is None else "hold")
        offered = config.permission_options
        if not case.can_be_for_good:
            # Nothing else may be left; then the family, which is this text alone, keeps it small.
            offered = tuple(one for one in offered if one != "approve_always") or offered
        return Emit(
            RequireApproval(
                hint=case.why,
                family=case.family,
                hold=mode == "hold",
                timeout_s=config.timeout_ms / 1000 or None,
                options=offered,
            )
        )


def _reach_of(reading: Reading) -> str | None:
    """Return what a command line does beside running programs, in words."""
    if not reading.details:
        return "it has no command"
    if reading.functions:
        return f"it defines {_shown(reading.functions[0])}"
    if reading.assignments:
        return f"it sets {_shown(reading.assignments[0].name)}"
    for redirect in reading.redirects:
        if not is_harmless(redirect):
            verb = "reads" if redirect.direction == "read" else "writes to"
            return f"it {verb} {_shown(redirect.target.text)}"
    words = (word for command in reading.details for word in command.words)
    computed = next((word for word in words if not is_plain(word)), None)
    return None if computed is None else f"it computes {_shown(computed.text)}"


def _stripped(command: str) -> str:
    """Return a command without the blanks around it, unless the last one is a part of it."""
    text = command.strip(_BLANKS)
    return command if text.endswith("\\") else text


def _digest(command: str) -> str:
    return hashlib.sha256(command.encode("utf-8", "surrogatepass")).hexdigest()


def _names_of(commands: list[Command]) -> str:
    names = dict.fromkeys(_shown(command.words[0].text) for command in commands)
    more = ", ..." if len(names) > _SHOWN_MAX else ""
    return ", ".join(list(names)[:_SHOWN_MAX]) + more


def _shown(text: str) -> str:
    """Return text as a person may be shown it: short, and without a way to draw over the rest."""
    return ascii(text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}...")


create = HumanApproval
