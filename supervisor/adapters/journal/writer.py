"""One thread that owns a store, and commits in groups what waits for it.

Rules: the loop never waits for the disk; the store is touched on the thread only; a caller hears
yes after the commit of its group and not before; a waiter that went away changes nothing.

Group commit needs no timer. The thread takes whatever is queued, so a lone operation goes at once,
and while one commit is under way the next group gathers. Reads run after the commit of the group
that they came with: they see all earlier writes, and nothing that may yet be rolled back.

Where the disk is full ``core.storage.FATES`` says which write goes on, waits or is refused. What
waits keeps its order, and a read does not wait for it: it sees what is committed. What would be
refused and was done before is answered. Where the store is broken nothing is tried again, and
the loop sees it in ``Health``.
"""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

import structlog

from cmdc_runtime.errors import CmdcError
from supervisor.adapters.journal.backup import PageCopy
from supervisor.adapters.journal.base import (
    JournalFailed,
    JournalFull,
    JournalOverloaded,
    JournalUnread,
)
from supervisor.adapters.journal.operations import Operation, Query, Write
from supervisor.adapters.journal.store import Health, Store
from supervisor.core.limits import (
    JOURNAL_CLOSE_S,
    JOURNAL_GROUP_MAX,
    JOURNAL_HELD_BYTES_MAX,
    JOURNAL_HELD_MAX,
    JOURNAL_QUEUED_BYTES_MAX,
    JOURNAL_QUEUED_MAX,
    JOURNAL_ROOM_LOOK_S,
)
from supervisor.core.storage import FATES, Condition, Fate, Level, Need, Trouble

log = structlog.get_logger(__name__)

T = TypeVar("T")

_NOT_OPEN: Final = "the journal is not open"


@dataclass(slots=True, eq=False, kw_only=True)
class _Wait:
    """A caller who waits; Any: each job has its own result."""

    future: asyncio.Future[Any]
    size_bytes: int = 0
    result: Any = None
    error: Exception | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class _Job(_Wait):
    """One operation, and who waits for it."""

    operation: Operation[Any]
    need: Need | None
    """None of a query."""


@dataclass(slots=True, eq=False, kw_only=True)
class _CopyJob(_Wait):
    """A copy of the store, and who waits for it."""

    path: Path
    under_way: PageCopy | None = None


class GroupWriter:
    """A ``store.Journal``: the loop's side of the thread.

    One of the store's ``failures`` fails the group. Any other error, but a refusal, is taken for
    the fault of a single operation: the group is done again one by one, so that only the culprit
    fails. What the store's ``judge`` says of an error goes before.
    """

    def __init__(self, store: Store) -> None:
        """Prepare to drive ``store``; ``open`` starts the thread."""
        self.health = Health()
        self._store = store
        self._queue: SimpleQueue[_Job | _CopyJob | None] = SimpleQueue()
        self._unfinished: set[_Wait] = set()
        self._queued_bytes = 0
        self._is_open = False
        self._thread = threading.Thread(target=self._main, name="journal", daemon=True)
        # The thread's own.
        self._held: deque[_Job] = deque()
        self._copies: deque[_CopyJob] = deque()
        """The first one may be under way."""
        self._look_s = 0.0
        self._broken: str | None = None

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

    def write(self, operation: Write[T]) -> asyncio.Future[T]:
        """Queue one write, and return its outcome to come."""
        return self._submit(operation, operation.need, operation.size_bytes)

    def read(self, query: Query[T]) -> asyncio.Future[T]:
        """Queue one query, and return its outcome to come."""
        return self._submit(query, None, 0)

    def copy(self, path: Path) -> asyncio.Future[None]:
        """Queue a copy of the store to ``path``, and return its end to come."""
        if not self._is_open:
            raise JournalFailed(_NOT_OPEN)
        job = _CopyJob(future=self._loop.create_future(), path=path)
        self._unfinished.add(job)
        self._queue.put(job)
        return job.future

    def _submit(
        self, operation: Operation[T], need: Need | None, size_bytes: int
    ) -> asyncio.Future[T]:
        if not self._is_open:
            raise JournalFailed(_NOT_OPEN)
        is_full = self.health.condition is Condition.FULL
        count_max = JOURNAL_HELD_MAX if is_full else JOURNAL_QUEUED_MAX
        bytes_max = JOURNAL_HELD_BYTES_MAX if is_full else JOURNAL_QUEUED_BYTES_MAX
        if len(self._unfinished) >= count_max or self._queued_bytes + size_bytes > bytes_max:
            raise JournalOverloaded(
                f"{len(self._unfinished)} operations with {self._queued_bytes} bytes wait for "
                "the journal"
            )
        self._queued_bytes += size_bytes
        future: asyncio.Future[T] = self._loop.create_future()
        job = _Job(operation=operation, future=future, need=need, size_bytes=size_bytes)
        self._unfinished.add(job)
        self._queue.put(job)
        return future

    def _deliver(self, jobs: Sequence[_Wait]) -> None:
        """Complete the futures; runs in the loop. A waiter that was cancelled is passed over."""
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
        """Fail whoever still waits: nothing comes any more; runs in the loop."""
        left = list(self._unfinished)
        for job in left:
            job.error = JournalFailed("the journal was closed before it was done")
        self._deliver(left)

    def _end(self) -> None:
        """Close behind the thread, which is over; runs in the loop."""
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
        self._publish_level()
        self._post(self._opened.set_result, None)
        try:
            while self._serve():
                pass
        except Exception:
            log.exception("journal.writer_crashed")
        finally:
            if self._broken is None:
                self._store.close()
            else:
                self._store.abandon()
            self._post(self._end)

    def _serve(self) -> bool:
        """Do one group, and the next step of a copy; False when the last one is done."""
        group = self._take()
        jobs = [job for job in group if isinstance(job, _Job)]
        self._copies += (job for job in group if isinstance(job, _CopyJob))
        is_last = None in group
        if self._store.level is not Level.PLENTY:
            self._look_for_room(at_once=is_last)
        if writes := [job for job in jobs if job.need is not None]:
            self._write(writes)
        if reads := [job for job in jobs if job.need is None]:
            self._read(reads)
            self._post(self._deliver, reads)
        if is_last:
            self._fail(list(self._held), JournalFull(self._store.cause))
            self._give_copies_up(JournalFailed("the journal was closed before it was copied"))
        elif self._copies:
            self._copy_on()
        return not is_last

    def _take(self) -> list[_Job | _CopyJob | None]:
        """Wait for the next group; on a full disk no longer than until the next look for room."""
        wait_s = None if self._store.level is Level.PLENTY else JOURNAL_ROOM_LOOK_S
        try:
            group = [self._queue.get(timeout=0 if self._copies else wait_s)]
        except Empty:
            return []
        while len(group) < JOURNAL_GROUP_MAX and not self._queue.empty():
            group.append(self._queue.get_nowait())
        return group

    def _write(self, jobs: Sequence[_Job]) -> None:
        """Do writes as far as there is room, and deliver what is done; the rest waits."""
        going = self._sort(jobs)
        while going and self._attempt(going) is Trouble.NO_ROOM:
            self._store.spend()
            self._publish_level()
            going = self._sort(going)

    def _sort(self, jobs: Sequence[_Job]) -> list[_Job]:
        """Return those that may be tried now; hold or refuse the others."""
        if self._broken is not None:
            self._fail(jobs, JournalFailed(self._broken))
            return []
        level = self._store.level
        if level is Level.PLENTY:
            return list(jobs)
        going: list[_Job] = []
        refused: list[_Job] = []
        for job in jobs:
            fate = FATES[job.need or Need.WORK, level]
            (going if fate is Fate.GO else refused if fate is Fate.REFUSE else self._held).append(
                job
            )
        self._refuse(refused)
        return going

    def _refuse(self, jobs: Sequence[_Job]) -> None:
        """Answer what was done before, and refuse the rest for want of room."""
        full = JournalFull(self._store.cause)
        asked: list[_Job] = []
        for job in jobs:
            known = job.operation.known if isinstance(job.operation, Write) else None
            if known is None:
                job.error = full
            else:
                job.operation, job.error = known, None
                asked.append(job)
        self._read(asked)
        for job in asked:
            if job.error is not None:
                job.error = JournalUnread(self._store.cause)
            elif job.result is None:
                job.error = full
        self._post(self._deliver, jobs)

    def _attempt(self, jobs: Sequence[_Job]) -> Trouble | None:
        """Commit and deliver; only a lack of room is left to the caller."""
        try:
            self._transact(jobs)
        except Exception as error:
            trouble = self._store.judge(error)
            if trouble is Trouble.NO_ROOM:
                log.warning("journal.full", operations=len(jobs), error=str(error))
                return trouble
            if trouble is Trouble.BROKEN:
                self._break(error)
                self._fail(jobs, _failed(error))
            elif isinstance(error, self._store.failures):
                log.warning("journal.commit_failed", operations=len(jobs), error=str(error))
                self._fail(jobs, _failed(error))
            elif len(jobs) == 1:
                log.exception("journal.operation_failed")
                self._fail(jobs, _failed(error))
            else:
                for job in jobs:
                    self._write([job])
        else:
            self._post(self._deliver, jobs)
        return None

    def _transact(self, jobs: Sequence[_Job]) -> None:
        """Do all of it in one transaction; a refusal concerns its own job only."""
        try:
            self._store.begin()
            for job in jobs:
                job.error = None
                try:
                    job.result = self._store.perform(job.operation)
                except CmdcError as refusal:
                    job.error = refusal
            self._store.commit()
        except BaseException:
            self._store.rollback()
            raise

    def _read(self, jobs: Sequence[_Job]) -> None:
        for job in jobs:
            try:
                self._store.look()
                job.result = self._store.perform(job.operation)
            except CmdcError as refusal:
                job.error = refusal
            except Exception as error:
                if self._store.judge(error) is Trouble.BROKEN:
                    self._break(error)
                elif isinstance(error, self._store.failures):
                    log.warning("journal.read_failed", error=str(error))
                else:
                    log.exception("journal.operation_failed")
                job.error = _failed(error)

    def _fail(self, jobs: Sequence[_Job], error: JournalFailed) -> None:
        if jobs:
            for job in jobs:
                job.error = error
            self._post(self._deliver, jobs)

    # --- copies ---------------------------------------------------------------------------------

    def _copy_on(self) -> None:
        """Do the next step of the first copy; what it fails by concerns nobody else."""
        if self._broken is not None:
            self._give_copies_up(JournalFailed(self._broken))
            return
        if self._store.level is not Level.PLENTY:  # what it takes is missing elsewhere
            self._give_copies_up(JournalFull(self._store.cause))
            return
        job = self._copies[0]
        try:
            if job.under_way is None:
                job.under_way = self._store.begin_copy(job.path)
            if not job.under_way.step():
                return
        except CmdcError as error:
            job.error = error
        except Exception as error:
            if self._store.judge(error) is Trouble.BROKEN:
                self._break(error)
            elif not isinstance(error, self._store.failures):
                log.exception("journal.copy_failed")
            job.error = _failed(error)
        self._copies.popleft()
        self._post(self._deliver, [job])

    def _give_copies_up(self, error: JournalFailed) -> None:
        for job in self._copies:
            if job.under_way is not None:
                job.under_way.give_up()
            job.error = error
        self._post(self._deliver, list(self._copies))
        self._copies.clear()

    # --- trouble --------------------------------------------------------------------------------

    def _break(self, error: Exception) -> None:
        """Store nothing any more: what is there is known when it is read again, from the disk."""
        if self._broken is None:
            self._broken = f"the journal failed: {error}"
            log.error("journal.failed", error=str(error))
            self._post(self.health.turn, Condition.FAILED, self._broken)
            held, self._held = self._held, deque()
            self._fail(list(held), JournalFailed(self._broken))

    def _publish_level(self) -> None:
        if self._store.level is Level.PLENTY:
            self._post(self.health.turn, Condition.OPEN, "")
        else:
            self._post(self.health.turn, Condition.FULL, self._store.cause)

    def _look_for_room(self, *, at_once: bool) -> None:
        """Look now and then, and go on with what waits when there is room again."""
        now_s = time.monotonic()
        if self._broken is not None or (now_s < self._look_s and not at_once):
            return
        self._look_s = now_s + JOURNAL_ROOM_LOOK_S
        if not self._store.regain(sum(job.size_bytes for job in self._held)):
            return
        log.info("journal.has_room", waiting=len(self._held))
        self._publish_level()
        held, self._held = list(self._held), deque()
        for first in range(0, len(held), JOURNAL_GROUP_MAX):
            self._write(held[first : first + JOURNAL_GROUP_MAX])

    def _post(self, call: Callable[..., None], *args: object) -> None:
        # The loop may be closed already when nobody closed the journal.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *args)


def _failed(error: Exception) -> JournalFailed:
    kind = type(error) if isinstance(error, JournalFailed) else JournalFailed
    failure = kind(f"the journal could not do it: {error}")
    failure.__cause__ = error
    return failure
