"""The conversation is kept once for the branches that start at a time, and no longer."""

import asyncio
from types import SimpleNamespace

import pytest

from cmdc_runtime.errors import CheckpointFailed
from cmdc_runtime.messages import Message
from cmdc_runtime.requests import Origin
from workers.core.state import Memory
from workers.performers.checkpoints import Forks

MEMORY = Memory(messages=(Message.user("hi"),), base=3)


class Kept:
    """Checkpoints that are kept in a list; ``failure`` is raised in place of keeping."""

    def __init__(self, *names, failure=None):
        self.names, self.made, self.failure = list(names), [], failure

    async def keep_state(self, name, memory):
        if self.failure is not None:
            raise self.failure
        await asyncio.sleep(0)
        self.names.append(name)
        self.made.append(memory)
        return Origin(session_id="s", checkpoint_id=name)

    async def drop(self, name):
        self.names.remove(name)

    async def journaled(self):
        return [SimpleNamespace(checkpoint_id=name) for name in self.names]


async def lent(forks, memory=MEMORY):
    async with forks.lent(memory) as origin:
        await asyncio.sleep(0)
        return origin


def test_branches_that_start_at_a_time_share_one():
    """It is gone when the last of them has begun, and made again for a later one."""

    async def start():
        kept = Kept("c-1")
        forks = Forks(kept)
        origins = await asyncio.gather(*(lent(forks) for _ in range(3)))
        assert kept.names == ["c-1"]
        await lent(forks)
        return kept, origins

    kept, origins = asyncio.run(start())

    assert {one.checkpoint_id for one in origins} == {"fork-4"}
    assert [one.messages for one in kept.made] == [MEMORY.messages] * 2
    assert kept.names == ["c-1"]


def test_another_conversation_is_another_fork():
    """Each branch begins with what there was when it was asked for."""

    async def start():
        kept = Kept()
        other = Memory(messages=(*MEMORY.messages, Message.user("more")), base=3)
        forks = Forks(kept)
        return await asyncio.gather(lent(forks), lent(forks, other))

    assert [one.checkpoint_id for one in asyncio.run(start())] == ["fork-4", "fork-5"]


def test_one_that_cannot_be_kept_fails_all_that_want_it():
    """With the reason; the next one tries again."""

    async def start():
        forks = Forks(Kept(failure=CheckpointFailed("full")))
        return await asyncio.gather(*(lent(forks) for _ in range(2)), return_exceptions=True)

    assert [type(one) for one in asyncio.run(start())] == [CheckpointFailed] * 2


def test_a_branch_that_is_ended_before_holds_up_nobody():
    """Whoever ends it waits for no journal."""

    async def start():
        kept = Kept()
        task = asyncio.create_task(lent(Forks(kept)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return kept.names

    assert asyncio.run(start()) == []


def test_what_a_dead_process_left_is_swept():
    """And nothing else, nor what is in use."""

    async def start():
        kept = Kept("c-1", "fork-9")
        forks = Forks(kept)
        async with forks.lent(MEMORY):
            await forks.sweep()
            return list(kept.names)

    assert asyncio.run(start()) == ["c-1", "fork-4"]
