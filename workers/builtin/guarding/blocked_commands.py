"""Says which shell commands destroy more than a mistake may: disks, trees, processes, the machine.

To block another program altogether, add it to ``_PROGRAMS``; one that is harmful by its arguments
only, write a function and put it into ``_RULES``.
"""

import fnmatch
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from workers.builtin.shell.reader import SHELLS, Command, Doubt, Part, Reading, Word, basename

VALUES_MAX: Final = 8
"""Of a variable that is given several, the last ones, that are put in for it."""

# fmt: off
_PROGRAMS: Final[dict[str, str]] = {
    r"mkfs(\..*)?|mke2fs|mkswap|mkdosfs|newfs|badblocks": "formats disks",
    r"shred|wipefs|blkdiscard":                           "wipes disks or files",
    r"fdisk|sfdisk|cfdisk|gdisk|sgdisk|parted|diskutil":  "changes the partitions of disks",
    r"shutdown|reboot|halt|poweroff":                     "stops the machine",
    r"killall5":                                          "kills every process",
    r"xkill":                                             "kills the programs of windows",
}
# fmt: on
_DEVICES: Final = re.compile(
    r"/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|disk|mapper/|dm-|md\d|loop\d|r?mem$|kmem|port)"
    r"|/proc/(?:sysrq-trigger|kcore)"
)
_FORK_BOMB: Final = re.compile(
    r"(?<![^\s(){};|&])([^\s(){};|&]{1,64})\s*\(\s*\)\s*\{[^}]{0,200}?(?<![^\s{;])\1\s*\|\s*\1\s*&"
)
_FETCHES: Final = frozenset({
    "curl", "wget", "fetch", "aria2c", "http", "https", "lynx", "nc", "ncat", "netcat", "socat",
    "ftp", "lwp-request", "GET",
})  # fmt: skip
_FETCH: Final = re.compile(
    r"(?<![\w./-])(?:curl|wget|fetch|aria2c|https?|lynx|n(?:et)?cat|nc|socat)\b"
)
_FIND: Final = re.compile(r"(?<![\w./-])(?:pgrep|pidof|lsof|fuser|ps|top|ss|netstat|systemctl)\b")
"""Says which processes there are."""
_KILLS: Final = frozenset({"kill", "skill", "tkill"})
_ADDING: Final = frozenset({"xargs", "parallel"})
_READING: Final = frozenset({"read", "mapfile", "readarray"})
_INTERPRETER: Final = re.compile(r"(?:python|pypy|perl|ruby|node|nodejs|php|lua)[\d.]*")
_BARE_OPTION: Final = re.compile(r"-[uBsIEqi]*")
_RUNS_WORDS: Final = SHELLS | {"eval", "source", "."}
_ROOTS: Final = frozenset({"/", ".", "..", "~", "*", "/*", "./*", "../*", "~/*", ".*"})
_TOP: Final = re.compile(
    r"/(?:bin|boot|dev|etc|home|lib\d*|media|mnt|opt|proc|root|run|sbin|srv|sys|usr|var|Users|System"
    r"|Library|Applications)(?:/\*)?"
)
_SYSTEMCTL: Final = frozenset({
    "poweroff", "reboot", "halt", "kexec", "soft-reboot", "suspend", "hibernate", "hybrid-sleep",
    "rescue", "emergency", "exit",
})  # fmt: skip
_SERVICE_ENDS: Final = frozenset({
    "stop", "kill", "force-stop", "condstop", "disable", "mask", "zap", "terminate", "kill-session",
    "kill-user", "terminate-session", "terminate-user", "terminate-seat", "clean",
})  # fmt: skip
_QUESTIONS: Final = frozenset({"--help", "-h", "--version", "-V", "-l", "-L", "--list"})

ArgumentRule: TypeAlias = Callable[[Sequence[str], Sequence[str]], str | None]
"""Says what is wrong with arguments, given the working folder and the home."""


def destructive(reading: Reading, text: str, working_dir: str, home: str) -> str | None:
    """Return what a command does that is blocked, None if nothing."""
    if _FORK_BOMB.search(text):
        return "it starts processes without end"
    if Doubt.PIPED in reading.doubts:
        return Doubt.PIPED.value
    for redirect in reading.redirects:
        if redirect.direction != "read" and _DEVICES.match(redirect.target.text):
            return f"it writes to {redirect.target.text}"
    return _fetched(reading) or _killed(reading) or _done(reading, working_dir, home)


def _fetched(reading: Reading) -> str | None:
    if any(command.name in _FETCHES and command.feeds for command in reading.details):
        for command in reading.details:
            if _runs_fetched(command, reading):
                return f"{command.name} runs what has just been fetched"
    return None


def _killed(reading: Reading) -> str | None:
    """Return that processes are killed which another command finds: by name as with ``pkill``.

    A kill of a number, of a job or of a file's content is everyday work.
    """
    read = {word.text for one in reading.details if one.name in _READING for word in one.words[1:]}
    for command in reading.details:
        if command.name not in _KILLS or {"-l", "-L", "-0"} & set(command.argv[1:]):
            continue
        parts = [part for word in command.words[1:] for part in word.parts]
        is_found = any(part.name in read or _is_from(part, reading, _FIND) for part in parts)
        if is_found or not _ADDING.isdisjoint(command.via):
            return f"{command.name} kills whatever processes another command finds"
    return None


def _done(reading: Reading, working_dir: str, home: str) -> str | None:
    values = _values(reading, home, working_dir)
    for command in reading.details:
        for arguments in _readings_of(command, values):
            if arguments and (found := _judged(command, arguments, (working_dir, home))):
                return found
    return None


def _runs_fetched(command: Command, reading: Reading) -> bool:
    """Say whether a command runs as code what another one has fetched."""
    is_interpreter = _INTERPRETER.fullmatch(command.name) is not None
    if is_interpreter and command.fed:
        return all(_BARE_OPTION.fullmatch(text) for text in command.argv[1:])
    words = command.words if command.name in _RUNS_WORDS or is_interpreter else command.words[:1]
    parts = [part for word in words for part in word.parts]
    if is_interpreter:
        parts = [part for part in parts if part.text.startswith("<(")]
    return any(_is_from(part, reading, _FETCH) for part in parts)


def _is_from(part: Part, reading: Reading, program: re.Pattern[str]) -> bool:
    """Say whether a part is what a program writes, by its text or by a variable that has it."""
    if part.kind != "expansion":
        return False
    if part.name:
        values = (one.value for one in reading.assignments if one.name == part.name)
        return any(program.search(one.text) for value in values for one in value.parts)
    return program.search(part.text) is not None


def _values(reading: Reading, home: str, working_dir: str) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {"HOME": [home], "PWD": [working_dir]}
    for assignment in reading.assignments:
        values.setdefault(assignment.name, []).append(assignment.value.text)
    return values


def _readings_of(command: Command, values: dict[str, list[str]]) -> Iterator[list[str]]:
    """Yield the words of a command, with its variables as they are assigned and as if empty."""
    yield [word.text for word in command.words]
    if command.is_literal:
        return
    empty = [_filled(word, {}) for word in command.words]
    yield [text for text in empty if text]
    names = {part.name for word in command.words for part in word.parts if part.name}
    times = max((len(values.get(name, ())) for name in names), default=1)
    for time in range(-min(times, VALUES_MAX), 0):
        at_a_time = {name: found[time:][:1] for name in names if (found := values.get(name))}
        known = [_filled(word, at_a_time) for word in command.words]
        yield [piece for word in known for piece in word.split() or [""]]


def _filled(word: Word, values: dict[str, list[str]]) -> str:
    return "".join(
        part.text
        if part.kind != "expansion"
        else (values.get(part.name) or [part.default or ""])[0]
        for part in word.parts
    )


def _judged(command: Command, words: list[str], folders: Sequence[str]) -> str | None:
    name, args = basename(words[0]), words[1:]
    for names, does in _PROGRAMS.items():
        if re.fullmatch(names, name):
            return f"{name} {does}"
    for program, rule in _RULES.items():
        is_it = name == program or _means(command, name, program)
        if is_it and (found := rule(args, folders)):
            return f"{program} {found}"
    return None


def _means(command: Command, name: str, program: str) -> bool:
    """Say whether a name with wildcards may be a program's."""
    has_wildcard = any(part.kind == "glob" for part in command.words[0].parts)
    return has_wildcard and any(char.isalnum() for char in name) and fnmatch.fnmatch(program, name)


def _is_root(path: str, folders: Sequence[str]) -> bool:
    """Say whether all that matters may lie below a path."""
    if not path:
        return False
    plain = re.sub(r"/{2,}", "/", path).rstrip("/") or "/"
    if plain in _ROOTS or _TOP.fullmatch(plain):
        return True
    if plain[0] not in "/~.":
        return False
    working_dir, home = folders
    place = (home + plain[1:] if plain[0] == "~" else plain).removesuffix("/*") or "/"
    whole = posixpath.normpath(posixpath.join(working_dir, place)).rstrip("/")
    is_above = any(f"{folder}/".startswith(f"{whole}/") for folder in folders)
    return is_above or _TOP.fullmatch(whole) is not None


def _options(args: Sequence[str]) -> tuple[str, set[str], list[str]]:
    """Return the letters, the long options and the operands."""
    end = args.index("--") if "--" in args else len(args)
    before = args[:end]
    shorts = "".join(arg[1:] for arg in before if re.match(r"-[A-Za-z]", arg))
    longs = {arg.partition("=")[0] for arg in before if arg.startswith("--")}
    return shorts, longs, [arg for arg in before if arg[:1] != "-"] + list(args[end + 1 :])


def _long(longs: set[str], name: str, chars_min: int) -> bool:
    """Say whether an option is there, be it shortened as programs allow it."""
    return any(name.startswith(one) and len(one) >= chars_min for one in longs)


def _removes(args: Sequence[str], folders: Sequence[str]) -> str | None:
    shorts, longs, operands = _options(args)
    if not ({"r", "R"} & set(shorts) or _long(longs, "--recursive", 3)):
        return None
    if "f" in shorts or _long(longs, "--force", 3):
        return "deletes folders by force"
    root = next((path for path in operands if _is_root(path, folders)), None)
    return None if root is None else f"deletes all below {root}"


def _changes_rights(args: Sequence[str], folders: Sequence[str]) -> str | None:
    shorts, longs, operands = _options(args)
    is_recursive = "R" in shorts or _long(longs, "--recursive", 5)
    root = next((path for path in operands if _is_root(path, folders)), None)
    if not is_recursive or root is None or root in (".", "./", "*", "./*"):
        return None
    return f"changes the rights of all below {root}"


def _finds(args: Sequence[str], folders: Sequence[str]) -> str | None:
    starts = [arg for arg in args if arg[:1] not in ("-", "(", "!")][:1]
    if "-delete" in args and starts and starts[0] != "." and _is_root(starts[0], folders):
        return f"deletes files below {starts[0]}"
    return None


def _kills(args: Sequence[str], _: Sequence[str]) -> str | None:
    targets = [arg for arg in args if re.fullmatch(r"-?\d+", arg)]
    signal = bool(args) and args[0].startswith("-") and args[0] != "--"
    pids = targets[1:] if signal and targets and targets[0] == args[0] else targets
    if "-1" in pids or "1" in pids:
        return "kills every process, or the first one"
    return None


def _kills_by_name(args: Sequence[str], _: Sequence[str]) -> str | None:
    """Whoever they are: a name is also that of other people's processes, and of the agent's own."""
    is_question = not args or not _QUESTIONS.isdisjoint(args)
    return None if is_question else "kills processes by what they are called"


def _kills_users(args: Sequence[str], _: Sequence[str]) -> str | None:
    shorts, longs, _operands = _options(args)
    is_kill = "k" in shorts or _long(longs, "--kill", 3)
    return "kills whoever uses a file or a port" if is_kill else None


def _stops_daemon(args: Sequence[str], _: Sequence[str]) -> str | None:
    shorts, longs, _operands = _options(args)
    is_stop = "K" in shorts or _long(longs, "--stop", 5)
    return "stops processes by what they are called" if is_stop else None


def _stops_service(args: Sequence[str], _: Sequence[str]) -> str | None:
    return "stops a service" if not _SERVICE_ENDS.isdisjoint(args) else None


def _copies_raw(args: Sequence[str], _: Sequence[str]) -> str | None:
    if any(arg.startswith("if=") for arg in args) or any(
        arg.startswith("of=") and _DEVICES.match(arg[3:]) for arg in args
    ):
        return "copies raw data"
    return None


def _changes_state(args: Sequence[str], _: Sequence[str]) -> str | None:
    return "stops the machine" if {"0", "1", "6", "s", "S"} & set(args) else None


def _controls(args: Sequence[str], _: Sequence[str]) -> str | None:
    verbs = [arg for arg in args if not arg.startswith("-")]
    if not _SYSTEMCTL.isdisjoint(verbs) or "isolate" in verbs:
        return "stops the machine or its services"
    return _stops_service(args, _)


def _moves(args: Sequence[str], folders: Sequence[str]) -> str | None:
    operands = _options(args)[2]
    if operands[-1:] == ["/dev/null"] or any(
        path not in ("*", "./*") and _is_root(path, folders) for path in operands[:-1]
    ):
        return "moves away all below a root"
    return None


def _writes_device(args: Sequence[str], _: Sequence[str]) -> str | None:
    device = next((arg for arg in args if _DEVICES.match(arg)), None)
    return None if device is None else f"writes to {device}"


_RULES: Final[dict[str, ArgumentRule]] = {
    "rm": _removes,
    "chmod": _changes_rights,
    "chown": _changes_rights,
    "chgrp": _changes_rights,
    "find": _finds,
    "kill": _kills,
    "pkill": _kills_by_name,
    "killall": _kills_by_name,
    "skill": _kills_by_name,
    "slay": _kills_by_name,
    "fuser": _kills_users,
    "start-stop-daemon": _stops_daemon,
    "dd": _copies_raw,
    "init": _changes_state,
    "telinit": _changes_state,
    "systemctl": _controls,
    "loginctl": _controls,
    "machinectl": _controls,
    "service": _stops_service,
    "rc-service": _stops_service,
    "initctl": _stops_service,
    "sv": _stops_service,
    "mv": _moves,
    "tee": _writes_device,
    "cp": _writes_device,
    "truncate": _writes_device,
}
