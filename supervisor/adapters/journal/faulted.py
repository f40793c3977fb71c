"""Fault points of the daemon: before and after the commit of everything that is written down.

They are made from the ``Journal`` protocol itself: whatever is not in ``READS`` or ``LIFE`` is a
write and has its points, so a new method has them as soon as it is there. ``append`` is called by
the kinds of records that it is given.
"""

from asyncio import Future, ensure_future
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from cmdc_runtime import faults
from supervisor.adapters.journal.base import Journal

LIFE: Final = frozenset({"open", "close"})
READS: Final = frozenset(
    {
        "load",
        "alive",
        "find",
        "replay",
        "last_index",
        "answer",
        "downs",
        "newest_down",
        "history",
        "past_part",
        "checkpoints",
        "checkpoint",
    }
)
"""What changes nothing."""
APPEND: Final = "append"
SNAPSHOT: Final = "snapshot"
"""Stands beside the kinds of records where the state after them is written too."""

PidsOf = Callable[[str, str], Iterable[int]]
"""Returns the pids of a victim, by its name and the session at whose point it dies."""


def writes() -> list[str]:
    """Return the methods that write, in the order of the protocol."""
    public = (name for name, what in vars(Journal).items() if callable(what) and name[0] != "_")
    return [name for name in public if name not in LIFE | READS]


def with_fault_points(journal: Journal, names: Iterable[str], pids_of: PidsOf) -> Journal:
    """Return the journal as it is, or with fault points where this process looks for plans.

    ``names`` are the victims that ``pids_of`` knows.
    """
    if not faults.is_armed():
        return journal
    # It has every method of the protocol, by ``__getattr__``, which no type checker can see.
    return cast(Journal, _Faulted(journal, tuple(names), pids_of))


class _Faulted:
    """Hands everything on; passes points around what is a write."""

    def __init__(self, journal: Journal, names: tuple[str, ...], pids_of: PidsOf) -> None:
        self._journal = journal
        self._names = names
        self._pids_of = pids_of
        self._writes = frozenset(writes())

    def __getattr__(self, name: str) -> Any:  # Any: whatever the journal has
        found = getattr(self._journal, name)
        return partial(self._write, name, found) if name in self._writes else found

    def _write(
        self, name: str, call: Callable[..., Awaitable[Any]], *args: Any, **more: Any
    ) -> Awaitable[Any]:  # Any: those of the method
        session_id = session_of(args)
        victims: faults.Victims = {
            victim: partial(self._pids_of, victim, session_id) for victim in self._names
        }
        point = _point(name, args, more)
        faults.pass_point(session_id, f"{point}.before", victims)
        written = ensure_future(call(*args, **more))

        def committed(done: "Future[Any]") -> None:  # Any: the result of the method
            # The first to be told: nobody else has heard of the commit yet.
            if not done.cancelled() and done.exception() is None:
                faults.pass_point(session_id, f"{point}.after", victims)

        written.add_done_callback(committed)
        return written


def session_of(args: Sequence[Any]) -> str:
    """Return whose row the arguments of a write are for (Any: those of any method)."""
    first = args[0] if args else None
    row = getattr(first, "row", first)
    found = row if isinstance(row, str) else getattr(row, "session_id", faults.DAEMON_ITSELF)
    return str(found)


def _point(name: str, args: Sequence[Any], more: Mapping[str, Any]) -> str:  # Any: the method's
    if name != APPEND:
        return name
    _, _, records, settled, *_ = args
    kinds = [kind for kind, _ in records]
    if more.get("snapshot"):
        kinds.append(SNAPSHOT)
    return f"{name}.{faults.written_kinds(kinds, settled)}"
