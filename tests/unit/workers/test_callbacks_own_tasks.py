"""Nobody finds the agent's own tasks among all tasks of its loop."""

import asyncio

from cmdc_runtime import foreign
from workers import callbacks
from workers.threads import Threads


def test_only_tasks_of_others_are_found():
    """Those that such code runs in, and those that it has started."""

    async def theirs():
        started = asyncio.create_task(asyncio.sleep(0), name="theirs")
        found = {one.get_name() for one in asyncio.all_tasks()}
        await started
        return found - {asyncio.current_task().get_name()}

    async def scenario():
        loop = asyncio.get_running_loop()
        callbacks.hide_from(loop)
        ours = loop.create_task(Threads("ours").run(lambda: None), name="ours")
        found = await foreign.wait(theirs)
        await ours
        return found

    assert asyncio.run(scenario()) == {"theirs"}
