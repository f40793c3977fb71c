"""What an agent is told to be safe, and when."""

import asyncio
from types import SimpleNamespace

from cmdc_runtime.frames import Written
from supervisor.receipts import Receipts

SESSION = "s-1"
WAIT_S = 10.0


class Stream:
    """The stream of one session, as the hub knows it: what came, and what is published."""

    def __init__(self):
        self.taken = self.published = 0

    def last_index(self, _session_id):
        return self.published

    def taken_index(self, _session_id):
        return self.taken


async def told(act):
    """Return what is told, with the time, until an index is safe that ``act`` published."""
    loop, stream, heard = asyncio.get_running_loop(), Stream(), []
    is_safe = asyncio.Event()

    def send(frame):
        heard.append((frame, loop.time()))
        if frame.index == stream.taken:
            is_safe.set()
        return True

    receipts = Receipts(stream, SESSION, send)
    started_s = loop.time()
    act(receipts, stream)
    async with asyncio.timeout(WAIT_S):
        await is_safe.wait()
    receipts.close()
    return SimpleNamespace(frames=[one for one, _ in heard], took_s=heard[-1][1] - started_s)


def test_a_write_is_told_at_once_and_its_event_when_it_was_out_for_a_while(monkeypatch):
    """What was published a moment ago may be with ZeroMQ still."""
    monkeypatch.setattr("supervisor.receipts.ACK_EVENTS_S", 0.02)

    def act(receipts, stream):
        stream.taken = stream.published = 3
        receipts.store(7)

    found = asyncio.run(told(act))

    assert found.frames == [Written(number=7, index=0), Written(number=7, index=3)]
    assert found.took_s >= 0.02


def test_an_event_that_waits_for_the_journal_is_not_safe(monkeypatch):
    """It is asked after again, and nothing is told twice."""
    monkeypatch.setattr("supervisor.receipts.ACK_EVENTS_S", 0.01)

    def act(receipts, stream):
        stream.taken, stream.published = 5, 4
        receipts.publish()
        asyncio.get_running_loop().call_later(0.1, setattr, stream, "published", 5)

    found = asyncio.run(told(act))

    assert found.frames == [Written(number=0, index=4), Written(number=0, index=5)]
