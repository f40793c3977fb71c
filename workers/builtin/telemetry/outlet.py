"""A thread that takes what is put in, some time later and all at once, and works on it.

It is begun by the first thing that is put in, and sleeps while there is nothing, however long: a
session may idle for days, and there may be thousands. Nobody waits for it, unless by ``flush``. It
ends when nobody has the outlet any more: a plugin may be detached while its session lives.
"""

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

import structlog

log = structlog.get_logger()

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

WAITING_MAX: Final = 10_000
"""Things that wait; what comes beyond is lost, and the log says how much."""
WAITING_MANY: Final = 1_000
"""So many do not wait any longer."""


class BatchWorker(Protocol[T_contra]):
    """Does the work, in the outlet's thread alone; it may take long."""

    def work(self, things: Sequence[T_contra]) -> None:
        """Work on what was put in, oldest first."""

    def close(self) -> None:
        """End: nothing more will come."""


class Outlet(Generic[T]):
    """Where things are put in."""

    def __init__(self, name: str, prepare: Callable[[], BatchWorker[T]], interval_s: float) -> None:
        """Start nothing yet.

        ``prepare`` is called in the thread, at once, and returns who works there; from then on
        things wait for ``interval_s`` at the longest. If any of it raises, that is the end of it.
        Neither may hold whoever has the outlet, or it would never end.
        """
        self._tank = _Tank(name, prepare, interval_s)
        weakref.finalize(self, self._tank.close).atexit = False

    def put(self, thing: T) -> None:
        """Give it ``thing``; return at once."""
        self._tank.put(thing)

    def flush(self, timeout_s: float, *, prepare_s: float = 0.0) -> bool:
        """Have all worked on that was put in so far; say whether that was done in time.

        The work has ``timeout_s``, and who does it up to ``prepare_s`` before that to be prepared.
        """
        return self._tank.flush(timeout_s, prepare_s)


class _Tank(Generic[T]):
    """What waits, and the thread that takes it."""

    def __init__(self, name: str, prepare: Callable[[], BatchWorker[T]], interval_s: float) -> None:
        self._name = name
        self._prepare = prepare
        self._interval_s = interval_s
        self._changed = threading.Condition(threading.RLock())  # a finalizer may run anywhere
        self._thread: threading.Thread | None = None
        self._waiting: list[T] = []
        self._lost = 0
        self._put = self._done = 0
        self._is_prepared = self._is_urgent = self._is_closed = self._is_over = False

    def put(self, thing: T) -> None:
        with self._changed:
            if self._is_over:
                return
            if len(self._waiting) >= WAITING_MAX:
                self._lost += 1
                return
            self._waiting.append(thing)
            self._put += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            if len(self._waiting) in {1, WAITING_MANY}:  # else the thread would wake up for nothing
                self._changed.notify_all()

    def flush(self, timeout_s: float, prepare_s: float) -> bool:
        with self._changed:
            goal, self._is_urgent = self._put, bool(self._waiting)
            self._changed.notify_all()
            if self._done < goal:
                self._changed.wait_for(lambda: self._is_prepared or self._is_over, prepare_s)
            self._changed.wait_for(lambda: self._done >= goal or self._is_over, timeout_s)
            return self._done >= goal

    def close(self) -> None:
        """Let the thread finish what waits, and end; nobody waits for that."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            worker = self._prepare()
            with self._changed:
                self._is_prepared = True
                self._changed.notify_all()
            while things := self._next():
                worker.work(things)
                with self._changed:
                    self._done += len(things)
                    self._changed.notify_all()
            worker.close()
        except Exception:  # a thread ends here
            log.exception("plugin_thread.crashed", thread=self._name)
        finally:
            with self._changed:
                self._is_over = True
                self._waiting.clear()
                self._changed.notify_all()

    def _next(self) -> list[T]:
        """Return what waits: when there is much of it, somebody flushes, or the time is over.

        Nothing waits at the end.
        """
        with self._changed:
            self._changed.wait_for(lambda: bool(self._waiting) or self._is_closed)
            self._changed.wait_for(self._is_due, self._interval_s)
            things, self._waiting = self._waiting, []
            lost, self._lost = self._lost, 0
            self._is_urgent = False
        if lost:
            log.warning("plugin_thread.overrun", thread=self._name, lost=lost)
        return things

    def _is_due(self) -> bool:
        return self._is_urgent or self._is_closed or len(self._waiting) >= WAITING_MANY
