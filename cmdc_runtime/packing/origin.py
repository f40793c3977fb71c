"""Where code came from, and so how it can be found again in another process.

Only the place of a module's file counts, never its name: a ``queue.py`` beside a script is local.
What is installed for development (``pip install --editable``) counts as local, since its files are
still being written and an agent keeps the code that it was started with.
"""

import importlib.util
import os
import site
import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

import msgspec

MAIN: Final = "__main__"
_OWN_PACKAGES: Final = ("cmdc_runtime", "supervisor", "workers")


def reference_of(thing: object) -> str | None:
    """Return the ``module:qualname`` under which any process can import ``thing``, or None."""
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    if module is None or not is_installed(module.__name__):
        return None
    qualname = getattr(thing, "__qualname__", None) or _attribute_of(module, thing)
    if qualname is None or _reached(module, qualname) is not thing:
        return None
    return f"{module.__name__}:{qualname}"


def is_installed(name: str) -> bool:
    """Say whether the loaded module is of the standard library, an installed package or ours."""
    if name == MAIN:
        return False
    module = sys.modules.get(name)
    if module is None:
        return False
    origin = getattr(getattr(module, "__spec__", None), "origin", None)
    if origin in {"built-in", "frozen"}:
        return True
    files = [getattr(module, "__file__", None)] if getattr(module, "__file__", None) else []
    places = files or list(getattr(module, "__path__", []))
    if places:
        return all(_is_installed_path(str(place)) for place in places)
    # A module made by code is as installed as the package that made it.
    root, dot, _ = name.partition(".")
    return bool(dot) and is_installed(root)


def local_modules() -> dict[str, ModuleType]:
    """Return every loaded module that another process could not import, but the script itself."""
    return {
        name: module
        for name, module in sys.modules.copy().items()  # in one step: others may import
        if getattr(module, "__name__", None) == name  # anything may stand in sys.modules
        if name != MAIN and not is_installed(name)  # cloudpickle knows what __main__ is
    }


def companions(name: str) -> list[str]:
    """Return the loaded modules that came along with the loaded module ``name``, and itself.

    Of an installed package these are its modules; of local code, all local code below the folder
    that it was found in.
    """
    root = name.partition(".")[0]
    loaded = sys.modules.copy()  # in one step: others may import
    if is_installed(root):
        return [one for one in loaded if one == root or one.startswith(f"{root}.")]
    places = getattr(loaded.get(root), "__path__", None) or [_file_of(loaded.get(root))]
    folders = tuple(os.path.dirname(place) + os.sep for place in places if place)  # noqa: PTH120
    return [
        one
        for one, module in loaded.items()
        if (file := _file_of(module)).startswith(folders)
        and not file.startswith(_installed_folders())
    ]


def is_local_import(name: str) -> bool:
    """Say whether ``import name`` would find a file that is not installed."""
    root = name.partition(".")[0]
    if root in sys.modules:
        return root != MAIN and not is_installed(root)
    try:
        spec = importlib.util.find_spec(root)
    except (ImportError, ValueError):
        return False
    if spec is None or spec.origin in {"built-in", "frozen"}:
        return False
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or [])
    return not all(_is_installed_path(place) for place in places)


def _file_of(module: object) -> str:
    file: object = getattr(module, "__file__", None)  # anything may stand in sys.modules
    return file if isinstance(file, str) else ""


def _attribute_of(module: ModuleType, thing: object) -> str | None:
    return next((name for name, value in vars(module).items() if value is thing), None)


def _reached(module: ModuleType, qualname: str) -> object:
    found: object = module
    for name in qualname.split("."):
        found = getattr(found, name, None)
    return found


@cache
def _installed_folders() -> tuple[str, ...]:
    folders = [sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    # What this program depends on may lie elsewhere: in a folder of PYTHONPATH or of a path file.
    folders += [str(Path(msgspec.__file__).parents[1])]
    ours = Path(__file__).parents[2]
    folders += [str(ours / package) for package in _OWN_PACKAGES]
    both = {*folders, *(os.path.realpath(folder) for folder in folders)}
    return tuple(folder.rstrip(os.sep) + os.sep for folder in both)


@cache  # bounded by the modules of this process
def _is_installed_path(place: str) -> bool:
    folders = _installed_folders()
    inside = os.path.join(place, "")  # noqa: PTH118 - a package's folder may be the place itself
    return inside.startswith(folders) or os.path.realpath(inside).startswith(folders)
