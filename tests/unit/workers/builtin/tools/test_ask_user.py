"""``ask_user`` with a session that answers by script."""

import asyncio

import pytest

from cmdc_runtime.extensions import ToolError
from workers.builtin.tools import ask_user


def test_question_and_options_reach_the_session(workplace):
    """The session hears the question once, as the model put it."""
    workplace.session.answer = "blue"
    result = workplace.call(ask_user.create(), question="Which?", options=["red", "blue"])

    assert result == "blue"
    assert workplace.session.asked == [("ask_user", "Which?", ["red", "blue"])]


def test_no_options_mean_free_text(workplace):
    """Options are optional, and no call leaves some behind for the next."""
    workplace.session.answer = ""
    results = [workplace.call(ask_user.create(), question="Why?") for _ in range(2)]

    assert results == ["", ""]
    assert workplace.session.asked == [("ask_user", "Why?", [])] * 2


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"choice": 2}, '{"choice":2}'),
        ([1, "é"], '[1,"é"]'),
        (None, "null"),
        (True, "true"),
        ({(1, 2): 3}, "{(1, 2): 3}"),
    ],
)
def test_what_is_no_text_becomes_json(workplace, answer, text):
    """An answer of any kind is text to the model, and none makes the call fail."""
    workplace.session.answer = answer

    assert workplace.call(ask_user.create(), question="What?") == text


def test_silence_ends_at_the_timeout(workplace):
    """The model reads that nobody answers; the runner's own bound comes later."""
    workplace.session.answer = asyncio.Event()
    tool = ask_user.create(timeout=0.01)

    assert workplace.failure(tool, question="Hello?") == (
        "The user has not answered within 0.01 s. Go on without the answer."
    )
    assert tool.timeout > 0.01
    assert ask_user.create().timeout > 300


def test_timeout_of_the_session_is_its_own(workplace):
    """A ``TimeoutError`` from within is not taken for silence."""
    workplace.session.answer = TimeoutError("inside")
    with pytest.raises(TimeoutError, match="inside"):
        workplace.call(ask_user.create(), question="Hello?")


def test_error_of_the_session_is_the_result(workplace):
    """What the session says against the question reaches the model."""
    workplace.session.answer = ToolError("too many questions are open")

    assert workplace.failure(ask_user.create(), question="?") == "too many questions are open"


def test_no_session_no_question(workplace):
    """A call outside of a session says so."""
    workplace.session = None

    assert "inside a running session only" in workplace.failure(ask_user.create(), question="?")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"question": "  "},
        {"question": "x" * (ask_user.QUESTION_CHARS_MAX + 1)},
        {"question": "?", "options": [""]},
        {"question": "?", "options": [1]},
        {"question": "?", "options": ["a"] * (ask_user.OPTIONS_MAX + 1)},
    ],
    ids=["absent", "blank", "long", "blank option", "number", "many"],
)
def test_questions_are_bounded(arguments):
    """A question that nobody could read or answer is refused before it is asked."""
    with pytest.raises(ToolError, match="Invalid arguments for ask_user"):
        ask_user.create().check(arguments)
