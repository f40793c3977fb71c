"""The port of a call: what it asks is posted, and answered once; bounds are errors it reads."""

import asyncio
import threading

import pytest

from cmdc_runtime.extensions.tool import ToolError
from workers.core.inputs import CompactWanted, QuestionAsked, SubagentWanted, ToolEmitted
from workers.effects import tool_port
from workers.effects.tool_port import AgentPort, Answers

PATIENCE_S = 10.0


class Call:
    """A port and what it posts; ``answer`` is given to each question at once."""

    def __init__(self, answer=None, error=None):
        self.posted, self.answers = [], Answers()
        self.given = (answer, error)
        self.port = AgentPort(7, "a", self.post, self.answers)

    def post(self, result):
        self.posted.append(result)
        if hasattr(result, "ref"):
            self.answers.give(result.ref, *self.given)


def using(use, **given):
    """Run ``use`` with a call in a loop; return the call and what ``use`` returned."""

    async def whole():
        call = Call(**given)
        return call, await use(call)

    return asyncio.run(whole())


def test_each_question_has_a_reference_of_its_own():
    """They count by kind, so that a call that runs again asks the same under the same names."""

    async def ask(call):
        port = call.port
        return [
            await port.ask_user("which?", ["a", "b"]),
            await port.ask_user("why?"),
            await port.compact("full"),
            await port.delegate("look", "scout"),
        ]

    call, answers = using(ask, answer="yes")

    assert answers == ["yes"] * 4
    assert call.posted == [
        QuestionAsked(7, "a", "a:ask-1", "which?", ("a", "b")),
        QuestionAsked(7, "a", "a:ask-2", "why?", ()),
        CompactWanted(7, "a", "a:compact-1", "full"),
        SubagentWanted(7, "a", "a:task-1", "scout", "look"),
    ]


def test_an_error_is_raised_in_the_call():
    """The tool may catch it, or let the model read it."""

    async def ask(call):
        await call.port.delegate("look", "scout")

    with pytest.raises(ToolError, match="max_depth"):
        using(ask, error="max_depth")


def test_an_answer_that_nobody_waits_for_is_dropped():
    """The call is over, was never there, or has its answer."""

    async def ask(call):
        call.answers.give("a:ask-1", "early", None)
        answer = await call.port.ask_user("which?")
        call.answers.give("a:ask-1", "late", None)
        return answer

    assert using(ask, answer="in time")[1] == "in time"


def test_what_a_call_asks_is_bounded(monkeypatch):
    """One question more than the bound is an error that names it."""
    monkeypatch.setattr(tool_port, "ASKED_MAX", 2)

    async def ask(call):
        for _ in range(3):
            await call.port.ask_user("again?")

    with pytest.raises(ToolError, match="2 times"):
        using(ask)


def test_options_are_bounded():
    """Nobody reads more."""

    async def ask(call):
        await call.port.ask_user("which?", ["x"] * (tool_port.OPTIONS_MAX + 1))

    with pytest.raises(ToolError, match="at most 100 options, got 101"):
        using(ask)


def test_what_a_call_emits_is_bounded(monkeypatch):
    """A flood ends in the tool."""
    monkeypatch.setattr(tool_port, "EMITTED_MAX", 2)

    async def tell(call):
        for number in range(2):
            call.port.emit("n", number)
        with pytest.raises(ToolError, match="may emit 2 events"):
            call.port.emit("n", 2)

    call, _ = using(tell)

    assert [event.payload for event in call.posted] == [0, 1]


def test_a_payload_is_copied_when_it_is_told():
    """What the tool does to it later changes no event."""
    payload = {"n": [1]}

    async def tell(call):
        call.port.emit("n", payload)
        payload["n"].append(2)

    call, _ = using(tell)

    assert call.posted == [ToolEmitted(7, "a", "n", {"n": [1]})]


def test_a_call_that_is_over_says_nothing():
    """Not even from a thread that runs on alone."""

    async def tell(call):
        call.port.close()
        call.port.emit("n")
        with pytest.raises(ToolError, match="over"):
            await call.port.ask_user("still there?")

    assert using(tell)[0].posted == []


def test_a_thread_tells_and_cannot_wait():
    """Its events come in their order; who wants to wait has to be a task."""
    told = []

    def work(call):
        call.port.emit("n", 1)
        call.port.emit("n", 2)
        try:
            asyncio.run(call.port.ask_user("which?"))
        except ToolError as error:
            told.append(str(error))

    async def whole(call):
        thread = threading.Thread(target=work, args=(call,))
        thread.start()
        await asyncio.to_thread(thread.join, PATIENCE_S)

    call, _ = using(whole)

    assert [event.payload for event in call.posted] == [1, 2]
    assert told == ['only "async def" tools can wait for their session']


def test_a_loop_that_is_stuck_is_told_to_the_thread(monkeypatch):
    """A thread does not wait for ever for its event to be taken."""
    monkeypatch.setattr(tool_port, "TAKEN_S", 0.01)
    told = []

    def work(call):
        try:
            call.port.emit("n", 1)
        except ToolError as error:
            told.append(str(error))

    async def block(call):
        thread = threading.Thread(target=work, args=(call,))
        thread.start()
        thread.join(PATIENCE_S)

    using(block)

    assert told == ["the agent did not take the event 'n' within 0.01 s"]
