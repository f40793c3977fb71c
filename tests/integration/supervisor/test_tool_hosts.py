"""Tool hosts in the pool: forked for a worker, reported when they end, gone before it is."""

import asyncio
import contextlib
import os
import signal
import socket
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from cmdc_runtime.ids import new_worker_id
from cmdc_runtime.wire.frames import HostLost, HostWanted
from supervisor.adapters.pidfd import Reaper
from supervisor.adapters.zygote import Zygote, ZygoteOptions
from supervisor.core.exits import ExitRecord
from supervisor.processes.containment import Containments
from supervisor.processes.pool import WorkerPool
from supervisor.processes.worker import Worker
from supervisor.processes.zygotes import Zygotes
from tests.ended import has_ended

pytestmark = pytest.mark.process

HERE = Path(__file__).parent
WAIT_S = 20.0


class Router:
    """What a pool needs of its router: frames are kept, nobody is connected."""

    def __init__(self):
        self.refused, self.sent = 0, []

    def send(self, peer, frame):
        self.sent.append(frame)
        return True

    def drain(self):
        pass

    def is_connected(self, peer):
        return False


@pytest.fixture
def folder():
    """A runtime directory with a name short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="w-") as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def import_path(monkeypatch):
    """Let the zygote import this folder's modules."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.syspath_prepend(str(HERE))


@contextlib.asynccontextmanager
async def pool_in(folder):
    """Yield a pool with one worker, which is no process, and its router."""
    zygote = Zygote(ZygoteOptions(preload="light_preload", needs=()))
    reaper, router = Reaper(), Router()
    containments = Containments(folder, folder, "info")
    containments.start()
    pool = WorkerPool(Zygotes(zygote), reaper, containments, f"ipc://{folder}/workers.sock", 0)
    pool.router = router
    ready = asyncio.get_running_loop().create_future()
    worker_id = new_worker_id(1)
    worker = Worker(worker_id, containments.open(worker_id), pid=os.getpid(), pidfd=-1, ready=ready)
    worker.hosts = pool._hosts_of(worker)
    worker.ready.set_result(None)
    pool._workers[worker.peer] = worker
    try:
        yield pool, worker, router
    finally:
        await worker.hosts.end()
        pool._workers.clear()
        await pool.close()
        await zygote.close()
        reaper.close()
        await containments.close()


def listening_at(address):
    """Return a socket where a host can connect."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.settimeout(WAIT_S)
    listener.bind(str(address))
    listener.listen(1)
    return listener


async def ask(pool, worker, address):
    pool.receive(worker.peer, HostWanted(address=str(address)), b"")
    await asyncio.gather(*pool._tasks)


async def first_frame(router):
    """Return the first frame that was sent, when there is one."""
    async with asyncio.timeout(WAIT_S):
        while not router.sent:  # noqa: ASYNC110 - it comes of another process's end
            await asyncio.sleep(0.002)  # tidy: see above
    return router.sent[0]


def test_a_host_connects_and_its_end_is_reported(folder):
    """The worker learns by which signal, under the address that it gave."""

    async def scenario():
        address = folder / "h-1"
        with contextlib.closing(listening_at(address)) as listener:
            async with pool_in(folder) as (pool, worker, router):
                await ask(pool, worker, address)
                (host,) = worker.hosts.all
                peer, _ = await asyncio.to_thread(listener.accept)
                host.child.send_signal(signal.SIGKILL)
                with peer:
                    return await first_frame(router), worker.hosts.all, address.exists()

    lost, left, is_there = asyncio.run(scenario())

    assert lost.address.endswith("/h-1")
    assert lost.message == "killed by signal 9 (SIGKILL)"
    assert (left, is_there) == (set(), False)


def test_one_host_is_started_at_a_time(folder):
    """A worker that asks twice at once gets an error."""

    async def scenario():
        async with pool_in(folder) as (pool, worker, router):
            pool.receive(worker.peer, HostWanted(address=f"{folder}/h-1"), b"")
            pool.receive(worker.peer, HostWanted(address=f"{folder}/h-2"), b"")
            sent = list(router.sent)
            await asyncio.gather(*pool._tasks)
            return sent

    assert asyncio.run(scenario()) == [
        HostLost(address=f"{folder}/h-2", message="another is being started")
    ]


def test_a_zygote_that_cannot_fork_is_reported(folder):
    """The call gets its error result instead of a wait."""

    async def scenario():
        async with pool_in(folder) as (pool, worker, router):
            await pool.zygotes.lean.close()
            await ask(pool, worker, folder / "h-1")
            return router.sent

    (lost,) = asyncio.run(scenario())

    assert "could not be started" in lost.message
    assert "the zygote is closed" in lost.message


def test_a_worker_is_finalized_when_its_host_is_gone(folder):
    """Only then may the next one start, and be alone with what the calls write."""
    seen = []

    async def scenario():
        address = folder / "h-1"
        with contextlib.closing(listening_at(address)) as listener:
            async with pool_in(folder) as (pool, worker, _):
                await ask(pool, worker, address)
                (host,) = worker.hosts.all
                peer, _ = await asyncio.to_thread(listener.accept)
                worker.owner = SimpleNamespace(
                    on_exit=lambda _record: seen.append(has_ended(host.child.pid))
                )
                record = ExitRecord(-9, pid=2**22)
                with peer:
                    pool._on_exit(worker, record)
                    await asyncio.gather(*pool._tasks)
                return worker.hosts.all

    assert asyncio.run(scenario()) == set()
    assert seen == [True]


def test_a_host_that_comes_after_its_workers_end_is_ended_at_once(folder):
    """It was being forked when the worker died: nothing of it is named or stays."""

    async def scenario():
        async with pool_in(folder) as (pool, worker, _):
            pool.receive(worker.peer, HostWanted(address=f"{folder}/h-1"), b"")
            pool._on_exit(worker, ExitRecord(-9, pid=2**22))
            outputs = pool.containments.outputs._workers
            while pool._tasks or worker.hosts.all or outputs:
                await asyncio.gather(*pool._tasks)
                await asyncio.sleep(0.002)  # tidy: the end of a process comes from the kernel
            return pool.reaper.pids, dict(outputs)

    assert asyncio.run(scenario()) == (frozenset(), {})


def test_a_host_that_was_asked_for_with_a_last_word_leaves_no_socket(folder):
    """Its worker has bound the address, and cannot remove it any more: no host is forked."""
    address = Path(folder, "h-1")
    address.touch()

    async def scenario():
        async with pool_in(folder) as (pool, worker, _):
            pool._on_exit(worker, ExitRecord(-9, pid=2**22))
            pool.receive(worker.peer, HostWanted(address=str(address)), b"")
            await asyncio.gather(*pool._tasks)
            return pool.reaper.pids

    assert asyncio.run(scenario()) == frozenset()
    assert not address.exists()
