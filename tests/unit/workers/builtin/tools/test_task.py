"""``task`` with a session that answers by script."""

import asyncio

import pytest

from cmdc_runtime.extensions import ToolContext, ToolError
from workers.builtin.tools import task


@pytest.mark.parametrize(
    ("arguments", "subagent_type"),
    [({}, "general-purpose"), ({"subagent_type": "reviewer"}, "reviewer")],
)
def test_answer_of_the_subagent_is_the_result(workplace, arguments, subagent_type):
    """The session gets the task and the type, and what comes back goes to the model."""
    workplace.session.answer = "done"

    assert workplace.call(task.create(), description="Read it all", **arguments) == "done"
    assert workplace.session.asked == [("delegate", "Read it all", subagent_type)]


def test_model_reads_which_subagents_there_are():
    """The description ends with a line for each type; a session may replace the built-in one's."""
    tool = task.create()
    bare = tool.spec(ToolContext()).description
    full = tool.spec(
        ToolContext(subagents=(("reviewer", "reads code"), ("general-purpose", "does it all")))
    ).description

    assert bare.startswith("Let a subagent do a task")
    assert bare.splitlines()[-2:] == [
        "Types of subagents:",
        "- general-purpose: does any task, with your tools apart from this one",
    ]
    assert full.splitlines()[-2:] == ["- general-purpose: does it all", "- reviewer: reads code"]


def test_task_ends_at_the_timeout(workplace):
    """A subagent that takes too long is reported; the wait for it is cancelled, which ends it."""
    workplace.session.answer = asyncio.Event()
    text = workplace.failure(task.create(timeout=0.01), description="Count to infinity")

    assert text.startswith("The subagent was not done within 0.01 s and was ended.")
    assert task.create().timeout > 120


def test_failure_of_the_subagent_is_the_result(workplace):
    """What the session says about a failed subagent reaches the model."""
    workplace.session.answer = ToolError("the subagent crashed")

    assert workplace.failure(task.create(), description="Crash") == "the subagent crashed"


def test_no_session_no_subagent(workplace):
    """A call outside of a session says so."""
    workplace.session = None

    assert workplace.failure(task.create(), description="x").startswith("task works inside")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"description": "\n"},
        {"description": "x" * (task.DESCRIPTION_CHARS_MAX + 1)},
        {"description": "x", "subagent_type": ""},
        {"description": "x", "subagent_type": "y" * (task.TYPE_CHARS_MAX + 1)},
    ],
    ids=["absent", "blank", "long", "no type", "long type"],
)
def test_tasks_are_bounded(arguments):
    """What cannot be a task or a type is refused before anything starts."""
    with pytest.raises(ToolError, match="Invalid arguments for task"):
        task.create().check(arguments)


def test_people_read_the_beginning_of_a_long_task():
    """A summary is one line, whatever the task is."""
    shown = task.create().meta({"description": "word\n" * 100})

    assert len(shown) <= 80
    assert shown.startswith("Task for general-purpose: word word")
    assert shown.endswith("…")
