"""Plays the corpus of escapes in every sandbox, and writes ``docs/escapes.md``.

``python -m scripts.escapes``; it takes some five minutes. Where a sandbox can't be had it says so
and writes nothing. What gets out of a sandbox that confines ends it with status 1.
"""

import platform
import sys
import tempfile
from pathlib import Path
from typing import Final

from cmdc_runtime.confinement import landlock as kernel
from tests.escaping import BOMB_S, LIBRARY, Attempt, corpus, escaped, escaped_hosts, ground, skipped
from workers.builtin.sandboxes import bubblewrap, landlock, local

PAGE: Final = LIBRARY / "docs/escapes.md"
KINDS: Final = {"local": local, "landlock": landlock, "bubblewrap": bubblewrap}
HEAD: Final = """# Escapes

Attempts to leave a sandbox, each played in every one of them. The layer is the one that stops it
in `Landlock` and `Bubblewrap`, where {stopped} of {total} are stopped. `Local` confines tools for
files, and keeps commands from looking into other processes; what else gets out of it is what a
process of the user may do. What is risky for the machine is not played there.

`hosts` are played with `network="proxy"`, in an internet of their own, and in `Local` without a
proxy; `bombs` one by one, each in a command that is ended after {bomb_s:g} s. `agent` are links
and pipes that a command leaves in the working folder for the agent's own process, which nothing
confines.

An MCP server, which runs in its session's sandbox, plays all but these three kinds as well, in
`Landlock` and `Bubblewrap`: `tests/fault/escapes` fails if one escapes. The table is of a tool.

Written by `python -m scripts.escapes` on {machine}; the attempts are those of
`tests/fault/escapes/attempts.toml`.

| attempt | layer | Local | Landlock | Bubblewrap |
|---|---|---|---|---|
"""


def main() -> int:
    """Play and write; return the exit status."""
    results: dict[str, set[str]] = {}
    for name, kind in KINDS.items():
        with tempfile.TemporaryDirectory() as folder, ground(Path(folder, "ground")) as place:
            results[name] = escaped(kind.create(), place) | escaped_hosts(name, Path(folder, "net"))
            sys.stderr.write(f"{name}: {len(results[name])} have escaped\n")
    attempts = corpus()
    out = results["landlock"] | results["bubblewrap"]
    machine = f"Linux {platform.release().partition('-')[0]}, Landlock ABI {kernel.abi()}"
    head = HEAD.format(
        stopped=len(attempts) - len(out), total=len(attempts), bomb_s=BOMB_S, machine=machine
    )
    rows = "".join(_row(one, results) for one in attempts)
    PAGE.write_text(head + rows, encoding="utf-8")
    return 1 if out else 0


def _row(attempt: Attempt, results: dict[str, set[str]]) -> str:
    cells = []
    for name, found in results.items():
        is_played = not skipped(attempt, confines=name != "local")
        word = "**escapes**" if attempt.id in found else "stopped"
        cells.append(word if is_played else "not played")
    return f"| {attempt.id} | {attempt.layer} | {' | '.join(cells)} |\n"


if __name__ == "__main__":
    sys.exit(main())
