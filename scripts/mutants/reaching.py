"""Has modules report which of their functions are run: each begins with a call that says its name.

Only what is mutated reports, so that tests take no longer than they do: a tracer would hear every
call of every library. What is compiled is kept in a folder, for the processes that come after.
"""

import ast
import importlib.machinery
import marshal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import Any, Final

REACHED: Final = "__mutants_reached__"
"""What is called, by its name among Python's own; its argument is ``path:function``."""


def install(paths: Mapping[str, str], folder: Path) -> None:
    """Have modules report from now on; ``paths`` has by name where each is below the root."""
    finder: Any = _Finder(paths, folder)
    sys.meta_path.insert(0, finder)


class _Finder:
    def __init__(self, paths: Mapping[str, str], folder: Path) -> None:
        self._paths = paths
        self._folder = folder

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._paths:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(name, spec.origin, self._paths[name], self._folder / name)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, origin: str, path: str, kept: Path) -> None:
        super().__init__(name, origin)
        self._path = path
        self._kept = kept

    def get_code(self, _fullname: str) -> CodeType:
        if self._kept.exists():
            code: CodeType = marshal.loads(self._kept.read_bytes())  # noqa: S302 - our own
            return code
        tree = reaching(ast.parse(self.get_data(self.path)), self._path)
        code = compile(tree, self.path, "exec")
        self._kept.write_bytes(marshal.dumps(code))
        return code


def reaching(tree: ast.Module, path: str) -> ast.Module:
    """Return a module in which each function and class begins by reporting its name."""
    for name, node in list(_named(tree, "")):
        first = node.body[0]
        has_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        reached = ast.Expr(
            ast.Call(ast.Name(REACHED, ast.Load()), [ast.Constant(f"{path}:{name}")], [])
        )
        node.body.insert(int(has_docstring), ast.copy_location(reached, first))
    return ast.fix_missing_locations(tree)


def _named(
    node: ast.AST, above: str
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """Yield what has a name, as mutants have it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{above}.{child.name}" if above else child.name
            yield name, child
            yield from _named(child, name)
        else:
            yield from _named(child, above)
