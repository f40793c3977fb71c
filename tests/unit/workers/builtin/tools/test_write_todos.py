"""``write_todos``: what becomes of a list."""

import pytest

from cmdc_runtime.extensions import Effect, ToolError
from workers.builtin.tools import write_todos
from workers.builtin.tools.write_todos import CONTENT_CHARS_MAX, ID_CHARS_MAX, TODOS_MAX


def todo(id_, status="pending", content="write it"):
    """Return one entry of the list."""
    return {"id": id_, "content": content, "status": status}


MIXED = [
    todo("a", "completed"),
    todo("b", "in_progress", "test it"),
    todo("c"),
    todo("d", "cancelled"),
]


def test_list_is_replaced_by_an_effect(workplace):
    """The session gets the complete list, the model a summary of it."""
    assert workplace.call(write_todos.create(), todos=MIXED) == Effect(
        "update_todos",
        {"todos": MIXED},
        text="The list is replaced: 1/4 done. In progress: test it",
    )


def test_empty_list_clears(workplace):
    """No entry is a list too."""
    assert workplace.call(write_todos.create(), todos=[]) == Effect(
        "update_todos", {"todos": []}, text="The list is replaced: 0/0 done"
    )


def test_people_read_how_far_it_is():
    """Done means completed, of all that there are; the summary needs no checked arguments."""
    tool = write_todos.create()

    assert tool.meta({"todos": MIXED}) == "WriteTodos 1/4 done"
    assert tool.meta(tool.check({"todos": MIXED})) == "WriteTodos 1/4 done"


def test_ids_are_unique(workplace):
    """Two entries with one id are reported, with the id."""
    text = workplace.failure(write_todos.create(), todos=[todo("a"), todo("b"), todo("a")])

    assert text == "Each todo needs an id of its own, and these repeat: ['a']"


def test_what_a_todo_has_not_is_dropped():
    """A model that adds a field of its own is understood all the same."""
    checked = write_todos.create().check({"todos": [{**todo("a"), "priority": "high"}]})

    assert checked == {"todos": [todo("a")]}


@pytest.mark.parametrize(
    "todos",
    [
        "write it",
        [{"id": "a", "content": "write it"}],
        [todo("a", "done")],
        [todo("")],
        [todo("a" * (ID_CHARS_MAX + 1))],
        [todo("a", content=" ")],
        [todo("a", content="x" * (CONTENT_CHARS_MAX + 1))],
        [todo(str(number)) for number in range(TODOS_MAX + 1)],
    ],
    ids=["text", "no status", "odd status", "no id", "long id", "blank", "long", "many"],
)
def test_lists_are_bounded(todos):
    """A list that is none, or too much for a conversation, is refused."""
    with pytest.raises(ToolError, match="Invalid arguments for write_todos"):
        write_todos.create().check({"todos": todos})
