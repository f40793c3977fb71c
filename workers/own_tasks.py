"""The agent's own tasks, which nobody finds who goes through all tasks of the loop.

Code of strangers runs in the same loop, and may end it as its own: it cancels what
``asyncio.all_tasks()`` returns. These are its own tasks and those of others like it.
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

from workers import callbacks

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
    if callbacks.is_own_code(getattr(work, "cr_code", None)):
        _hide(task)
    return task


def _hide(task: asyncio.Task[Any]) -> None:  # Any: whatever it returns
    # Of asyncio's words for other implementations of tasks: all_tasks() has it no more.
    asyncio._unregister_task(task)  # noqa: SLF001
