"""The crash matrix as it was played: in short in ``ARCHITECTURE.md``, in full in its own page."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from cmdc_runtime.faults import AGENT, MOMENTS, OUTCOME
from scripts.matrix.cells import (
    NOT_REACHED,
    SENDS,
    Place,
    Played,
    absences_in,
    parts,
    places_of,
)
from scripts.matrix.situations import DYING, SITUATIONS, Situation
from scripts.reference.markdown import with_part
from supervisor.adapters.journal.opening import APPEND, SNAPSHOT, writes
from workers.core.records import RECORDS

ROOT: Final = Path(__file__).parents[2]
ARCHITECTURE: Final = ROOT / "ARCHITECTURE.md"
FULL: Final = ROOT / "docs/crash-matrix.md"
COLUMNS: Final = (
    "situation",
    "writes",
    "agent killed before",
    "and after",
    "daemon killed before",
    "and after",
)
_NONE: Final = "–"  # noqa: RUF001 - a dash

_HEAD: Final = """# The crash matrix

<!-- made by `make matrix`: do not edit -->

Each row of the tables is a write to the journal, as it comes in a session that is at what the
heading says. Each cell is a session of its own, in which a process is killed by SIGKILL before or
after that write, and what came back then: `idle`, `stream` (the request is sent again) or `tools`
(the calls are gone on with) are what the next process resumed; `goes on` is the same process.
`uncertain` means that a write tool had been started and its result is reported as uncertain;
`given up` that the cycle had killed its process too often; `not started` that the caller got an
error: its session did not start. `not reached` is a cell that was played and in which nobody died
at that write; the last table has the reason for each. A dash is no cell: the victim does not make
that write, or is not killed in that situation. After every death the history is valid for a
provider, no acknowledged prompt is lost, no write tool ran twice, and the indexes of the events
have no hole and no repeat.

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


def write(played: Sequence[Played]) -> None:
    """Write both pages."""
    FULL.write_text(full(played), encoding="utf-8")
    text = with_part(ARCHITECTURE, "crash-matrix", brief(played))
    ARCHITECTURE.write_text(text, encoding="utf-8")


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
    if not others:
        return situation.name
    names = others[0].split("+")
    verb = "is" if len(names) == 1 else "are"
    return f"{situation.name} (the {' and the '.join(names)} {verb} killed)"


def _is_in(one: Played, *, daemon: bool, moment: str) -> bool:
    return (one.cell.victim in DYING) == daemon and parts(one.cell.point)[1] == moment


def _tally(played: Iterable[Played]) -> str:
    found = Counter(one.outcome for one in played)
    last = found.pop(NOT_REACHED, 0)
    outcomes = [*found.most_common(), *([(NOT_REACHED, last)] if last else [])]
    return "; ".join(f"{outcome} {count}" for outcome, count in outcomes) or _NONE


def full(played: Sequence[Played]) -> str:
    """Return the page with a line for each write of each situation."""
    sections = [_section(situation, played) for situation in SITUATIONS]
    found = [section for section in sections if section]
    return "\n".join([_HEAD, f"{counted(played)}\n", *found, _absences(played)])


def counted(played: Sequence[Played]) -> str:
    """Return how many cells were played, and what of them was not reached."""
    deaths = sum(one.is_reached for one in played)
    places = places_of(played)
    return (
        f"{len(played)} cells were played: {deaths} deaths, {len(played) - deaths} not reached. "
        f"They stand in {len(places)} places of the tables: {len(absences_in(places))} not reached."
    )


def writes_reached(text: str) -> set[str]:
    """Return what the rows write in which somebody died, by a page that was written."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    reached = {
        written.strip("`")
        for written, *cells in rows
        if any(cell.strip() not in (_NONE, NOT_REACHED) for cell in cells)
    }
    return written_in(reached)


def _section(situation: Situation, played: Sequence[Played]) -> str:
    own = [one for one in played if one.cell.situation.name == situation.name]
    if not own:
        return ""
    found = places_of(own)
    victims = (*((SENDS,) if AGENT in situation.victims else ()), *situation.victims)
    columns = [(victim, moment) for victim in victims for moment in MOMENTS]
    names = {SENDS: "agent sends"} | {one: f"{one}, commit" for one in situation.victims}
    head = ["write", *(f"{moment}: {names[victim]}" for victim, moment in columns)]
    rows = dict.fromkeys(place.written for place in found)
    lines = [f"## {situation.name}\n", _row(head), _row(["---"] * len(head))]
    for row in rows:
        places = [Place(situation.name, row, *column) for column in columns]
        lines.append(_row([f"`{row}`", *(_cell(found.get(place)) for place in places)]))
    return "\n".join([*lines, ""])


def _cell(outcomes: Sequence[str] | None) -> str:
    """Return what a place shows; None: there is no cell."""
    return _NONE if outcomes is None else " / ".join(outcomes) or NOT_REACHED


def _absences(played: Sequence[Played]) -> str:
    found = absences_in(places_of(played))
    lines = ["# Not reached\n", _row(["cell", "reason"]), _row(["---", "---"])]
    lines += [_row([str(place), reason or "none is known"]) for place, reason in found.items()]
    return "\n".join([*lines, ""])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
