"""Bugs for a soak to find: each changes one function of the product in the processes of a daemon.

They are no part of the product; the site folder of ``scripts.mutants`` calls them when the module
that they change has been imported. ``__main__.py`` says which there are and how soon each must be
found. This module is imported in agents and daemons, so it needs nothing but the standard library.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

ACK_AHEAD_S: Final = 0.005
"""How much earlier an outcome is answered than its write begins."""
COMMIT_LATE_S: Final = 0.02
"""How much later a command is written down than it is taken."""

# Any, in this module: the product's own objects, which its processes know and this one does not.


def drop_record(sql_writes: Any, kind: str) -> None:
    """Store no record of a kind; all else of its write is stored, its fault points passed."""

    def dropping(write: Any, _head: Any) -> dict[str, Any]:
        return {"records": [one for one in write.records if one[0] != kind]}

    _append_changed(sql_writes, dropping)


def _append_changed(sql_writes: Any, change: Callable[[Any, Any], dict[str, Any]]) -> None:
    """Have records appended with the fields that ``change`` returns for a write and its head."""
    kind = sql_writes.AppendRecords
    append = sql_writes.WRITES[kind]

    def appending(db: Any, heads: Any, write: Any) -> None:
        fields = {name: getattr(write, name) for name in write.__struct_fields__}
        append(db, heads, kind(**fields | change(write, heads.of(db, write.session_id))))

    sql_writes.WRITES[kind] = appending


def skip_write_ahead(link: Any) -> None:
    """Let a write tool begin before the record that says so is in the journal."""

    async def at_once(_self: Any) -> None:
        pass

    link.Link.synced = at_once


def shift_indexes(assignment: Any, shift: str) -> None:
    """Let a process that adopts number its events from ``shift`` further on, and be heard."""
    index_of = assignment.EventIndex

    def shifted(last: int) -> Any:
        return index_of(last if last == 1 else last + int(shift))

    assignment.EventIndex = shifted


def take_any_batch(hub: Any) -> None:
    """Let a batch be published whatever index it begins with."""
    take = hub.Hub.take

    def taking(self: Any, session_id: Any, batch: Any, *others: Any) -> bool:
        channel = self._channels.get(session_id)
        if channel is not None:
            channel.taken = batch.first - 1
        return bool(take(self, session_id, batch, *others))

    hub.Hub.take = taking


def run_writes_again(rebuild: Any) -> None:
    """Let a write tool that was cut off run again."""
    rebuild.may_have_acted = lambda _memory, _call: False


def take_late_results(results: Any) -> None:
    """Let a result count that belongs to a request or a batch which is over."""
    apply = results.apply

    def taking(memory: Any, result: Any) -> Any:
        handler = results.TRANSITIONS.get((memory.state, type(result)))
        if handler is None:
            return apply(memory, result)
        step = results.Step(memory)
        handler(step, result)
        return step

    results.apply = taking


def leave_requests(model: Any) -> None:
    """Let a request that is given up go on, as one does whose provider cannot be cancelled."""

    def leave(self: Any) -> None:
        self._task = None

    model.ModelCaller.cancel = leave


def lose_downs(monitors: Any) -> None:
    """Do not publish the end of a process that another one follows."""
    publishing = monitors.MonitorService.publish

    def losing(self: Any, down: Any) -> None:
        if not down.restarting:
            publishing(self, down)

    monitors.MonitorService.publish = losing


def double_downs(monitors: Any) -> None:
    """Publish the end of each process twice, under two numbers.

    Under one number it would be reported once all the same: the journal and the client look at it.
    """
    fire = monitors.Monitors.fire

    def doubling(self: Any, recorded: Any, count: int) -> Any:
        notices = fire(self, recorded, count)
        if recorded.seq is None or not recorded.down.restarting:
            return notices
        return [
            *notices,
            *fire(self, monitors.RecordedDown(recorded.down, recorded.seq + 1), count),
        ]

    monitors.Monitors.fire = doubling


def ack_early(agent: Any) -> None:
    """Send clients the outcomes of commands before they are in the journal."""
    write = agent.Agent._write

    def answering(self: Any, frame: Any, recorded: Any) -> None:
        for one in frame.completed:
            self.owner.reply(one.id, one.frame)
        if frame.completed:
            time.sleep(ACK_AHEAD_S)
        write(self, frame, recorded)

    agent.Agent._write = answering


def accept_late(daemon: Any) -> None:
    """Have a command done before it is in the journal."""
    with_fault_points = daemon.with_fault_points

    def wrapped(*arguments: Any) -> Any:
        return _Late(with_fault_points(*arguments))

    daemon.with_fault_points = wrapped


class _Late:
    """A journal that says that it has accepted a command, and does so a little later."""

    def __init__(self, journal: Any) -> None:
        self._journal = journal
        self._tasks: set[Any] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def write(self, operation: Any) -> Any:
        if type(operation).__name__ != "AcceptCommand":
            return self._journal.write(operation)

        async def later() -> Any:
            await asyncio.sleep(COMMIT_LATE_S)
            return await self._journal.write(operation)

        task = asyncio.ensure_future(later())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return asyncio.sleep(0)


def store_writes_again(sql_writes: Any) -> None:
    """Store a write that an agent sends again, though the journal has it."""

    def renumbered(write: Any, head: Any) -> dict[str, Any]:
        is_known = head is not None and 0 < write.number <= head.written
        return {"number": head.written + 1} if is_known else {}

    _append_changed(sql_writes, renumbered)


def ignore_fence(sql_writes: Any) -> None:
    """Let a process of before write into the records of its session."""

    def current(_write: Any, head: Any) -> dict[str, Any]:
        return {} if head is None else {"incarnation": head.incarnation}

    _append_changed(sql_writes, current)
