"""Pages of the Python reference: each public name with its signature and its docstring.

The names are those of ``exports``, and of the modules that are public as a whole. mkdocstrings
reads the source, so nothing is imported for it but the lists of names.
"""

import importlib
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

from cmdc_runtime.exports import MODULES, NAMES_OF_MODULE

FOLDER: Final = Path("api")
LEFT_OUT: Final = frozenset({"aio", "cmdc_runtime.client.functions"})
"""The functions of the package are the methods of a client, with the same words."""
ALSO: Final = ("testing", "local_model")


def write(target: Path) -> list[Path]:
    """Write the pages below ``target``; return them, relative to it."""
    (target / FOLDER).mkdir(parents=True, exist_ok=True)
    pages = []
    for module, names in sorted(_names().items()):
        page = FOLDER / f"{module.removeprefix('cmdc_runtime.')}.md"
        (target / page).write_text(_page(module, names), encoding="utf-8")
        pages.append(page)
    return pages


def _names() -> Mapping[str, tuple[str, ...]]:
    """Return the public names of each module that has some; constants stand where they count."""
    found = {name: {*names} for name, names in NAMES_OF_MODULE.items() if name not in LEFT_OUT}
    for short in (*MODULES, *ALSO):
        if short in LEFT_OUT:
            continue
        module = importlib.import_module(f"cmdc_runtime.{short}")
        names = getattr(module, "__all__", None) or _classes(module)
        found.setdefault(module.__name__, set()).update(one for one in names if not one.isupper())
    return {module: tuple(sorted(names)) for module, names in found.items() if names}


def _classes(module: ModuleType) -> list[str]:
    """Return the public classes that a module defines."""
    return [
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and name[0] != "_"
    ]


def _page(module: str, names: tuple[str, ...]) -> str:
    return "\n".join([f"# {module}", "", *_entries(module, names)]) + "\n"


def _entries(module: str, names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        yield f"::: {module}.{name}"
        yield ""
