"""The questions to the daemon's own parts go the way of real work."""

import asyncio
import contextlib
import os
from pathlib import Path

import pytest
import zmq

from cmdc_runtime.errors import Overloaded
from cmdc_runtime.wire.codec import encode, failed, raw
from cmdc_runtime.wire.frames import FromClient, ValueReply
from cmdc_runtime.wire.sockets import Role
from supervisor.adapters.journal.sqlite import SqliteJournal
from supervisor.adapters.router import Router
from supervisor.adapters.self_check import Caller, ask_journal, ask_reaper
from tests.journal_thread import on_thread

WAIT_S = 10.0
SILENCE_S = 0.05
"""Much longer than an answer takes."""


def descriptors():
    """Return how many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_the_loop_notices_descriptors():
    """The question ends, again and again, and leaves no descriptor open."""

    async def work():
        await ask_reaper()
        before = descriptors()
        for _ in range(10):
            await ask_reaper()
        return before, descriptors()

    before, after = asyncio.run(asyncio.wait_for(work(), WAIT_S))

    assert before == after


def test_the_journal_answers_unless_it_is_stuck(tmp_path):
    """The question waits behind whatever the journal's thread does."""

    async def work():
        journal = SqliteJournal(tmp_path / "state")
        await journal.open()
        await ask_journal(journal)
        begin, end = os.pipe()
        stuck = on_thread(journal, lambda: os.read(begin, 1))
        question = asyncio.create_task(ask_journal(journal))
        done, _ = await asyncio.wait([question], timeout=SILENCE_S)
        os.write(end, b"x")
        await asyncio.gather(stuck, question)
        await journal.close()
        os.close(begin)
        os.close(end)
        return done

    assert asyncio.run(asyncio.wait_for(work(), WAIT_S)) == set()


@contextlib.asynccontextmanager
async def control(tmp_path, answer):
    """A control socket that does with each question what ``answer(router, peer, ask)`` does."""
    with zmq.Context() as context:
        address = f"ipc://{tmp_path}/control"
        router = Router(
            context, Role.CONTROL, FromClient, lambda peer, ask, _more: answer(router, peer, ask)
        )
        caller = Caller(context, address)
        try:
            router.bind(address)
            yield caller
        finally:
            caller.close()
            router.close()


def reply(router, peer, ask):
    router.send(peer, ValueReply(id=ask.id, body=raw(None)))


def refuse(router, peer, ask):
    router.send_encoded(peer, encode(failed(ask.id, Overloaded("too many"))))


@pytest.mark.parametrize("answer", [reply, refuse])
def test_the_router_answers(tmp_path, answer):
    """Any answer will do, a refusal too, as often as it is asked for."""

    async def work():
        async with control(tmp_path, answer) as caller:
            for _ in range(20):
                await caller.ask_router()

    asyncio.run(asyncio.wait_for(work(), WAIT_S))


def test_an_answer_to_an_earlier_question_does_not_count(tmp_path):
    """A router that is one answer behind has not answered yet."""
    asked = []

    def answer_the_one_before(router, peer, ask):
        asked.append(ask)
        if len(asked) > 1:
            reply(router, peer, asked[-2])

    async def work():
        async with control(tmp_path, answer_the_one_before) as caller:
            answered = []
            for _ in range(2):
                question = asyncio.create_task(caller.ask_router())
                done, _ = await asyncio.wait([question], timeout=SILENCE_S)
                answered.append(bool(done))
                question.cancel()
            return answered

    assert asyncio.run(asyncio.wait_for(work(), WAIT_S)) == [False, False]
    assert len(asked) == 2
