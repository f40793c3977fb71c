"""What a call has started is gone with it, wherever it went; what one that ended well left, stays.

See ``tests/escapees.py`` for what is started.
"""

import asyncio
import os
import re
import signal
from contextlib import suppress

import psutil
import pytest

from cmdc_runtime.extensions import Context, tool
from tests.ended import has_ended
from tests.escapees import leave, watched

pytestmark = pytest.mark.process

WAIT_S = 20.0
LIMITS_S = (1.0, 4.0, 16.0)
"""For a call that is to be timed out: the first that leaves it the time to start something."""


@tool
def escape(how: str, fifo: str, *, context: Context) -> str:
    """Start what gets away, and then end as it is asked to."""
    leave(fifo)
    context.session.emit("left", os.getpid())
    if how == "returns":
        return "left"
    if how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        signal.pause()


def calls_of(stage, how, fifo):
    return stage.start(("escape", {"how": how, "fifo": str(fifo)}))


async def until(condition, limit_s):
    """Return whether something is so within a time."""
    deadline = asyncio.get_running_loop().time() + limit_s
    while not (found := condition()) and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - it happens in other processes
        await asyncio.sleep(0.001)  # tidy: see above
    return found


@pytest.mark.parametrize("times", range(3))
def test_what_a_timed_out_call_has_started_is_gone_when_its_result_is_there(opened, folder, times):
    """Double forks, setsid and forking on do not help."""

    async def scenario(is_held):
        for limit_s in LIMITS_S:
            async with opened(escape, timeout_s=limit_s) as stage:
                await asyncio.gather(*calls_of(stage, "stays", folder / "fifo"))
                left = is_held()
                if stage.emitted:  # else the time was up before anything was started
                    return stage.posted[-1].text, left
        return None

    with watched(folder / "fifo") as is_held:
        text, left = asyncio.run(scenario(is_held))

    assert re.fullmatch(r"escape took longer than \d+ s and was ended", text)
    assert not left


def test_what_an_aborted_call_has_started_is_gone_with_it(opened, folder):
    """Its task ends when nothing of it runs."""

    async def scenario(is_held):
        async with opened(escape) as stage:
            tasks = calls_of(stage, "stays", folder / "fifo")
            await stage.until_emitted()
            was_held = is_held()
            stage.runner.cancel_calls(["c0"])
            await asyncio.wait(tasks)
            return was_held, is_held()

    with watched(folder / "fifo") as is_held:
        assert asyncio.run(scenario(is_held)) == (True, False)


def test_what_a_killed_call_has_started_is_gone_with_it(opened, folder):
    """It lost its parent before anybody knew, and came to the host."""

    async def scenario(is_held):
        async with opened(escape) as stage:
            await asyncio.gather(*calls_of(stage, "dies", folder / "fifo"))
            return stage.posted[-1].text, await until(lambda: not is_held(), WAIT_S)

    with watched(folder / "fifo") as is_held:
        text, is_gone = asyncio.run(scenario(is_held))

    assert "SIGKILL" in text
    assert is_gone


@tool
def free(*, context: Context) -> str:
    """Set a process free, in a session of its own, and stay."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if child := os.fork():
            os.write(writing, str(child).encode())
            os._exit(0)
        signal.pause()
    os.wait()
    context.session.emit("free", int(os.read(reading, 100)))
    while True:
        signal.pause()


@tool
def end(how: str) -> str:
    """End well, or not."""
    if how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return "ended"


@pytest.mark.parametrize("how", ["returns", "dies"])
def test_what_a_call_has_set_free_is_its_own_until_it_ends(opened, how):
    """It survives the end of a call beside it, and does not survive that of its own."""

    async def scenario():
        async with opened(free, end) as stage:
            tasks = stage.start("free")
            (freed,) = await stage.until_emitted()
            await asyncio.gather(*stage.start(("end", {"how": how})))
            lives = not has_ended(freed)
            stage.runner.cancel_calls(["c0"])
            await asyncio.wait(tasks)
            return lives, has_ended(freed)

    assert asyncio.run(scenario()) == (True, True)


def test_what_a_call_left_that_ended_well_lives_on_with_its_session(opened):
    """Also where another call of a tool that was open before dies; it stays no zombie."""

    @tool
    def serve(*, context: Context) -> str:
        """Leave one process in a session of its own."""
        parent = os.fork()
        if parent == 0:
            os.setsid()
            if child := os.fork():
                context.session.emit("server", child)
                os._exit(0)
            signal.pause()
        os.waitpid(parent, 0)
        return "up"

    async def scenario():
        async with opened(serve, end) as stage:
            await stage.texts(("end", {"how": "returns"}))
            await stage.texts("serve")
            (server,) = await stage.until_emitted()
            await stage.texts(("end", {"how": "dies"}))
            lives = psutil.Process(server).status()
            host = psutil.Process(stage.hosts[0].pid)
            parent = psutil.Process(server).ppid()
            os.kill(server, signal.SIGKILL)
            gone = await until(lambda: not psutil.pid_exists(server), WAIT_S)
            return lives != psutil.STATUS_ZOMBIE, parent == host.pid, gone

    assert asyncio.run(scenario()) == (True, True, True)


@tool
def serve_and_wait(*, context: Context) -> str:
    """Leave one process in a session of its own, report both, and end when asked to go on."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    if os.fork() == 0:
        os.setsid()
        context.session.emit("both", [os.getppid(), os.getpid()])
        signal.pause()
    signal.sigwait({signal.SIGUSR1})
    return "up"


@tool
def pass_by() -> str:
    """Say who this call is."""
    return str(os.getpid())


@pytest.mark.parametrize("who", ["call", "spare"])
def test_what_a_call_left_that_ended_well_survives_who_died_beside_it(opened, who):
    """The host hears of both ends at once, and of that death first."""

    async def scenario():
        async with opened(serve_and_wait, free, pass_by) as stage:
            tasks = stage.start("serve_and_wait", "free")
            await stage.until_emitted(2)
            ((call, server),) = (one for one in stage.emitted if isinstance(one, list))
            (freed,) = (one for one in stage.emitted if isinstance(one, int))
            other = psutil.Process(freed).ppid()
            (third,) = await stage.texts("pass_by")  # a spare follows it
            host = psutil.Process(stage.hosts[0].pid)
            gone = {call, other, int(third)}
            spares = await until(lambda: {one.pid for one in host.children()} - gone, WAIT_S)
            (spare,) = spares
            dying = other if who == "call" else spare
            host.suspend()
            os.kill(dying, signal.SIGKILL)
            assert await until(lambda: has_ended(dying), WAIT_S)
            os.kill(call, signal.SIGUSR1)
            assert await until(lambda: has_ended(call), WAIT_S)
            host.resume()
            await tasks[0]
            assert await until(lambda: not psutil.pid_exists(dying), WAIT_S)
            lives = not has_ended(server)
            for pid in (server, *([freed] if who == "call" else [])):
                with suppress(ProcessLookupError):  # no daemon ends them here
                    os.kill(pid, signal.SIGKILL)
            return lives

    assert asyncio.run(scenario())


def test_a_call_is_not_asked_about_children_that_it_does_not_know(opened):
    """Its own children are there to be waited for as ever."""

    @tool
    def wait_for_one() -> str:
        """Wait for a child, and say how it ended."""
        pid = os.fork()
        if pid == 0:
            os._exit(3)
        return str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    async def scenario():
        async with opened(wait_for_one) as stage:
            return await stage.texts("wait_for_one")

    assert asyncio.run(scenario()) == ["3"]


def test_the_host_reaps_what_comes_to_it(opened):
    """After calls that died and left something behind, it has its spare and nobody else."""

    @tool
    def die() -> str:
        """Leave one behind and die."""
        if os.fork() == 0:
            os.setsid()
            signal.pause()
        os._exit(1)

    async def scenario():
        async with opened(die) as stage:
            for _ in range(3):
                await stage.result("die")
            host = psutil.Process(stage.hosts[0].pid)
            return await until(lambda: len(host.children()) == 1, WAIT_S)

    assert asyncio.run(scenario())
