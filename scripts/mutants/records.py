"""What is known of each module's mutants from earlier runs, and what of it still holds.

A record has the digests of what it is true of: the module with the operators, and each file of
tests, without docstrings and the places that they import from, so that a move elsewhere ages no
record. Records of before have the digests of whole files, which count as well. While the module
stays as it is, a mutant that a file of tests has noticed stays noticed until that file changes; one
that survived is tried again when any file of its tests has changed.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from benchmarks.report import RESULTS, append
from scripts.mutants import operators
from scripts.mutants.belongs import Module
from scripts.mutants.place import ROOT
from scripts.proofs.code import substance

SUBJECT: Final = "mutants"
LEFT_OUT: Final = "left out"
"""In the place of a digest: the tests of this file were not played."""
_CHARS: Final = 12


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What became of all mutants of a module. A mutant is known by its place among them."""

    at: str = ""
    module: str
    code: str
    """The digest of the module and of the operators."""
    tests: dict[str, str]
    """The digest of each file of tests that belongs to it."""
    mutants: int
    killed: dict[str, str]
    """By file of tests, the numbers of the mutants that it noticed, as ``0-3 7``."""
    survivors: list[str]
    seconds: float

    def killers(self) -> dict[int, str]:
        """Return by number what noticed a mutant."""
        return {at: file for file, text in self.killed.items() for at in _numbers(text)}

    def holds(self, tests: Iterable[str] = ()) -> dict[int, str]:
        """Return by number what is known of a mutant and still true: who noticed it, or "".

        ``tests`` are the files that belong to the module now: one that is new may notice more.
        """
        if self.code not in {code_of(self.module), whole_code_of(self.module)}:
            return {}
        same = {
            file
            for file, digest in self.tests.items()
            if digest in {digest_of(file), whole_digest_of(file)}
        }
        known = {at: file for at, file in self.killers().items() if file in same}
        if len(same) == len(self.tests) and same.issuperset(tests):
            known |= dict.fromkeys(set(range(self.mutants)) - set(self.killers()), "")
        return known


def newest() -> dict[str, Record]:
    """Return the last record of each module."""
    found: list[Record] = []
    for path in RESULTS.glob(f"*-{SUBJECT}.json"):
        found += msgspec.json.decode(path.read_bytes(), type=list[Record])
    return {record.module: record for record in sorted(found, key=lambda one: one.at)}


class Found(NamedTuple):
    """What became of all mutants of a module, of which ``names`` are the names."""

    names: Sequence[str]
    by: dict[int, str]
    """By number, the file of tests that noticed it, "" where none did."""
    seconds: float


def keep(
    module: Module, found: Found, load: float, left_out: Collection[str] = frozenset()
) -> None:
    """Write down what became of a module's mutants; ``load`` is what the machine did before.

    What survived is tried again next time where files of tests were ``left_out``.
    """
    names, by, seconds = found
    files = sorted({file for file in by.values() if file})
    record = {
        "module": module.path,
        "code": code_of(module.path),
        "tests": {
            file: LEFT_OUT if file in left_out else digest_of(file)
            for file in (*module.own, *module.others)
        },
        "mutants": len(names),
        "killed": {file: _text(at for at, one in by.items() if one == file) for file in files},
        "survivors": [name for at, name in enumerate(names) if not by[at]],
        "seconds": round(seconds, 1),
    }
    append(SUBJECT, record, load)


@cache
def code_of(module: str) -> str:
    """Return what a module's mutants are known by."""
    return _hash(substance(ROOT / module) + substance(Path(operators.__file__)))


@cache
def whole_code_of(module: str) -> str:
    """Return what they were known by: every character counts."""
    return _hash((ROOT / module).read_bytes() + Path(operators.__file__).read_bytes())


@cache
def digest_of(file: str) -> str:
    """Return what a file of tests is known by, "" for one that is gone."""
    path = ROOT / file
    return _hash(substance(path)) if path.exists() else ""


@cache
def whole_digest_of(file: str) -> str:
    """Return what it was known by: every character counts."""
    path = ROOT / file
    return _hash(path.read_bytes()) if path.exists() else ""


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_CHARS]


def _numbers(text: str) -> Iterator[int]:
    for part in text.split():
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _text(numbers: Iterable[int]) -> str:
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return " ".join(f"{one}" if one == last else f"{one}-{last}" for one, last in spans)
