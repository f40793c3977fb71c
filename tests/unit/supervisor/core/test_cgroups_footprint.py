"""Whether a session uses more than it may."""

import pytest

from supervisor.core.cgroups import (
    Controller,
    Excess,
    Limits,
    Load,
    may_be_too_large,
    too_large,
    too_many,
    watched,
)

LIMITS = Limits(memory_bytes=100, cpu_cores=1.0, processes=3)
LOADS = [Load(rss_bytes=60, threads=1), Load(rss_bytes=50, threads=2)]


@pytest.mark.parametrize(
    ("guards", "left"),
    [
        ((), Limits(memory_bytes=100, processes=3)),
        ((Controller.MEMORY,), Limits(processes=3)),
        ((Controller.PROCESSES, Controller.CPU), Limits(memory_bytes=100)),
        (tuple(Controller), Limits()),
    ],
)
def test_what_the_kernel_holds_is_not_watched(guards, left):
    """The watch is for what is left, and a share of the cores it cannot hold."""
    assert watched(LIMITS, guards) == left


def test_threads_count_as_processes():
    """As many as allowed are fine, one more is not."""
    assert too_many(LOADS, LIMITS) is None
    assert too_many([*LOADS, Load(rss_bytes=0, threads=1)], LIMITS) == Excess("processes", 4, 3)
    assert too_many(LOADS * 9, Limits()) is None


def test_pss_is_asked_for_only_where_it_can_matter():
    """What is resident is never less than the share of it, and costs nothing to know."""
    assert may_be_too_large(LOADS, LIMITS)
    assert not may_be_too_large(LOADS[:1], LIMITS)
    assert not may_be_too_large([*LOADS[:1], Load(rss_bytes=40, threads=1)], LIMITS)
    assert not may_be_too_large(LOADS, Limits())


def test_memory_is_the_sum_of_the_shares():
    """As much as allowed is fine, one byte more is not."""
    assert too_large([60, 40], LIMITS) is None
    assert too_large([60, 41], LIMITS) == Excess("memory", 101, 100)
    assert too_large([60, 41], Limits()) is None
