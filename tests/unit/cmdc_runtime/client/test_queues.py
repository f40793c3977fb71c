"""Where what arrives waits for the application."""

import asyncio

import pytest

from cmdc_runtime.client.queues import AsyncQueue, ThreadQueue


def fetch(queue, timeout_s):
    """Return the next item of either kind of queue."""
    got = queue.get(timeout_s)
    return asyncio.run(got) if asyncio.iscoroutine(got) else got


@pytest.fixture(params=[AsyncQueue, ThreadQueue])
def kind(request):
    return request.param


def test_items_come_out_in_order(kind):
    """First in, first out."""
    queue = kind()
    queue.put([1, 2])
    queue.put([3])

    assert [fetch(queue, 0.0) for _ in range(3)] == [1, 2, 3]
    assert len(queue) == 0


def test_empty_queue_times_out(kind):
    """When nothing comes in time, TimeoutError is raised."""
    with pytest.raises(TimeoutError):
        fetch(kind(), 0.0)


def test_finished_queue_gives_what_it_has_and_then_raises(kind):
    """The end comes after the items, again and again; nothing gets in any more."""
    queue = kind()
    queue.put([1])
    queue.finish(KeyError("first"))
    queue.finish(ValueError("second"), drop=True)
    queue.put([2])

    assert fetch(queue, None) == 1
    for _ in range(2):
        with pytest.raises(KeyError):
            fetch(queue, None)


def test_dropping_discards_what_waits(kind):
    """A queue that is closed by its owner gives nothing more."""
    queue = kind()
    queue.put([1])
    queue.finish(KeyError("closed"), drop=True)

    with pytest.raises(KeyError):
        fetch(queue, None)


def test_bounded_queue_keeps_the_newest(kind):
    """Where a bound is given the oldest make room."""
    queue = kind(2)
    queue.put([1, 2, 3])

    assert [fetch(queue, 0.0) for _ in range(2)] == [2, 3]


def test_coroutine_is_woken():
    """A coroutine that waits gets what is put in later."""

    async def main():
        queue = AsyncQueue()
        asyncio.get_running_loop().call_soon(queue.put, ["late"])
        return await queue.get(5.0)

    assert asyncio.run(main()) == "late"
