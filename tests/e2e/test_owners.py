"""Which client a module-level call goes to."""

import asyncio

import cmdc_runtime as cmdc
from cmdc_runtime import aio
from cmdc_runtime.client import default


def test_a_session_object_brings_its_own_client(cmdc_daemon, cmdc_session):
    """A call about a session object never starts another daemon."""
    session = cmdc_session(["one"])
    cmdc.prompt(session, "say one")

    assert cmdc.collect_reply(session) == "one"
    assert cmdc.status(session).pid == cmdc.agent_pid(session)
    assert default.client._engine is None


def test_an_async_session_object_does_too(cmdc_daemon, cmdc_session):
    """The coroutines follow the same rule."""
    first = cmdc_session(["one"])

    async def talk():
        async with cmdc.AsyncClient(cmdc_daemon.address) as client:
            session = cmdc.AsyncSession(first.id, client)
            await aio.prompt(session, "say one")
            return await aio.collect_reply(session)

    assert asyncio.run(talk()) == "one"
