"""The thread that runs an application's callbacks, one after the other.

It is not the thread of the loop, so that a callback may call the client. An exception in one is
logged and ends nothing.
"""

import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from cmdc_runtime.client.limits import (
    CALLBACK_THREAD_STOP_S,
    CALLBACKS_QUEUED_MAX,
    DEMONITOR_WAIT_S,
)
from cmdc_runtime.client.monitors import Watch
from cmdc_runtime.reasons import Down

_log = logging.getLogger(__name__)

Callback = Callable[[Down], Any]  # Any: what a callback returns is nobody's business
AsyncCallback = Callable[[Down], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class _Call:
    watch: Watch
    callback: Callback
    down: Down


class CallbackThread:
    """Runs callbacks; its thread starts with the first one."""

    def __init__(self) -> None:
        """Start no thread yet."""
        self._calls: deque[_Call] = deque()
        self._changed = threading.Condition()
        self._running: Watch | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def put(self, watch: Watch, callback: Callback, down: Down) -> None:
        """Run ``callback(down)`` soon."""
        with self._changed:
            if self._is_closed:
                return
            if len(self._calls) >= CALLBACKS_QUEUED_MAX:
                _log.error("callback.dropped", extra={"ref": watch.ref})
                return
            self._calls.append(_Call(watch, callback, down))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="cmdc-callbacks", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def settle(self, watch: Watch) -> None:
        """Return when no callback of ``watch``, which is removed, runs; waits a bounded time."""
        if threading.current_thread() is self._thread:
            return
        with self._changed:
            self._changed.wait_for(lambda: self._running is not watch, DEMONITOR_WAIT_S)

    def close(self) -> None:
        """Run no more callbacks and end the thread; waits a bounded time for a running one."""
        with self._changed:
            self._is_closed = True
            self._calls.clear()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(CALLBACK_THREAD_STOP_S)

    def _work(self) -> None:
        while (call := self._next()) is not None:
            try:
                call.callback(call.down)
            # Of every kind: a callback that calls sys.exit must not silence all others.
            except BaseException:  # noqa: BLE001 - it is the application's, and the log has it
                _log.exception("callback.raised", extra={"ref": call.watch.ref})
            with self._changed:
                self._running = None
                self._changed.notify_all()

    def _next(self) -> _Call | None:
        with self._changed:
            while not self._is_closed:
                if not self._calls:
                    self._changed.wait()
                    continue
                call = self._calls.popleft()
                if not call.watch.is_removed:
                    self._running = call.watch
                    return call
        return None
