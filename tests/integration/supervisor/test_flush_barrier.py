"""Whether ZeroMQ has passed on what was sent, asked over a real socket."""

import asyncio
import contextlib

import structlog
import zmq

from cmdc_runtime.wire.codec import raw
from cmdc_runtime.wire.frames import FromClient, ValueReply
from cmdc_runtime.wire.sockets import Role
from supervisor.adapters.router import Router
from supervisor.adapters.self_check import ROUNDS, Caller, FlushBarrier

WAIT_S = 10.0


class Setting:
    """A control socket that answers as many questions as a test allows, and the barrier."""

    def __init__(self, context, address):
        self.asked, self.allowed = [], asyncio.Queue()
        self.router = Router(context, Role.CONTROL, FromClient, self._hear)
        self.router.bind(address)
        self.flush_barrier = FlushBarrier(Caller(context, address, "flush-barrier"))

    async def answer(self):
        """Answer one question, when it has come."""
        async with asyncio.timeout(WAIT_S):
            peer, ask = await self.allowed.get()
        self.router.send(peer, ValueReply(id=ask.id, body=raw(None)))

    def _hear(self, peer, ask, _events):
        self.asked.append(ask.id)
        self.allowed.put_nowait((peer, ask))


@contextlib.asynccontextmanager
async def setting(tmp_path):
    with zmq.Context() as context:
        one = Setting(context, f"ipc://{tmp_path}/control")
        try:
            yield one
        finally:
            await one.flush_barrier.close()
            one.router.close()


async def until(condition):
    """Let the loop turn until the condition holds."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - ZeroMQ's thread has no event of this loop
            await asyncio.sleep(0)


async def passed(flush_barrier, mark):
    await until(lambda: flush_barrier.is_flushed(mark))


async def asked(one, count):
    await until(lambda: len(one.asked) >= count)


def run(work):
    return asyncio.run(asyncio.wait_for(work(), 2 * WAIT_S))


def test_what_was_sent_has_passed_after_two_answers(tmp_path):
    """One answer may have come by before it; nothing is asked when nobody waits."""

    async def work():
        async with setting(tmp_path) as one:
            mark = one.flush_barrier.mark()
            found = [one.flush_barrier.is_flushed(mark)]
            await one.answer()
            await asked(one, 2)
            found.append(one.flush_barrier.is_flushed(mark))
            await one.answer()
            await passed(one.flush_barrier, mark)
            count = len(one.asked)
            again = one.flush_barrier.mark()
            for _ in range(ROUNDS):
                await one.answer()
            await passed(one.flush_barrier, again)
            return found, count, one.asked

    found, count, questions = run(work)

    assert (found, count) == ([False, False], ROUNDS)
    assert questions == [f"flush-barrier-{number}" for number in range(1, 2 * ROUNDS + 1)]


def test_a_question_that_is_under_way_does_not_count(tmp_path):
    """It may have gone out before what the mark speaks of."""

    async def work():
        async with setting(tmp_path) as one:
            one.flush_barrier.mark()
            await asked(one, 1)
            mark = one.flush_barrier.mark()
            for _ in range(ROUNDS):
                await one.answer()
            await asked(one, ROUNDS + 1)
            early = one.flush_barrier.is_flushed(mark)
            await one.answer()
            await passed(one.flush_barrier, mark)
            return early, len(one.asked)

    assert run(work) == (False, ROUNDS + 1)


def test_without_an_answer_it_has_passed_in_the_end(tmp_path, monkeypatch):
    """Agents keep so long what has not; the log says that the daemon does not hear itself."""
    monkeypatch.setattr("supervisor.adapters.self_check.FLUSH_ROUND_S_MAX", 0.05)

    async def work():
        async with setting(tmp_path) as one:
            with structlog.testing.capture_logs() as logs:
                await passed(one.flush_barrier, one.flush_barrier.mark())
        return logs

    assert [line["event"] for line in run(work)] == ["flush_barrier.silent"] * ROUNDS


def test_a_passage_that_is_closed_asks_nothing(tmp_path):
    """It is closed in the midst of a question, and marked afterwards."""

    async def work():
        async with setting(tmp_path) as one:
            before = one.flush_barrier.mark()
            await asked(one, 1)
            await one.flush_barrier.close()
            after = one.flush_barrier.mark()
            return (
                one.flush_barrier.is_flushed(before),
                one.flush_barrier.is_flushed(after),
                len(one.asked),
            )

    assert run(work) == (False, False, 1)
