"""The port of a call: what it asks is posted, and answered once; bounds are errors it reads."""

import asyncio
import math
import threading

import pytest

from cmdc_runtime.errors import DaemonUnavailable
from cmdc_runtime.events import AgentEnd, PluginEvent, ReasoningThought
from cmdc_runtime.extensions.context import BranchAnswer
from cmdc_runtime.extensions.tool import OtherBranchError, ToolError
from cmdc_runtime.messages import TokenUsage
from workers.core.budget import Grant
from workers.core.inputs import (
    AskedOtherwise,
    BranchDropped,
    BranchTask,
    BranchWanted,
    CompactWanted,
    QuestionAsked,
    SubagentWanted,
    ToolEmitted,
    ToolKept,
    ToolStepReported,
)
from workers.performers import tool_port
from workers.performers.tool_port import AgentPort, Answers
from workers.performers.toolbox import Tally

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
            self.answers.answer(result.ref, *self.given)


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


# --- branches -------------------------------------------------------------------------------------

ANSWER = BranchAnswer(ok=True, text="42", usage=TokenUsage())


class Branching(Call):
    """A port whose branches are answered by hand, and their ends at once."""

    def post(self, result):
        self.posted.append(result)
        if isinstance(result, BranchDropped):
            self.answers.answer(result.ended, None, None)

    def kinds(self):
        return [type(one) for one in self.posted]


class Silent(Call):
    """A port that is answered by hand."""

    def post(self, result):
        self.posted.append(result)


def branching(use, kind=Branching):
    async def whole():
        call = kind()
        return call, await use(call)

    return asyncio.run(whole())


def test_a_branch_has_the_name_that_it_is_given():
    """So a call that runs again asks for the same; the digest distinguishes another task."""

    async def ask(call):
        port = call.port
        await port.branch("b1", "why?", model="x:m", response_format={"type": "integer"})
        await port.branch("b2", "why?", tokens=7, cost_usd=1, shares=3)
        return await port.branch("b1", "why?")

    call, answer = using(ask, answer=ANSWER)
    first, second, third = call.posted

    assert answer is ANSWER
    assert (first.ref, second.ref) == ("a:branch-b1", "a:branch-b2")
    assert first.task == BranchTask("why?", "x:m", {"type": "integer"})
    assert (second.limit, second.shares) == (Grant(7, 1.0), 3)
    assert third.digest == second.digest != first.digest


def test_a_fork_is_another_task():
    """It is asked with the conversation before it."""

    async def ask(call):
        await call.port.branch("b1", "why?")
        await call.port.branch("b2", "why?", fork=True)

    call, _ = using(ask, answer=ANSWER)
    plain, forked = call.posted

    assert forked.task == BranchTask("why?", fork=True)
    assert forked.digest != plain.digest


def test_what_was_lost_is_asked_for_again():
    """The session has no answer of it: it ended with the process before."""

    async def ask(call):
        waiting = asyncio.create_task(call.port.branch("b1", "why?"))
        for value in (None, None, ANSWER):
            await asyncio.sleep(0)
            call.answers.answer("a:branch-b1", value, None)
            await asyncio.sleep(0)
        return await waiting

    call, answer = branching(ask)

    assert answer is ANSWER
    assert call.kinds() == [BranchWanted] * 3


def test_a_cancelled_wait_lasts_until_the_branch_is_gone():
    """Its place and its share are free then."""

    async def ask(call):
        waiting = asyncio.create_task(call.port.branch("b1", "why?"))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        return waiting.cancelled()

    call, is_cancelled = branching(ask)

    assert is_cancelled
    assert call.posted[1:] == [BranchDropped(7, "a", "a:branch-b1")]


def test_where_the_process_ends_nothing_is_waited_for():
    """The daemon ends the session of a branch then."""

    async def ask(call):
        waiting = asyncio.create_task(call.port.branch("b1", "why?"))
        await asyncio.sleep(0)
        call.answers.close()
        waiting.cancel()
        await asyncio.wait([waiting])

    assert branching(ask)[0].kinds() == [BranchWanted]


def test_a_branch_is_waited_for_once_at_a_time():
    """Two waits by one name would have one answer."""

    async def ask(call):
        waiting = asyncio.create_task(call.port.branch("b1", "why?"))
        await asyncio.sleep(0)
        with pytest.raises(ToolError, match="'b1' is waited for already"):
            await call.port.branch("b1", "why?")
        call.answers.answer("a:branch-b1", ANSWER, None)
        await waiting

    branching(ask)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"branch_id": "no spaces"}, "branch_id: expected 1 to 64"),
        ({"branch_id": 7}, "branch_id: expected 1 to 64"),
        ({"prompt": " "}, "prompt: a prompt needs text"),
        ({"prompt": b"why?"}, "prompt: expected a str, got bytes"),
        ({"prompt": "\ud800"}, "prompt: "),
        ({"model": "gpt"}, "model: expected 'provider:model_id'"),
        ({"response_format": {"type": "nothing"}}, "response_format: no JSON Schema"),
        ({"response_format": object()}, "response_format: this type has no JSON Schema"),
        (
            {"response_format": {"default": math.nan}},
            "response_format: no JSON: ['default']: nan is",
        ),
        ({"response_format": {"title": "x" * 2**20}}, "response_format: at most 1,048,576 bytes"),
        ({"tokens": 0}, "tokens: 0 is not between 1"),
        ({"cost_usd": -1.0}, "cost_usd: -1"),
        ({"shares": 0}, "shares: 0 is not between 1"),
    ],
)
def test_what_no_branch_can_be_is_refused(arguments, message):
    """In words that name the argument; the session is asked nothing."""

    async def ask(call):
        given = {"branch_id": "b1", "prompt": "why?", **arguments}
        with pytest.raises(ToolError) as caught:
            await call.port.branch(**given)
        return str(caught.value)

    call, found = using(ask)

    assert message in found
    assert call.posted == []


def test_another_task_under_a_known_name_is_an_error_of_its_own():
    """Who decides on branches must distinguish it from one that was not started."""

    async def ask(call):
        await call.port.branch("b1", "why?")

    with pytest.raises(OtherBranchError, match="something else"):
        using(ask, answer=AskedOtherwise("it was asked something else"))


@pytest.mark.parametrize("value", [None, ANSWER])
def test_a_branch_that_is_ended_answers_who_waits_and_who_ended_it(value):
    """Who waits does not ask for it anew, and who ended it hears what it used."""
    usage = TokenUsage(total_tokens=3)
    left = BranchAnswer(ok=False, text="the subagent was ended", usage=usage)

    async def ask(call):
        waiting = asyncio.create_task(call.port.branch("b1", "why?"))
        await asyncio.sleep(0)
        ending = asyncio.create_task(call.port.end_branch("b1"))
        await asyncio.sleep(0)
        call.answers.answer("a:branch-b1", value, None)
        call.answers.answer("a:branch-b1:end", value or left, None)
        return await waiting, await ending

    call, (heard, ended) = branching(ask, Silent)

    assert ended == (value or left)
    assert heard.ok == (value is not None)
    assert [type(one) for one in call.posted] == [BranchWanted, BranchDropped]


def test_a_branch_that_nobody_asked_for_has_ended():
    """There is nothing to be said of it."""

    async def ask(call):
        ending = asyncio.create_task(call.port.end_branch("b1"))
        await asyncio.sleep(0)
        call.answers.answer("a:branch-b1:end", None, None)
        return await ending

    answer = branching(ask, Silent)[1]

    assert (answer.ok, answer.usage) == (False, TokenUsage())


def test_branches_of_a_call_are_bounded(monkeypatch):
    """A name that is known does not count again."""
    monkeypatch.setattr(tool_port, "BRANCHES_MAX", 2)

    async def ask(call):
        for branch_id in ("b1", "b2", "b1", "b3"):
            await call.port.branch(branch_id, "why?")

    with pytest.raises(ToolError, match="may branch 2 times"):
        using(ask, answer=ANSWER)


# --- steps ----------------------------------------------------------------------------------------


def step(content="so", metadata=None):
    return ReasoningThought(
        run_id="r", strategy="s", thought_id="b1", content=content, metadata=metadata or {}
    )


def test_what_is_kept_is_there_for_the_next_run():
    """Which counts its questions on from there; nothing kept, and they count from 1."""

    async def ask(call):
        asking = asyncio.create_task(call.port.ask_user("1?"))
        await asyncio.sleep(0)
        await call.port.keep(b"here")
        later = AgentPort(7, "a", call.post, call.answers, tally=call.port._tally)
        more = asyncio.create_task(later.ask_user("2?"))
        await asyncio.sleep(0)
        await later.keep(b"")
        anew = AgentPort(7, "a", call.post, call.answers, tally=call.port._tally)
        last = asyncio.create_task(anew.ask_user("3?"))
        await asyncio.sleep(0)
        for task in (asking, more, last):
            task.cancel()
        return call.port.kept, anew.kept

    call, _ = using(ask)

    assert call.posted == [
        QuestionAsked(7, "a", "a:ask-1", "1?", ()),
        ToolKept(7, "a", b"here", 1),
        QuestionAsked(7, "a", "a:ask-2", "2?", ()),
        ToolKept(7, "a", b"", 0),
        QuestionAsked(7, "a", "a:ask-1", "3?", ()),
    ]


@pytest.mark.parametrize("content", ["text", None, bytes(64 * 1024 + 1)])
def test_what_cannot_be_kept_is_refused(content):
    """And what was kept before is still."""

    async def ask(call):
        await call.port.keep(b"here")
        with pytest.raises(ToolError, match="expected at most 65,536 bytes"):
            await call.port.keep(content)
        return call.port.kept

    assert using(ask)[1] == b"here"


def test_what_is_kept_is_in_the_journal_when_the_tool_goes_on():
    """As what a write tool begins behind."""

    async def ask(call):
        written = asyncio.Event()
        port = AgentPort(7, "a", call.post, call.answers, synced=written.wait)
        keeping = asyncio.create_task(port.keep(b"here"))
        await asyncio.sleep(0)
        before = keeping.done()
        written.set()
        await keeping
        return before

    assert using(ask)[1] is False


def test_a_step_is_published_and_counted():
    """How many earlier runs have published stays the same while this one publishes."""

    async def ask(call):
        await call.port.publish(step(metadata={"n": 1}))
        later = AgentPort(7, "a", call.post, call.answers, tally=call.port._tally)
        return call.port.published, later.published

    call, counts = using(ask)

    assert call.posted == [ToolStepReported(7, "a", step(metadata={"n": 1}))]
    assert counts == (0, 1)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (PluginEvent(name="reasoning_thought", payload=1), "of a kind reasoning_"),
        (AgentEnd(messages=(), usage=TokenUsage(), command_id="c"), "of a kind reasoning_"),
        ({"kind": "reasoning_thought"}, "of a kind reasoning_"),
        (step(metadata={"n": object()}), "cannot be kept"),
        (step(metadata={"n": float("nan")}), "cannot be kept"),
        (step(content=7), "cannot be kept"),
        (step("x" * 2**20), "takes 1,048,"),
    ],
)
def test_what_is_no_step_is_refused(event, message):
    """And counts as none."""

    async def ask(call):
        with pytest.raises(ToolError) as caught:
            await call.port.publish(event)
        return str(caught.value)

    call, found = using(ask)

    assert message in found
    assert (call.posted, call.port._tally.steps) == ([], 0)


def test_what_was_published_before_is_recalled():
    """By the session, as many as there are; a first run has published nothing, and asks nobody."""
    asked = []

    async def recall(run_id, count):
        asked.append((run_id, count))
        if run_id == "broken":
            raise DaemonUnavailable("it ends")
        return ("event",)

    async def ask(call):
        for steps in (0, 2):
            port = AgentPort(7, "a", call.post, call.answers, tally=Tally(steps), recall=recall)
            yield await port.recall("r")
        with pytest.raises(ToolError, match="'broken' cannot be read: it ends"):
            await port.recall("broken")

    async def whole(call):
        return [one async for one in ask(call)]

    assert using(whole)[1] == [(), ("event",)]
    assert asked == [("r", 2), ("broken", 2)]


def test_steps_are_bounded(monkeypatch):
    """Over all runs of the call."""
    monkeypatch.setattr(tool_port, "STEPS_MAX", 2)

    async def ask(call):
        for _ in range(3):
            await call.port.publish(step())

    with pytest.raises(ToolError, match="may report 2 steps"):
        using(ask)


def test_an_error_is_raised_in_the_call():
    """The tool may catch it, or let the model read it."""

    async def ask(call):
        await call.port.delegate("look", "scout")

    with pytest.raises(ToolError, match="max_depth"):
        using(ask, error="max_depth")


def test_an_answer_that_nobody_waits_for_is_dropped():
    """The call is over, was never there, or has its answer."""

    async def ask(call):
        call.answers.answer("a:ask-1", "early", None)
        answer = await call.port.ask_user("which?")
        call.answers.answer("a:ask-1", "late", None)
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

    async def emit_all(call):
        for number in range(2):
            call.port.emit("n", number)
        with pytest.raises(ToolError, match="may emit 2 events"):
            call.port.emit("n", 2)

    call, _ = using(emit_all)

    assert [event.payload for event in call.posted] == [0, 1]


def test_a_payload_is_copied_when_it_is_emitted():
    """What the tool does to it later changes no event."""
    payload = {"n": [1]}

    async def emit_all(call):
        call.port.emit("n", payload)
        payload["n"].append(2)

    call, _ = using(emit_all)

    assert call.posted == [ToolEmitted(7, "a", "n", {"n": [1]})]


def test_a_call_that_is_over_says_nothing():
    """Not even from a thread that runs on alone."""

    async def emit_all(call):
        call.port.close()
        call.port.emit("n")
        with pytest.raises(ToolError, match="over"):
            await call.port.ask_user("still there?")

    assert using(emit_all)[0].posted == []


def test_a_thread_emits_and_cannot_wait():
    """Its events come in their order; who wants to wait has to be a task."""
    errors = []

    def work(call):
        call.port.emit("n", 1)
        call.port.emit("n", 2)
        try:
            asyncio.run(call.port.ask_user("which?"))
        except ToolError as error:
            errors.append(str(error))

    async def whole(call):
        thread = threading.Thread(target=work, args=(call,))
        thread.start()
        await asyncio.to_thread(thread.join, PATIENCE_S)

    call, _ = using(whole)

    assert [event.payload for event in call.posted] == [1, 2]
    assert errors == ['only "async def" tools can wait for their session']


def test_a_loop_that_is_stuck_is_reported_to_the_thread(monkeypatch):
    """A thread does not wait for ever for its event to be taken."""
    monkeypatch.setattr(tool_port, "TAKEN_S", 0.01)
    errors = []

    def work(call):
        try:
            call.port.emit("n", 1)
        except ToolError as error:
            errors.append(str(error))

    async def block(call):
        thread = threading.Thread(target=work, args=(call,))
        thread.start()
        thread.join(PATIENCE_S)

    using(block)

    assert errors == ["the agent did not take the event 'n' within 0.01 s"]
