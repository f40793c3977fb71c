"""Which files may have a match, by ripgrep where it is installed: a search reads these alone.

ripgrep is asked for a text that every match must have, never for the expression itself, since the
two read expressions differently. So what is found is the same with it and without it: whatever it
says, a file is opened and searched by us, in its folder and by no link.
"""

import os
import shutil
import subprocess
import threading
from typing import Final

from workers.builtin.sandboxes._walk import SKIPPED

TEXT_CHARS_MIN: Final = 2
"""A shorter text is in too many files for the detour to pay."""
TIMEOUT_S: Final = 20.0
"""A third of a search's own; beyond it every file is read."""
OUTPUT_BYTES_MAX: Final = 16 * 2**20
"""Of paths; more of them are no list of candidates."""

_PLAIN: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_ -/:=<>@\"'%&,;~`!#"
)
"""What stands for itself wherever it is in an expression."""
_PUNCTUATION: Final = frozenset(".\\/-+*?()[]{}^$ \"'#&~|")
"""What a backslash before it makes stand for itself."""
_CLASSES: Final = frozenset("dDwWsSbBAZ")
"""What a backslash before it makes stand for a kind of character or place."""
_SEARCH: Final = (
    *("--files-with-matches", "--null", "--fixed-strings", "--text", "--encoding=none"),
    *("--no-config", "--no-ignore", "--hidden", "--no-follow", "--no-messages"),
    *(f"--glob=!**/{name}/" for name in sorted(SKIPPED)),
)


def required_text(pattern: str) -> str | None:
    """Return a text that every line which matches has, None where there is none that is sure.

    What stands behind the first group, set or count is left out: it need not be there.
    """
    if "|" in pattern or "(?" in pattern:  # an alternative, or a flag that changes all
        return None
    runs, at = [""], 0
    while at < len(pattern):
        char, following = pattern[at], pattern[at + 1 : at + 2]
        at += 1
        if char == "\\":
            if following not in _PUNCTUATION | _CLASSES:
                break
            char = following if following in _PUNCTUATION else ""
            at += 1
        elif char in "([{":
            break
        elif char not in _PLAIN:
            char = ""
        repeat = pattern[at : at + 1]
        if char and repeat not in ("*", "?", "{"):
            runs[-1] += char
        if not char or repeat in ("*", "?", "{", "+"):
            runs.append("")
    longest = max(runs, key=len)
    return longest if len(longest) >= TEXT_CHARS_MIN else None


def candidates(folder: int, pattern: str) -> frozenset[str] | None:
    """Return the paths below an open folder of the files that may match, None for any of them."""
    text, program = required_text(pattern), shutil.which("rg")
    if text is None or program is None:
        return None
    found = _printed([program, *_SEARCH, f"--regexp={text}", "."], folder)
    if found is None:
        return None
    return frozenset(os.fsdecode(path).removeprefix("./") for path in found.split(b"\0") if path)


def _printed(command: list[str], folder: int) -> bytes | None:
    """Return what a command prints in a folder, None where that is too much, late or not all."""
    try:
        process = subprocess.Popen(  # noqa: S603 - its arguments are ours but for a text
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=f"/proc/self/fd/{folder}",
            env={"PATH": os.environ.get("PATH", os.defpath)},
        )
    except OSError:  # it can't be started, or there is no /proc
        return None
    timer = threading.Timer(TIMEOUT_S, process.kill)
    timer.start()
    try:
        with process:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            printed = process.stdout.read(OUTPUT_BYTES_MAX + 1)
            if len(printed) > OUTPUT_BYTES_MAX:
                process.kill()
    finally:
        timer.cancel()
    # 1 says that nothing was found; anything else, that not all was searched.
    return printed if process.returncode in (0, 1) and len(printed) <= OUTPUT_BYTES_MAX else None
