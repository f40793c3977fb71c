"""Whether a session uses more than it may, where no cgroup says so.

Memory is PSS: each page counts as its share among those who have it, so that what all agents have
from the nursery is not held against one of them. PSS costs a walk through the page tables, while
the resident size, which is never less, comes with the process table: it is asked first. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from supervisor.core.cells import Controller, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one process uses; ``threads`` are at least 1."""

    rss_bytes: int
    threads: int


@dataclass(frozen=True, slots=True)
class Excess:
    """A session uses more than it may."""

    what: Literal["memory", "processes"]
    used: int
    limit: int


def watched(limits: Limits, guards: Iterable[Controller]) -> Limits:
    """Return the limits that are left to the daemon's own watch, where ``guards`` are the kernel's.

    A share of the cores is not among them: a watch can't hold it.
    """
    held = frozenset(guards)
    return Limits(
        memory_bytes=None if Controller.MEMORY in held else limits.memory_bytes,
        processes=None if Controller.PROCESSES in held else limits.processes,
    )


def too_many(loads: Iterable[Load], limits: Limits) -> Excess | None:
    """Say whether there are more processes, threads counted, than the limits allow."""
    if limits.processes is None:
        return None
    count = sum(load.threads for load in loads)
    return Excess("processes", count, limits.processes) if count > limits.processes else None


def may_be_too_large(loads: Iterable[Load], limits: Limits) -> bool:
    """Say whether it is worth asking for PSS."""
    if limits.memory_bytes is None:
        return False
    return sum(load.rss_bytes for load in loads) > limits.memory_bytes


def too_large(pss_bytes: Iterable[int], limits: Limits) -> Excess | None:
    """Say whether the processes together have more memory than the limits allow."""
    if limits.memory_bytes is None:
        return None
    used = sum(pss_bytes)
    return Excess("memory", used, limits.memory_bytes) if used > limits.memory_bytes else None
