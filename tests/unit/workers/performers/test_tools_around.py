"""What stands around a call: a person's leave, a few words for people, effects, its session."""

import asyncio
from pathlib import Path

import pytest

from cmdc_runtime.extensions import Context, Effect, tool
from cmdc_runtime.extensions.actions import RequireApproval
from cmdc_runtime.messages import ToolCall
from cmdc_runtime.packed_code import Packed
from workers.core.inputs import ApprovalRequest, QuestionAsked, ToolBegun, ToolReturned
from workers.core.step import RunTools
from workers.performers.toolbox import SUMMARY_CHARS_MAX
from workers.performers.tools import LoadedTool, ToolRunner, ToolSettings

PACKED = Packed(kind="ref", label="tool")


class Link:
    """A journal that is always up to date, of a daemon that is always there."""

    daemons_lost, worker_id = 0, "w-1-0123456789abcdef"

    async def attached(self):
        """Return at once."""

    async def contained(self):
        """Return at once."""

    async def synced(self):
        """Return at once."""


def runner_of(found, posted):
    settings = ToolSettings(
        session_id="s",
        incarnation=1,
        group_id=None,
        working_dir="/w",
        user_data={},
        parallel_max=2,
        timeout_s=300.0,
        retries_max=2,
        runtime_dir=Path("/nowhere"),
    )
    return ToolRunner([LoadedTool(found, PACKED)], settings, posted.append, Link())


def posted_of(found, approved=()):
    """Return all that is posted for one call of a tool, with 1 as its argument."""
    posted = []

    async def whole():
        call = ToolCall(call_id="a", name=found.name, arguments={"x": 1})
        batch = RunTools(7, 3, "m", (call,), frozenset(approved))
        await asyncio.gather(*runner_of(found, posted).run(batch))

    asyncio.run(whole())
    return posted


def result_of(found):
    return posted_of(found)[-1]


def made(**options):
    """Return a tool with these options that does nothing."""

    def act(x: int) -> str:
        """Do nothing."""
        return str(x)

    return tool(isolation="thread", **options)(act)


def broken(_args):
    raise ValueError("who knows")


def leaving(_args):
    raise SystemExit("who knows")


@pytest.mark.parametrize(
    ("needed", "is_asked"),
    [
        (True, True),
        (False, False),
        (lambda args: args["x"] == 1, True),
        (lambda args: args["x"] == 2, False),
        (broken, True),
        (leaving, True),
    ],
    ids=["always", "never", "these", "not these", "broken", "leaving"],
)
def test_a_call_that_needs_approval_does_not_run(needed, is_asked):
    """A person is asked in place of the call; a tool that can't say is not trusted."""
    found = made(needs_approval=needed, meta=lambda args: f"do {args['x']}")
    posted = posted_of(found)

    assert [type(one) for one in posted] == (
        [ApprovalRequest] if is_asked else [ToolBegun, ToolReturned]
    )
    if is_asked:
        assert posted[0].asked == RequireApproval(hint="do 1")


def test_an_approved_call_runs():
    """What a person allowed is not asked again."""
    posted = posted_of(made(needs_approval=True), approved=["a"])

    assert [type(one) for one in posted] == [ToolBegun, ToolReturned]
    assert posted[-1].text == "1"


@pytest.mark.parametrize(
    ("meta", "summary"),
    [
        (lambda args: f"Take {args['x']}", "Take 1"),
        (broken, "act"),
        (leaving, "act"),
        (lambda _args: "x" * 1000, "x" * SUMMARY_CHARS_MAX),
        (lambda _args: "\udcff", "\ufffd"),
    ],
    ids=["said", "broken", "leaving", "long", "odd"],
)
def test_people_read_what_a_call_does(meta, summary):
    """The tool's own words, or its name where it has none."""
    begun, _ = posted_of(made(meta=meta))

    assert begun.summary == summary


def test_an_effect_is_a_text_and_something_to_do():
    """The model reads the text; the tables get the name and a copy of the payload."""
    payload = {"todos": [1]}

    @tool(isolation="thread")
    def note(x: int) -> Effect:
        """Note."""
        return Effect("update_todos", payload, text=f"noted {x}")

    result = result_of(note)
    payload["todos"].append(2)

    assert (result.ok, result.text) == (True, "noted 1")
    assert result.effect == ("update_todos", {"todos": [1]})


def test_an_effect_that_cannot_travel_is_a_failure():
    """It would end the process when the record is written."""

    @tool
    async def odd(x: int) -> Effect:
        """Return what no record can hold."""
        return Effect("x", object(), text=str(x))

    result = result_of(odd)

    assert (result.ok, result.effect) == (False, None)
    assert result.text.startswith("the payload of 'x' cannot be kept: TypeError: ")


@pytest.mark.parametrize("isolation", ["task", "thread"])
def test_a_call_can_notify_observers(isolation):
    """A task and a thread speak through the agent, under the batch that they belong to."""

    async def in_task(x: int, *, context: Context) -> str:
        """Emit."""
        context.session.emit("found", {"n": x})
        return "emitted"

    def in_thread(x: int, *, context: Context) -> str:
        """Emit."""
        context.session.emit("found", {"n": x})
        return "emitted"

    chosen = in_task if isolation == "task" else in_thread
    _, emitted, result = posted_of(tool(isolation=isolation)(chosen))

    assert (emitted.work, emitted.call_id) == (7, "a")
    assert (emitted.name, emitted.payload) == ("found", {"n": 1})
    assert result.text == "emitted"


def test_a_call_that_asks_gets_the_answer():
    """It waits under its reference, and goes on with what it is given."""
    posted = []

    @tool
    async def ask(x: int, *, context: Context) -> str:
        """Ask."""
        return str(await context.session.ask_user(f"{x}?", ["yes", "no"]))

    async def whole():
        runner = runner_of(ask, posted)
        call = ToolCall(call_id="a", name="ask", arguments={"x": 1})
        tasks = runner.run(RunTools(7, 3, "m", (call,)))
        while not any(isinstance(one, QuestionAsked) for one in posted):  # noqa: ASYNC110
            await asyncio.sleep(0)
        runner.answer("a:ask-1", "yes", None)
        await asyncio.gather(*tasks)

    asyncio.run(whole())

    assert posted[1] == QuestionAsked(7, "a", "a:ask-1", "1?", ("yes", "no"))
    assert posted[-1].text == "yes"


def test_a_process_without_a_host_is_an_error_result():
    """Where the daemon's folder is gone no host can come; the model reads it."""
    result = result_of(tool(asked_in_a_process))

    assert not result.ok
    assert result.text.startswith("Error: there is no tool host to run this call: no socket at ")


def asked_in_a_process(x: int) -> str:
    """Do nothing."""
    return str(x)
