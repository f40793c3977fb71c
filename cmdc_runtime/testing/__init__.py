"""For people who test their agents: models that answer, and fail, exactly as a test says.

A name is loaded when it is first used: whoever has the package installed pays nothing for the
fixtures of its pytest plugin, ``cmdc_runtime.testing.fixtures``, until a test asks for one.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cmdc_runtime.testing.chaos import Audited, Chaos
    from cmdc_runtime.testing.checkpoint_contract import check_checkpoint_backend
    from cmdc_runtime.testing.daemon import DaemonProcess
    from cmdc_runtime.testing.scripted import ScriptedModel
    from cmdc_runtime.testing.steps import (
        Answer,
        Delay,
        Disconnect,
        Error,
        Hold,
        Piece,
        Request,
        Sequence,
        Stall,
        Step,
        Text,
        Thinking,
        ToolCalls,
        ToolUse,
        Truncate,
    )

_MODULE_OF: Final = {
    "Audited": "chaos",
    "Chaos": "chaos",
    "DaemonProcess": "daemon",
    "ScriptedModel": "scripted",
    "check_checkpoint_backend": "checkpoint_contract",
}
"""The names that are not in ``steps``, and where they are."""


def __getattr__(name: str) -> Any:  # Any: whatever the name stands for
    """Load a name."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULE_OF.get(name, 'steps')}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    """Return the names."""
    return list(__all__)


__all__ = [
    "Answer",
    "Audited",
    "Chaos",
    "DaemonProcess",
    "Delay",
    "Disconnect",
    "Error",
    "Hold",
    "Piece",
    "Request",
    "ScriptedModel",
    "Sequence",
    "Stall",
    "Step",
    "Text",
    "Thinking",
    "ToolCalls",
    "ToolUse",
    "Truncate",
    "check_checkpoint_backend",
]
