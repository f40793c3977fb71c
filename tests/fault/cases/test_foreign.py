"""Tools, plugins and callbacks that end as no code should: a failure of theirs alone."""

import asyncio
import contextlib
import os
import sys

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.reasons import ExitCode
from cmdc_runtime.testing import ToolCalls, ToolUse

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 30.0
EXIT_BAD_OPTIONS = 78
WAYS = (
    "mute", "exit", "interrupt", "generator", "recursion", "base", "cancelled", "nested",
)  # fmt: skip


IN_THE_LOOP = ("cancels itself", "cancels all", "fails behind", "later", "at its end", "goes on")
"""What code can do to the task that it runs in; of the last two it returns."""
RETURNS = IN_THE_LOOP[4:]


@pytest.fixture(autouse=True)
def loud(audit):
    """The log has the traceback of each end, as it should."""
    audit.log_says = ("Traceback",)


class Mute(Exception):
    """Has no text to show."""

    def __str__(self):
        raise KeyboardInterrupt

    __repr__ = __str__


class Sudden(BaseException):
    """What no code should raise."""


def end(way):
    """End in one of the ways."""
    if way == "mute":
        raise Mute
    if way == "exit":
        sys.exit("bye")
    if way == "interrupt":
        raise KeyboardInterrupt
    if way == "generator":
        raise GeneratorExit
    if way == "recursion":
        end(way)
    if way == "base":
        raise Sudden
    raise asyncio.CancelledError


async def end_in_a_task(way):
    """End in one of the ways; "nested" is an exit in a task of its own."""
    if way == "nested":
        await asyncio.wait_for(asyncio.create_task(end_in_a_task("exit")), TURN_S)
    if way in IN_THE_LOOP:
        await cancel_own_task(way)
    else:
        end(way)


async def cancel_own_task(way):
    """Cancel the task that this runs in, and do what comes behind it."""
    task = asyncio.current_task()
    if way == "later":
        asyncio.get_running_loop().call_soon(task.cancel)
    else:
        for one in asyncio.all_tasks() if way == "cancels all" else [task]:
            one.cancel()
    if way in {"cancels itself", "cancels all", "later"}:
        await asyncio.Event().wait()
    if way != "at its end":
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
    if way == "fails behind":
        raise TimeoutError("as some libraries do")


@cmdc.tool(effects="write")
def in_process(way: str) -> str:
    """End in a process of its own."""
    end(way)


@cmdc.tool(effects="write", isolation="thread")
def in_thread(way: str) -> str:
    """End in a thread."""
    end(way)


@cmdc.tool(effects="write", isolation="task")
async def in_task(way: str) -> str:
    """End in the agent's own loop."""
    await end_in_a_task(way)
    return "returned"


@cmdc.tool(effects="write", isolation="process")
async def in_own_loop(way: str) -> str:
    """End in a loop in a process of its own."""
    await end_in_a_task(way)
    return "returned"


class Ending(cmdc.Plugin):
    """Ends at each prompt as the prompt says, and while it observes."""

    fail = "open"

    def before_prompt(self, event, context):
        """Do as the text says."""
        end(event.text)

    def observe(self, event, context):
        """Hear of the prompt's cycle."""
        if isinstance(event, cmdc.events.AgentStart):
            end("exit")


class EndingInTheLoop(cmdc.Plugin):
    """The same as coroutines, and with a filter."""

    name, fail = "ending_in_the_loop", "open"

    async def before_prompt(self, event, context):
        """Do as the text says."""
        await end_in_a_task(event.text)

    async def observe(self, event, context):
        """Hear of the prompt's cycle."""
        if isinstance(event, cmdc.events.AgentStart):
            end("interrupt")

    def filter_output(self, channel, context):
        """Have no filter."""
        raise Mute


@pytest.mark.fault_case("F84")
@pytest.mark.parametrize("way", WAYS)
def test_a_tool_ends_its_call_and_nothing_else(way, agent, scripted):
    """In a process, in a thread, in a task: the model reads of it, and the agent is the same."""
    tools = [in_process, in_thread, in_task]
    calls = ToolCalls(*(ToolUse(tool.name, {"way": way}) for tool in tools))
    session = agent(scripted(calls, "done"), tools=tools)
    pid = session.agent_pid()
    reply = session.run("Go.", timeout=TURN_S)
    results = [one for one in reply.messages if one.role == "tool_result"]

    assert reply.text == "done"
    assert [one.is_error for one in results] == [True] * len(tools)
    assert all(one.content for one in results)
    assert session.agent_pid() == pid


@pytest.mark.fault_case("F84")
@pytest.mark.parametrize("way", IN_THE_LOOP)
def test_a_tool_that_cancels_its_own_task_has_one_result(way, agent, scripted, audit):
    """It fails, or has returned where it kept that to itself; nobody has to abort the cycle."""
    audit.log_says = () if way in RETURNS else audit.log_says
    calls = ToolCalls(ToolUse("in_task", {"way": way}), ToolUse("in_own_loop", {"way": way}))
    session = agent(scripted(calls, "done"), tools=[in_task, in_own_loop])
    pid = session.agent_pid()
    reply = session.run("Go.", timeout=TURN_S)
    results = [one for one in reply.messages if one.role == "tool_result"]

    assert reply.text == "done"
    assert [one.is_error for one in results] == [way not in RETURNS] * 2
    assert session.agent_pid() == pid


class CancellingItself(cmdc.Plugin):
    """Does at each prompt as the prompt says, and while it observes."""

    fail = "open"

    async def before_prompt(self, event, context):
        """Do as the text says."""
        await end_in_a_task(event.text)
        return cmdc.Emit("went_on")

    async def observe(self, event, context):
        """Hear of the prompt's cycle."""
        if isinstance(event, cmdc.events.AgentStart):
            await end_in_a_task("cancels itself")


@pytest.mark.fault_case("F84")
@pytest.mark.parametrize("way", IN_THE_LOOP)
def test_a_plugin_that_cancels_its_own_task_ends_its_run_and_nothing_else(way, agent):
    """At a hook, where it may keep that to itself, and as an observer."""
    session = agent(plugins=[CancellingItself])
    pid = session.agent_pid()
    stream = session.subscribe()
    reply = session.run(way, timeout=TURN_S)
    wanted = {"observe", "went_on" if way in RETURNS else "before_prompt"}
    heard = set()
    while heard != wanted:
        event = stream.get(TURN_S).event
        heard |= {event.hook} if event.kind == "plugin_crashed" else set()
        heard |= {event.name} if event.kind == "plugin_event" else set()

    assert reply.text == "fine"
    assert session.agent_pid() == pid


@pytest.mark.fault_case("F84")
@pytest.mark.parametrize("way", WAYS)
def test_a_plugin_that_fails_open_ends_its_run_and_nothing_else(way, agent):
    """At a hook, in a thread and in the loop, as an observer, as a filter."""
    session = agent(plugins=[Ending, EndingInTheLoop])
    pid = session.agent_pid()
    stream = session.subscribe()
    reply = session.run(way, timeout=TURN_S)
    places = crashes(stream, 5)

    assert reply.text == "fine"
    assert places["ending"] == {"before_prompt", "observe"}
    assert places["ending_in_the_loop"] == {"before_prompt", "observe", "filter_output"}
    assert session.agent_pid() == pid


def crashes(stream, count):
    """Return where each plugin crashed, when there are so many places."""
    found = {"ending": set(), "ending_in_the_loop": set()}
    while sum(map(len, found.values())) < count:
        event = stream.get(TURN_S).event
        if isinstance(event, cmdc.events.PluginCrashed):
            found[event.plugin].add(event.hook)
    return found


class Closed(Ending):
    """Ends the same way, and its session trusts it."""

    name, fail = "closed", "closed"


@pytest.mark.fault_case("F84")
@pytest.mark.parametrize("way", ["mute", "exit"])
def test_a_plugin_that_fails_closed_ends_the_cycle(way, agent):
    """Its policy holds for whatever it ends with; the process is the same."""
    session = agent(plugins=[Closed])
    pid = session.agent_pid()
    with pytest.raises(cmdc.AgentAborted) as caught:
        session.run(way, timeout=TURN_S)

    assert "plugin closed failed at before_prompt" in str(caught.value)
    assert session.agent_pid() == pid


class Mistaken(cmdc.Plugin):
    """A guard that has no word on its policy, and answers what can't be."""

    def before_prompt(self, event, context):
        """Answer as the prompt says."""
        if event.text == "wrong type":
            return {"abort": True}
        if event.text == "wrong action":
            return cmdc.BlockTool("not here")
        if event.text == "no data":
            return cmdc.Abort(object())
        return cmdc.Abort({"deep": nested()}) if event.text == "too deep" else None


def nested():
    """Return what no decoder takes."""
    value = []
    for _ in range(5_000):
        value = [value]
    return value


@pytest.mark.fault_case("F85")
@pytest.mark.parametrize("answer", ["wrong type", "wrong action", "no data", "too deep"])
def test_a_guard_that_answers_what_cannot_be_lets_nothing_through(answer, agent):
    """A plugin that may abort fails closed unless it says otherwise, and its session goes on."""
    session = agent(plugins=[Mistaken])
    pid = session.agent_pid()
    with pytest.raises(cmdc.AgentAborted, match="plugin mistaken failed at before_prompt"):
        session.run(answer, timeout=TURN_S)

    assert session.run("Go.", timeout=TURN_S).text == "fine"
    assert session.agent_pid() == pid


@pytest.mark.fault_case("F84")
def test_a_callback_ends_alone(agent, client):
    """Of a monitor: the next one is called, and the client works on."""
    session, called = agent(), []
    for way in ("mute", "exit", "generator"):
        session.monitor(lambda _down, way=way: end(way))
    monitor = session.monitor(called.append)
    session.stop()
    down = monitor.wait(TURN_S)

    assert agent().run("Still there?", timeout=TURN_S).text == "fine"
    assert called == [down]


@pytest.mark.fault_case("F84")
def test_a_callback_in_a_loop_ends_alone(agent, place):
    """Of an asynchronous client: the application's loop goes on."""

    async def scenario(session_id, called):
        async with cmdc.AsyncClient(place.address) as client:
            for way in ("mute", "exit", "cancelled"):
                await client.monitor(session_id, lambda _down, way=way: end_in_a_task(way))
            monitor = await client.monitor(session_id, called.append)
            await client.stop(session_id)
            return await monitor.wait(TURN_S)

    called = []
    down = asyncio.run(scenario(agent().id, called))

    assert called == [down]


@cmdc.tool(effects="write", isolation="thread")
def leave(code: int) -> str:
    """End the agent's process with an exit code."""
    os._exit(code)


@pytest.mark.fault_case("F84")
def test_an_exit_code_of_a_start_says_nothing_later(agent, scripted):
    """A running agent that ends with the code for bad options is restarted, as after any crash."""
    calls = ToolCalls(ToolUse("leave", {"code": EXIT_BAD_OPTIONS}))
    session = agent(scripted(calls, default="back"), tools=[leave])
    monitor = session.monitor()
    session.prompt("Go.")
    down = monitor.wait(TURN_S)

    assert (down.reason, down.restarting) == (ExitCode(code=EXIT_BAD_OPTIONS), True)
    assert session.run("Again.", timeout=TURN_S).text == "back"
