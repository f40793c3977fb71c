"""Whose cancellation it is that a task sees: ours, or one of the code that it runs."""

import asyncio


def is_ending() -> bool:
    """Say whether we cancelled this task; what its own code cancels is that code's failure."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
