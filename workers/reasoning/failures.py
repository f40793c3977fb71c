"""How the failure of a strategy is told: whose it is, in which method, and where in its code."""

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final

from cmdc_runtime import foreign
from cmdc_runtime.foreign import ForeignError

PLACE_CHARS_MAX: Final = 200
"""Of the name of a file, a function, a strategy."""
_FOLDERS: Final = tuple(
    Path(path) for path in {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
)


def failure_of(strategy: str, method: str, error: Exception, *within: str) -> str:
    """Return why a run has failed: strategy and method, the error, and the line that raised it.

    ``within`` are files whose frames are not the strategy's.
    """
    name = strategy[:PLACE_CHARS_MAX]
    place = place_of(error, *within) if isinstance(error, ForeignError) else ""
    return f"{name}.{method}: {error}" + (f" ({place})" if place else "")


def place_of(failed: ForeignError, *within: str) -> str:
    """Return file, line and function of the innermost code that is the user's own.

    Code of libraries is passed over, unless there is nothing else; "" where nothing is known.
    """
    frames = [
        (frame, line)
        for frame, line in _frames(failed.error)
        if frame.f_code.co_filename not in {foreign.__file__, *within}
    ]
    own = [one for one in frames if not _is_library(one[0].f_code.co_filename)]
    for frame, line in reversed(own or frames):
        function = frame.f_code.co_name[:PLACE_CHARS_MAX]
        return foreign.hidden(f"{_file_of(frame)[:PLACE_CHARS_MAX]}:{line}, in {function}")
    return ""


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _file_of(frame: FrameType) -> str:
    """Return the name of a frame's file; of code that has come by value, that of its module."""
    file = Path(frame.f_code.co_filename).name
    module = frame.f_globals.get("__name__")
    return module if file.startswith("<") and type(module) is str else file


def _is_library(name: str) -> bool:
    return name in sys.builtin_module_names or any(
        Path(name).is_relative_to(folder) for folder in _FOLDERS
    )
