"""``evasions.md``: which ways around the guards the tests try, and which ones get through.

A file ``tests/corpora/<guard>.toml`` has the cases of one guard, each a table ``[[case]]`` with its
``name``, ``technique`` (none: it is harmless), ``outcome`` and, where it is not plain, ``why``; its
other keys are what is tried. A new file is a new section.
"""

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from scripts.reference import markdown

FOLDER: Final = Path(__file__).parents[2] / "tests" / "corpora"
GETS_THROUGH: Final = "gets_through"
_HARMLESS: Final = "harmless"
"""The technique of a case that is no way around anything."""
_SHOWN: Final = frozenset({"name", "technique", "outcome", "why"})
_INTRO: Final = (
    "Guards read what a model wants to do or says, and text can be written in many ways. For these"
    " guards the tests keep a list of ways around them, and of harmless things that look like one."
    " Each case is run in every test run and must end as it says here, what gets through included:"
    " a guard that learns more, or forgets, changes this page. No list has all of them. Guards stop"
    " mistakes and make malice harder; what must not happen at all is made impossible elsewhere, by"
    " tools that cannot do it, a container, or the rights of a user."
)
_OPEN: Final = """\
## What no guard closes

Where no sandbox layer is on, a tool runs with all that its user may do, whatever a guard has read
of it:

- Its process has no keys, but for what `tool_env` and the options of tools give it, and, unless
  it is root's, cannot look into the daemon, agents, tool hosts and the zygote; but for the first
  moment of a daemon or a zygote, if it is there already. Tools that are `async def`, or have the
  isolation "thread", run in the agent and see its environment and memory.
- It reads the environment and memory of the program or shell that started the daemon, keys
  included, and the files of its user: the journal, the token of the runtime directory and the
  daemon's settings are some of them.
- It is refused at the sockets of its own daemon, and of every other one of its user, by its
  session's cell, its mark, and the tool hosts and daemons among its ancestors; but for a daemon
  that its own session has started. At another daemon's it is heard where nothing of that is left:
  without cgroups, after its own daemon has ended, with an environment of its own. So it is, in a
  daemon that a session has started, where it gives itself that session's mark. What /proc
  says of its own process names no path of its daemon; but `/proc/net/unix` lists the sockets of its
  network namespace with their paths, and `getpeername` gives that of the socket that its standard
  output is: without a namespace of its own it knows where the daemon is. Another
  service of the same user that does something for it is not: cron, `systemd-run --user`, a
  terminal multiplexer, ssh to the same machine.
- What a call that ends by itself has set free (`setsid`, a double fork) runs on until the session's
  process ends. Where a call with `isolation="process"`, or of the shell, is killed, timed out or
  aborted, or a signal ends its process, all that it has started ends with it. What a call in a
  thread or a task (an `async def`) has started descends from the agent, and runs on until the
  session's process ends: choose `isolation="process"` for it, which takes an `async def` too.
  A shell command that kills the process above it (`$PPID`), and lets go of its environment, keeps
  what it has set free until the session's process ends.
- In what tools and plugins fail with, the credentials that the session was given are hidden:
  values of `provider_opts`, of headers, and of names like `api_key` in the options of plugins and
  tools, in `user_data` and in the agent's environment. So they are in every shape that a provider's
  errors are searched for, but for plain words in small letters, and numbers, of fewer than 8
  characters (`local`, `123`). What code returns, prints or logs itself is its own: a result, an
  event and a line `tool.wrote` of the log say what it says, but for `name=value` in the log with
  such a name. So does what a thread of its own prints when it fails.
- As root it reads and does everything.

A container, or a user of its own for the daemon, keeps a tool from the rest of a machine."""

Case = Mapping[str, Any]  # Any: the fields of a guard's own


def page() -> str:
    """Return the page."""
    guards = sorted(FOLDER.glob("*.toml"))
    sections = (_section(path.stem, tomllib.loads(path.read_text("utf-8"))) for path in guards)
    return markdown.page("Ways around the guards", _INTRO, _OPEN, *sections)


def _section(guard: str, corpus: Mapping[str, Any]) -> str:  # Any: TOML
    cases: list[Case] = corpus["case"]
    outcomes = _outcomes(cases)
    counts = Counter((_technique(case), case["outcome"]) for case in cases)
    techniques = sorted({*map(_technique, cases)}, key=lambda one: (one == _HARMLESS, one))
    rows = [(one, *(_count(counts[one, outcome]) for outcome in outcomes)) for one in techniques]
    totals = Counter(case["outcome"] for case in cases)
    rows.append((f"**all {len(cases)}**", *(f"**{totals[one]}**" for one in outcomes)))
    file = f"tests/corpora/{guard}.toml"
    blocks = [
        f"## {guard}",
        f"The cases are in [{file}](../../{file}).",
        markdown.table(("technique", *map(_words, outcomes)), rows),
        *_through([case for case in cases if case["outcome"] == GETS_THROUGH]),
    ]
    return "\n\n".join(blocks)


def _outcomes(cases: list[Case]) -> list[str]:
    """Return the outcomes in the order of their first cases, what gets through second."""
    found = [one for one in dict.fromkeys(case["outcome"] for case in cases) if one != GETS_THROUGH]
    return [*found[:1], GETS_THROUGH, *found[1:]]


def _through(cases: list[Case]) -> Iterator[str]:
    if not cases:
        yield "Of these, nothing gets through."
        return
    yield "What gets through:"
    rows = [(_technique(case), case["name"], _tried(case), case["why"]) for case in cases]
    yield markdown.table(("technique", "case", "tried", "why"), rows)


def _technique(case: Case) -> str:
    return str(case.get("technique", _HARMLESS))


def _tried(case: Case) -> str:
    """Return what is tried, as JSON where it is no plain text, so that each character is seen."""
    own = {name: value for name, value in case.items() if name not in _SHOWN}
    return ", ".join(f"{name} {_code(value)}" for name, value in own.items())


def _code(value: object) -> str:
    is_plain = isinstance(value, str) and value.isprintable() and value.isascii()
    text = str(value) if is_plain else msgspec.json.encode(value).decode()
    shown = text.encode("ascii", errors="backslashreplace").decode()
    return f"`` {shown} ``" if "`" in shown else markdown.code(shown)


def _count(number: int) -> str:
    return str(number) if number else ""


def _words(outcome: str) -> str:
    return outcome.replace("_", " ")
