"""Has modules of the project imported with a change in them, in every process of a test.

``MUTANT`` names a module and the file with its changed code, apart by a colon. ``AFTER_IMPORT``
has words ``module=place:function`` or ``module=place:function:argument``: each time that module has
been imported, the function in ``place`` gets it, with the argument where there is one. Python
imports this by itself at the start of each process that has this folder on ``PYTHONPATH``.
"""

import importlib
import importlib.machinery
import marshal
import os
import sys
from types import CodeType, ModuleType


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType | None:
        if fullname != MODULE:
            return super().get_code(fullname)
        with open(CODE, "rb") as file:
            code: CodeType = marshal.load(file)
            return code

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        for place, function, *argument in AFTER.get(module.__name__, ()):
            getattr(importlib.import_module(place), function)(module, *argument)


class _Finder:
    @staticmethod
    def find_spec(
        name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != MODULE and name not in AFTER:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)  # type: ignore[arg-type]
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(name, spec.origin)
        return spec


MODULE, _colon, CODE = os.environ.get("MUTANT", "").partition(":")
AFTER: dict[str, list[list[str]]] = {}
for _word in os.environ.get("AFTER_IMPORT", "").split():
    _name, _equals, _does = _word.partition("=")
    AFTER.setdefault(_name, []).append(_does.split(":"))
if MODULE or AFTER:
    sys.meta_path.insert(0, _Finder)
