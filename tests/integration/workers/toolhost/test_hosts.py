"""The life of a tool host: asked for, met, lost, replaced, and ended with its agent."""

import asyncio
from pathlib import Path

import psutil
import pytest

from cmdc_runtime.extensions import Context, Tool, tool
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.wire.frames import HostLost
from workers.performers import toolhost_link
from workers.performers.tools import LoadedTool

pytestmark = pytest.mark.process

WAIT_S = 20.0


def test_the_socket_is_gone_when_the_host_has_come(opened, folder, facts_tool):
    """Nobody else can connect, and nothing is left behind."""

    async def scenario():
        async with opened(facts_tool) as stage:
            await stage.texts("report")
            return list(folder.iterdir()), stage.addresses

    left, (address,) = asyncio.run(scenario())

    assert left == []
    assert Path(address).parent == folder
    assert len(Path(address).name) <= len("workers.sock")


def test_a_lost_host_ends_its_calls_with_the_reason_and_is_replaced(opened, facts_tool, stay, ends):
    """The daemon knows how it ended; the next call has a new one."""

    async def scenario():
        async with opened(stay, facts_tool) as stage:
            tasks = stage.start("stay")
            pids = await stage.until_emitted()
            stage.hosts[0].kill()
            lost = HostLost(address=stage.addresses[0], message="killed by signal 9 (SIGKILL)")
            stage.runner.host_lost(lost)
            await asyncio.gather(*tasks)
            text = stage.posted[-1].text
            assert stage.posted[-1].is_cut
            child = psutil.Process(pids[0][1])
            child.kill()  # the daemon's sweep, in the real thing
            return text, ends(pids[0][0]), await stage.texts("report"), len(stage.hosts)

    text, call_ended, after, hosts = asyncio.run(scenario())

    assert text == ("Error: the tool host ended with this call in it: killed by signal 9 (SIGKILL)")
    assert call_ended
    assert (after, hosts) == (["reported"], 2)


def test_a_host_that_nobody_explains_is_lost_all_the_same(opened, stay, monkeypatch):
    """The daemon's word is waited for within a bound."""
    monkeypatch.setattr(toolhost_link, "WHY_S", 0.01)

    async def scenario():
        async with opened(stay) as stage:
            tasks = stage.start("stay")
            pids = await stage.until_emitted()
            stage.hosts[0].kill()
            await asyncio.gather(*tasks)
            psutil.Process(pids[0][1]).kill()
            return stage.posted[-1].text

    assert asyncio.run(scenario()).endswith("with this call in it: nobody knows why")


def test_a_host_that_cannot_be_had_is_an_error_result(opened, facts_tool):
    """The daemon says why; the next call asks anew."""

    async def scenario():
        async with opened(facts_tool) as stage:
            stage.answer_want = stage.refuse_host
            refused = await stage.texts("report", "report")
            stage.answer_want = stage.start_host
            return refused, await stage.texts("report"), len(stage.addresses)

    refused, after, asked = asyncio.run(scenario())

    assert refused == ["Error: there is no tool host to run this call: no room"] * 2
    assert (after, asked) == (["reported"], 2)


def test_a_host_that_does_not_come_is_given_up(opened, folder, facts_tool, monkeypatch):
    """No call waits for ever for a process that never connects."""
    monkeypatch.setattr(toolhost_link, "START_S", 0.05)

    async def scenario():
        async with opened(facts_tool) as stage:
            stage.answer_want = lambda _address: None
            return await stage.texts("report"), list(folder.iterdir())

    (text,), left = asyncio.run(scenario())

    assert text.endswith("it did not connect within 0.05 s")
    assert left == []


def test_a_host_ends_with_its_agent(opened, stay, ends):
    """And kills what runs in it, also what a call has started."""

    async def scenario():
        async with opened(stay) as stage:
            stage.start("stay")
            pids = await stage.until_emitted()
            stage.runner._host._host.writer.transport.abort()  # as when the agent is killed
            status = await asyncio.to_thread(stage.hosts[0].wait, WAIT_S)
            return status, [ends(pid) for pid in pids[0]]

    assert asyncio.run(scenario()) == (0, [True, True])


def test_a_retired_host_ends_after_its_calls(opened, stay, ends):
    """It ends its calls in peace; the next one has another host."""

    async def scenario():
        async with opened(stay) as stage:
            stage.start("stay")
            pids = await stage.until_emitted()
            stage.runner.renew_host()
            stage.start("stay")
            await stage.until_emitted(2)
            first, second = stage.hosts
            assert first.poll() is None
            stage.runner.cancel()
            status = await asyncio.to_thread(first.wait, WAIT_S)
            return status, second.poll(), [ends(pid) for pid in pids[0]]

    assert asyncio.run(scenario()) == (0, None, [True, True])


def test_a_host_that_was_asked_of_a_dead_daemon_is_asked_for_again(opened, stay):
    """Who waits for it hears nothing of that."""

    async def scenario():
        async with opened(stay) as stage:

            def lose_daemon(address):
                stage.daemons_lost += 1
                stage.answer_want = stage.start_host
                stage.refuse_host(address)

            stage.answer_want = lose_daemon
            stage.start("stay")
            await stage.until_emitted()
            return len(stage.hosts), len(stage.addresses)

    assert asyncio.run(scenario()) == (1, 2)


def test_a_host_that_nobody_starts_is_asked_of_the_next_daemon(opened, stay):
    """A daemon that dies takes along what it was asked, and its successor does not know of it."""

    async def scenario():
        async with opened(stay) as stage:

            def lose_daemon(_address):
                stage.daemons_lost += 1
                stage.answer_want = stage.start_host

            stage.answer_want = lose_daemon
            stage.start("stay")
            await stage.until_emitted()
            return len(stage.hosts), len(set(stage.addresses))

    assert asyncio.run(scenario()) == (1, 1)


HOST = "import workers.toolhost.host as host"
CALL = "import workers.toolhost.call as call"


def test_calls_of_a_host_are_bounded(opened, stay):
    """One more than the bound is an error result, not a process."""

    async def scenario():
        async with opened(stay) as stage:
            stage.bounds = f"{HOST}; host.CALLS_MAX = 1"
            tasks = stage.start("stay")
            await stage.until_emitted()
            refused = await stage.result(("stay", {"seconds": 1.0}))
            stage.runner.cancel()
            await asyncio.wait(tasks)
            return refused.text

    assert asyncio.run(scenario()) == "Error: 1 calls have not ended yet"


def test_events_of_a_call_are_bounded(opened):
    """A flood ends in the tool, which reads of it."""

    @tool(effects="read")
    def flood(*, context: Context) -> str:
        """Emit without an end."""
        while True:
            context.session.emit("n")

    async def scenario():
        async with opened(flood) as stage:
            stage.bounds = f"{CALL}; call.EMITTED_MAX = 3"
            return (await stage.texts("flood"))[0], len(stage.emitted)

    text, emitted = asyncio.run(scenario())

    assert text == "a call may emit 3 events, and this is one more"
    assert emitted == 3


def test_a_spare_that_nobody_needs_is_given_up(opened, facts_tool):
    """An idle session pays for its host only."""

    async def scenario():
        async with opened(facts_tool) as stage:
            stage.bounds = f"{HOST}; host.SPARE_IDLE_S = 0.1"
            await stage.texts("report")
            host = psutil.Process(stage.hosts[0].pid)
            seen = {one.pid for one in host.children()}
            async with asyncio.timeout(WAIT_S):
                while not seen or host.children():
                    if not seen:  # it was gone before anybody looked
                        await stage.texts("report")
                    seen |= {one.pid for one in host.children()}
                    await asyncio.sleep(0.002)  # tidy: the host notifies nobody
            return seen, await stage.texts("report")

    seen, after = asyncio.run(scenario())

    assert seen
    assert after == ["reported"]


def test_a_tool_that_hangs_when_it_is_opened_costs_the_host(opened, folder, monkeypatch):
    """The kernel ends it at the bound, whatever the module does; the session goes on."""
    modules = folder / "modules"
    modules.mkdir()
    (modules / "hanging.py").write_text("import time\ntime.sleep(3600)\n")
    monkeypatch.syspath_prepend(str(modules))
    monkeypatch.setattr(toolhost_link, "WHY_S", 0.01)

    class Hanging(Tool):
        """Is here and hangs there."""

        name = "hanging"

        def execute(self, args, context):
            """Never run."""
            return ""

    hanging = LoadedTool(Hanging(), Packed(kind="ref", label="hanging", ref="hanging:x"))

    async def scenario():
        async with opened(hanging) as stage:
            stage.bounds = f"{HOST}; host.OPEN_S = 0.1"
            texts = await stage.texts("hanging")
            return texts, await asyncio.to_thread(stage.hosts[0].wait, WAIT_S)

    (text,), status = asyncio.run(scenario())

    assert text.startswith("Error: the tool host ended with this call in it")
    assert status == -14
