"""One thread that owns a store, and commits in groups what waits for it.

Rules: the loop never waits for the disk; the store is touched on the thread only; a caller hears
yes after the commit of its group and not before; a waiter that went away changes nothing.

Group commit needs no timer. The thread takes whatever is queued, so a lone operation goes at once,
and while one commit is under way the next group gathers. Reads run after the commit of the group
that they came with: they see all earlier writes, and nothing that may yet be rolled back.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

import structlog

from cmdc_runtime.errors import CmdcError
from supervisor.adapters.journal.base import JournalFailed, JournalOverloaded
from supervisor.core.limits import (
    JOURNAL_CLOSE_S,
    JOURNAL_GROUP_MAX,
    JOURNAL_QUEUED_BYTES_MAX,
    JOURNAL_QUEUED_MAX,
)

log = structlog.get_logger(__name__)

T = TypeVar("T")


class Store(Protocol):
    """What the thread drives; operations are calls that the writer is given."""

    def open(self) -> None:
        """Open it; what is raised here comes out of ``GroupWriter.open``."""
        ...

    def begin(self) -> None:
        """Begin a transaction; open the store again if a failure closed it."""
        ...

    def commit(self) -> None:
        """Make the transaction durable; raises when it is not."""
        ...

    def rollback(self) -> None:
        """Undo the transaction, if there is still one, and whatever was remembered of it."""
        ...

    def close(self) -> None:
        """Close it; never raises."""
        ...


@dataclass(slots=True, eq=False)
class _Job:
    """One operation and the caller who waits for it; any type: each job has its own."""

    call: Callable[[], Any]
    future: asyncio.Future[Any]
    is_write: bool
    size_bytes: int
    result: Any = None
    error: Exception | None = None


class GroupWriter:
    """The loop's side of the thread; ``failures`` are the store's own errors, disk full above all.

    Such an error fails the group. Any other one, but a refusal, is taken for the fault of a single
    operation: the group is done again one by one, so that only the culprit fails.
    """

    def __init__(self, store: Store, failures: tuple[type[Exception], ...]) -> None:
        """Prepare to drive ``store``; ``open`` starts the thread."""
        self._store = store
        self._failures = failures
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._unfinished: set[_Job] = set()
        self._queued_bytes = 0
        self._is_open = False
        self._thread = threading.Thread(target=self._main, name="journal", daemon=True)

    async def open(self) -> None:
        """Start the thread, and return when its store is open."""
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread.start()
        try:
            await asyncio.shield(self._opened)
        except asyncio.CancelledError:
            self._queue.put(None)
            raise
        except Exception:
            self._thread.join()
            raise
        self._is_open = True

    async def close(self) -> None:
        """Do what is queued, within ``JOURNAL_CLOSE_S``, and end the thread; twice is once."""
        if not self._is_open:
            return
        self._is_open = False
        self._queue.put(None)
        try:
            async with asyncio.timeout(JOURNAL_CLOSE_S):
                await asyncio.shield(self._ended)
        except TimeoutError:
            left = len(self._unfinished)
            log.error("journal.close_timed_out", queued=left)
            self._fail_unfinished()
            return
        self._thread.join()

    def write(self, call: Callable[[], T], size_bytes: int) -> asyncio.Future[T]:
        """Queue one write, and return its outcome to come.

        ``call`` refuses by a ``CmdcError`` before it has changed anything, or not at all.
        """
        return self._submit(call, is_write=True, size_bytes=size_bytes)

    def read(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Queue one read, and return its outcome to come."""
        return self._submit(call, is_write=False, size_bytes=0)

    def _submit(
        self, call: Callable[[], T], *, is_write: bool, size_bytes: int
    ) -> asyncio.Future[T]:
        if not self._is_open:
            raise JournalFailed("the journal is not open")
        if len(self._unfinished) >= JOURNAL_QUEUED_MAX or (
            self._queued_bytes + size_bytes > JOURNAL_QUEUED_BYTES_MAX
        ):
            raise JournalOverloaded(
                f"{len(self._unfinished)} operations with {self._queued_bytes} bytes wait for "
                "the journal"
            )
        self._queued_bytes += size_bytes
        future: asyncio.Future[T] = self._loop.create_future()
        job = _Job(call, future, is_write, size_bytes)
        self._unfinished.add(job)
        self._queue.put(job)
        return future

    def _deliver(self, jobs: Sequence[_Job]) -> None:
        """Tell the callers; runs in the loop. A waiter that was cancelled is passed over."""
        for job in jobs:
            self._unfinished.discard(job)
            self._queued_bytes -= job.size_bytes
            if job.future.done():
                continue
            if job.error is None:
                job.future.set_result(job.result)
            else:
                job.future.set_exception(job.error)

    def _fail_unfinished(self) -> None:
        """Tell whoever still waits that nothing comes any more; runs in the loop."""
        left = list(self._unfinished)
        for job in left:
            job.error = JournalFailed("the journal was closed before it was done")
        self._deliver(left)

    def _end(self) -> None:
        """Note that the thread is over; runs in the loop."""
        self._is_open = False
        self._fail_unfinished()
        self._ended.set_result(None)

    # Everything below runs on the thread.

    def _main(self) -> None:
        try:
            self._store.open()
        except Exception as error:  # noqa: BLE001 - handed on to the caller of open
            self._post(self._opened.set_exception, error)
            return
        self._post(self._opened.set_result, None)
        try:
            while self._serve():
                pass
        except Exception:
            log.exception("journal.writer_crashed")
        finally:
            self._store.close()
            self._post(self._end)

    def _serve(self) -> bool:
        """Do one group; False when the last one is done."""
        group = [self._queue.get()]
        while len(group) < JOURNAL_GROUP_MAX and not self._queue.empty():
            group.append(self._queue.get_nowait())
        jobs = [job for job in group if job is not None]
        if writes := [job for job in jobs if job.is_write]:
            self._write(writes)
            self._post(self._deliver, writes)
        if reads := [job for job in jobs if not job.is_write]:
            self._read(reads)
            self._post(self._deliver, reads)
        return len(jobs) == len(group)

    def _write(self, jobs: Sequence[_Job]) -> None:
        try:
            self._transact(jobs)
        except self._failures as error:
            log.warning("journal.commit_failed", operations=len(jobs), error=str(error))
            for job in jobs:
                job.error = _failed(error)
        except Exception as error:
            if len(jobs) == 1:
                log.exception("journal.operation_failed")
                jobs[0].error = _failed(error)
                return
            for job in jobs:
                self._write([job])

    def _transact(self, jobs: Sequence[_Job]) -> None:
        """Do all of it in one transaction; a refusal concerns its own job only."""
        try:
            self._store.begin()
            for job in jobs:
                job.error = None
                try:
                    job.result = job.call()
                except CmdcError as refusal:
                    job.error = refusal
            self._store.commit()
        except BaseException:
            self._store.rollback()
            raise

    def _read(self, jobs: Sequence[_Job]) -> None:
        for job in jobs:
            try:
                job.result = job.call()
            except CmdcError as refusal:
                job.error = refusal
            except self._failures as error:
                log.warning("journal.read_failed", error=str(error))
                job.error = _failed(error)
            except Exception as error:
                log.exception("journal.operation_failed")
                job.error = _failed(error)

    def _post(self, call: Callable[..., None], *args: object) -> None:
        # The loop may be closed already when nobody closed the journal.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *args)


def _failed(error: Exception) -> JournalFailed:
    failure = JournalFailed(f"the journal could not do it: {error}")
    failure.__cause__ = error
    return failure
