"""A pump with a word for somebody who is not there yet: no processor is used, and no time lost."""

import asyncio
import contextlib

import pytest
import zmq

from cmdc_runtime.wire import sockets
from cmdc_runtime.wire.sockets import RETRY_SEND_S_MAX, Pump, Role, open_socket

PATIENCE_S = 60.0


class Trying(Pump):
    """A pump that counts how often it has tried to send."""

    tries = 0

    def _try(self, parts, peer):
        self.tries += 1
        return super()._try(parts, peer)


@pytest.fixture
def address(tmp_path):
    return f"ipc://{tmp_path}/socket"


@contextlib.asynccontextmanager
async def alone(address):
    """Yield the context of a pump whose word waits, and the pump."""
    with zmq.Context() as context:
        dealer = open_socket(context, Role.WORKER, identity=b"w-1")
        dealer.connect(address)
        pump = Trying(dealer, print)
        pump.start()
        try:
            async with asyncio.timeout(PATIENCE_S):
                assert pump.send([b"7"])
                yield context, pump
        finally:
            pump.stop()


async def come(condition):
    """Return when the condition holds."""
    while not condition():  # noqa: ASYNC110 - of a pump, which notifies nobody
        await asyncio.sleep(0)


async def heard(context, address):
    """Bind a ROUTER, and return the first message that it gets."""
    got = asyncio.get_running_loop().create_future()
    router = open_socket(context, Role.WORKERS)
    router.bind(address)
    pump = Pump(router, got.set_result)
    pump.start()
    try:
        return await got
    finally:
        pump.stop()


def test_who_waits_for_a_peer_hardly_takes_a_processor(address):
    """A hundred such processes kept the one that they waited for from starting."""

    async def wait():
        async with alone(address) as (_, pump):
            await come(lambda: pump._retry_s == RETRY_SEND_S_MAX)
            return pump.tries

    assert asyncio.run(wait()) <= 10


def test_what_waits_goes_as_soon_as_the_peer_is_there(address, monkeypatch):
    """The descriptor shows it: no timer would come for an hour."""
    monkeypatch.setattr(sockets, "RETRY_SEND_S_MAX", 3_600.0)

    async def wait():
        async with alone(address) as (context, pump):
            pump._retry_s = 3_600.0
            await come(lambda: pump.tries > 1)
            return await heard(context, address)

    assert asyncio.run(wait()) == [b"w-1", b"7"]
