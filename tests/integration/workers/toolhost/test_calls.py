"""A call in a process of its own: where it runs, what it is given, what it can say."""

import asyncio
import os
import time
from pathlib import Path

import psutil
import pytest

from cmdc_runtime import sandbox
from cmdc_runtime.extensions import Context, Effect, Tool, tool
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.packing import pack
from workers.core.step import ChangeTools
from workers.performers import toolhost_link
from workers.performers.tools import LoadedTool

pytestmark = pytest.mark.process

WAIT_S = 20.0
NAMES = ("CMDC_SESSION_ID", "CMDC_CALL_ID", "CMDC_INCARNATION")
NOT_IN_HOST = {"zmq", "asyncio", "litellm", "structlog", "multiprocess", "workers.core"}
RSS_BYTES_MAX = 64 * 2**20


def test_a_call_has_a_process_a_group_and_a_place_of_its_own(opened, folder, facts_tool):
    """One thread, no inherited descriptors, no input, and who is served in the environment."""

    async def scenario():
        async with opened(facts_tool) as stage:
            assert await stage.texts("report") == ["reported"]
            return stage.hosts[0].pid, stage.emitted[0]

    host, facts = asyncio.run(scenario())

    assert facts["pid"] == facts["group"] not in (host, os.getpid())
    assert (facts["ppid"], facts["sid"]) == (host, host)
    assert (facts["threads"], facts["host_threads"]) == (1, 1)
    assert NOT_IN_HOST & set(facts["modules"]) == set()
    assert (facts["stdin"], facts["cwd"]) == ("", str(folder))
    assert facts["fds"] == [0, 1, 2, facts["fds"][3]]
    assert facts["interrupt"]
    assert facts["term"]
    assert facts["environ"] == dict(zip(NAMES, ("s", "c0", "2"), strict=True))
    assert facts["context"] == ["s", "c0", 2, "g", "m", 3, {"k": 1}, str(folder)]


def test_calls_of_a_batch_run_side_by_side(opened):
    """Each waits for the other, and their results come under their own names."""

    @tool
    def meet(mine: str, other: str) -> str:
        """Come, and wait for the other one."""
        Path(mine).touch()
        deadline = time.monotonic() + WAIT_S
        while not Path(other).exists():
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(0.001)  # tidy: in the tool, polls the other one
        return f"{mine} met {other}"

    async def scenario():
        async with opened(meet) as stage:
            calls = [("meet", {"mine": x, "other": y}) for x, y in ("ab", "ba")]
            return await stage.texts(*calls)

    assert asyncio.run(scenario()) == ["a met b", "b met a"]


def test_an_effect_crosses_over(opened):
    """The model gets the text, the tables the rest."""

    @tool
    def note() -> Effect:
        """Note."""
        return Effect("noted", {"n": [1, "é"]}, "fine")

    async def scenario():
        async with opened(note) as stage:
            return await stage.result("note")

    result = asyncio.run(scenario())

    assert (result.ok, result.text, result.effect) == (True, "fine", ("noted", {"n": [1, "é"]}))


def test_events_come_in_order_and_other_wishes_are_refused(opened):
    """A call in a process can emit, and can't wait for its session."""

    @tool(isolation="process")
    async def talk(*, context: Context) -> str:
        """Say something, then ask."""
        for number in range(50):
            context.session.emit("n", number)
        return str(await context.session.ask_user("well?"))

    async def scenario():
        async with opened(talk) as stage:
            return await stage.result("talk"), stage.emitted

    result, emitted = asyncio.run(scenario())

    assert emitted == [*range(50)]
    assert not result.ok
    assert result.text.startswith("ask_user needs the agent's own process")


def test_arguments_are_checked_before_a_process_is_needed(opened):
    """What is wrong with them costs no fork."""

    @tool
    def add(a: int, b: int = 1) -> str:
        """Add."""
        return str(a + b)

    async def scenario():
        async with opened(add) as stage:
            wrong = await stage.texts(("add", {"a": "1"}))
            hosts = len(stage.hosts)
            return wrong, hosts, await stage.texts(("add", {"a": 1}))

    wrong, hosts, right = asyncio.run(scenario())

    assert wrong == ["Invalid arguments for add: Expected `int`, got `str` - at `$.a`"]
    assert (hosts, right) == (0, ["2"])


@pytest.mark.parametrize("size", [100_000, 3_000_000])
def test_large_arguments_reach_the_call(opened, size):
    """Those that fit no pipe at once go to a process that knows them from its fork."""

    @tool(effects="read")
    def measure(text: str) -> str:
        """Measure."""
        return str(len(text))

    async def scenario():
        async with opened(measure) as stage:
            await stage.texts(("measure", {"text": ""}))
            return await stage.texts(("measure", {"text": "x" * size}))

    assert asyncio.run(scenario()) == [str(size)]


def test_arguments_that_are_too_large_are_reported(opened, monkeypatch):
    """The model reads it; the host is not troubled."""
    monkeypatch.setattr(toolhost_link, "framed", small_framed)

    @tool(effects="read")
    def measure(text: str) -> str:
        """Measure."""
        return str(len(text))

    async def scenario():
        async with opened(measure) as stage:
            return await stage.texts(("measure", {"text": "x" * 100_000}))

    (text,) = asyncio.run(scenario())

    assert text.startswith("Error: the arguments can't be sent to a process: ")


def small_framed(message, _framed=toolhost_link.framed):
    return _framed(message, 50_000)


def test_tools_that_come_later_are_opened_when_they_are_called(opened, load):
    """Also when a process waits already that does not know them; the others stay as they are."""

    @tool
    def first() -> str:
        """Be there."""
        return "first"

    @tool
    def second() -> str:
        """Come later."""
        return "second"

    async def scenario():
        async with opened(first) as stage:
            found = await stage.texts("first")
            stage.runner.toolbox._loaded["c"] = {"second": load(second)}
            stage.runner.change(ChangeTools("c", ("second",), ("first",)))
            return found + await stage.texts("second", "first", "second")

    found = asyncio.run(scenario())

    assert found[:2] == ["first", "second"]
    assert found[2].startswith("Error: there is no tool named 'first'")
    assert found[3] == "second"


def test_a_tool_that_cannot_be_opened_in_the_host_is_an_error_result(opened, facts_tool):
    """It was there when the agent loaded it; what the loader says is what the model reads."""

    class Gone(Tool):
        """Is here and not there."""

        name = "gone"

        def execute(self, args, context):
            """Never run."""
            return ""

    gone = LoadedTool(Gone(), Packed(kind="ref", label="gone", ref="no_such_module:x"))

    async def scenario():
        async with opened(gone, facts_tool) as stage:
            return await stage.texts("gone"), await stage.texts("report")

    (text,), after = asyncio.run(scenario())

    assert text.startswith("Error: tool 'gone' cannot be loaded: No module named 'no_such_module'")
    assert after == ["reported"]


def test_a_process_is_forked_ahead_and_serves_one_call(opened, facts_tool):
    """After a call the next one finds its process waiting; each call still has its own."""

    async def scenario():
        async with opened(facts_tool) as stage:
            await stage.texts("report")
            host = psutil.Process(stage.hosts[0].pid)

            def live_children():
                served = stage.emitted[0]["pid"]  # may take a moment to be gone
                return [one.pid for one in host.children() if one.pid != served]

            async with asyncio.timeout(WAIT_S):
                while not (spares := live_children()):  # noqa: ASYNC110 - no event comes
                    await asyncio.sleep(0.001)  # tidy: see above
            await stage.texts("report")
            await stage.texts("report")
            return spares, [facts["pid"] for facts in stage.emitted]

    spares, pids = asyncio.run(scenario())

    assert spares == [pids[1]]
    assert len(set(pids)) == 3


def test_an_agent_that_does_not_read_holds_up_its_calls(opened):
    """What many calls say is bounded in the host; all of it comes when the agent reads again."""

    @tool(effects="read")
    def shout(*, context: Context) -> str:
        """Say a lot."""
        for _ in range(100):
            context.session.emit("n", "x" * 100_000)
        return "said"

    async def scenario():
        async with opened(shout) as stage:
            stage.go.clear()
            tasks = stage.start("shout", "shout")
            await stage.until_emitted(1)
            host = psutil.Process(stage.hosts[0].pid)
            async with asyncio.timeout(WAIT_S):
                while host.status() != psutil.STATUS_SLEEPING:  # noqa: ASYNC110 - no event comes
                    await asyncio.sleep(0.01)  # tidy: see above
            size = host.memory_info().rss
            stage.go.set()
            await asyncio.gather(*tasks)
            return size, len(stage.emitted)

    size, emitted = asyncio.run(scenario())

    assert size < RSS_BYTES_MAX
    assert emitted == 200


RECORDS_IMPORTS = (
    "sys.addaudithook(lambda event, given: event == 'import'"
    " and print(os.getpid(), given[0], file=open({!r}, 'a')))"
)


@pytest.mark.parametrize(
    "layer", [None, sandbox.Local(), sandbox.Landlock(), sandbox.Bubblewrap()], ids=repr
)
def test_a_call_imports_nothing(opened, folder, layer):
    """The host has what any sandbox needs, so that a fork finds it."""

    @tool(effects="read")
    def pid() -> str:
        """Return who calls."""
        return str(os.getpid())

    given = {} if layer is None else {"packed_sandbox": pack(layer, "sandbox")}

    async def scenario():
        async with opened(pid, **given) as stage:
            stage.bounds = RECORDS_IMPORTS.format(str(folder / "imports"))
            return [*await stage.texts("pid"), *await stage.texts("pid"), str(stage.hosts[0].pid)]

    *calls, host = asyncio.run(scenario())

    imports = [line.split() for line in (folder / "imports").read_text().splitlines()]
    assert [name for pid, name in imports if pid in calls] == []
    assert host in {pid for pid, _ in imports}
