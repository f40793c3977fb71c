"""The model's list of what is to do: published, checked, kept across crashes, and seen by tools."""

import os
import signal

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.testing import ToolCalls, ToolUse

pytestmark = pytest.mark.process

TURN_S = 20.0
FIRST = {"id": "1", "content": "Look around", "status": "in_progress"}
SECOND = {"id": "2", "content": "Write it up", "status": "pending"}


def shown(todos):
    return ", ".join(f"{one['id']} {one['status']}" for one in todos) or "nothing"


@cmdc.tool(effects="read")
async def recall(*, context: cmdc.Context) -> str:
    """Return the list as the agent's own process has it."""
    return shown(context.todos)


@cmdc.tool(effects="read")
def recall_apart(*, context: cmdc.Context) -> str:
    """Return the list as a process of its own gets it."""
    return shown(context.todos)


def writing(*todos):
    return ToolCalls(ToolUse("write_todos", {"todos": list(todos)}))


def recalling():
    return ToolCalls(ToolUse("recall", {}), ToolUse("recall_apart", {}))


def only(kind, envelopes):
    return [one.event for one in envelopes if isinstance(one.event, kind)]


def results(session):
    return [one.content for one in session.messages() if one.role == "tool_result"]


def create(agent, model):
    return agent(model, tools=["write_todos", recall, recall_apart])


def test_list_is_published_and_replaced_as_a_whole(agent, scripted, cycle_of):
    """Observers get each list, and tools see the one that was written last, wherever they run."""
    done = FIRST | {"status": "completed"}
    model = scripted(writing(FIRST, SECOND), writing(done), recalling(), "Done.")
    session = create(agent, model)
    stream = session.subscribe()
    session.prompt("Go.")
    found = cycle_of(stream)

    changes = only(events.TodoChange, found)
    assert [list(one.todos) for one in changes] == [[FIRST, SECOND], [done]]
    assert {one.session_id for one in changes} == {session.id}
    assert results(session)[-2:] == ["1 completed", "1 completed"]


@pytest.mark.parametrize(
    "todos",
    [
        [FIRST | {"status": "soon"}],
        [FIRST | {"content": "  "}],
        [{"id": "1", "content": "No status"}],
        [FIRST, FIRST],
        "Look around",
    ],
    ids=["status", "blank", "missing", "repeated", "text"],
)
def test_list_that_is_wrong_is_refused(agent, scripted, cycle_of, todos):
    """The model reads what is wrong with it, and the list stays as it was."""
    model = scripted(
        writing(SECOND), ToolCalls(ToolUse("write_todos", {"todos": todos})), recalling(), "Done."
    )
    session = create(agent, model)
    stream = session.subscribe()
    session.prompt("Go.")
    found = cycle_of(stream)

    refused = only(events.ToolExecutionEnd, found)[1]
    assert (refused.name, refused.ok) == ("write_todos", False)
    assert len(only(events.TodoChange, found)) == 1
    assert results(session)[-2:] == ["2 pending", "2 pending"]


def test_list_outlives_the_process(agent, scripted):
    """A tool of the next process sees what the model of the one before wrote down."""
    model = scripted(writing(FIRST, SECOND), "Written.", recalling(), "Done.")
    session = create(agent, model)
    session.run("Plan.", timeout=TURN_S)
    os.kill(session.agent_pid(), signal.SIGKILL)
    session.run("Go on.", timeout=TURN_S)

    assert results(session)[-2:] == ["1 in_progress, 2 pending"] * 2
    assert session.status().incarnation == 2


def test_empty_list_is_a_list(agent, scripted, cycle_of):
    """Nothing is left to do; observers and tools hear of that as well."""
    model = scripted(writing(FIRST), writing(), recalling(), "Done.")
    session = create(agent, model)
    stream = session.subscribe()
    session.prompt("Go.")
    found = cycle_of(stream)

    assert [len(one.todos) for one in only(events.TodoChange, found)] == [1, 0]
    assert results(session)[-2:] == ["nothing", "nothing"]
