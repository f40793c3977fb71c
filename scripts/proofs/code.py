"""The code that a proof is: what its row names, and what of the project's proofs that imports.

Of a proof's own folders every file counts. From them it is followed into ``scripts``, ``tests`` and
``benchmarks``, and to each ``conftest.py`` that pytest gives a file of tests; never into the
product, which a proof is about. ``KEEPS`` is left out: it writes records down.

Two modules do the same that differ in their prose, in where they import from and in the names that
the project gives: a house that renames its things plays no proof anew for it.
"""

import ast
import builtins
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

FOLLOWED: Final = frozenset({"scripts", "tests", "benchmarks"})
KEEPS: Final = frozenset({"benchmarks/report.py"})
SUFFIXES: Final = frozenset({".py", ".toml", ".c"})
OURS: Final = FOLLOWED | {"cmdc_runtime", "supervisor", "workers"}
"""The packages whose names the project may change."""
_CONFTEST: Final = "conftest.py"
_MODULE: Final = re.compile(rf"(?:{'|'.join(sorted(OURS))})(?:[./]\w+)+")
"""The name of a module of the project, or of its file."""


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
    """Return what a file does: of a module, its statements without imports, docstrings and names.

    A name is its number in the order in which the module first has it, so one that takes another's
    place shows; names of Python and of other projects are themselves. A text that names a module of
    the project, or that is a name of this module, as for ``getattr``, is a name.
    """
    content = path.read_bytes()
    return _substance(content) if path.suffix == ".py" else content


@cache
def _substance(content: bytes) -> bytes:
    module = ast.parse(content)
    return _Nameless(module).shown(module).encode()


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
    for module in _imported(path.read_bytes()):
        file = root.joinpath(*module.split("."))
        if module.split(".")[0] in FOLLOWED:
            found = (file.with_suffix(".py"), file / "__init__.py")
            yield from (one for one in found if one.exists())
    if path.name.startswith("test_") or path.name == _CONFTEST:
        above = (folder / _CONFTEST for folder in path.parents if folder.is_relative_to(root))
        yield from (one for one in above if one.exists())


@cache
def _imported(content: bytes) -> tuple[str, ...]:
    found: list[str] = []
    for node in ast.walk(ast.parse(content)):
        match node:
            case ast.Import(names=names):
                found += (one.name for one in names)
            case ast.ImportFrom(module=str(module), names=names):
                found += (module, *(f"{module}.{one.name}" for one in names))
            case _:
                pass
    return tuple(found)


def _foreign(module: ast.Module) -> frozenset[str]:
    """Return the names in a module that other projects give, and Python itself."""
    found = set(dir(builtins))
    for node in ast.walk(module):
        match node:
            case ast.Import(names=names):
                tops = (
                    (one.asname or one.name).split(".")[0] for one in names if _is_foreign(one.name)
                )
                found.update(tops)
            case ast.ImportFrom(module=str(source), names=names) if _is_foreign(source):
                found.update(one.asname or one.name for one in names)
            case _:
                pass
    return frozenset(found)


def _is_foreign(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] not in OURS


class _Nameless:
    """Shows the statements of a module without what changes no proof."""

    def __init__(self, module: ast.Module) -> None:
        self._foreign = _foreign(module)
        self._own = {text for node in ast.walk(module) for text in _names(node)} - self._foreign
        self._numbers: dict[str, int] = {}

    def shown(self, node: ast.AST) -> str:
        """Return a node with all that is below it."""
        fields = ((name, value) for name, value in ast.iter_fields(node) if value is not None)
        inside = ", ".join(f"{name}={self._value(node, value)}" for name, value in fields)
        return f"{type(node).__name__}({inside})"

    def _value(self, node: ast.AST, value: object) -> str:
        match value:
            case ast.AST():
                return self.shown(value)
            case list():
                return f"[{', '.join(self._value(node, one) for one in value if _counts(one))}]"
            case str() if not isinstance(node, ast.Constant):
                return self._name(node, value)
            case str() if value in self._own or _MODULE.fullmatch(value):
                return f"name {self._number(value)}"
            case _:
                return repr(value)

    def _name(self, node: ast.AST, name: str) -> str:
        is_theirs = name in self._foreign
        if isinstance(node, ast.Attribute):
            is_theirs = self._is_theirs(node.value)
        return name if is_theirs else self._number(name)

    def _number(self, name: str) -> str:
        return str(self._numbers.setdefault(name, len(self._numbers)))

    def _is_theirs(self, node: ast.expr) -> bool:
        """Say whether an attribute of this is named by another project."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id in self._foreign


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node has itself."""
    match node:
        case ast.Constant():
            return
        case ast.ImportFrom(names=aliases) | ast.Import(names=aliases):
            yield from (one.asname or one.name for one in aliases)
        case _:
            yield from (text for _, text in ast.iter_fields(node) if isinstance(text, str))


def _counts(node: object) -> bool:
    """Say whether a statement is what a module does, and no import or docstring."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
            return False
        case _:
            return True
