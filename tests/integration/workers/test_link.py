"""A worker's link waits for its daemon's word where it must, and no longer than it may."""

import asyncio
import contextlib

import pytest
import zmq

from cmdc_runtime.wire.codec import encode
from cmdc_runtime.wire.frames import HEADER, Contained, Ready
from workers import link as links
from workers.link import Link

SOON_S = 10.0


@pytest.fixture
def daemon(tmp_path):
    """A daemon's socket, and where it listens."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        address = f"ipc://{tmp_path}/workers.sock"
        socket.bind(address)
        yield socket, address


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A wait without a bound, as far as these tests go."""
    monkeypatch.setattr(links, "CONTAINED_S", 10 * SOON_S)


@contextlib.asynccontextmanager
async def waiting(address):
    """A link of a worker that is in no cgroup yet, and its wait for it."""
    link = Link(address, "w-1-0123456789abcdef", print, print)
    link.start()
    link.wait_for_cgroup(is_contained=False)
    task = asyncio.create_task(link.contained())
    try:
        for _ in range(10):
            await asyncio.sleep(0)
        assert not task.done()
        yield link, task
    finally:
        link.close()


def test_a_worker_is_contained_when_its_daemon_says_so(daemon):
    """Who asks later need not wait."""
    socket, address = daemon

    async def run():
        async with waiting(address) as (link, task):
            link.send(Ready(pid=1))
            peer, *_ = await asyncio.to_thread(socket.recv_multipart)
            socket.send_multipart([peer, HEADER + encode(Contained())])
            await asyncio.wait_for(task, SOON_S)
            await asyncio.wait_for(link.contained(), SOON_S)

    asyncio.run(run())


def test_a_worker_without_a_daemon_waits_for_no_cgroup(daemon):
    """The next daemon does not say it, of one that it adopts."""
    _, address = daemon

    async def run():
        async with waiting(address) as (link, task):
            link.detach()
            await asyncio.wait_for(task, SOON_S)

    asyncio.run(run())


def test_a_worker_waits_for_its_cgroup_for_so_long(daemon, monkeypatch):
    """A daemon that can't make one may be out of descriptors for hours."""
    _, address = daemon
    monkeypatch.setattr(links, "CONTAINED_S", 0.05)

    async def run():
        async with waiting(address) as (_link, task):
            await asyncio.wait_for(task, SOON_S)

    asyncio.run(run())
