"""What a command runs by way of its arguments: ``sh -c``, ``sudo``, ``xargs``, ``find -exec`` ..

To teach it a program that runs another one, add a row to ``WRAPPERS``, from which every guard and
reader has it; a program that runs text of a language of its own, one to ``INTERPRETERS``. What is
in no row is taken for a program that runs nothing else.
"""

import itertools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from workers.builtin.shell.parser import Assignment, Draft
from workers.builtin.shell.scanner import Doubt
from workers.builtin.shell.words import UNKNOWN, Word, literal

# --- programs that run others ---------------------------------------------------------------------

SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish"})
"""Programs that run shell text: an argument of ``-c``, or what they read."""
LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "127.0.1.1", "::1", "0"})
"""What ssh calls the machine that it runs on."""


@dataclass(frozen=True, slots=True)
class Wrapper:
    """How the arguments of a program that runs another one are separated from the other's."""

    valued: str = ""
    """Its short options that take a value."""
    long: tuple[str, ...] = ()
    """Its long options that take a value as a word of its own."""
    operands: int = 0
    """How many arguments of its own stand in front of the program."""
    scripts: str = ""
    """Its short options whose value is shell text."""
    joins: bool = False
    """What it runs is shell text: its words, joined."""
    adds: bool = False
    """It gives the program arguments that it reads."""
    reads: bool = False
    """It runs shell text that it reads, later."""
    flags: tuple[str, ...] = ()
    """Long options that take no value, where it matters: see ``programs``."""


# fmt: off
_PLAIN: Final = (
    "aa-exec", "builtin", "busybox", "catchsegv", "chronic", "command", "coproc",
    "dbus-run-session", "dumb-init", "eatmydata", "fakechroot", "i386", "ld-linux-aarch64.so.1",
    "ld-linux-x86-64.so.2", "ld-linux.so.2", "ld-musl-x86_64.so.1", "ld.so", "linux32", "linux64",
    "nocache", "nohup", "noglob", "pipexec", "proxychains", "proxychains4", "pty", "setsid", "tini",
    "torsocks", "toybox", "tsocks", "unbuffer", "valgrind", "winpty", "x86_64", "xvfb-run",
)
"""Those of which nothing is to be known."""
WRAPPERS: Final[dict[str, Wrapper]] = {
    **dict.fromkeys(_PLAIN, Wrapper()),
    "at":       Wrapper("qf", reads=True),
    "batch":    Wrapper("qf", reads=True),
    "bwrap":    Wrapper(long=("--bind", "--ro-bind", "--dev-bind", "--symlink", "--setenv")),
    "caffeinate": Wrapper("tw"),
    "capsh":    Wrapper(scripts="c"),
    "cgexec":   Wrapper("g"),
    "chpst":    Wrapper("uU/bnelmdofcprt"),
    "choom":    Wrapper("np", ("--adjust",)),
    "chroot":   Wrapper(long=("--groups", "--userspec"), operands=1),
    "chrt":     Wrapper("TPD", operands=1),
    "cpulimit": Wrapper("lp", ("--limit",)),
    "crontab":  Wrapper("u", reads=True),
    "daemonize": Wrapper("aceolpuE"),
    "doas":     Wrapper("uC"),
    "entr":     Wrapper(),
    "env":      Wrapper("uC", ("--unset", "--chdir"), scripts="S", flags=("--ignore-environment",)),
    "envdir":   Wrapper(operands=1),
    "exec":     Wrapper("a"),
    "faketime": Wrapper("fp", operands=1),
    "fakeroot": Wrapper("lsib"),
    "firejail": Wrapper(),
    "flock":    Wrapper("wE", ("--timeout", "--wait", "--conflict-exit-code"), 1, "c"),
    "gosu":     Wrapper(operands=1),
    "hyperfine": Wrapper("wrmMpcSu", ("--warmup", "--runs", "--prepare", "--cleanup"), joins=True),
    "ionice":   Wrapper("cn", ("--class", "--classdata")),
    "ltrace":   Wrapper("aAeDFlnosuwx"),
    "nice":     Wrapper("n", ("--adjustment",)),
    "nsenter":  Wrapper("tSG", ("--target", "--setuid", "--setgid")),
    "numactl":  Wrapper("iNmCpPw", ("--interleave", "--membind", "--cpunodebind", "--physcpubind")),
    "parallel": Wrapper("jaIS", ("--jobs", "--arg-file", "--colsep", "--joblog"), joins=True,
                        adds=True),
    "perf":     Wrapper("eopFcrCtu", operands=1),
    "pkexec":   Wrapper("u", ("--user",)),
    "prlimit":  Wrapper("p", ("--pid",)),
    "rlwrap":   Wrapper("abCDfgHlOpPqsStz"),
    "runcon":   Wrapper("turl", ("--type", "--user", "--role", "--range"), 1),
    "runuser":  Wrapper("ugG", ("--user", "--group"), scripts="c"),
    "s6-setuidgid": Wrapper(operands=1),
    "screen":   Wrapper("cehpsSTt"),
    "script":   Wrapper("EIOTBm", operands=1, scripts="c"),
    "setarch":  Wrapper(operands=1),
    "setpriv":  Wrapper(long=("--reuid", "--regid", "--groups", "--inh-caps", "--bounding-set")),
    "setuidgid": Wrapper(operands=1),
    "sg":       Wrapper(operands=1, scripts="c", joins=True),
    "softlimit": Wrapper("acdflmoprst"),
    "ssh":      Wrapper("BbcDEeFIiJLlmOoPpQRSWw", operands=1, joins=True),
    "stdbuf":   Wrapper("ioe", ("--input", "--output", "--error")),
    "strace":   Wrapper("eopPsuaIESOX"),
    "su":       Wrapper("gGsw", ("--group", "--shell"), 1, "c"),
    "su-exec":  Wrapper(operands=1),
    "sudo":     Wrapper("ugpCThDRUrt", ("--user", "--group", "--prompt", "--chdir", "--host",
                        "--close-from", "--chroot", "--command-timeout", "--other-user"),
                        flags=("--login", "--preserve-env", "--non-interactive", "--stdin")),
    "systemd-inhibit": Wrapper(long=("--what", "--who", "--why", "--mode")),
    "systemd-run": Wrapper("pHMuEt", ("--property", "--unit", "--setenv", "--slice", "--uid",
                        "--gid", "--nice", "--description", "--on-active", "--on-calendar",
                        "--on-boot", "--machine", "--host", "--working-directory"),
                        flags=("--user", "--scope", "--pty", "--pipe", "--wait", "--collect",
                        "--quiet", "--no-block", "--same-dir", "--shell", "--system")),
    "taskset":  Wrapper("p", operands=1),
    "time":     Wrapper("fo", ("--format", "--output")),
    "timeout":  Wrapper("ks", ("--kill-after", "--signal"), 1),
    "tmux":     Wrapper("LSfsntcFexyl", operands=1, joins=True),
    "uclampset": Wrapper("mMp"),
    "unshare":  Wrapper("SGRw", ("--setuid", "--setgid", "--root", "--wd")),
    "watch":    Wrapper("ns", ("--interval",), joins=True),
    "xargs":    Wrapper("IEndLPsa", ("--arg-file", "--delimiter", "--max-args", "--max-procs",
                        "--max-chars", "--max-lines", "--replace", "--eof", "--process-slot-var"),
                        adds=True),
}
"""Programs that run the one that their arguments name."""
# fmt: on


# --- what they run --------------------------------------------------------------------------------

# fmt: off
INTERPRETERS: Final[dict[str, str]] = {
    r"python[\d.]*|pypy[\d.]*": "c",
    r"perl[\d.]*":              "eE",
    r"ruby[\d.]*":              "e",
    r"node|nodejs|bun":         "ep",
    r"php[\d.]*":               "rRBE",
    r"lua[\d.]*|luajit":        "e",
    r"osascript|Rscript|jshell|ghci?|guile|sbcl|emacs": "e",
    r"tclsh|expect":            "c",
}
"""Programs that run code of their own, by the short options that take it as a value."""
# fmt: on
_LONG_CODE: Final = frozenset({"--eval", "--print", "--run", "--execute", "--eval-string", "eval"})
_AWK: Final = re.compile(r"[gmn]?awk|original-awk|busybox-awk")
_AWK_REACHES_OUT: Final = re.compile(
    r"\bsystem\s*\(|\bgetline\b|(?<!\|)\|(?!\|)|print[^;}]{0,200}>"
)
_SED_RUNS: Final = re.compile(
    r"(?:^|[;{\n])\s{0,9}(?:\d{1,9}|\$|/[^/\n]{0,99}/)?(?:,(?:\d{1,9}|\$|/[^/\n]{0,99}/))?"
    r"\s{0,9}e(?:\s|$)"
)
_SED_SUBSTITUTES: Final = re.compile(r"s([^\w\s\\])")
_FIELDS: Final = 3
_SED_FLAGS: Final = re.compile(r"\w*e")
SHIFTS_MAX: Final = 4
"""Arguments in front of a program that a script runs by ``$@``."""
SUBSTITUTIONS_MAX: Final = 100
"""Of one script of sed that are looked at."""
_NAME: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=")
_DECLARING: Final = frozenset({"export", "declare", "local", "readonly", "typeset"})
_ASSIGNING: Final = frozenset({"env", "sudo", "doas"})
"""Wrappers that set variables for what they run."""
_LONE_DASH: Final = frozenset({"env", "su"})
"""Wrappers for which a dash alone is an option."""
_FIND_RUNS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_FD_RUNS: Final = frozenset({"-x", "-X", "--exec", "--exec-batch"})
_INPUT_RUNS: Final = frozenset({":::", ":::+", "::::", "::::+"})
_SCHEDULE: Final = re.compile(r"\s*(?:@\w+|(?:\S+\s+){4}\S+)\s+(?P<command>\S.*)")
_SCRIPT_OPTIONS: Final = ("--command", "--split-string")
_ABOUT: Final = frozenset({"--version", "--help"})
_SHELL_VALUED: Final = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})


@dataclass(frozen=True, slots=True)
class Inner:
    """A command, and the programs through which it runs."""

    draft: Draft
    via: tuple[str, ...] = ()


@dataclass(slots=True)
class ArgumentFindings:
    """What a command runs or sets by way of its arguments."""

    drafts: list[Draft] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    doubts: list[Doubt] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    positional: list[Draft] = field(default_factory=list)
    """The values that ``$@`` may have, as the commands that they are where a script runs them."""


def basename(path: str) -> str:
    """Return a program's name without its folder."""
    return path.rstrip("/").rpartition("/")[2]


def inner_of(draft: Draft, functions: Collection[str] = ()) -> ArgumentFindings:
    """Return what the program of ``draft``, which has words, runs by way of its arguments.

    ``functions`` are the names of those that are defined.
    """
    found = ArgumentFindings()
    first, *args = draft.words
    name = basename(first.text)
    if not first.is_literal:
        found.doubts.append(Doubt.NAME)
        if args and all(part.kind == "expansion" for part in first.parts):
            found.drafts.append(_like(draft, args))  # what runs if it gives nothing
    if first.text in functions:
        _positional(draft, args, found)
    if name in (".", "source"):
        found.doubts.append(Doubt.SOURCE)
    elif name in ("eval", "trap"):
        _script(args if name == "eval" else args[:1], found)
    elif name == "alias":
        values = (word.text.partition("=")[2] for word in args)
        found.scripts += [value for value in values if value]
    elif name in _DECLARING:
        found.assignments += _assignments(args)
    elif name == "set":
        _positional(draft, args[1:] if args and args[0].text == "--" else args, found)
    else:
        _program(name, args, draft, found)
    return found


def _program(name: str, args: list[Word], draft: Draft, found: ArgumentFindings) -> None:
    """Take what a program runs that is no part of the shell."""
    if name in SHELLS:
        _shell(draft, args, found)
    elif name in WRAPPERS:
        _wrapped(name, args, draft, found)
    elif name == "find":
        _find(args, draft, found, _FIND_RUNS)
    elif name in ("fd", "fdfind"):
        _find(args, draft, found, _FD_RUNS)
    elif _is_code(name, args, draft):
        found.doubts.append(Doubt.INLINE)


def _script(words: Sequence[Word], found: ArgumentFindings) -> None:
    """Take words as the text of a script, if they are known."""
    if all(word.is_literal for word in words):
        found.scripts.append(" ".join(word.text for word in words))
    else:
        found.doubts.append(Doubt.EVAL)
        # What is written there is most of what will run.
        found.scripts.append(" ".join(word.text for word in words))


def _shell(draft: Draft, args: list[Word], found: ArgumentFindings) -> None:
    """Read what a shell runs: the argument of ``-c``, a script file, or what it reads."""
    has_script = reads_input = False
    rest = list(args)
    while rest and rest[0].text[:1] in ("-", "+") and rest[0].text not in ("-", "--"):
        option = rest.pop(0).text
        if option in _SHELL_VALUED and rest:
            rest.pop(0)
        elif not option.startswith("--"):
            has_script |= "c" in option and option[0] == "-"
            reads_input |= "s" in option and option[0] == "-"
            if option[-1] in "oO" and rest:
                rest.pop(0)
    if rest and rest[0].text in ("-", "--"):
        rest.pop(0)
    if not _ABOUT.isdisjoint(word.text for word in args):
        return
    if has_script:
        _script(rest[:1], found)
        found.assignments += [Assignment("0", word) for word in rest[1:2]]
        _positional(draft, rest[2:], found)
    elif reads_input or not rest or rest[0].text in ("/dev/stdin", "/proc/self/fd/0"):
        _input(draft, found)
    elif not rest[0].is_literal:
        found.doubts.append(Doubt.SOURCE)


def _input(draft: Draft, found: ArgumentFindings) -> None:
    if draft.stdin is not None:
        found.scripts.append(draft.stdin)
    if draft.fed or draft.redirects or draft.stdin is None:
        found.doubts.append(Doubt.PIPED)


def _wrapped(name: str, args: list[Word], draft: Draft, found: ArgumentFindings) -> None:
    """Take the program that a wrapper runs, with its arguments."""
    wrapper = WRAPPERS[name]
    if args and (args[0].text in _ABOUT or (name == "command" and args[0].text in ("-v", "-V"))):
        return
    before = len(found.scripts)
    rest, is_sure = _without_options(name, args, found)
    own, rest = rest[: wrapper.operands], rest[wrapper.operands :]
    if wrapper.scripts:
        _late_script(rest, wrapper, found)
    if wrapper.operands and wrapper.joins:  # options may stand behind the operands, too
        rest, _ = _without_options(name, rest, found)
    if name in _ASSIGNING:
        while rest and (assigned := _NAME.match(rest[0].text)):
            found.assignments.append(Assignment(assigned[1], rest.pop(0).from_(assigned.end())))
    if name == "ssh" and not _is_here(own):
        return
    if wrapper.reads:
        _read_script(name, rest, draft, found)
    elif wrapper.joins:
        _joined(rest, draft, found, is_fed=wrapper.adds and len(found.scripts) == before)
    else:
        _named(rest, draft, found, wrapper, is_sure=is_sure)


def _named(
    rest: list[Word], draft: Draft, found: ArgumentFindings, wrapper: Wrapper, *, is_sure: bool
) -> None:
    """Take the program that words begin with; the second may be it where the first is not sure."""
    if rest and (rest[0].text == "-" or not rest[0].text.startswith("-")):
        unknown = [UNKNOWN] if wrapper.adds else []
        found.drafts.append(_like(draft, [*rest, *unknown]))
        if not is_sure and rest[1:]:
            found.drafts.append(_like(draft, [*rest[1:], *unknown]))


def _joined(rest: list[Word], draft: Draft, found: ArgumentFindings, *, is_fed: bool) -> None:
    """Take words as a script; those that stand behind ``:::`` are one each where there is none."""
    at = next((at for at, word in enumerate(rest) if word.text in _INPUT_RUNS), len(rest))
    if rest[:at]:
        _script(rest, found)
    elif is_fed and at < len(rest):
        for word in rest[at + 1 :]:
            _script([word], found)
    elif is_fed:  # each line that it reads is one
        _input(draft, found)


def _read_script(name: str, rest: list[Word], draft: Draft, found: ArgumentFindings) -> None:
    """Take what a program reads as a script for later: the jobs of ``at`` and ``crontab``."""
    is_table = name == "crontab"
    if is_table and rest and rest[0].text != "-":
        found.doubts.append(Doubt.SOURCE)
    elif is_table and draft.stdin is not None:
        lines = (_SCHEDULE.match(line) for line in draft.stdin.splitlines())
        found.scripts += [line["command"] for line in lines if line is not None]
    elif draft.stdin is not None or draft.fed or draft.redirects:
        _input(draft, found)


def _is_here(host: list[Word]) -> bool:
    """Say whether what ssh connects to is this machine."""
    return any(word.text.rpartition("@")[2].strip("[]") in LOCAL_HOSTS for word in host)


def _without_options(
    name: str, args: list[Word], found: ArgumentFindings
) -> tuple[list[Word], bool]:
    """Return what stands behind a wrapper's own options, and whether that is sure.

    It is not where the last option is a long one that the table does not have: it may take a value.
    """
    rest, is_sure = list(args), True
    while rest and rest[0].text.startswith("-") and rest[0].text != "-":
        option = rest.pop(0)
        if option.text == "--":
            break
        if not option.is_literal:
            found.doubts.append(Doubt.OPTION)
        wrapper = WRAPPERS[name]
        _option(option.text, rest, wrapper, found)
        is_known = option.text in (*wrapper.long, *wrapper.flags, *_SCRIPT_OPTIONS)
        is_sure = is_known or not option.text.startswith("--") or "=" in option.text
    if name in _LONE_DASH and rest and rest[0].text == "-":
        rest.pop(0)
    return rest, is_sure


def _option(option: str, rest: list[Word], wrapper: Wrapper, found: ArgumentFindings) -> None:
    """Step over an option's value; shell text in it is kept."""
    if option.startswith("--"):
        takes = option in wrapper.long or option in _SCRIPT_OPTIONS
        head, _, value = option.partition("=")
        if head in _SCRIPT_OPTIONS:
            _script([literal(value)] if value else rest[:1], found)
        if takes and rest:
            rest.pop(0)
        return
    for at, letter in enumerate(option[1:], 2):
        if letter in wrapper.scripts:
            _script([literal(option[at:])] if option[at:] else rest[:1], found)
        if letter in wrapper.valued + wrapper.scripts:
            if not option[at:] and rest:
                rest.pop(0)
            return


def _late_script(rest: list[Word], wrapper: Wrapper, found: ArgumentFindings) -> None:
    """Keep shell text whose option stands behind the operands: ``su root -c text``."""
    for option, value in itertools.pairwise(rest):
        is_short = option.text.startswith("-") and option.text[-1:] in tuple(wrapper.scripts)
        if is_short or option.text == "--command":
            _script([value], found)


def _like(draft: Draft, words: list[Word]) -> Draft:
    """Return a command that runs in the place of ``draft``, with the same input and output."""
    return Draft(words=words, stdin=draft.stdin, feeds=draft.feeds, fed=draft.fed)


def _find(args: list[Word], draft: Draft, found: ArgumentFindings, runs: Collection[str]) -> None:
    at = 0
    while at < len(args):
        if args[at].text not in runs:
            at += 1
            continue
        end = at + 1
        while end < len(args) and args[end].text != ";" and not _is_plus(args, end):
            end += 1
        if words := args[at + 1 : end]:
            found.drafts.append(_like(draft, words))
        at = end + 1


def _is_plus(args: list[Word], at: int) -> bool:
    return args[at].text == "+" and args[at - 1].text.endswith("{}")


def _assignments(args: list[Word]) -> list[Assignment]:
    return [
        Assignment(assigned[1], word.from_(assigned.end()))
        for word in args
        if (assigned := _NAME.match(word.text))
    ]


def _positional(draft: Draft, args: list[Word], found: ArgumentFindings) -> None:
    """Take arguments as what ``$1``, ``$2`` and ``$@`` are in a body or script."""
    found.assignments += [Assignment(str(at), word) for at, word in enumerate(args, 1)]
    found.assignments += [Assignment("@", word) for word in args]
    # After ``shift`` the command begins with any of them.
    found.positional += [_like(draft, args[at:]) for at in range(min(len(args), SHIFTS_MAX))]


def _is_code(name: str, args: list[Word], draft: Draft) -> bool:
    """Say whether a program is given code of its own language, of which a shell knows nothing."""
    texts = [word.text for word in args]
    if _AWK.fullmatch(name):
        return any(_AWK_REACHES_OUT.search(text) for text in texts)
    if name == "sed":
        return any(_SED_RUNS.search(text) or _sed_substitutes(text) for text in texts)
    options = next((o for names, o in INTERPRETERS.items() if re.fullmatch(names, name)), None)
    if options is None:
        return False
    operands = [text for text in texts if not text.startswith("-")]
    if not operands and (draft.stdin is not None or draft.fed or "-" in texts):
        return True
    return any(_holds_code(text, options) for text in _leading_options(texts))


def _sed_substitutes(script: str) -> bool:
    """Say whether sed runs what a substitution makes: the flag ``e`` of ``s/a/b/e``."""
    begins = itertools.islice(_SED_SUBSTITUTES.finditer(script), SUBSTITUTIONS_MAX)
    for begin in begins:
        fields = script[begin.end() :].split(begin[1], 2)
        if len(fields) == _FIELDS and _SED_FLAGS.match(fields[-1]):
            return True
    return False


def _leading_options(texts: list[str]) -> list[str]:
    """Return what stands before the script's own arguments, and some more where it is not clear."""
    for at, text in enumerate(texts):
        is_value = at > 0 and len(texts[at - 1]) == len("-W") and texts[at - 1][0] == "-"
        is_module = at > 0 and texts[at - 1] == "-m"
        if is_module or not (text.startswith("-") or is_value or text == "eval"):
            return texts[:at]
    return texts


def _holds_code(text: str, options: str) -> bool:
    if text.startswith("--") or text == "eval":
        return text.partition("=")[0] in _LONG_CODE
    return text.startswith("-") and any(letter in text for letter in options)
