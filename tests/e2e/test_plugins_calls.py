"""What plugins make of tool calls: blocked, changed before and after, and put before a person."""

import asyncio
import os
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.testing import ToolCalls, ToolUse

TURN_S = 20.0


def note(log, text):
    with Path(log).open("a") as file:
        file.write(f"{text} ")


@cmdc.tool(effects="read", isolation="task")
async def add(a: int, b: int = 1) -> str:
    """Add."""
    return str(a + b)


@cmdc.tool(effects="write", isolation="task")
async def stumble() -> str:
    """Fail."""
    raise cmdc.ToolError("it hurts")


@cmdc.tool(effects="read")
def whoami(name: str) -> str:
    """Return the name, in a process of its own."""
    return f"{name} in {os.getpid()}"


@cmdc.tool(needs_approval=lambda args: args["amount"] > 10, isolation="task")
async def pay(log: str, amount: int) -> str:
    """Pay; a person must allow large amounts."""
    note(log, amount)
    return f"paid {amount}"


def of(kind, found):
    return [event for event in found if isinstance(event, kind)]


def results(request):
    return [said["content"] for said in request["messages"] if said["role"] == "tool"]


@pytest.fixture
def called(agent, scripted, cycle_of):
    """Run a cycle of one batch with plugins; return its events and the request after the batch."""

    def run(tools, plugins, *calls):
        model = scripted(ToolCalls(*calls), "done")
        session = agent(model, tools=tools, plugins=plugins)
        stream = session.subscribe(since=0)
        session.prompt("Go.")
        return [one.event for one in cycle_of(stream)], model.requests[-1]

    return run


# --- before a call ------------------------------------------------------------------------------


def test_a_blocked_call_does_not_run_and_the_others_do(called, plugin_of):
    """The model reads why; observers hear that it was blocked, and of no start."""

    def guard(event, _context):
        return cmdc.BlockTool("too large") if event.args["a"] > 100 else None

    calls = [ToolUse("add", {"a": a}, f"c-{a}") for a in (1, 1000, 2)]
    found, request = called([add], [plugin_of(before_tool=guard)], *calls)

    assert results(request) == ["2", "Error: blocked: too large", "3"]
    assert of(events.ToolBlocked, found) == [
        events.ToolBlocked(name="add", call_id="c-1000", reason="too large")
    ]
    assert {event.call_id for event in of(events.ToolExecutionStart, found)} == {"c-1", "c-2"}
    assert {event.call_id: event.ok for event in of(events.ToolExecutionEnd, found)} == {
        "c-1": True,
        "c-1000": False,
        "c-2": True,
    }


def test_no_plugin_hears_of_a_call_that_one_blocks(called, plugin_of):
    """Those behind it are not asked, and the call has no result to hear of."""
    plugins = [
        plugin_of("first", 1, before_tool=cmdc.BlockTool("first")),
        plugin_of("second", 2, before_tool=cmdc.BlockTool("second"), after_tool=cmdc.Emit("after")),
    ]
    found, request = called([add], plugins, ToolUse("add", {"a": 1}))

    assert results(request) == ["Error: blocked: first"]
    assert of(events.PluginEvent, found) == []


@pytest.mark.parametrize("tool", [add, whoami], ids=["task", "process"])
def test_a_call_runs_with_the_arguments_of_the_last_plugin(called, plugin_of, tool):
    """Observers see what runs; the model's own words stay in the conversation."""
    own, first, last = (
        ({"a": 1}, {"a": 2}, {"a": 40, "b": 2})
        if tool is add
        else ({"name": "x"}, {"name": "y"}, {"name": "42"})
    )
    plugins = [
        plugin_of("last", 9, before_tool=cmdc.ReplaceToolArgs(last)),
        plugin_of("first", 1, before_tool=cmdc.ReplaceToolArgs(first)),
    ]
    found, request = called([tool], plugins, ToolUse(tool.name, own))

    assert results(request)[0].startswith("42")
    assert [event.args for event in of(events.ToolExecutionStart, found)] == [last]
    assert of(events.AgentEnd, found)[0].messages[1].tool_calls[0].arguments == own


def test_replaced_arguments_are_checked(called, plugin_of):
    """They keep to the tool's schema as those of the model do; the call does not run with them."""
    wrong = plugin_of(before_tool=cmdc.ReplaceToolArgs({"a": "one"}))
    found, request = called([add], [wrong], ToolUse("add", {"a": 1}))

    assert of(events.ToolExecutionStart, found) == []
    assert "Error" in results(request)[0]
    assert "a" in results(request)[0]


@pytest.mark.parametrize(
    "use", [ToolUse("nothing", {}), ToolUse("add", {"a": "one"}), ToolUse("add", "{no json")]
)
def test_plugins_are_asked_about_calls_that_can_run(called, plugin_of, use):
    """One of an unknown tool, or with arguments that don't fit, is over before it begins."""
    spy = plugin_of(before_tool=cmdc.Emit("before"), after_tool=cmdc.Emit("after"))
    found, _ = called([add], [spy], use)

    assert of(events.PluginEvent, found) == []


def test_a_plugin_may_hear_of_some_tools_only(called):
    """Those that its method names."""

    class Picky(cmdc.Plugin):
        @cmdc.hook(tools=["stumble"])
        def before_tool(self, event, _context):
            return cmdc.BlockTool("not this one")

    uses = ToolUse("add", {"a": 1}), ToolUse("stumble", {})
    _, request = called([add, stumble], [Picky], *uses)

    assert results(request) == ["2", "Error: blocked: not this one"]


# --- after a call -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args", "read"),
    [("add", {"a": 1}, "redacted"), ("stumble", {}, "Error: redacted")],
    ids=["returned", "failed"],
)
def test_the_model_reads_the_result_of_the_last_plugin(called, plugin_of, name, args, read):
    """A failure stays one; plugins at the batch's end and observers read the same text."""
    plugins = [
        plugin_of("last", 9, after_tool=cmdc.ReplaceToolResult("redacted")),
        plugin_of("first", 1, after_tool=cmdc.ReplaceToolResult("never seen")),
        plugin_of(
            "batch", after_tool_batch=lambda event, _: cmdc.Emit("read", event.results[0].result)
        ),
    ]
    found, request = called([add, stumble], plugins, ToolUse(name, args))
    (end,) = of(events.ToolExecutionEnd, found)

    assert results(request) == [read]
    assert (end.ok, end.text) == (name == "add", "redacted")
    assert [event.payload for event in of(events.PluginEvent, found)] == ["redacted"]


@pytest.mark.parametrize("is_error", [True, False])
@pytest.mark.parametrize(("name", "args"), [("add", {"a": 1, "b": 2}), ("stumble", {})])
def test_a_result_may_become_a_failure_and_back(called, plugin_of, name, args, is_error):
    """For observers, the batch's plugins and the history alike, as the plugin says."""
    plugins = [
        plugin_of("judge", after_tool=cmdc.ReplaceToolResult("judged", is_error)),
        plugin_of(
            "batch", 9, after_tool_batch=lambda event, _: cmdc.Emit("e", event.results[0].is_error)
        ),
        plugin_of("end", after_turn=report_errors),
    ]
    found, request = called([add, stumble], plugins, ToolUse(name, args))
    (end,) = of(events.ToolExecutionEnd, found)
    (done,) = of(events.AgentEnd, found)
    kept = [one.is_error for one in done.messages if one.role == "tool_result"]

    assert (end.ok, end.text, kept) == (not is_error, "judged", [is_error])
    assert [event.payload for event in of(events.PluginEvent, found)][:1] == [is_error]
    assert results(request) == ["Error: judged" if is_error else "judged"]


def report_errors(event, _context):
    return cmdc.Emit("errors", [one.is_error for one in event.messages_diff if one.call_id])


def test_each_failure_is_reported_before_the_next_try(called, plugin_of):
    """One that is not tried again is reported once."""
    reporting = plugin_of(
        on_tool_error=lambda event, _: cmdc.Emit("failed", [event.name, event.attempt])
    )
    found, _ = called([stumble], [reporting], ToolUse("stumble", {}))

    assert [event.payload for event in of(events.PluginEvent, found)] == [["stumble", 1]]


@cmdc.tool(effects="read", isolation="task", max_retries=5)
async def explode(log: str) -> str:
    """Fail."""
    note(log, "x")
    raise ValueError("no luck")


@cmdc.tool(effects="read", isolation="task")
async def wait() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return "never"


def test_an_abort_over_a_failure_prevents_the_next_try(
    agent, scripted, plugin_of, events_until, tmp_path
):
    """The other calls of the batch are ended with the cycle."""
    log = tmp_path / "log"
    uses = ToolUse("wait", {}, "c-1"), ToolUse("explode", {"log": str(log)}, "c-2")
    no = plugin_of(on_tool_error=cmdc.Abort("enough"))
    session = agent(scripted(ToolCalls(*uses), "on"), tools=[explode, wait], plugins=[no])
    stream = session.subscribe(since=0)
    session.prompt("Go.")
    killed = of(events.ToolKilled, events_until(stream, "agent_abort"))

    assert session.run("Again.", timeout=TURN_S).text == "on"
    assert {event.call_id for event in killed} == {"c-1", "c-2"}
    assert log.read_text().split() == ["x"]


# --- people -------------------------------------------------------------------------------------


def test_plugins_are_asked_before_a_person_is(agent, scripted, plugin_of, tmp_path):
    """What they block nobody has to decide; what they change is what a person decides about."""

    def guard(event, _context):
        if event.args["amount"] > 1000:
            return cmdc.BlockTool("never")
        return cmdc.ReplaceToolArgs({**event.args, "amount": event.args["amount"] + 1})

    log = str(tmp_path / "log")
    uses = [ToolUse("pay", {"log": log, "amount": n}, f"c-{n}") for n in (5, 50, 5000)]
    again = ToolCalls(ToolUse("pay", {"log": log, "amount": 50}))
    model = scripted(ToolCalls(*uses), again, "done")
    session = agent(model, tools=[pay], plugins=[plugin_of(before_tool=guard)])
    stream = session.subscribe(since=0, types=["approval_required"])
    session.prompt("Pay.")
    wanted = stream.get(TURN_S).event
    session.collect_reply(timeout=TURN_S)
    before = Path(log).read_text().split()
    session.approve(wanted.id)
    session.collect_reply(timeout=TURN_S)

    assert (wanted.call_id, wanted.args["amount"]) == ("c-50", 51)
    assert before == ["6"]
    assert Path(log).read_text().split() == ["6", "51"]
    assert len(session.status().pending_approvals) == 0
