"""A task that code of strangers runs in, and that no other code of strangers cancels.

Such code finds it with ``asyncio.all_tasks()``: who cancels all of these means their own.
"""

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar, copy_context
from typing import Any, Final

_WHOSE: Final[ContextVar[object]] = ContextVar("what the stranger's task is known by", default=None)


class GuardedTask(asyncio.Task[None]):
    """Runs ``work`` in the running loop, in a context of its own, which what it starts inherits."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin with the loop's next turn."""
        context = copy_context()
        self._whose = object()
        context.run(_WHOSE.set, self._whose)
        super().__init__(work, context=context)

    def cancel(self, msg: Any | None = None) -> bool:  # Any: asyncio's own signature
        """Cancel it, unless it is the code of another guarded task that asks for that."""
        return _WHOSE.get() in (None, self._whose) and super().cancel(msg)

    def end(self) -> None:
        """Cancel it, in whatever context."""
        super().cancel()
