"""One blocking call in a thread of its own, which is gone when the call is over.

The loop's default executor would keep its threads until the loop ends, and the loop is the
application's.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")


async def offload(call: Callable[[], T], *, undo: Callable[[T], None] | None = None) -> T:
    """Return what ``call`` returns or raises, without blocking the loop.

    A call cannot be cancelled: when the caller is, ``undo`` gets what the call still returns.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    returned: list[T] = []

    def run() -> None:
        try:
            value = call()
        except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
            report = partial(_fail, future, error)
        else:
            returned.append(value)
            report = partial(_succeed, future, value)
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody waits
            loop.call_soon_threadsafe(report)

    thread = threading.Thread(target=run, name="cmdc-offload", daemon=True)
    thread.start()
    try:
        return await future
    except asyncio.CancelledError:
        if undo is not None:
            cleanup = partial(_undo, thread, returned, undo)
            threading.Thread(target=cleanup, name="cmdc-undo", daemon=True).start()
        raise


def _succeed(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _undo(thread: threading.Thread, returned: list[T], undo: Callable[[T], None]) -> None:
    thread.join()
    for value in returned:
        undo(value)
