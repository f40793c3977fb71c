"""The code that a proof is: what its row names, and what of the project's proofs that imports.

Of a proof's own folders every file counts. From them it is followed into ``scripts``, ``tests`` and
``benchmarks``, and to each ``conftest.py`` that pytest gives a file of tests; never into the
product, which a proof is about. ``KEEPS`` is left out: it writes records down.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

FOLLOWED: Final = frozenset({"scripts", "tests", "benchmarks"})
KEEPS: Final = frozenset({"benchmarks/report.py"})
SUFFIXES: Final = frozenset({".py", ".toml", ".c"})
_CONFTEST: Final = "conftest.py"


def files_of(root: Path, names: Iterable[str], word: str = "") -> set[Path]:
    """Return the files that a proof is, whose row has these names below ``root``.

    With a ``word``, of a folder only the files count that have it.

    Raises:
        FileNotFoundError: one of the names is not there.
    """
    found: set[Path] = set()
    left = [path for name in names for path in _named(root, name, word)]
    while left:
        path = left.pop()
        if path in found or str(path.relative_to(root)) in KEEPS:
            continue
        found.add(path)
        left += _needed(root, path)
    return found


def substance(path: Path) -> bytes:
    """Return what a file does: of a module, its statements without imports and docstrings."""
    content = path.read_bytes()
    if path.suffix != ".py":
        return content
    return ast.dump(_Doings().visit(ast.parse(content))).encode()


def _named(root: Path, name: str, word: str) -> Iterator[Path]:
    place = root / name
    if not place.exists():
        raise FileNotFoundError(f"a row names {name}, which is not there")
    if not place.is_dir():
        yield place
        return
    files = (path for path in place.rglob("*") if path.suffix in SUFFIXES)
    yield from (path for path in files if word.encode() in path.read_bytes())


def _needed(root: Path, path: Path) -> Iterator[Path]:
    """Yield the files that a module imports, and those that pytest imports for it."""
    if path.suffix != ".py":
        return
    for module in _imported(path):
        file = root.joinpath(*module.split("."))
        if module.split(".")[0] in FOLLOWED:
            found = (file.with_suffix(".py"), file / "__init__.py")
            yield from (one for one in found if one.exists())
    if path.name.startswith("test_") or path.name == _CONFTEST:
        above = (folder / _CONFTEST for folder in path.parents if folder.is_relative_to(root))
        yield from (one for one in above if one.exists())


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        match node:
            case ast.Import(names=names):
                yield from (one.name for one in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield module
                yield from (f"{module}.{one.name}" for one in names)
            case _:
                pass


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
