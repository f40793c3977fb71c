"""One cycle out of a session's events, and the text of its answers in pieces."""

import pytest

from cmdc_runtime import events
from cmdc_runtime.client.cycle import Cycle, Pieces, ending
from cmdc_runtime.commands import CycleResult
from cmdc_runtime.errors import AgentAborted, AgentFailed
from cmdc_runtime.ids import CommandId
from cmdc_runtime.messages import Message, TokenUsage

MINE, OTHER = CommandId("c-1"), CommandId("c-2")
USED = TokenUsage()
LOST = events.EventsLost(first=1, last=2)
BEGUN = events.MessageStart()
RESET = events.StreamReset()


def end(command_id):
    return events.AgentEnd(messages=(), usage=USED, command_id=command_id)


def said(text):
    return events.MessageDelta(delta=text)


def answered(text):
    return events.ResponseComplete(message=Message.assistant(text))


def test_a_cycle_is_what_happens_between_its_start_and_its_end():
    """What comes before and after belongs to others."""
    cycle = Cycle(MINE)
    heard = [
        events.PromptReceived(text="go", queued=True, command_id=MINE),
        said("of the other"),
        end(OTHER),
        events.AgentStart(command_id=MINE),
        said("mine"),
        events.PromptReceived(text="more", queued=True, command_id=OTHER),
        end(MINE),
        events.AgentStart(command_id=OTHER),
        said("of the other"),
    ]
    found = [event for event in heard if cycle.take(event) is not None]

    assert found == heard[3:7]
    assert (cycle.is_over, cycle.error) == (True, None)


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (events.AgentAbort(reason="no", command_id=MINE), AgentAborted("no")),
        (events.AgentError(reason="no", retryable=False, command_id=MINE), AgentFailed("no")),
        (events.PromptDropped(text="go", command_id=MINE), AgentAborted("dropped")),
    ],
)
def test_what_ends_a_cycle_is_its_error(event, error):
    """Also of one that never began."""
    cycle = Cycle(MINE)

    assert cycle.take(event) is event
    assert cycle.is_over
    assert (type(cycle.error), cycle.error.reason) == (type(error), error.reason)


def test_an_abort_of_nothing_ends_nothing():
    """It says only that nobody runs."""
    cycle = Cycle(MINE)

    assert cycle.take(events.AgentAbort()) is None
    assert not cycle.is_over


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        ("finished", None),
        ("aborted", AgentAborted),
        ("dropped", AgentAborted),
        ("failed", AgentFailed),
    ],
)
def test_a_result_is_an_end(outcome, error):
    """As the session reports it."""
    heard = ending(CycleResult(outcome=outcome, text="", messages=(), usage=USED, reason="no"))

    assert heard is None if error is None else isinstance(heard, error)


@pytest.mark.parametrize(
    ("happened", "pieces"),
    [
        ((BEGUN, said("a"), said("b"), answered("ab"), BEGUN, said("c"), answered("c")), "a|b|c"),
        ((said("abc"), RESET, BEGUN, said("a"), said("bc"), said("d"), answered("abcd")), "abc|d"),
        ((said("abc"), RESET, BEGUN, said("ab"), said("cd"), answered("abcd")), "abc|d"),
        ((said("abc"), RESET, BEGUN, said("x"), said("y"), answered("xy")), "abc|x|y"),
        ((said("abc"), RESET, BEGUN, said("a"), answered("a"), BEGUN, said("z")), "abc|z"),
        ((said("ab"), LOST, said("d"), answered("abcd")), "ab|cd"),
        ((LOST, said("d"), answered("abcd")), "abcd"),
        ((LOST, BEGUN, said("ab"), said("c"), answered("abc")), "ab|c"),
        ((said("ab"), LOST, BEGUN, said("a"), said("bc"), answered("abc")), "ab|c"),
        ((said("ab"), LOST, answered("xyz")), "ab|xyz"),
    ],
    ids=[
        "as it comes",
        "again",
        "again in other pieces",
        "another answer",
        "less than before",
        "a hole",
        "no beginning",
        "lost before it began",
        "lost and begun anew",
        "lost and another",
    ],
)
def test_what_was_shown_is_not_shown_again(happened, pieces):
    """And what is shown of an answer is all of it, in its order."""
    view = Pieces()
    shown = [piece for piece in map(view.show, happened) if piece is not None]

    assert "|".join(shown) == pieces
