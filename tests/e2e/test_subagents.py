"""The task tool: a subagent is a session of its own, and its last answer is the call's result."""

import os

import msgspec
import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.reasons import Shutdown
from cmdc_runtime.testing import Hold, ToolCalls, ToolUse

TURN_S = 20.0
REAPED_S = 1.0
"""For the zygote to reap what has ended: its end is reported when the kernel reports it."""
TASK = "Find out where the river ends."
DONE = Shutdown(detail="the task is done")


def task(kind="general-purpose", description=TASK):
    """A call that gives a task away."""
    return ToolUse("task", {"description": description, "subagent_type": kind})


def scout(model, **more):
    return cmdc.SubAgent("scout", "Looks at things.", model=model, **more)


def only(kind, envelopes):
    return [envelope.event for envelope in envelopes if isinstance(envelope.event, kind)]


def results(request):
    """Return what a model read about the calls of its last answer."""
    messages = request["messages"]
    last = max(at for at, one in enumerate(messages) if one["role"] == "assistant")
    return [one["content"] for one in messages[last:] if one["role"] == "tool"]


def names(request):
    return sorted(tool["function"]["name"] for tool in request.get("tools", ()))


def said(request, role):
    return [one["content"] for one in request["messages"] if one["role"] == role]


def node(tree, id_):
    """Return the node of this id below ``tree``."""
    if tree.id == id_:
        return tree
    return next((found for one in tree.children if (found := node(one, id_))), None)


@cmdc.tool(effects="read")
def look_around(*, context: cmdc.Context) -> str:
    """Return what is around."""
    seen = {
        "model": context.model,
        "working_dir": context.working_dir,
        "user_data": context.user_data,
        "group_id": context.group_id,
        "todos": context.todos,
    }
    return msgspec.json.encode(seen).decode()


@cmdc.tool(effects="read")
def smell() -> str:
    """Smell."""
    return "roses"


def test_task_is_done_by_a_process_below_the_parents(agent, client, scripted):
    """While a subagent works it stands in the tree, and it is alive as any session is."""
    model, below = scripted(ToolCalls(task("scout")), "done"), scripted((Hold(), "in the sea"))
    session = agent(model, subagents=[scout(below)])
    session.prompt("Go.")
    below.wait_held()
    child = f"{session.id}.1"
    status = client.status(child)
    shown = node(node(client.tree(), f"session:{session.id}"), "subagents")
    below.release()

    assert node(shown, f"session:{child}").state == "up"
    assert (status.parent_id, status.state) == (session.id, "running")
    assert status.pid not in {session.agent_pid(), os.getpid(), None}
    assert session.collect_reply(timeout=TURN_S) == "done"
    assert results(model.requests[-1]) == ["in the sea"]
    assert said(below.requests[0], "user") == [TASK]


def test_events_report_the_subagent_from_its_start_to_its_end(agent, client, scripted, cycle_of):
    """Its start and end stand between those of the call; once its end is reported it is gone."""
    model, below = scripted(ToolCalls(task("scout")), "done"), scripted((Hold(), "in the sea"))
    session = agent(model, subagents=[scout(below)])
    stream = session.subscribe()
    session.prompt("Go.")
    below.wait_held()
    child = f"{session.id}.1"
    monitor, process = client.monitor(child), psutil.Process(client.agent_pid(child))
    below.release()
    while not isinstance((envelope := stream.get(TURN_S)).event, events.SubagentEnd):
        pass
    _, left = psutil.wait_procs([process], REAPED_S)
    past = client.subscribe(session, since=0)
    found = cycle_of(past)

    assert left == []
    assert monitor.wait(TURN_S).reason == DONE
    with pytest.raises(cmdc.SessionNotAlive):
        client.status(child)
    (start,), (end,) = only(events.SubagentStart, found), only(events.SubagentEnd, found)
    assert start == events.SubagentStart(
        call_id=start.call_id, subagent_type="scout", child_session_id=child, description=TASK
    )
    assert (end, end.child_session_id) == (envelope.event, child)
    assert (end.call_id, end.ok, end.text) == (start.call_id, True, "in the sea")
    order = [one.event.kind for one in found]
    reported = ["tool_execution_start", "subagent_start", "subagent_end", "tool_execution_end"]
    assert [kind for kind in order if kind in reported] == reported


def test_subagent_has_what_its_parent_has_and_knows_nothing_of_it(agent, scripted, tmp_path):
    """Model, tools, user data, group and folder are inherited; messages and todos are not."""
    todos = [{"content": "Walk", "status": "pending"}]
    model = scripted(
        ToolCalls(ToolUse("write_todos", {"todos": todos})),
        ToolCalls(task()),
        ToolCalls(ToolUse("look_around", {})),
        "I looked around.",
        "done",
    )
    session = agent(
        model,
        tools=[look_around, cmdc.tools.WriteTodos, cmdc.tools.Task],
        user_data={"who": "me"},
        group_id="hikers",
        working_dir=tmp_path,
        system_prompt="You are a hiker.",
    )
    session.run("A secret of the parent.", timeout=TURN_S)
    asked = model.requests[2]

    assert names(asked) == ["look_around", "write_todos"]
    assert said(asked, "user") == [TASK]
    assert "You are a hiker." in said(asked, "system")[0]
    assert msgspec.json.decode(results(model.requests[3])[0]) == {
        "model": "openai/scripted",
        "working_dir": str(tmp_path),
        "user_data": {"who": "me"},
        "group_id": "hikers",
        "todos": [],
    }
    model.assert_complete()


def test_subagent_has_the_model_and_the_tools_that_its_parent_has_now(agent, scripted):
    """What was exchanged since the parent's start counts."""
    old, new = scripted(), scripted(ToolCalls(task()), "smelled", "done")
    session = agent(old, tools=[look_around, cmdc.tools.Task])
    session.attach_tool(smell)
    session.detach_tool("look_around")
    name, provider_opts = new.model_source()
    session.switch_model(name, provider_opts=provider_opts)
    session.run("Go.", timeout=TURN_S)

    assert names(new.requests[1]) == ["smell"]
    new.assert_complete()


def test_spec_of_a_subagent_outranks_its_parent(agent, client, scripted, tmp_path):
    """What a SubAgent says it has; what it leaves open it inherits."""
    model, below = scripted(ToolCalls(task("scout")), "done"), scripted((Hold(), "fine"))
    own = scout(
        below,
        system_prompt="You are a scout.",
        tools=[smell],
        user_data={"who": "the scout"},
        group_id=f"scouts of {tmp_path.name}",
    )
    session = agent(
        model, tools=[look_around], subagents=[own], system_prompt="You lead.", group_id="leaders"
    )
    session.prompt("Go.")
    below.wait_held()
    status = client.status(f"{session.id}.1")
    below.release()
    session.collect_reply(timeout=TURN_S)

    assert status.group_id == own.group_id
    assert names(below.requests[0]) == ["smell"]
    (system,) = said(below.requests[0], "system")
    assert "You are a scout." in system
    assert "You lead." not in system


def test_bound_of_a_subagents_turns_is_its_own(agent, scripted):
    """A subagent that goes on for too long is the parent's tool error."""
    model = scripted(ToolCalls(task("scout")), "done")
    below = scripted(ToolCalls(ToolUse("smell", {})))
    session = agent(model, tools=[smell], subagents=[scout(below, max_turns=1)])
    session.run("Go.", timeout=TURN_S)

    (reported,) = results(model.requests[-1])
    assert reported == "Error: the subagent's cycle was aborted: max_turns_exceeded"


def test_model_reads_which_subagents_there_are(agent, scripted):
    """The task tool comes with subagents; its description lists them, the general one included."""
    model = scripted("fine")
    session = agent(model, subagents=[scout(model)])
    session.run("Go.", timeout=TURN_S)
    (tool,) = model.requests[0]["tools"]

    assert tool["function"]["name"] == "task"
    assert "- scout: Looks at things." in tool["function"]["description"]
    assert "- general-purpose: " in tool["function"]["description"]


def test_wrong_task_is_an_error_that_says_what_is_right(agent, scripted, cycle_of):
    """An unknown type or an empty description starts nothing."""
    calls = ToolCalls(task("spy"), task("scout", description=" "), ToolUse("task", {}))
    model = scripted(calls, "done")
    session = agent(model, subagents=[scout(model)])
    stream = session.subscribe()
    session.prompt("Go.")
    found = cycle_of(stream)
    unknown, empty, missing = results(model.requests[-1])

    assert "there is no subagent_type 'spy', only general-purpose, scout" in unknown
    assert "description" in empty
    assert "description" in missing
    assert only(events.SubagentStart, found) == []
    assert [event.ok for event in only(events.ToolExecutionEnd, found)] == [False] * 3


def test_subagents_of_one_answer_work_at_the_same_time(agent, client, scripted):
    """Each has its process; the results stand in the order of the calls."""
    model = scripted(ToolCalls(*(task("scout", f"Task {n}") for n in (1, 2, 3))), "done")
    below = scripted(default=lambda asked: (Hold(), f"done: {said(asked, 'user')[0]}"))
    session = agent(model, subagents=[scout(below)])
    session.prompt("Go.")
    below.wait_held(TURN_S, count=3)
    pids = {client.agent_pid(f"{session.id}.{n}") for n in (1, 2, 3)}
    below.release(3)

    assert len(pids) == 3
    assert session.collect_reply(timeout=TURN_S) == "done"
    assert results(model.requests[-1]) == [f"done: Task {n}" for n in (1, 2, 3)]


def test_subagent_that_takes_too_long_is_ended(agent, scripted):
    """The task's timeout ends the subagent, and the model reads that it should ask for less."""
    model, below = scripted(ToolCalls(task("scout")), "done"), scripted((Hold(), "never"))
    tool = cmdc.tools.Task(timeout=1.5)
    session = agent(model, tools=[tool], subagents=[scout(below)])
    assert session.run("Go.", timeout=TURN_S).text == "done"
    below.wait_abandoned()

    (reported,) = results(model.requests[-1])
    assert "not done within 1.5 s" in reported
    assert names(below.requests[0]) == []
