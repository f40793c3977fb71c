"""Forks that the kernel refuses: who asked learns why, and the zygote forks again later."""

import asyncio
import os
import resource
import signal
import time
from pathlib import Path

import psutil
import pytest

from supervisor.adapters.zygote import Zygote, ZygoteFailed, ZygoteOptions

pytestmark = pytest.mark.process

HERE = Path(__file__).parent
END_S = 10.0
FORKS = 5
POOR_PRELOAD = """
import errno, os
from pathlib import Path
from light_preload import preload

fork = os.fork

def refuse():
    if Path({path!r}).exists():
        raise BlockingIOError(errno.EAGAIN, "no more")
    return fork()

os.fork = refuse
"""


@pytest.fixture(autouse=True)
def import_path(monkeypatch, tmp_path):
    """Let the zygote import this folder's modules and the one that a test writes."""
    monkeypatch.setenv("PYTHONPATH", f"{HERE}{os.pathsep}{tmp_path}")
    # A child gets the import path of this process, whatever an earlier test has left of it.
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.syspath_prepend(str(tmp_path))


async def refused(zygote):
    """Return what is reported of each of some forks that fail, at the stage of the fork."""
    reported = []
    for _ in range(FORKS):
        with pytest.raises(ZygoteFailed) as caught:
            await zygote.fork({"do": "stay"}, module="zygote_children")
        assert caught.value.stage == "fork"
        reported.append(caught.value.message)
    return reported


async def fork_and_end(zygote):
    """Fork one child, end it, and wait until the zygote has heard of it."""
    child = await zygote.fork({"do": "stay"}, module="zygote_children")
    reported = asyncio.Event()
    child.listen(reported.set)
    child.send_signal(signal.SIGKILL)
    await asyncio.wait_for(reported.wait(), END_S)
    status = child.status()
    child.close()
    return status


async def settled(processes, before):
    """Return whether they soon hold no more descriptors than before.

    The zygote lets go of a child's after the daemon has heard of its end, so one of each count may
    be on its way out: a descriptor kept for each fork that failed would be more.
    """
    deadline = time.monotonic() + END_S
    while any(one.num_fds() > most for one, most in zip(processes, before, strict=True)):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.002)  # tidy: polls another process
    return True


def test_zygote_outlives_forks_that_fail(tmp_path):
    """Neither side keeps a descriptor of them, and the next fork is as any other."""
    poor = tmp_path / "poor"
    (tmp_path / "poor_preload.py").write_text(POOR_PRELOAD.format(path=str(poor)))

    async def scenario():
        zygote = Zygote(ZygoteOptions(preload="poor_preload", needs=()))
        try:
            await zygote.warm()
            assert await fork_and_end(zygote) == -signal.SIGKILL
            both, pid = [psutil.Process(), psutil.Process(zygote.pid)], zygote.pid
            before = [one.num_fds() for one in both]
            poor.touch()
            reported = await refused(zygote)
            poor.unlink()
            assert await fork_and_end(zygote) == -signal.SIGKILL
            return reported, await settled(both, before), zygote.pid == pid
        finally:
            await zygote.close()

    reported, is_settled, is_the_same = asyncio.run(scenario())

    assert (
        reported == ["[Errno 11] no process could be forked: Resource temporarily unavailable"] * 5
    )
    assert (is_settled, is_the_same) == (True, True)


def test_nothing_is_forked_with_the_last_descriptors():
    """They are for who speaks with the daemon; the message says how there will be more."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def scenario():
        zygote = Zygote(ZygoteOptions(preload="light_preload", needs=()))
        try:
            await zygote.warm()
            used = psutil.Process().num_fds()
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + 32, limits[1]))
            reported = await refused(zygote)
            left = psutil.Process().num_fds() - used
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            assert await fork_and_end(zygote) == -signal.SIGKILL
            return reported, left
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            await zygote.close()

    reported, left = asyncio.run(scenario())

    assert all("descriptors are in use" in text and "LimitNOFILE=" in text for text in reported)
    assert left <= 0
