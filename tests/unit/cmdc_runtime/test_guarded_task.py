"""Code of strangers cancels itself and what it has started, and no other such code."""

import asyncio

import pytest

from cmdc_runtime import foreign
from cmdc_runtime.foreign import ForeignError


async def cancel_all():
    """Cancel all that there is, and wait for what comes of that."""
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.Event().wait()


def test_who_cancels_all_tasks_cancels_its_own():
    """Another that runs beside it goes on."""
    done = asyncio.Event()

    async def other():
        await done.wait()
        return "went on"

    async def scenario():
        here = asyncio.current_task()
        asyncio._unregister_task(here)
        beside = foreign.wait(other)
        running = asyncio.create_task(beside)
        asyncio._unregister_task(running)
        await asyncio.sleep(0)
        with pytest.raises(ForeignError, match=foreign.OWN_CANCEL):
            await foreign.wait(cancel_all)
        done.set()
        return await running

    assert asyncio.run(scenario()) == "went on"


def test_what_it_has_started_may_cancel_it():
    """A task of its own is a part of it."""

    async def started(task):
        task.cancel()

    async def starts():
        await asyncio.create_task(started(asyncio.current_task()))

    async def scenario():
        with pytest.raises(ForeignError, match=foreign.OWN_CANCEL):
            await foreign.wait(starts)

    asyncio.run(scenario())


def test_who_waits_for_it_may_end_it_on_behalf_of_another():
    """A task that other such code has started is cancelled, and what it waits for with it."""
    ended = []

    async def inner():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("inner")

    async def outer():
        task = asyncio.create_task(foreign.wait(inner))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))
        return task.cancelled()

    assert asyncio.run(foreign.wait(outer)) is True
    assert ended == ["inner"]
