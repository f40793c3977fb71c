"""``measurements.md``: every recorded run of a benchmark, soak or proof by hand; README's figures.

All of it comes from ``benchmarks/results``; what came of a run stands in ``notes.toml`` there.
"""

import json
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.processes import ROOT
from benchmarks.report import RESULTS
from scripts.reference import markdown

Run: TypeAlias = Mapping[str, Any]
NOTES: Final = RESULTS / "notes.toml"
TAIL_LEAST: Final = 100
"""Samples below which a 99th percentile is the largest of them."""
ONCE: Final = "once"
FEW: Final = "few"
METRIC_HEAD: Final = (
    "metric",
    "value",
    "baseline",
    "ratio",
    "bar",
    "met",
    "n",
    "p50",
    "p99",
    "mark",
)
RUN_HEAD: Final = ("at", "commit", "machine", "load before")
README: Final = ROOT / "README.md"
FIGURE_HEAD: Final = ("what", "ours", "beside it", "ratio", "bar", "met")
FIGURES: Final[Mapping[str, str]] = {
    "spawn.spare": "`create_agent` to the first status, beside a raw fork that answers",
    "roundtrip.client": "a status through the client, beside two bare ZeroMQ hops",
    "restart.down": "`kill -9` to the Down at a monitor, beside a raw fork's pidfd",
    "restart.answers": "`kill -9` to the answer of the next process, beside a raw fork's",
    "recovery.last_down_of_100": "a hundred killed at once, until the last Down, beside raw",
    "abort.streaming_p99": "an abort of a stream until it is seen, the 99th percentile",
    "stream.chunk_aio": "a streamed chunk until the application has it, beside bare aiohttp",
    "events.hub_10_subscribers": "events to ten subscribers, beside `zmq_proxy` in C",
    "journal.process.accepts_of_50": "prompts of fifty callers made durable, beside plain SQLite",
    "memory.idle_uss_at_100": "private memory of an idle session, one of a hundred",
    "isolation.flood_p99": "a status beside a session that floods events, beside one at rest",
    "cold.first_token": "a script without a daemon to its first token, beside the openai SDK's",
}
"""What the README shows of the newest runs, by metric."""
_MET: Final = {True: "yes", False: "no", None: ""}
_PLACE: Final = frozenset(RUN_HEAD) | {"load_before", "versions", "metrics", "counts", "machine"}
_INTRO: Final = (
    "All runs that were kept, the good and the bad, from [the records](../../benchmarks/results)"
    "; [benchmarks/README.md](../../benchmarks/README.md) says what is compared with what, and what"
    " is not fair in it. `+` behind a commit: files differed from it. Load before: what the machine"
    " did in the minute before the run; above 0.5 somebody else was working, or the benchmark"
    " before had just ended. The mark"
    f" `{ONCE}` is a single sample, `{FEW}` fewer than {TAIL_LEAST}: the 99th percentile of so few"
    " is nearly their largest."
)


def page() -> str:
    """Return the page."""
    subjects = _by_subject()
    notes: dict[str, str] = tomllib.loads(NOTES.read_text(encoding="utf-8"))
    measured = {name: runs for name, runs in subjects.items() if "metrics" in runs[-1]}
    blocks = [_measured(name, runs, notes) for name, runs in measured.items()]
    counted = (item for item in subjects.items() if item[0] not in measured)
    return markdown.page(
        "Measurements", _INTRO, *blocks, *(_counted(*item, notes) for item in counted)
    )


def figures() -> str:
    """Return ``README.md`` with its figures of today."""
    newest = {
        metric["metric"]: metric
        for runs in _by_subject().values()
        for metric in runs[-1].get("metrics", ())
    }
    rows = (_figure(text, newest[name]) for name, text in FIGURES.items())
    return markdown.with_part(README, "figures", markdown.table(FIGURE_HEAD, rows))


def _figure(text: str, one: Run) -> tuple[str, ...]:
    unit = one["unit"]
    bar, met = one["bar"] or "", _MET[one["met"]]
    return (
        text,
        _number(one["value"], unit),
        _number(one["baseline"], unit),
        _number(one["ratio"]),
        bar,
        met,
    )


def _by_subject() -> dict[str, list[Run]]:
    """Return the runs of each subject, the oldest first."""
    found: defaultdict[str, list[Run]] = defaultdict(list)
    for path in sorted(RESULTS.glob("*.json")):
        found[_subject(path)] += json.loads(path.read_text(encoding="utf-8"))
    return dict(sorted(found.items()))


def _subject(path: Path) -> str:
    return path.stem.split("-", 3)[3]  # behind the day


def _measured(name: str, runs: Sequence[Run], notes: Mapping[str, str]) -> str:
    last = runs[-1]
    rows = (_metric(one) for one in last["metrics"])
    lines = [f"## {name}", f"{', '.join(_place(last))}.", markdown.table(METRIC_HEAD, rows)]
    if len(runs) > 1:
        earlier = (
            (*_place(run), _bars(run["metrics"]), _note(name, run, notes)) for run in runs[:-1]
        )
        lines += ["Before it:", markdown.table((*RUN_HEAD, "bars met", "note"), earlier)]
    return "\n\n".join(lines)


def _counted(name: str, runs: Sequence[Run], notes: Mapping[str, str]) -> str:
    """Return a section of runs that count, and measure nothing against a baseline."""
    if "mutants" in runs[-1]:
        return _by_module(name, runs)
    rows = ((*_place(run), _facts(run), _note(name, run, notes)) for run in reversed(runs))
    table = markdown.table((*RUN_HEAD, "what was found", "note"), rows)
    return "\n\n".join((f"## {name}", table, *_lists(runs[-1])))


def _by_module(name: str, runs: Sequence[Run]) -> str:
    """Return a section with one row: of each module's mutants what its newest run found."""
    found = {run["module"]: run for run in sorted(runs, key=lambda run: str(run["at"]))}
    newest = [run for module, run in found.items() if (ROOT / module).exists()]
    played = sum(run["mutants"] for run in newest)
    killed = played - sum(len(run["survivors"]) for run in newest)
    text = f"{killed} of {played} mutants of {len(newest)} modules killed"
    last = max(newest, key=lambda run: str(run["at"]))
    table = markdown.table((*RUN_HEAD, "what was found"), [(*_place(last), text)])
    return "\n\n".join((f"## {name}", "The newest run of each module together.", table))


def _lists(run: Run) -> Iterator[str]:
    """Yield each list of things that a run names, as a table."""
    for name, things in run.items():
        if isinstance(things, list) and things and isinstance(things[0], Mapping):
            head = [key.replace("_", " ") for key in things[0]]
            yield f"The {name.replace('_', ' ')} of the last run:"
            yield markdown.table(head, ([str(value) for value in one.values()] for one in things))


def _place(run: Run) -> tuple[str, ...]:
    machine = run["machine"]
    return (
        run["at"].removesuffix("Z").replace("T", " "),
        f"`{run['commit']}`" + (f" beside `{run['base']}`" if "base" in run else ""),
        f"{machine['cpu']}, {machine['cores']} cores, Python {run['versions']['python']}",
        f"{run['load_before']:g}",
    )


def _metric(one: Run) -> tuple[str, ...]:
    unit = one["unit"]
    return (
        f"`{one['metric']}`",
        f"{one['value']:g} {unit}",
        _number(one["baseline"], unit),
        _number(one["ratio"]),
        one["bar"] or "",
        _MET[one["met"]],
        str(one["n"]),
        f"{one['p50']:g}",
        f"{one['p99']:g}",
        mark(one["n"]),
    )


def mark(samples: int) -> str:
    """Return what is to be known of a number that few samples stand behind."""
    if samples == 1:
        return ONCE
    return FEW if samples < TAIL_LEAST else ""


def _number(value: float | None, unit: str = "") -> str:
    return "" if value is None else f"{value:g} {unit}".strip()


def _bars(metrics: Iterable[Run]) -> str:
    judged = [one["met"] for one in metrics if one["met"] is not None]
    return f"{sum(judged)} of {len(judged)}" if judged else ""


def _facts(run: Run) -> str:
    facts = {key: value for key, value in run.items() if key not in _PLACE}
    kills = {key: value for key, value in run.get("counts", {}).items() if "kill" in key}
    return ", ".join(
        f"{key.replace('_', ' ')} {_fact(value)}" for key, value in (facts | kills).items()
    )


def _fact(value: object) -> str:
    return str(len(value)) if isinstance(value, list) else str(value)


def _note(name: str, run: Run, notes: Mapping[str, str]) -> str:
    return notes.get(f"{name} {run['at']}", "")
