"""``write_todos``: the model's list of what it has to do, replaced as a whole.

The session keeps the list; this tool checks it and answers with the effect that replaces it. To
replace it twice by the same list changes nothing.
"""

from collections import Counter
from typing import Annotated, Any, Final, Literal, TypedDict

from msgspec import Meta

from cmdc_runtime.extensions import Effect, Tool, ToolError, tool

TODOS_MAX: Final = 100
CONTENT_CHARS_MAX: Final = 1000
ID_CHARS_MAX: Final = 64


class Todo(TypedDict):
    """One thing to do."""

    id: Annotated[str, Meta(min_length=1, max_length=ID_CHARS_MAX)]
    content: Annotated[str, Meta(pattern=r"\S", max_length=CONTENT_CHARS_MAX)]
    status: Literal["pending", "in_progress", "completed", "cancelled"]


async def write_todos(todos: Annotated[list[Todo], Meta(max_length=TODOS_MAX)]) -> Effect:
    """Replace your list of things to do, to plan work of several steps and show how far it is.

    Args:
        todos: The complete list, each with an id of its own. Keep one in progress at a time.
    """
    repeated = [id_ for id_, count in Counter(todo["id"] for todo in todos).items() if count > 1]
    if repeated:
        raise ToolError(f"Each todo needs an id of its own, and these repeat: {repeated}")
    return Effect("update_todos", {"todos": todos}, text=_summary(todos))


def create() -> Tool:
    """Return the tool; it has no options."""
    return tool(effects="idempotent", meta=_meta)(write_todos)


def _meta(args: dict[str, Any]) -> str:
    return f"WriteTodos {_progress(args.get('todos') or [])}"


def _summary(todos: list[Todo]) -> str:
    current = ", ".join(todo["content"] for todo in todos if todo["status"] == "in_progress")
    progress = f"The list is replaced: {_progress(todos)}"
    return f"{progress}. In progress: {current}" if current else progress


def _progress(todos: list[Todo]) -> str:
    done = sum(todo["status"] == "completed" for todo in todos)
    return f"{done}/{len(todos)} done"
