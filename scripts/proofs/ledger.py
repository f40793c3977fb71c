"""The proofs that are run by hand, their runs, and whether a run is still of the code of today.

A commit's name does not outlive a rewritten history, so a run keeps a digest of the proof's code:
of what it does, without its prose, its form and its names; ``code.py`` says which files that is.
"""

import datetime as dt
import hashlib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.report import RESULTS
from scripts.proofs.code import files_of, substance

ROOT: Final = Path(__file__).parents[2]
TABLE: Final = Path(__file__).with_name("proofs.toml")
SUBJECT: Final = "proofs"
DIGEST_CHARS: Final = 16
NEVER: Final = "proofs never {}"
"""The key of a note, in ``notes.toml`` beside the records, that says why a proof has no run yet."""
ALIKE: Final = "proofs {} is {}"
"""The key of a note that says why code with this digest proves what that of the last run did."""
ALIKE_DAYS: Final = 7
"""For so long such a note holds: until somebody has had the hours to play the proof again."""
_DATED: Final = re.compile(r"(20\d\d-\d\d-\d\d): .")


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """One proof: how it is run, what it shows, the paths that its code begins with."""

    command: str
    shows: str
    code: tuple[str, ...]
    word: str = ""
    """Of folders in ``code`` only the files count that have it."""
    least: int = 0
    """The size of the smallest run that counts; 0 where a run has no size."""

    def digest(self) -> str:
        """Return what the proof's code is known by."""
        found = hashlib.sha256()
        for content in sorted(map(substance, files_of(ROOT, self.code, self.word))):
            found.update(content + b"\0")
        return found.hexdigest()[:DIGEST_CHARS]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """How one run of a proof ended."""

    at: str
    commit: str
    load_before: float
    proof: str
    size: int
    status: int
    """The exit status: 0 is green."""
    seconds: float
    said: str
    """Its last line."""
    code: str
    """The digest of the proof's code at that time."""


def proofs() -> dict[str, Proof]:
    """Return the table, by name."""
    return msgspec.convert(tomllib.loads(TABLE.read_text(encoding="utf-8")), dict[str, Proof])


def runs() -> list[Run]:
    """Return every recorded run, the oldest first."""
    found: list[Any] = []
    for path in RESULTS.glob(f"*-{SUBJECT}.json"):
        found += msgspec.json.decode(path.read_bytes(), type=list[Run])
    return sorted(found, key=lambda run: run.at)


def newest(name: str, *, is_green: bool = False) -> Run | None:
    """Return the last run of a proof, or the last that was green."""
    own = (run for run in reversed(runs()) if run.proof == name)
    return next((run for run in own if not (is_green and run.status)), None)


def notes() -> dict[str, str]:
    """Return what came of runs, or why there is none."""
    path = RESULTS / "notes.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def problem_of(
    name: str, proof: Proof, run: Run | None, noted: Mapping[str, str], committed: dt.date
) -> str | None:
    """Return what is wrong with the last run of a proof; None where nothing is.

    A note excuses that there is none; that it was red, as long as the code is still its code; and,
    in commits of some days, a change of the code that can't matter, as where the product's shape is
    followed.
    """
    if run is None:
        has_note = _day(noted.get(NEVER.format(name), "")) is not None
        return None if has_note else f"never played, and no dated note says why: {proof.command}"
    code = proof.digest()
    day = _day(noted.get(ALIKE.format(name, code), ""))
    is_alike = day is not None and (committed - day).days <= ALIKE_DAYS
    if run.code != code and not is_alike:
        return f"older than its code ({code}), so play it: {proof.command}"
    if run.status and f"{SUBJECT} {run.at}" not in noted:
        return f"{proof.command} failed at {run.at}: {run.said}"
    return None


def _day(note: str) -> dt.date | None:
    found = _DATED.match(note)
    return None if found is None else dt.date.fromisoformat(found[1])
