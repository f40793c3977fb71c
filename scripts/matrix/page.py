"""The crash matrix as it was played: in short in ``ARCHITECTURE.md``, in full in its own page."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from cmdc_runtime.faults import AGENT, MOMENTS, OUTCOME
from scripts.matrix.play import NOT_REACHED, Played
from scripts.matrix.situations import DYING, SITUATIONS, Situation
from supervisor.adapters.journal.faulted import APPEND, SNAPSHOT, writes
from workers.core.records import RECORDS

ROOT: Final = Path(__file__).parents[2]
ARCHITECTURE: Final = ROOT / "ARCHITECTURE.md"
FULL: Final = ROOT / "docs/crash-matrix.md"
BEGIN: Final = "<!-- crash-matrix:begin -->"
END: Final = "<!-- crash-matrix:end -->"
COLUMNS: Final = (
    "situation",
    "writes",
    "agent killed before",
    "and after",
    "daemon killed before",
    "and after",
)
_NONE: Final = "–"  # noqa: RUF001 - a dash

Key = tuple[str, str, str]
"""What is written, who dies, and when."""

_HEAD: Final = """# The crash matrix

<!-- made by `make matrix`: do not edit -->

Each row of the tables is a write to the journal, as it comes in a session that is at what the
heading says. Each cell is a session of its own, in which a process is killed by SIGKILL before or
after that write, and what came back then: `idle`, `stream` (the request is sent again) or `tools`
(the calls are gone on with) are what the next process resumed; `goes on` is the same process.
`uncertain` means that a write tool had been started and its result is told as uncertain;
`given up` that the cycle had killed its process too often; `not started` that the caller was told
that its session did not start. A dash is a write at which nobody was there to be killed. After
every one of them the history is valid for a provider, no acknowledged prompt is lost, no write
tool ran twice, and the indexes of the events have no hole and no repeat.

"agent sends" is the agent that dies before or after it hands the write over, "commit" a process
that dies before or after the daemon has committed it. The daemon's deaths are played together, so
that a session may have gone through some more of them than its own.
"""


def required() -> list[str]:
    """Return everything that must be written in some situation, by the code."""
    kinds = [str(record.__struct_config__.tag) for record in RECORDS]
    return [*(name for name in writes() if name != APPEND), *kinds, OUTCOME, SNAPSHOT]


def written_in(rows: Iterable[str]) -> set[str]:
    """Return the methods and kinds that these rows are about."""
    return {kind for row in rows for kind in row.split("+")}


def parts(point: str) -> tuple[str, str, bool]:
    """Return what is written at a point, the moment, and whether the agent itself passes it."""
    rest, _, moment = point.rpartition(".")
    process, _, kinds = rest.partition(".")
    return kinds or process, moment, process == AGENT


def write(played: Sequence[Played]) -> None:
    """Write both pages."""
    FULL.write_text(full(played), encoding="utf-8")
    text = ARCHITECTURE.read_text(encoding="utf-8")
    for marker in (BEGIN, END):
        if text.count(marker) != 1:
            raise ValueError(f"{ARCHITECTURE.name} needs the line {marker} once")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    ARCHITECTURE.write_text(f"{before}{BEGIN}\n{brief(played)}\n{END}{after}", encoding="utf-8")


def brief(played: Sequence[Played]) -> str:
    """Return the matrix with a line for each situation: what came back, and how often."""
    lines = [_row(COLUMNS), _row(["---"] * len(COLUMNS))]
    for situation in SITUATIONS:
        own = [one for one in played if one.cell.situation.name == situation.name]
        count = len({parts(one.cell.point)[0] for one in own})
        cells = [
            _tally(one for one in own if _is_in(one, daemon=daemon, moment=moment))
            for daemon in (False, True)
            for moment in MOMENTS
        ]
        lines.append(_row([_title(situation), str(count), *cells]))
    return "\n".join(lines)


def _title(situation: Situation) -> str:
    others = [victim for victim in situation.victims if victim not in (AGENT, *DYING)]
    return f"{situation.name} (the {others[0]} is killed)" if others else situation.name


def _is_in(one: Played, *, daemon: bool, moment: str) -> bool:
    return (one.cell.victim in DYING) == daemon and parts(one.cell.point)[1] == moment


def _tally(played: Iterable[Played]) -> str:
    found = Counter(one.outcome for one in played if one.outcome != NOT_REACHED)
    return "; ".join(f"{outcome} {count}" for outcome, count in found.most_common()) or _NONE


def full(played: Sequence[Played]) -> str:
    """Return the page with a line for each write of each situation."""
    sections = [_section(situation, played) for situation in SITUATIONS]
    return "\n".join([_HEAD, *(section for section in sections if section)])


def _section(situation: Situation, played: Sequence[Played]) -> str:
    own = [one for one in played if one.cell.situation.name == situation.name]
    if not own:
        return ""
    found: dict[Key, list[str]] = {}
    for one in own:
        written, moment, is_agents = parts(one.cell.point)
        victim = "sends" if is_agents else one.cell.victim
        outcomes = found.setdefault((written, victim, moment), [])
        if one.outcome not in [*outcomes, NOT_REACHED]:
            outcomes.append(one.outcome)
    victims = (*(("sends",) if AGENT in situation.victims else ()), *situation.victims)
    columns = [(victim, moment) for victim in victims for moment in MOMENTS]
    names = {"sends": "agent sends"} | {one: f"{one}, commit" for one in situation.victims}
    head = ["write", *(f"{moment}: {names[victim]}" for victim, moment in columns)]
    rows = dict.fromkeys(written for written, _, _ in found)
    lines = [f"## {situation.name}\n", _row(head), _row(["---"] * len(head))]
    lines += [_row([f"`{row}`", *_cells(row, columns, found)]) for row in rows]
    return "\n".join([*lines, ""])


def _cells(
    row: str, columns: Sequence[tuple[str, str]], found: Mapping[Key, Sequence[str]]
) -> list[str]:
    return [" / ".join(found.get((row, *column), ())) or _NONE for column in columns]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
