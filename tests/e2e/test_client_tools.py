"""Tools that run in the program that attaches them: by its connection, once, with its state."""

import asyncio
import os
import re
import signal
import threading
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.events import ClientToolCalled, ToolExecutionEnd
from cmdc_runtime.testing import Chaos, ScriptedModel, ToolCalls, ToolUse
from tests.programs.running import run_program

pytestmark = [pytest.mark.process, pytest.mark.slow]

TURN_S = 30.0
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "client-tools.md"
PIECE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
UNCERTAIN = "may or may not have taken effect"


class Shop:
    """State of the application: what no other process can have."""

    def __init__(self):
        self.orders, self.threads = [], []
        self.may_end = threading.Event()
        self.has_begun = threading.Event()

    def tool(self, **options):
        """Make a tool that changes it."""

        @cmdc.tool(where="client", **options)
        def order(item: str) -> dict[str, int]:
            """Order an item."""
            self.orders.append(item)
            self.threads.append(threading.current_thread())
            self.has_begun.set()
            assert self.may_end.wait(TURN_S)
            return {"orders": len(self.orders)}

        return order


@pytest.fixture
def shop():
    """A shop whose calls end at once."""
    found = Shop()
    found.may_end.set()
    return found


@pytest.fixture
def slow_shop():
    """A shop whose calls end when the test says so."""
    found = Shop()
    yield found
    found.may_end.set()


def calls(*items, name="order"):
    """Return a step in which the model makes these calls."""
    return ToolCalls(*(ToolUse(name, {"item": one}) for one in items))


def results(session):
    """Return the results that the model has read."""
    return [one.content for one in session.messages() if one.role == "tool_result"]


def test_a_tool_runs_in_the_program_and_its_state_is_changed(agent, scripted, shop):
    """In a thread of its own; schema and result travel, code does not."""
    model = scripted(calls("tea"), default="done")
    session = agent(model, tools=[shop.tool()])
    session.run("Order tea.")

    assert shop.orders == ["tea"]
    assert shop.threads[0] is not threading.main_thread()
    assert results(session) == ['{"orders":1}']
    (offered,) = [one["function"] for one in model.requests[0]["tools"]]
    assert (offered["name"], offered["description"]) == ("order", "Order an item.")
    assert offered["parameters"]["properties"]["item"] == {"type": "string"}


def test_a_coroutine_runs_in_the_loop_of_the_client(cmdc_daemon, scripted):
    """So that it may use what belongs to that loop."""
    seen = []

    @cmdc.tool(where="client", effects="read")
    async def order(item: str) -> str:
        """Order an item."""
        seen.append(asyncio.get_running_loop())
        return item

    async def conversation(model):
        async with (
            cmdc.AsyncClient(cmdc_daemon.address) as client,
            await client.create_agent(model=model, tools=[order]) as session,
        ):
            await session.run("Order tea.")
            return asyncio.get_running_loop()

    loop = asyncio.run(conversation(scripted(calls("tea"), default="done")))

    assert seen == [loop]


def test_coroutines_of_a_client_for_threads_share_a_loop(agent, scripted):
    """A pool that one call opens is one that the next can use."""
    seen = []

    @cmdc.tool(where="client", effects="read")
    async def order(item: str) -> str:
        """Order an item."""
        seen.append((asyncio.get_running_loop(), threading.current_thread().name))
        return item

    session = agent(scripted(calls("tea"), calls("milk"), default="done"), tools=[order])
    session.run("Order.")

    assert results(session) == ["tea", "milk"]
    assert seen[0] == seen[1]
    assert seen[0][1] == "cmdc-tools"


def test_a_failure_is_said_in_the_programs_log(agent, scripted, caplog):
    """Tool, call and problem in the message itself, with the traceback; no ToolError is."""

    @cmdc.tool(where="client", effects="read")
    def order(item: str) -> str:
        """Order an item."""
        if item == "milk":
            raise cmdc.ToolError("no milk today")
        return str(1 / 0)

    session = agent(scripted(calls("tea", "milk"), default="done"), tools=[order])
    session.run("Order.")

    (record,) = caplog.records
    problem = "problem=ZeroDivisionError: division by zero"
    assert re.fullmatch(rf"tool.crashed: tool=order, call_id=call_\w+, {problem}", record.message)
    assert (record.levelname, record.tool) == ("ERROR", "order")
    assert "return str(1 / 0)" in caplog.text


def test_failures_are_results(agent, scripted):
    """What the tool says, what it runs into, and arguments that do not fit."""

    @cmdc.tool(where="client", effects="read")
    def order(item: str) -> str:
        """Order an item."""
        if item == "tea":
            raise cmdc.ToolError("no tea today")
        if item == "exit":
            raise SystemExit(3)
        return str(1 / 0)

    steps = [calls("tea", "milk", "exit"), ToolCalls(ToolUse("order", {"item": 3}))]
    session = agent(scripted(*steps, default="done"), tools=[order])
    session.run("Order.")
    reported = results(session)

    assert reported[0] == "no tea today"
    assert "ZeroDivisionError" in reported[1]
    assert "SystemExit" in reported[2]
    assert "Invalid arguments for order" in reported[3]


def test_effects_reach_the_session(agent, scripted):
    """As of any tool."""

    @cmdc.tool(where="client", effects="read")
    def order(item: str) -> cmdc.Effect:
        """Order an item."""
        return cmdc.Effect("ordered", {"item": item}, text=f"{item} is on its way")

    session = agent(scripted(calls("tea"), default="done"), tools=[order])
    with session.subscribe(types=["plugin:ordered"]) as stream:
        session.run("Order tea.")
        reported = stream.get(TURN_S).event

    assert (reported.name, reported.payload) == ("ordered", {"item": "tea"})
    assert results(session) == ["tea is on its way"]


def test_a_call_is_made_once_though_its_agent_dies(agent, scripted, slow_shop, poll):
    """The next process asks again under the same reference and gets what came of the first."""
    session = agent(scripted(calls("tea"), default="done"), tools=[slow_shop.tool()])
    session.prompt("Order tea.")
    assert slow_shop.has_begun.wait(TURN_S)
    before = session.status()
    with session.subscribe(types=[ClientToolCalled]) as stream:
        os.kill(before.pid, signal.SIGKILL)
        again = stream.get(TURN_S).event
    assert poll(lambda: session.status().incarnation > before.incarnation)
    slow_shop.may_end.set()

    assert session.collect_reply(timeout=TURN_S) == "done"
    assert slow_shop.orders == ["tea"]
    assert results(session) == ['{"orders":1}']
    assert again.ref.endswith(":client-1")


def test_a_call_that_ended_while_its_agent_was_dead_is_answered(agent, scripted, slow_shop):
    """The answer waits for the next process."""
    session = agent(scripted(calls("tea"), default="done"), tools=[slow_shop.tool()])
    session.prompt("Order tea.")
    assert slow_shop.has_begun.wait(TURN_S)
    os.kill(session.status().pid, signal.SIGKILL)
    slow_shop.may_end.set()

    assert session.collect_reply(timeout=TURN_S) == "done"
    assert slow_shop.orders == ["tea"]
    assert results(session) == ['{"orders":1}']


def test_status_shows_what_waits_for_the_program(agent, scripted, slow_shop):
    """Beside the calls that run elsewhere."""
    session = agent(scripted(calls("tea"), default="done"), tools=[slow_shop.tool()])
    session.prompt("Order tea.")
    assert slow_shop.has_begun.wait(TURN_S)
    status = session.status()
    slow_shop.may_end.set()
    session.collect_reply(timeout=TURN_S)

    assert [one.name for one in status.pending_client_calls] == ["order"]
    assert status.pending_client_calls == status.pending_tools
    assert session.status().pending_client_calls == ()


def test_a_program_that_is_gone_is_reported(cmdc_daemon, agent, client, scripted, shop):
    """The call is not made, and the model reads why, before the time of the tool is over."""
    with cmdc.Client(cmdc_daemon.address) as gone:
        session = gone.create_agent(
            model=scripted(calls("tea"), default="done"), tools=[shop.tool(timeout=4.0)]
        )
    try:
        client.run(session.id, "Order tea.", timeout=TURN_S)
        reported = [one for one in client.messages(session.id) if one.role == "tool_result"]
    finally:
        client.stop(session.id)

    assert shop.orders == []
    assert "the call was not made" in reported[0].content
    assert UNCERTAIN not in reported[0].content


def test_the_client_that_owns_a_tool_answers(cmdc_daemon, agent, scripted, shop):
    """Another one that has a tool of that name, and follows the session, does not."""
    other = Shop()
    other.may_end.set()
    session = agent(scripted(calls("tea"), default="done"), tools=[shop.tool()])

    @cmdc.tool(where="client")
    def pack(item: str) -> str:
        """Pack an item."""
        other.orders.append(item)
        return item

    with cmdc.Client(cmdc_daemon.address) as second:
        second.attach_tool(session.id, pack)
        session.run("Order tea.")

    assert (shop.orders, other.orders) == (["tea"], [])


def test_tools_come_and_go(agent, scripted, shop):
    """Attached, detached and put in the place of others, like any tool."""
    model = scripted(calls("tea"), calls("milk"), default="done")
    session = agent(model)
    session.attach_tool(shop.tool())
    session.run("Order tea.")
    session.detach_tool("order")
    changed = session.replace_tools([shop.tool()])
    session.run("Order milk.")

    assert shop.orders == ["tea", "milk"]
    assert changed.attached == ("order",)


def test_an_abort_ends_the_call_and_cancels_a_coroutine(agent, scripted):
    """Nobody waits for it any more."""
    begun, cancelled = threading.Event(), threading.Event()

    @cmdc.tool(where="client")
    async def order(item: str) -> str:
        """Order an item."""
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return item

    session = agent(scripted(calls("tea"), default="done"), tools=[order])
    with session.subscribe(types=[ToolExecutionEnd]) as stream:
        session.prompt("Order tea.")
        assert begun.wait(TURN_S)
        session.abort(kill_tools="all")
        ended = stream.get(TURN_S).event

    assert (ended.ok, ended.uncertain) == (False, True)
    assert cancelled.wait(TURN_S)


def test_a_call_that_takes_too_long_may_have_acted(agent, scripted, slow_shop):
    """The program has it, so nobody can say that it was not made."""
    session = agent(scripted(calls("tea"), default="done"), tools=[slow_shop.tool(timeout=2.0)])
    session.run("Order tea.")

    assert slow_shop.orders == ["tea"]
    late = "order took longer than 2 s; nobody waits for it any more, its program may go on\n"
    assert results(session)[0].startswith(late)
    assert UNCERTAIN in results(session)[0]


def test_two_calls_run_side_by_side(agent, scripted):
    """Each has a thread of its own."""
    both = threading.Barrier(2, timeout=TURN_S)

    @cmdc.tool(where="client", effects="read")
    def order(item: str) -> str:
        """Order an item."""
        both.wait()
        return item

    session = agent(scripted(calls("tea", "milk"), default="done"), tools=[order])
    session.run("Order.")

    assert results(session) == ["tea", "milk"]


def test_what_would_do_nothing_is_refused():
    """Options of code that the agent does not run."""
    for options in ({"isolation": "thread"}, {"max_retries": 1}, {"meta": str}):
        with pytest.raises(cmdc.InvalidTool, match='of no use with where="client"'):
            cmdc.tool(where="client", **options)(_noop)
    with pytest.raises(cmdc.InvalidTool, match="needs_approval must be a bool"):
        cmdc.tool(where="client", needs_approval=lambda _args: True)(_noop)
    with pytest.raises(cmdc.InvalidTool, match="where must be one of"):
        cmdc.tool(where="there")(_noop)


def _noop() -> str:
    """Do nothing."""
    return ""


def test_a_subagent_gets_none(agent, scripted, shop):
    """Its session is another one; its parent's tools of the program stay with the parent."""
    given = cmdc.SubAgent(name="helper", description="Helps.", tools=[shop.tool()])
    with pytest.raises(cmdc.InvalidOptions, match="give it to the session itself"):
        agent(scripted(default="done"), subagents=[given])


def test_a_class_is_a_tool_of_the_program_too(agent, scripted):
    """With ``where`` as an attribute."""
    seen = []

    class Count(cmdc.Tool):
        name = "order"
        description = "Order."
        where = "client"

        def execute(self, args, context):
            seen.append((args, context.session_id))
            return "fine"

    session = agent(scripted(calls("tea"), default="done"), tools=[Count])
    session.run("Order.")

    assert seen == [({"item": "tea"}, session.id)]


def test_the_how_to_is_a_program(cmdc_daemon, tmp_path):
    """What it changes is changed in the program itself."""
    text = "\n\n".join(PIECE.findall(PAGE.read_text(encoding="utf-8")))
    done = run_program(cmdc_daemon, tmp_path, text, TURN_S * 2)

    assert (done.stdout, done.stderr) == ("Tea is on its way.\n[('tea', 2)]\n", "")


@pytest.mark.fault
@pytest.mark.parametrize(
    ("kill", "at"),
    [("daemon", "after_tool_start"), ("daemon", "before_tool_end"), ("agent", "before_tool_end")],
)
def test_a_death_costs_nothing_of_a_call(shop, kill, at):
    """The client is connected again by itself, and the call is made and answered once."""
    with Chaos(kill=kill, at=at) as chaos, ScriptedModel([calls("tea")], default="done") as model:
        session = cmdc.create_agent(model=model, tools=[shop.tool()])
        receipt = session.prompt("Order tea.")
        text = session.collect_reply(timeout=TURN_S * 2)
        reported = results(session)
        audited = chaos.audit(accepted=[receipt])

    assert (text, shop.orders, reported) == ("done", ["tea"], ['{"orders":1}'])
    assert (audited.kills, audited.calls) == (1, 1)


@pytest.mark.parametrize("attached", ["by-the-start", "later", "by-another-client"])
def test_a_call_has_what_the_session_was_started_with(
    agent, cmdc_daemon, scripted, tmp_path, attached
):
    """Working folder, user_data and group, whoever attached the tool; no folder of the program."""
    seen = []

    @cmdc.tool(where="client", effects="read")
    def order(item: str, context: cmdc.Context) -> str:
        """Order an item."""
        seen.append(context)
        context.user_data["item"] = item  # its own copy
        return item

    given = {"tenant": "acme", "plans": ("a", "b")}
    session = agent(
        scripted(calls("tea"), calls("milk"), default="done"),
        tools=[order] if attached == "by-the-start" else [],
        user_data=given,
        working_dir=str(tmp_path),
        group_id="g-1",
    )
    with cmdc_daemon.client() as other:
        if attached == "later":
            session.attach_tool(order)
        elif attached == "by-another-client":
            cmdc.Session(session.id, other).attach_tool(order)
        session.run("Order tea.")

    assert [one.user_data for one in seen] == [{**given, "item": "tea"}, {**given, "item": "milk"}]
    assert {(one.working_dir, one.group_id) for one in seen} == {(str(tmp_path), "g-1")}


def test_what_a_call_cannot_ask_of_its_session_is_said(agent, scripted):
    """The model and the author read which part, and what to do instead."""

    @cmdc.tool(where="client", effects="read")
    def order(item: str, context: cmdc.Context) -> str:
        """Order an item."""
        assert not hasattr(context.session, "publish")
        context.session.emit("ordered", {"item": item})
        return item

    session = agent(scripted(calls("tea"), default="done"), tools=[order])
    session.run("Order tea.")

    (reported,) = results(session)
    assert 'emit is not to be had in a tool with where="client"' in reported
