"""The family of a shell command: what a person allows who approves it for good.

It is the program's name, with the subcommand of a program that has some: ``rm``, ``git push``,
``docker compose up``. A command has no family, so that only its very text can be approved, where
the name says too little: the program runs whatever it is told, an option makes it do so, or what
the person saw is one use among harmless ones.

To let a program count with its subcommands, add it to ``_SUBCOMMANDS``; one that runs others, to
``_RUNS_ANYTHING``.
"""

import re
from collections.abc import Collection, Sequence
from typing import Final

from workers.builtin.plugins._safe_commands import NARROWED
from workers.builtin.shell.reader import Command, Word, basename
from workers.builtin.shell.wrappers import WRAPPERS

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
