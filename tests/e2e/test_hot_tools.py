"""Tools that come and go while a session lives: from the next request on, all or none, for good."""

import asyncio
import os
import signal
import threading
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.testing import Hold, ToolCalls, ToolUse

pytestmark = pytest.mark.process

TURN_S = 20.0
POLL_S = 0.02
GREETING = "Hello"
"""A name of this module, which travels with the code that uses it."""


def note(log, text):
    with Path(log).open("a") as file:
        file.write(f"{text} ")


def noted(log):
    return log.read_text().split() if log.exists() else []


@cmdc.tool(effects="read")
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@cmdc.tool(effects="read")
async def double(a: int) -> str:
    """Double a number."""
    return str(2 * a)


@cmdc.tool(effects="read")
def greet(name: str) -> str:
    """Greet somebody, in a process of its own, which says its number."""
    return f"{GREETING}, {name}! {os.getpid()}"


@cmdc.tool(effects="read", isolation="thread")
def greet_here(name: str) -> str:
    """Greet somebody in a thread of the agent."""
    return f"{GREETING}, {name}! {os.getpid()}"


@cmdc.tool
def keep(log: str, end: str) -> str:
    """Note that it runs, and wait in a process until the file ``end`` is there."""
    note(log, "begun")
    never = threading.Event()
    while not Path(end).exists():
        never.wait(POLL_S)
    return "kept"


class Opens(cmdc.Tool):
    """A tool that cannot be loaded where it is opened."""

    name = "opens"
    isolation = "task"

    async def execute(self, args, context):
        """Never be called."""
        raise AssertionError(args, context)

    def __reduce__(self):
        """Say how it is made again: not at all."""
        return (int, ("no number",))


def offered(model, number):
    """Return the names of the tools that request ``number`` offered."""
    return [one["function"]["name"] for one in model.wait_request(number).get("tools") or ()]


def results(session):
    return [one.content for one in session.messages() if one.role == "tool_result"]


def heard_of(stream, count):
    """Return the next events, as their kinds and names."""
    heard = [stream.get(TURN_S).event for _ in range(count)]
    return [(event.kind, getattr(event, "name", None)) for event in heard], heard[-1]


def test_change_is_in_the_next_request_and_not_in_this_one(agent, scripted):
    """What is under way was asked with the tools of its time; the same cycle has the new ones."""
    call = ToolCalls(ToolUse("add", {"a": 1, "b": 2}))
    model = scripted((Hold(), call), "Done.")
    session = agent(model, tools=[add])
    session.prompt("Go.")
    model.wait_held()
    session.attach_tool(double)
    model.release()

    assert session.collect_reply(timeout=TURN_S) == "Done."
    assert (offered(model, 1), offered(model, 2)) == (["add"], ["add", "double"])


def test_detached_tool_is_not_there_for_the_answer_under_way(agent, scripted, cycle_of):
    """A call of it is reported as unknown, and the model reads which tools there are."""
    model = scripted((Hold(), ToolCalls(ToolUse("add", {"a": 1, "b": 2}))), "Then not.")
    session = agent(model, tools=[add, double])
    stream = session.subscribe()
    session.prompt("Go.")
    model.wait_held()
    session.detach_tool("add")
    model.release()
    found = [one.event for one in cycle_of(stream)]
    (call,) = [call for one in session.messages() for call in one.tool_calls]

    unknown = events.ToolCallUnknown(name="add", call_id=call.call_id)
    assert [one for one in found if isinstance(one, events.ToolCallUnknown)] == [unknown]
    (result,) = [one for one in session.messages() if one.role == "tool_result"]
    assert (result.is_error, "'add'" in result.content, "double" in result.content) == (
        True,
        True,
        True,
    )
    assert offered(model, 2) == ["double"]


def test_call_of_a_detached_tool_runs_on(agent, scripted, poll, tmp_path):
    """It had begun, and its result counts; the next request no longer offers the tool."""
    log, end = tmp_path / "log", tmp_path / "end"
    model = scripted(ToolCalls(ToolUse("keep", {"log": str(log), "end": str(end)})), "Done.")
    session = agent(model, tools=[keep])
    session.prompt("Go.")
    assert poll(lambda: noted(log))
    session.detach_tool("keep")
    end.touch()

    assert session.collect_reply(timeout=TURN_S) == "Done."
    assert results(session) == ["kept"]
    assert (offered(model, 1), offered(model, 2)) == (["keep"], [])


def test_the_same_name_with_other_code_has_the_new_code(agent, scripted):
    """As in a notebook whose cell is run again: the next call runs what is there now."""

    def version(number):
        @cmdc.tool(name="version", effects="read")
        def current() -> str:
            """Say which code this is."""
            return f"version {number}"

        return current

    calls = ToolCalls(ToolUse("version", {}))
    session = agent(scripted(calls, "1", calls, "2"), tools=[version(1)])
    session.run("Which?")
    same = session.replace_tools([version(1)])
    changed = session.replace_tools([version(2)])
    session.run("And now?")

    assert results(session) == ["version 1", "version 2"]
    assert (same.attached, same.detached) == ((), ())
    assert (changed.attached, changed.detached) == (("version",), ("version",))


def test_batch_is_reported_one_by_one_and_then_as_a_whole(agent, scripted):
    """Attached, detached, exchanged: the single events first, the summary last."""
    session = agent(scripted("unused"), tools=[add])
    stream = session.subscribe()
    session.attach_tools([double, greet])
    session.detach_tools(["add", "double"])
    session.replace_tools([greet, add])

    names, last = heard_of(stream, 3)
    assert names == [
        ("tool_attached", "double"),
        ("tool_attached", "greet"),
        ("tools_updated", None),
    ]
    assert (last.attached, last.detached) == (("double", "greet"), ())
    names, last = heard_of(stream, 3)
    assert names == [("tool_detached", "add"), ("tool_detached", "double"), ("tools_updated", None)]
    assert (last.attached, last.detached) == ((), ("add", "double"))
    names, last = heard_of(stream, 2)
    assert names == [("tool_attached", "add"), ("tools_updated", None)]
    assert (last.attached, last.detached) == (("add",), ())


def test_a_single_tool_is_reported_by_its_own_event_alone(agent, scripted):
    """A summary is of a batch; what follows the single ones is the next batch's."""
    session = agent(scripted("unused"), tools=[add])
    stream = session.subscribe()
    session.attach_tool(double)
    session.detach_tool("add")
    session.attach_tools([greet])

    names, last = heard_of(stream, 4)
    assert names == [
        ("tool_attached", "double"),
        ("tool_detached", "add"),
        ("tool_attached", "greet"),
        ("tools_updated", None),
    ]
    assert (last.attached, last.detached) == (("greet",), ())


@pytest.mark.parametrize(
    ("change", "problems"),
    [
        (lambda session: session.attach_tools([double, add]), [("add", "already_attached")]),
        (lambda session: session.attach_tools([double, 7]), [("tools[1]", "invalid_tool")]),
        (lambda session: session.attach_tools([double, Opens()]), [("opens", "invalid_tool")]),
        (lambda session: session.detach_tools(["add", "none"]), [("none", "not_found")]),
        (lambda session: session.replace_tools([double] * 2), [("double", "duplicate_in_list")]),
    ],
    ids=["attached", "no tool", "cannot be opened", "missing", "twice"],
)
def test_batch_with_a_wrong_entry_changes_nothing(agent, scripted, change, problems):
    """Every wrong entry is named with its reason; no event comes, the model sees no change."""
    model = scripted("Yes.")
    session = agent(model, tools=[add])
    before = session.last_index()
    with pytest.raises(cmdc.ToolValidationFailed) as caught:
        change(session)

    assert caught.value.problems == problems
    assert session.last_index() == before
    session.run("Go.", timeout=TURN_S)
    assert offered(model, 1) == ["add"]


@pytest.mark.parametrize(
    "tool", [7, "none", print, Opens()], ids=["number", "name", "function", "code"]
)
def test_what_is_no_tool_is_refused(agent, scripted, tool):
    """By the client where it can know, and by the agent where only it can."""
    session = agent(scripted("unused"))

    with pytest.raises(cmdc.InvalidTool):
        session.attach_tool(tool)


@pytest.mark.parametrize("tool", [greet, greet_here], ids=["process", "thread"])
def test_attached_tool_runs_where_its_isolation_says(agent, scripted, tool):
    """Code of this file travels by value, with what it uses, and has a process if it wants one."""
    model = scripted(ToolCalls(ToolUse(tool.name, {"name": "you"})), "Done.")
    session = agent(model)
    session.attach_tool(tool)
    session.run("Go.", timeout=TURN_S)
    (result,) = results(session)
    greeting, pid = result.rsplit(" ", 1)

    assert greeting == "Hello, you!"
    assert (int(pid) == session.agent_pid()) == (tool is greet_here)
    assert int(pid) != os.getpid()


def test_changed_tools_outlive_the_process(agent, scripted):
    """The next process has what was attached, and not what was detached."""
    calls = (ToolUse("greet", {"name": "you"}), ToolUse("double", {"a": 4}))
    model = scripted("One.", ToolCalls(*calls), "Two.")
    session = agent(model, tools=[add])
    session.attach_tools([greet, double])
    session.detach_tool("add")
    session.run("Go.", timeout=TURN_S)
    os.kill(session.agent_pid(), signal.SIGKILL)
    session.run("Go on.", timeout=TURN_S)
    first, second = results(session)

    assert session.status().incarnation == 2
    assert offered(model, 2) == offered(model, 1) == ["greet", "double"]
    assert (first.startswith("Hello, you!"), second) == (True, "8")


def test_new_code_may_replace_old_code_of_the_same_name(agent, scripted):
    """Detached and attached again, a name stands for what was attached last, in a process too."""

    def greeter(word):
        @cmdc.tool(name="greet", effects="read")
        def greet_with(name: str) -> str:
            """Greet somebody."""
            return f"{word}, {name}!"

        return greet_with

    call = ToolCalls(ToolUse("greet", {"name": "you"}))
    model = scripted(call, "One.", call, "Two.", call, "Three.")
    session = agent(model, tools=[greeter("Hello")])
    session.run("1", timeout=TURN_S)
    session.detach_tool("greet")
    session.attach_tool(greeter("Goodbye"))
    session.run("2", timeout=TURN_S)
    os.kill(session.agent_pid(), signal.SIGKILL)
    session.run("3", timeout=TURN_S)

    assert results(session) == ["Hello, you!", "Goodbye, you!", "Goodbye, you!"]


def test_many_changes_at_once_are_made_one_after_the_other(agent, scripted, cmdc_daemon):
    """Of ten that attach the same name one succeeds; the others get the error that it is taken."""
    session = agent(scripted("Yes."))

    async def attach_ten():
        async with cmdc.AsyncClient(cmdc_daemon.address) as client:
            calls = (client.attach_tool(session.id, add) for _ in range(10))
            return await asyncio.gather(*calls, return_exceptions=True)

    outcomes = asyncio.run(attach_ten())

    assert outcomes.count(None) == 1
    assert {type(one) for one in outcomes if one} == {cmdc.AlreadyAttached}
