"""A start whose caller is cancelled: what the daemon makes of it has no owner, and ends."""

import asyncio

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import aio
from cmdc_runtime.client.exchange import Exchange
from cmdc_runtime.client.session import AsyncClient

STEPS = 8
"""Turns of the loop between the beginning of a start and its end by ``cancel``, one more each."""


class Ask(cmdc.ReasoningStrategy):
    """Asks once."""

    def step(self, state, context):
        return cmdc.Branch(context.question)

    def aggregate(self, thoughts, state):
        return cmdc.Done(thoughts[0].content)


@pytest.mark.parametrize("begin", ["run", "create_agent"])
def test_who_is_cancelled_while_a_session_starts_leaves_none(cmdc_daemon, client, scripted, begin):
    """The daemon has perhaps taken the start: what it makes of it is ended, however early."""
    model = scripted(default="42")

    async def whole():
        async with AsyncClient(cmdc_daemon.address) as own:
            for turns in range(STEPS):
                work = (
                    aio.Runner.run(Ask, "Well?", model=model, client=own)
                    if begin == "run"
                    else own.create_agent(model=model)
                )
                task = asyncio.create_task(work)
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                if begin == "run":
                    assert await own.list_sessions() == []
            while own._exchange._endings:
                await own._run(Exchange.await_ends)
            assert await own.list_sessions() == []

    asyncio.run(whole())
    assert client.list_sessions() == []
