"""``faults.md``: what is done to the runtime on purpose, and by which tests.

The names of the cases and what they mean stand in ``cases.toml``, beside the tests; a test says by
a marker which of them it plays. A new case or a new test is a new line.
"""

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from scripts.reference import markdown

ROOT: Final = Path(__file__).parents[2]
TESTS: Final = ROOT / "tests" / "fault"
TABLES: Final[Mapping[str, str]] = {"cases": "fault_case", "streams": "stream_case"}
"""The folders with a ``cases.toml``, and the marker of their tests."""
_INTRO: Final = (
    "What the tests do to agents, tool hosts, the daemon, its files and its machine, so that it is"
    " known what comes of it. After each case an audit looks for what it may have left: processes,"
    " sockets, files, memory, and for what it has done to anybody else. `make fault` plays them."
)
_HEADS: Final[Mapping[str, str]] = {
    "cases": "Whatever dies, hangs, is starved, lies or is lied to",
    "streams": "Streams over a wire that loses, doubles and cuts",
}


def page() -> str:
    """Return the page."""
    return markdown.page("Faults", _INTRO, *(_section(name) for name in TABLES))


def _section(name: str) -> str:
    known = tomllib.loads((TESTS / name / "cases.toml").read_text(encoding="utf-8"))
    files = _files(TABLES[name])
    rows = (
        (case, meaning, ", ".join(_link(one) for one in files[case]))
        for case, meaning in sorted(known.items())
    )
    return f"## {_HEADS[name]}\n\n" + markdown.table(("case", "what is done", "played by"), rows)


def _files(marker: str) -> Mapping[str, list[str]]:
    """Return the test files of each case, sorted."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in TESTS.rglob("test_*.py"):
        for case in _named(ast.parse(path.read_text(encoding="utf-8")), marker):
            found[case].add(str(path.relative_to(ROOT)))
    return defaultdict(list, {case: sorted(paths) for case, paths in found.items()})


def _named(tree: ast.Module, marker: str) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=name), args=names) if name == marker:
                yield from (str(one.value) for one in names if isinstance(one, ast.Constant))


def _link(path: str) -> str:
    return f"[{Path(path).stem.removeprefix('test_')}](../../{path})"
