"""OTP for LLM agents: one supervised process per session, and nothing acknowledged is lost.

``import cmdc_runtime as cmdc``. This is the whole public API; what is not named here is ours.

A name is loaded when it is first used, so that the import stays quick: ``exports`` lists all of
them, and says from where. Type checkers read ``__init__.pyi``, which is made of that list.
"""

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from cmdc_runtime.exports import CALLS, MODULE_OF, MODULES
from cmdc_runtime.version import VERSION as __version__  # noqa: N811 - Python's own name for it


class _Package(ModuleType):
    """Binds its submodules as any package does, but for those whose name a call has."""

    def __setattr__(self, name: str, value: object) -> None:
        """Leave the name of a call to the call: an import of ``messages`` binds the module."""
        if not (name in CALLS and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        """Travel by name, as any package does."""
        return importlib.import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:  # Any: whatever the name stands for
    """Load a public name."""
    if name in MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return list(__all__)


__all__ = [*MODULE_OF, *MODULES, "__version__"]  # noqa: PLE0604 - of str, as the list is
