"""A function on the thread of a journal, in its turn among the operations."""

from collections.abc import Callable
from typing import Any

from supervisor.adapters.journal.operations import Query


class OnThread(Query[Any], frozen=True):
    """Calls a function, and returns what it returns."""

    call: Callable[[], Any]


def on_thread(journal, call):
    """Queue a call behind what waits for the journal; its store learns of it first."""
    store = journal._store
    perform = type(store).perform

    def performing(operation):
        is_ours = isinstance(operation, OnThread)
        return operation.call() if is_ours else perform(store, operation)

    store.perform = performing
    return journal.read(OnThread(call))
