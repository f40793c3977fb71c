"""``docs/discussion/peers.md``: the newest run beside the peers, and what is not fair in it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.peers import quickstart
from benchmarks.peers.catalogue import CANDIDATES
from benchmarks.peers.figures import head, rows
from benchmarks.report import RESULTS
from scripts.reference import markdown

PATTERN: Final = "*-peers.json"
QUICKSTARTS: Final = "*-quickstart.json"
_INTRO: Final = (
    "For those who must choose: the same work by cmdc-runtime and by what else keeps an agent in a"
    " process of its own, or does without one. All ask the same model's server on the loopback,"
    " which speaks OpenAI's streamed chat completions; the peers ask it by the openai SDK. `make"
    " bench-peers` plays it on your machine, keeps a record, and writes this page anew from"
    " it. Of two machines, or of one machine on two days, only the order of the rows travels."
)
_TRAITS: Final = (
    "",
    "an agent is",
    "isolation",
    "started again by",
    "the conversation after a death",
    "durable journal",
    "others may speak with it",
)
_WORK: Final = """\
## What was done

Each peer is a user's script in a process of its own; they take turns, in each round in another
order, and only one of them runs at a time. A figure is the median of its samples. The daemon of
cmdc-runtime is the one that a script starts where none runs, with its defaults and its journal in a
temporary directory.

- *First token, warm*: from the call that creates an agent until the first piece of its first
  answer is in the script; {firsts} agents in a turn, one after another, with a rest before each.
- *Cold*: from the start of the script's interpreter to that piece, with nothing running: the
  daemon of cmdc-runtime and the cluster of ray are started by the script. Once in a turn.
- *{crowd} agents*: created together, each asked at once, until all have answered. Once.
- *Memory*: PSS of all processes, the script and whatever serves it too, through the {crowd} idle
  agents that have answered; *adds* is without what was there before the first of them. Once.
- *Goes on*: an agent that has had three answers is killed with -9 in the middle of the fourth,
  until the first piece of that answer comes again. *History kept*: how many of the messages before
  it the model's server was sent with it; {pages} kills in a turn. Of the interrupted answer
  everybody loses what was said: the model is asked again.
- *CPU per chunk*: of an answer of 300 pieces, 2 ms apart, {pages} answers in a turn: of the agent's
  process, and of all processes of the peer, with what they do beside it in that time.
"""
_UNFAIR: Final = """\
## What is not fair in it

Not fair to the peers:

- They are written by us, each in a plain way that its documentation shows. Whoever knows one well
  makes it quicker.
- ray is a system for clusters: scheduling, an object store, and the placement of work on many
  machines are paid for here and not used. Each piece of an answer is an object of its own to it.
  Its workers import the SDK when an actor begins.
- A history can be kept by code of one's own, in a file or a database, with any of them: *0 of 6*
  says what is there without it, and *not at all* that somebody has to write the restart.
- *asyncio* hears its answers in the process that reads them; everybody else also has to
  carry them to the script. Its agents share one client and its connections.
- A run of cmdc-runtime asks its model by code of its own that reads less of an answer than the SDK
  does. That is part of what one gets, and not a merit of its processes.

Not fair to cmdc-runtime:

- It writes prompts and answers to its journal before they count, watches each agent's
  heartbeat, output and cgroup, sends each event through the daemon to whoever listens, and runs
  a loop of turns, tools, plugins and limits around the model. The others do none of that.
- Its daemon, its process to fork from and its spares are memory and a start that a script with
  one agent pays for alone.

Not in it: tools, which a session runs in processes that can be killed, and their results after a
death; the death of the script or of the daemon, after which sessions go on where they run by a
daemon of their own; two programs at one session; a machine that is short of memory.
"""
_QUICKSTART: Final = (
    "What `time` says of a script, from the start of its interpreter: it has a tool that counts"
    " the lines of a file, asks about one, and prints the answer as it comes. Ours is"
    " `examples/01_quickstart.py`, which starts a daemon for itself and has its tool in a process"
    " of its own; the others run the loop and the tool in the script. The CPU time is of the script"
    " and of the children that it has waited for."
)
_ABSENT: Final = (
    (
        "xoscar",
        "a fixed pool of processes with many actors in each, none of them an agent's own",
    ),
    ("pykka", "its actors are threads of one process"),
    (
        "dramatiq, celery, faust",
        "workers that take tasks or messages from a broker: no process is an agent's own",
    ),
    ("loky, pebble", "pools for calls that return; nothing is kept between two of them"),
    (
        "circus, supervisord",
        "keep programs running, and leave what is said to them to the programs",
    ),
)


def page() -> str:
    """Return the page of the newest records."""
    return table_of(newest(RESULTS), newest(RESULTS, QUICKSTARTS))


def newest(folder: Path, pattern: str = PATTERN) -> Mapping[str, Any]:  # Any: a record is JSON
    """Return the newest run in a folder of records.

    Raises:
        LookupError: there is none.
    """
    runs = [run for path in folder.glob(pattern) for run in json.loads(path.read_text("utf-8"))]
    if not runs:
        raise LookupError(f"no record of the peers in {folder.name}: run make bench-peers")
    found: Mapping[str, Any] = max(runs, key=lambda run: str(run["at"]))
    return found


def table_of(run: Mapping[str, Any], scripts: Mapping[str, Any]) -> str:  # Any: as above
    """Return the page of one run, and of one of the quickstarts."""
    traits = (
        (one.name, one.form, one.isolation, one.restart, one.memory, one.journal, one.others)
        for one in CANDIDATES
    )
    return markdown.page(
        "Beside its peers",
        _INTRO,
        _place(run),
        markdown.table(head(run), rows(run)),
        "## What each is",
        markdown.table(_TRAITS, traits),
        _WORK.format(**{name: run[name] for name in ("firsts", "crowd", "pages")}).rstrip(),
        _UNFAIR.rstrip(),
        "## The quickstart beside the same program",
        _QUICKSTART,
        _when(scripts),
        markdown.table(("", *quickstart.MEASURES.values()), quickstart.rows(scripts)),
        "## Who is not there",
        markdown.table(("candidate", "why"), _ABSENT),
    )


def _when(run: Mapping[str, Any]) -> str:  # Any: as above
    at = run["at"].removesuffix("Z").replace("T", " ")
    return (
        f"{at}, `{run['commit']}`; the median of {run['turns']} turns, load before"
        f" {run['load_before']:g}{_load(run['load_before'])}."
    )


def _place(run: Mapping[str, Any]) -> str:  # Any: as above
    machine = run["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in run["peers"].items())
    return (
        f"{run['at'].removesuffix('Z').replace('T', ' ')}, `{run['commit']}`, {machine['cpu']},"
        f" {machine['cores']} cores, Python {run['versions']['python']}, {versions};"
        f" {run['rounds']} rounds; nice {run['nice']}, load before"
        f" {run['load_before']:g}{_load(run['load_before'])}."
    )


def _load(load: float) -> str:
    """Return what a load says of the figures."""
    if load <= 0.5:  # noqa: PLR2004 - as the README of the benchmarks has it
        return ""
    return ": **somebody else was working**, so read the order of the rows and not their digits"
