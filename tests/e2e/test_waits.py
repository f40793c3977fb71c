"""Who waits for a cycle and gives up is waited upon no more."""

import asyncio
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

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


NO_PROMPT = "no prompt was given yet"


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
    """The agent hears of each at once. Who is patient stays."""
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
    """The agent hears nothing, but waits for no turn that nobody begins. Who is patient stays."""
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


@pytest.mark.parametrize("timeout", [None, TURN_S])
def test_a_reply_to_no_prompt_is_an_error_at_once(agent, scripted, timeout):
    """Also with a history, which holds no prompt of its own; a prompt behind it is served."""
    model = scripted("fine")
    session = agent(model, messages=[cmdc.Message.user("a"), cmdc.Message.assistant("b")])
    begun_s = time.monotonic()
    with pytest.raises(cmdc.UsageError, match=NO_PROMPT):
        session.collect_reply(timeout=timeout)
    assert time.monotonic() - begun_s < TURN_S / 2

    session.prompt("Go.")
    assert session.collect_reply(timeout=TURN_S) == "fine"


def test_the_last_reply_is_there_for_every_client_and_process(client, agent, scripted, cmdc_daemon):
    """For one that gave no prompt, for the next process of the session, and for who resumes it."""
    model = scripted("fine")
    session = agent(model)
    session.run("Go.", timeout=TURN_S)
    saved = session.checkpoint()

    with cmdc.Client(cmdc_daemon.address) as other:
        assert other.collect_reply(session.id, timeout=TURN_S) == "fine"
        before = session.status().incarnation
        monitor = session.monitor()
        os.kill(session.agent_pid(), signal.SIGKILL)
        monitor.wait(TURN_S)
        assert other.collect_reply(session.id, timeout=TURN_S) == "fine"
        assert session.status().incarnation > before
        options = {"checkpoint_id": saved.checkpoint_id, "new_id": "waits-1"}
        with client.resume_session(session.id, **options) as fork:
            assert other.collect_reply(fork.id, timeout=TURN_S) == "fine"


def test_a_wait_for_the_cycle_of_another_client_outlives_its_process(agent, scripted, cmdc_daemon):
    """The cycle goes on in the next process, and whoever waits for it gets its reply."""
    model = scripted((Hold(), "lost"), default="done")
    session = agent(model)
    prompt_in(session, model)

    with cmdc.Client(cmdc_daemon.address) as other, ThreadPoolExecutor() as threads:
        waits = [threads.submit(one.collect_reply, session.id) for one in (other, session.client)]
        os.kill(session.agent_pid(), signal.SIGKILL)
        model.release()
        assert {one.result(TURN_S) for one in waits} <= {"done", "lost"}
