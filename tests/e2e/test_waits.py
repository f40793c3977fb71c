"""Who waits for a cycle and gives up is waited upon no more."""

import asyncio

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client import exchange
from cmdc_runtime.testing import Hold
from workers.core.state import WAITERS_MAX

TURN_S = 60.0
WAVE = 275
WAVES = 4
"""More than a session lets wait at once, in all."""
SHORT_S = 0.2


def prompt_in(session, model):
    """Begin a cycle whose model says nothing yet."""
    session.prompt("Go.")
    model.wait_held()


def test_waits_that_were_given_up_are_in_nobodys_way(agent, scripted):
    """One after the other, then in waves: more than a session lets wait at once."""
    model = scripted((Hold(), "done"))
    session = agent(model)
    prompt_in(session, model)
    for _ in range(WAITERS_MAX + 100):
        with pytest.raises(cmdc.CollectTimeout, match=r"did not end within 0\.001 s"):
            session.collect_reply(timeout=0.001)
    model.release()

    assert session.collect_reply(timeout=TURN_S) == "done"


def test_waves_of_waits_that_were_given_up_are_in_nobodys_way(agent, scripted, cmdc_daemon):
    """All of a wave are over at once."""
    model = scripted((Hold(), "done"))
    session = agent(model)
    prompt_in(session, model)

    async def main():
        async with cmdc.AsyncClient(cmdc_daemon.address) as client:
            for _ in range(WAVES):
                wave = (client.collect_reply(session.id, timeout=SHORT_S) for _ in range(WAVE))
                ends = await asyncio.gather(*wave, return_exceptions=True)
                assert {type(error) for error in ends} == {cmdc.CollectTimeout}
            fresh = asyncio.ensure_future(client.collect_reply(session.id, timeout=TURN_S))
            await asyncio.sleep(SHORT_S)  # tidy: a refusal would come by then
            model.release()
            return await fresh

    assert asyncio.run(main()) == "done"


def test_waits_that_were_cancelled_are_in_nobodys_way(agent, scripted, cmdc_daemon):
    """The agent is told of each at once. Who is patient stays."""
    model = scripted((Hold(), "done"))
    session = agent(model)
    prompt_in(session, model)

    async def main():
        async with cmdc.AsyncClient(cmdc_daemon.address) as client:
            patient = asyncio.ensure_future(client.collect_reply(session.id))
            for _ in range(WAVES):
                waits = [
                    asyncio.ensure_future(client.collect_reply(session.id)) for _ in range(WAVE)
                ]
                done, _ = await asyncio.wait(waits, timeout=SHORT_S)
                assert not done
                for one in waits:
                    one.cancel()
                await asyncio.wait(waits)
            fresh = asyncio.ensure_future(client.collect_reply(session.id, timeout=TURN_S))
            await asyncio.sleep(SHORT_S)  # tidy: a refusal would come by then
            model.release()
            return [await fresh, await patient]

    assert asyncio.run(main()) == ["done", "done"]


def test_a_wait_whose_client_is_gone_ends_with_its_turn(agent, scripted, cmdc_daemon, monkeypatch):
    """Nobody tells the agent; but it waits for no turn that nobody begins. Who is patient stays."""
    monkeypatch.setattr(exchange, "WAIT_TURN_S", SHORT_S)
    model = scripted((Hold(), "done"))
    session = agent(model)
    prompt_in(session, model)

    async def main():
        async with cmdc.AsyncClient(cmdc_daemon.address) as client:
            patient = asyncio.ensure_future(client.collect_reply(session.id))
            for _ in range(WAVES):
                async with cmdc.AsyncClient(cmdc_daemon.address) as gone:
                    waits = [
                        asyncio.ensure_future(gone.collect_reply(session.id)) for _ in range(WAVE)
                    ]
                    done, _ = await asyncio.wait(waits, timeout=SHORT_S)
                    assert not done
                await asyncio.wait(waits)
                await asyncio.sleep(2 * SHORT_S)  # tidy: the end of their turns
            fresh = asyncio.ensure_future(client.collect_reply(session.id, timeout=TURN_S))
            await asyncio.sleep(SHORT_S)  # tidy: a refusal would come by then
            model.release()
            return [await fresh, await patient]

    assert asyncio.run(main()) == ["done", "done"]
