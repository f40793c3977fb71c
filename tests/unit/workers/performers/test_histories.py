"""The functions of handoffs: asked in a thread or the loop, within a time, and checked."""

import asyncio

import pytest

from cmdc_runtime.messages import Message
from workers.core.step import FilterHistory
from workers.performers import histories
from workers.performers.histories import HistoryFilters

SAID = (Message(id="m-1", role="user", content="go"), Message(id="m-2", role="assistant"))


def asked(decide):
    """Return what comes of one function."""
    return asyncio.run(HistoryFilters({"b": decide}).ask(FilterHistory(3, "b", SAID)))


async def later(messages):
    await asyncio.sleep(0)
    return messages[:1]


@pytest.mark.parametrize(
    "decide",
    [
        lambda messages: messages[:1],
        later,
        lambda _messages: ({"id": "m-1", "role": "user", "content": "go"},),
    ],
    ids=["sync", "async", "dict"],
)
def test_what_is_returned_is_what_is_seen(decide):
    """However it is written."""
    found = asked(decide)

    assert (found.work, found.to, found.messages, found.problem) == (3, "b", SAID[:1], "")


def test_a_function_gets_a_list_of_its_own():
    """What it does to that changes nothing else."""
    assert asked(lambda messages: messages.clear() or [SAID[0]]).messages == SAID[:1]
    assert len(SAID) == 2


def stop(_messages):
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("decide", "problem"),
    [
        (lambda messages: messages[5], "failed: IndexError: list index out of range"),
        (stop, "failed: SystemExit: 3"),
        (lambda _messages: None, "expected a list of messages, got None"),
        (lambda _messages: [5], "returned what can't be a history"),
        (lambda _messages: [Message.system("Be.")], "the next agent has its own system prompt"),
        (lambda _messages: [Message.user("x" * 2**23)], "is the most"),
    ],
)
def test_what_cannot_be_is_a_problem(decide, problem):
    """It names what is wrong, and nothing is raised."""
    found = asked(decide)

    assert found.messages is None
    assert problem in found.problem


def test_a_function_has_a_bounded_time(monkeypatch):
    """Whoever waits for it goes on."""
    monkeypatch.setattr(histories, "FILTER_S", 0.01)

    async def never(_messages):
        await asyncio.Event().wait()

    assert "took longer than 0.01 s" in asked(never).problem
