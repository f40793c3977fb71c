"""``conformance.md``: which cases of OTP's supervisor contract hold here, and which test says so.

The cases are in ``tests/conformance/cases.toml``, and ``@case("C17")`` names the cases of a test.
Who played them, and how that ended, is in ``played.json`` there: ``make conformance`` writes it.
"""

import ast
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from scripts.reference import markdown

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "tests" / "conformance"
PLAYED: Final = FOLDER / "played.json"
PLAYERS: Final = ("engine", "runtime", "daemon", "client")
SECTIONS: Final[Mapping[str, str]] = {
    "C": "Supervisors, after OTP",
    "D": "Monitors and reasons",
    "X": "Ours beyond OTP",
}
_BOTH: Final = "stage"
"""The fixture that plays a case on the engine and again with real processes."""
_MARK: Final = "pytest.mark.process"
_INTRO: Final = (
    "The reference for supervision is Erlang/OTP's `supervisor`. These are the cases that say what"
    " that means, in our words. Players: the *engine* is the tree of decisions alone; the *runtime*"
    " is what a daemon has around it, its `TreeRuntime` and for each child a `Session` with all"
    " that hires, asks, kills and judges, over processes that are forked from a small one and speak"
    " a small language in place of ZeroMQ's; the *daemon* is a whole one with its agents; the"
    " *client* is one alone. Engine and runtime have a virtual clock, which stands still while a"
    " process has work: times are exact, and nothing is said of how long the machine takes. With"
    " bugs planted in the runtime"
    " [these cases fail](../../tests/conformance/mutants.py). How to add one stands in"
    " [tests/conformance/stage.py](../../tests/conformance/stage.py)."
)

Row = Mapping[str, Any]  # Any: TOML


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of all cases: of each test and player, how many of its forms ended in which way."""

    commit: str
    """With a + when files differed from it."""
    day: str
    tests: dict[str, dict[str, dict[str, int]]]


@dataclass(frozen=True, slots=True)
class Play:
    """One test that plays some cases; ``file`` is named from the root of the project."""

    file: str
    name: str
    cases: tuple[str, ...]
    on_engine: bool
    with_processes: bool


def page() -> str:
    """Return the page."""
    run = played()
    when = f"Played by `make conformance` on {run.day}, commit `{run.commit}`."
    sections = (_section(kind, title, run) for kind, title in SECTIONS.items())
    return markdown.page("Conformance", _INTRO, when, *sections)


def played() -> Run:
    """Return how the last run of all cases ended."""
    return msgspec.json.decode(PLAYED.read_bytes(), type=Run)


def cases() -> dict[str, Row]:
    """Return all cases by name, in their order."""
    rows = tomllib.loads((FOLDER / "cases.toml").read_text(encoding="utf-8"))["case"]
    return {row["name"]: row for row in rows}


@cache
def plays() -> tuple[Play, ...]:
    """Return every test of the folder that plays a case."""
    paths = sorted(FOLDER.glob("test_*.py"))
    return tuple(play for path in paths for play in _plays_in(path))


def elsewhere(row: Row) -> list[Play]:
    """Return the tests of other folders that play a case: with real processes, or with neither."""
    named = (test.partition("::") for test in row.get("elsewhere", ()))
    return [
        Play(
            file,
            name,
            (row["name"],),
            on_engine=False,
            with_processes=name in _with_processes(ROOT / file),
        )
        for file, _, name in named
    ]


def functions_in(path: Path) -> Iterator[ast.FunctionDef]:
    """Yield the test functions of a file."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node


@cache
def _with_processes(path: Path) -> frozenset[str]:
    """Return which tests of a file start processes: they say so, or their whole file does."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    marks = [
        ast.unparse(mark)
        for node in body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        for mark in (node.value.elts if isinstance(node.value, ast.List) else [node.value])
    ]
    tests = functions_in(path)
    return frozenset(node.name for node in tests if _MARK in marks or _is_real(node))


def _is_real(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(one) == _MARK for one in node.decorator_list)


def _plays_in(path: Path) -> Iterator[Play]:
    for node in functions_in(path):
        names = tuple(_names(node))
        if names:
            takes = {argument.arg for argument in node.args.args}
            is_real = _is_real(node)
            yield Play(
                file=str(path.relative_to(ROOT)),
                name=node.name,
                cases=names,
                on_engine=_BOTH in takes or not is_real,
                with_processes=_BOTH in takes or is_real,
            )


def _names(node: ast.FunctionDef) -> Iterator[str]:
    for decorator in node.decorator_list:
        match decorator:
            case ast.Call(func=ast.Name(id="case"), args=arguments):
                yield from (ast.literal_eval(one) for one in arguments)
            case _:
                continue


def _section(kind: str, title: str, run: Run) -> str:
    rows = [_row(row, run) for name, row in cases().items() if name.startswith(kind)]
    head = ("case", "what holds", *PLAYERS, "tests", "note")
    return f"## {title}\n\n{markdown.table(head, rows)}"


def _row(row: Row, run: Run) -> tuple[str, ...]:
    found = [play for play in plays() if row["name"] in play.cases] + elsewhere(row)
    tests = [run.tests.get(f"{play.file}::{play.name}", {}) for play in found]
    return (
        row["name"],
        row["title"],
        *(_outcomes(test.get(player, {}) for test in tests) for player in PLAYERS),
        ", ".join(_files(found)),
        row.get("note", ""),
    )


def _files(found: list[Play]) -> Iterator[str]:
    """Yield each file with its tests, which a reader can search for."""
    for file in dict.fromkeys(play.file for play in found):
        names = [markdown.code(play.name) for play in found if play.file == file]
        yield f"[{Path(file).name}](../../{file}): {', '.join(names)}"


def _outcomes(counts: Iterable[Mapping[str, int]]) -> str:
    """Return how many ended in which way: ``3 passed``; nothing where none was played."""
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return ", ".join(f"{total[outcome]} {outcome}" for outcome in sorted(total))
