"""Has one module of the project imported with a wrong in it, in every process of a test.

``MUTANT`` names the module and the file with its changed code, apart by a colon. Python imports
this by itself at the start of each process that has this folder on ``PYTHONPATH``.
"""

import importlib.machinery
import marshal
import os
import sys
from types import CodeType


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, _fullname: str) -> CodeType:
        with open(CODE, "rb") as file:
            code: CodeType = marshal.load(file)
            return code


class _Finder:
    @staticmethod
    def find_spec(
        name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)  # type: ignore[arg-type]
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(name, spec.origin)
        return spec


MODULE, _colon, CODE = os.environ.get("MUTANT", "").partition(":")
if MODULE:
    sys.meta_path.insert(0, _Finder)
