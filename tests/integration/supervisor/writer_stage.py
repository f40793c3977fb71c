"""A writer's thread over a store that fails when a test says so."""

import asyncio
import contextlib
import threading
from collections import defaultdict
from typing import Any

from supervisor.adapters.journal.operations import Query, Write
from supervisor.adapters.journal.store import Store as AnyStore
from supervisor.adapters.journal.writer import GroupWriter
from supervisor.core.storage import Level, Need, Trouble

WAIT_S = 10.0
CAUSE = "the disk is full"


class PassingError(Exception):
    """The store's own: this time it did not work."""


class FullError(Exception):
    """There was no room."""


class BrokenError(Exception):
    """The disk is gone."""


class Look(Query[Any], frozen=True):
    """A query that calls a function on the thread."""

    call: Any


class Work(Write[Any], frozen=True):
    """A write that calls a function on the thread."""

    call: Any
    size: int
    kind: Need = Need.WORK
    before: Any = None

    @property
    def need(self):
        return self.kind

    @property
    def size_bytes(self):
        return self.size

    @property
    def known(self):
        return None if self.before is None else Look(self.before)


class Store(AnyStore):
    """A store that says what was asked of it, and raises what it is given."""

    failures = (PassingError,)

    def __init__(self, guard=None):
        self.guard = guard
        """Knows what room there is; without it there is always room."""
        self.asked = []
        self.problems = defaultdict(list)
        """By method, what its next calls raise."""
        self.may_open = threading.Event()
        self.may_open.set()

    def _do(self, what):
        self.asked.append(what)
        if self.problems[what]:
            raise self.problems[what].pop(0)

    def open(self):
        self.may_open.wait(WAIT_S)
        self._do("open")

    def look(self):
        self._do("look")

    def begin(self):
        self._do("begin")

    def commit(self):
        self._do("commit")

    def rollback(self):
        self._do("rollback")

    def close(self):
        self._do("close")

    def perform(self, operation):
        return operation.call()

    @property
    def level(self):
        return super().level if self.guard is None else self.guard.level

    @property
    def cause(self):
        return super().cause if self.guard is None else self.guard.cause

    def judge(self, error):
        return super().judge(error) if self.guard is None else self.guard.judge(error)

    def spend(self):
        return super().spend() if self.guard is None else self.guard.spend()

    def regain(self, wanted_bytes):
        asked = super() if self.guard is None else self.guard
        return asked.regain(wanted_bytes)

    def abandon(self):
        return super().abandon() if self.guard is None else self.guard.abandon()


class Guard:
    """Room as the test has it."""

    cause = CAUSE

    def __init__(self, level=Level.PLENTY):
        self._level = level
        self.has_room = self.is_abandoned = False
        self.wanted = []
        self.problem = None

    @property
    def level(self):
        if self.problem is not None:
            raise self.problem
        return self._level

    def judge(self, error):
        kinds = {FullError: Trouble.NO_ROOM, BrokenError: Trouble.BROKEN}
        return kinds.get(type(error), Trouble.PASSING)

    def spend(self):
        self._level = Level(self._level + 1)

    def regain(self, wanted_bytes):
        self.wanted.append(wanted_bytes)
        if self.has_room:
            self._level = Level.PLENTY
        return self.has_room

    def abandon(self):
        self.is_abandoned = True


def played(scenario, guard=None, store=None):
    """Return what a coroutine function returns, given an open writer and its store."""
    store = store or Store()
    store.guard = guard

    async def main():
        async with asyncio.timeout(WAIT_S):
            writer = GroupWriter(store)
            await writer.open()
            try:
                return await scenario(writer, store)
            finally:
                await writer.close()

    return asyncio.run(main())


@contextlib.asynccontextmanager
async def grouped(writer):
    """Have what is called meanwhile become one group."""
    started, done = threading.Event(), threading.Event()
    busy = writer.read(Look(lambda: (started.set(), done.wait(WAIT_S))))
    await asyncio.to_thread(started.wait, WAIT_S)
    try:
        yield
    finally:
        done.set()
        await busy


def outcome(error):
    """Return what a call comes to that raises this."""

    def call():
        raise error

    return call


async def kinds(*calls):
    """Return the results, and the types of the errors."""
    found = await asyncio.gather(*calls, return_exceptions=True)
    return [type(one) if isinstance(one, Exception) else one for one in found]
