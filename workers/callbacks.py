"""What runs in the event loop beside the agent: whose an exception is, and which tasks are its own.

A bug of ours in a callback ends the process, since nobody knows what it left half done. What a
tool, a plugin or a library has put into the loop ends nothing: the code that was called says whose
it is. What a plugin has put there is published as a crash of that plugin.

Foreign code may end the loop as its own: it cancels what ``asyncio.all_tasks()`` returns.
``hide_from`` keeps the agent's own tasks and those of others like it out of that.
"""

import asyncio
from collections.abc import Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from functools import lru_cache
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, Final, TypeVar

import cmdc_runtime
from cmdc_runtime.errors import CmdcError

# --- whose an exception is ------------------------------------------------------------------------

_LOOP: Final = Path(asyncio.__file__).parent
_OURS: Final = (Path(cmdc_runtime.__file__).parent, Path(__file__).parent)
_BUILT_IN: Final = Path(__file__).parent / "builtin"
"""Tools and plugins, as those of others are."""

CALLBACK: Final = "callback"
"""Where a plugin crashed whose callback failed."""
_OWNER: Final[ContextVar[str]] = ContextVar("the plugin whose code runs", default="")


@contextmanager
def owned(plugin: str) -> Iterator[None]:
    """Have what is put into the loop meanwhile be this plugin's: the loop keeps the context."""
    token = _OWNER.set(plugin)
    try:
        yield
    finally:
        _OWNER.reset(token)


def owner_of(context: dict[str, Any]) -> str:  # Any: asyncio's own shape
    """Return the plugin that put there what the loop reports; empty where it was none, or a task.

    Where the loop keeps the context is said nowhere, so another loop may have none to look at.
    """
    kept = getattr(context.get("handle"), "_context", None)
    return kept.get(_OWNER, "") if isinstance(kept, Context) else ""


def is_ours(context: dict[str, Any]) -> bool:  # Any: asyncio's own shape
    """Say whether what the loop reports is a bug in a callback of our own code.

    An error that is meant for its caller is the mistake of who put the call there.
    """
    error = context.get("exception")
    if error is None or isinstance(error, CmdcError) or "handle" not in context:
        return False
    code = _called(error.__traceback__)
    return code is not None and _is_own(code)


def is_own_code(code: CodeType | None) -> bool:
    """Say whether this is code of our own."""
    return code is not None and _is_own_file(code.co_filename)


@lru_cache(maxsize=256)
def _is_own_file(name: str) -> bool:
    return _is_own(Path(name))


def _called(trace: TracebackType | None) -> Path | None:
    """Return the file of the code that the loop called; None where it is not Python's."""
    while trace is not None:
        path = Path(trace.tb_frame.f_code.co_filename)
        if not _is_in(path, _LOOP):
            return path
        trace = trace.tb_next
    return None


def _is_own(path: Path) -> bool:
    return _is_in(path, *_OURS) and not _is_in(path, _BUILT_IN)


def _is_in(path: Path, *folders: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


# --- tasks that foreign code does not find --------------------------------------------------------

_T = TypeVar("_T")


def hide_from(loop: asyncio.AbstractEventLoop) -> None:
    """Hide the running task of ``loop``, and each of our own that it begins from here on."""
    task = asyncio.current_task(loop)
    assert task is not None  # noqa: S101 - it is what calls
    _hide(task)
    loop.set_task_factory(_created)


# Any, four times: what the loop hands over.
def _created(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, _T] | Generator[Any, None, _T],
    **more: Any,
) -> asyncio.Task[_T]:
    task = asyncio.Task(work, loop=loop, **more)
    if is_own_code(getattr(work, "cr_code", None)):
        _hide(task)
    return task


def _hide(task: asyncio.Task[Any]) -> None:  # Any: whatever it returns
    # Of asyncio's calls for other implementations of tasks: all_tasks() has it no more.
    asyncio._unregister_task(task)  # noqa: SLF001
