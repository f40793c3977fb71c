"""The proofs that are run by hand, their runs, and whether a run is still of the code of today.

A commit's name does not outlive a rewritten history, so a run keeps a digest of the proof's code:
of what it does, without its prose, its form and the places that it imports from.
"""

import ast
import hashlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.report import RESULTS

ROOT: Final = Path(__file__).parents[2]
TABLE: Final = Path(__file__).with_name("proofs.toml")
SUBJECT: Final = "proofs"
DIGEST_CHARS: Final = 16
_CODE: Final = frozenset({".py", ".toml", ".c"})


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """One proof: how it is run, what it shows, the paths of its code."""

    command: str
    shows: str
    code: tuple[str, ...]
    least: int = 0
    """The size of the smallest run that counts; 0 where a run has no size."""

    def digest(self) -> str:
        """Return what the proof's code is known by."""
        found = hashlib.sha256()
        for path in sorted(set(self._files())):
            found.update(f"{path.relative_to(ROOT)}\0".encode())
            found.update(_substance(path) + b"\0")
        return found.hexdigest()[:DIGEST_CHARS]

    def _files(self) -> Iterator[Path]:
        for name in self.code:
            place = ROOT / name
            if not place.exists():
                raise FileNotFoundError(f"{TABLE.name} names {name}, which is not there")
            yield from _code_below(place) if place.is_dir() else [place]


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


def newest(name: str) -> Run | None:
    """Return the last run of a proof, green or not."""
    return next((run for run in reversed(runs()) if run.proof == name), None)


def _substance(path: Path) -> bytes:
    """Return what a file does: of a module, its statements without imports and docstrings."""
    content = path.read_bytes()
    if path.suffix != ".py":
        return content
    return ast.dump(_Doings().visit(ast.parse(content))).encode()


class _Doings(ast.NodeTransformer):
    """Takes from a module what changes no proof: where it imports from, and its docstrings."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        """Leave a docstring out."""
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node

    def visit_Import(self, _node: ast.Import) -> None:
        """Leave it out."""

    def visit_ImportFrom(self, _node: ast.ImportFrom) -> None:
        """Leave it out."""


def _code_below(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.suffix in _CODE)
