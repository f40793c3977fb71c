"""A call branches into subagents under names of its own, and finds them again after a death."""

import asyncio
import os
import signal
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.testing import Hold, ToolCalls, ToolUse

TURN_S = 60.0


class Poll(cmdc.Tool):
    """A small run: it branches over some questions at once and joins what comes of them."""

    name = "poll"
    description = "Asks several."
    parameters = {  # noqa: RUF012 - as the contract has it
        "type": "object",
        "properties": {"count": {"type": "integer"}, "first": {"type": "boolean"}},
    }
    isolation = "task"
    effects = "idempotent"
    timeout = 300.0

    async def execute(self, args, context):
        count, session = args.get("count", 3), context.session
        tasks = [
            asyncio.create_task(session.branch(f"b{n}", f"Question {n}?", shares=count - n))
            for n in range(count)
        ]
        try:
            when = asyncio.FIRST_COMPLETED if args.get("first") else asyncio.ALL_COMPLETED
            await asyncio.wait(tasks, return_when=when)
            found = [task.result() for task in tasks if task.done()]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        return ", ".join(one.text if one.ok else f"({one.text})" for one in found)


def poll_call(**args):
    return ToolCalls(ToolUse("poll", args))


def only(kind, envelopes):
    return [one.event for one in envelopes if isinstance(one.event, kind)]


def result(model):
    """Return what the model read of its call."""
    return result_of(model, -1)


def result_of(model, number):
    """Return the last message of a request."""
    return model.requests[number]["messages"][-1]["content"]


def test_branches_answer_under_their_names(agent, scripted, cycle_of):
    """Each is a session below its own, which is counted and gone when the call is over."""
    model = scripted(poll_call(count=3), "done")
    below = scripted(default="yes")
    session = agent(model, tools=[Poll], subagents=[general(below)])
    stream = session.subscribe()
    session.prompt("Go.")
    found = cycle_of(stream)
    started = only(events.SubagentStart, found)

    assert result(model) == "yes, yes, yes"
    assert sorted(one.description for one in started) == [f"Question {n}?" for n in range(3)]
    assert len(only(events.SubagentEnd, found)) == 3
    assert len(below.requests) == 3


def general(model, **more):
    """The kind that branches are of, with a model of its own."""
    return cmdc.SubAgent("general-purpose", "Thinks.", model=model, **more)


def test_a_branch_that_is_dropped_is_gone_before_the_call_goes_on(agent, client, scripted, poll):
    """Its process ends, and what it used is counted."""
    model = scripted(poll_call(count=2, first=True), "done")
    below = scripted("soon", (Hold(), "late"))
    session = agent(model, tools=[Poll], subagents=[general(below)])
    assert session.run("Go.", timeout=TURN_S).text == "done"

    assert result(model) == "soon"
    assert poll(lambda: session_ids(client) == [session.id])


def session_ids(client):
    return [one.session_id for one in client.list_sessions()]


def test_answers_outlive_the_process_that_asked(agent, client, scripted, poll):
    """What was answered is not asked again; what was under way is begun anew, and counted once."""
    model = scripted(poll_call(count=3), "done")
    below = scripted("yes", (Hold(), "slow"), (Hold(), "slow"), default="again")
    session = agent(model, tools=[Poll], subagents=[general(below)])
    stream = session.subscribe()
    session.prompt("Go.")
    first = next(one.event for one in stream if isinstance(one.event, events.SubagentEnd))
    below.wait_held(TURN_S, count=2)
    killed = session.agent_pid()
    os.kill(killed, signal.SIGKILL)
    assert poll(lambda: session.agent_pid() not in {None, killed})  # then its branches have ended
    below.release()

    assert session.collect_reply(timeout=TURN_S) == "done"
    assert sorted(result(model).split(", ")) == ["again", "again", "yes"]
    assert first.ok
    assert len(below.requests) == 5
    assert poll(lambda: session_ids(client) == [session.id])


@cmdc.tool(effects="idempotent")
async def fork(*, context: cmdc.Context) -> str:
    """Branch into two forks of the conversation."""
    asked = [context.session.branch(f"b{n}", f"Question {n}?", fork=True) for n in range(2)]
    return ", ".join(one.text for one in await asyncio.gather(*asked))


def test_a_fork_begins_with_the_conversation(agent, client, scripted):
    """Up to what the model answered last before the call; nothing is left of it in the session."""
    model = scripted("It is blue.", ToolCalls(ToolUse("fork", {})), "done", "still")
    below = scripted(default="yes")
    session = agent(model, tools=[fork], subagents=[general(below)])
    session.run("What colour?", timeout=TURN_S)
    assert session.run("And why?", timeout=TURN_S).text == "done"
    read = [[(m["role"], m["content"]) for m in one["messages"]] for one in below.requests]
    heard = [[pair for pair in one if pair[0] != "system"] for one in read]

    assert result_of(model, 2) == "yes, yes"
    assert sorted(heard) == [
        [
            ("user", "What colour?"),
            ("assistant", "It is blue."),
            ("user", "And why?"),
            ("user", f"Question {n}?"),
        ]
        for n in range(2)
    ]
    assert session.list_checkpoints() == []
    assert session.run("Go on.", timeout=TURN_S).text == "still"


@pytest.mark.parametrize("how", ["abort", "timeout"])
def test_nothing_of_a_call_is_left_that_is_ended(agent, client, scripted, poll, how):
    """Neither by an abort nor by the call's own time."""
    tool = type("Poll", (Poll,), {"timeout": 5.0 if how == "timeout" else 300.0})
    model = scripted(poll_call(count=3), "done")
    below = scripted((Hold(), "late"), (Hold(), "late"), (Hold(), "late"))
    session = agent(model, tools=[tool], subagents=[general(below)])
    session.prompt("Go.")
    below.wait_held(TURN_S, count=3)
    if how == "abort":
        session.abort()
    else:
        assert session.collect_reply(timeout=TURN_S) == "done"
        assert "took longer" in result(model)

    assert poll(lambda: session_ids(client) == [session.id], TURN_S)


class Watchful(cmdc.Tool):
    """Branches, and says when it ends whether the branch's process is there still."""

    name = "watchful"
    description = "Asks one."
    parameters = {"type": "object", "properties": {"folder": {"type": "string"}}}  # noqa: RUF012
    isolation = "task"
    effects = "idempotent"
    timeout = 8.0

    async def execute(self, args, context):
        try:
            return (await context.session.branch("b", "Question?")).text
        finally:
            look_for(Path(args["folder"]))


def look_for(folder):
    """Write down whether the process is there that the test has named."""
    try:
        status = psutil.Process(int((folder / "pid").read_text())).status()
    except psutil.NoSuchProcess:
        status = psutil.STATUS_ZOMBIE  # as one that is to be reaped still
    (folder / "end").write_text("after it" if status == psutil.STATUS_ZOMBIE else "too early")


def test_a_call_out_of_time_ends_children_first(agent, client, scripted, tmp_path):
    """What it does ends when the process of its branch is gone, and not before."""
    below = scripted((Hold(), "late"))
    use = ToolUse("watchful", {"folder": str(tmp_path)})
    model = scripted(ToolCalls(use), "done")
    session = agent(model, tools=[Watchful], subagents=[general(below)])
    session.prompt("Go.")
    below.wait_held(TURN_S)
    (tmp_path / "pid").write_text(str(client.status(f"{session.id}.1").pid))

    assert session.collect_reply(timeout=TURN_S) == "done"
    assert (tmp_path / "end").read_text() == "after it"
