"""Chance by a seed: the same plans; and a model whose answers are those of the conversation."""

import json
from fnmatch import fnmatchcase

import pytest

from cmdc_runtime import faults
from cmdc_runtime.messages import Message, ToolCall
from cmdc_runtime.testing import Delay, Text, ToolCalls
from scripts.soak.chance import dice
from scripts.soak.model import NOBODY, Mind, prompt_text, strays
from scripts.soak.plan import name_of, plan
from scripts.soak.tools import CHOICES, PLUGINS

ROUNDS = ((("look_up", {"key": "k"}),), (("put", {"serial": "x"}), ("put", {"serial": "y"})))


def asking(*said, name="1-1"):
    return {
        "messages": [
            {"role": "system", "content": f"You are {name}! Be good."},
            {"role": "user", "content": prompt_text("p", ROUNDS)},
            *said,
        ],
        "tools": [{"function": {"name": "look_up"}}],
    }


def called(answer):
    """Return the answer's calls as they come back in a conversation, with their results."""
    (calls,) = [piece for piece in answer if isinstance(piece, ToolCalls)]
    made = [
        {"id": call.id, "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
        for call in calls.calls
    ]
    results = [{"role": "tool", "tool_call_id": call.id, "content": "so"} for call in calls.calls]
    return [{"role": "assistant", "content": None, "tool_calls": made}, *results]


def test_the_same_words_make_the_same_draws():
    """And other words make others."""
    draws = [dice(1, "a").random(), dice(1, "a").random(), dice(1, "b").random()]

    assert draws[0] == draws[1] != draws[2]


def test_a_seed_makes_the_same_plan():
    """Scenario by scenario, and another seed makes another."""
    assert plan(name_of(1, 5)) == plan(name_of(1, 5))
    assert plan(name_of(1, 5)).moves != plan(name_of(2, 5)).moves


def test_plans_have_every_move_tool_and_death():
    """Of a few hundred plans none is missing."""
    plans = [plan(name_of(1, number)) for number in range(300)]
    verbs = {move.verb for one in plans for move in one.moves}
    texts = " ".join(
        move.arguments["text"] for one in plans for move in one.moves if move.verb == "prompt"
    )
    steps = [faults.parse(line) for one in plans for line in one.faults]

    assert verbs == {
        *("prompt", "steer", "abort", "pause", "rest", "kill", "messages"),
        *("switch_model", "attach_tools", "detach_tool", "attach_plugin", "detach_plugin"),
    }
    assert [name for name in CHOICES if f'"{name}"' not in texts] == []
    assert {step.victim for step in steps} == {"agent", "host"}
    assert {len(one.faults) for one in plans} == {0, 1, 2}
    assert any(one.is_armed_early for one in plans)
    assert {name for one in plans for name in one.plugins} == set(PLUGINS)
    assert any(one.is_continued for one in plans)


def test_no_plan_has_two_deaths_that_may_come_at_one_step_of_rebuilding():
    """The session goes on without that step then, which no life is wrong for."""
    plans = [plan(name_of(seed, number)) for seed in (1, 7) for number in range(2_000)]
    matching = [
        [line for line in one.faults if fnmatchcase("agent.rebuild.3", faults.parse(line).point)]
        for one in plans
    ]

    assert {len(lines) for lines in matching} == {0, 1}
    assert {len(one.faults) for one in plans if one.is_continued} == {0, 1, 2}


def test_a_model_makes_the_calls_of_its_script_round_by_round():
    """What it says depends on the conversation alone: asked again, it says the same."""
    mind = Mind()
    first = mind(asking())
    second = mind(asking(*called(first)))
    last = mind(asking(*called(first), *called(second)))

    assert mind(asking()) == first
    assert [call.name for call in first[0].calls] == ["look_up"]
    assert [call.arguments["serial"] for call in second[0].calls] == ["x", "y"]
    assert last == (Text("That is all there is to say about p.", chunk_chars=64, delay=0.0),)
    assert (mind.problems, mind.requests) == ([], {"1-1": 4})


def test_a_model_can_be_late():
    """Before each answer, and between its pieces."""
    text = prompt_text("p", late_s=0.1, pace_s=0.2)
    answer = Mind()({"messages": [{"role": "user", "content": text}]})

    assert answer[0] == Delay(0.1)
    assert answer[1].delay == 0.2


def test_an_approved_call_is_made_again():
    """As it was, under an id of its own."""
    text = 'The call of `put` with {"serial":"x"} was approved. Make it now.'
    answer = Mind()(asking({"role": "user", "content": text}))

    (call,) = answer.calls
    assert (call.name, call.arguments, call.id) == ("put", {"serial": "x"}, "call_x-again")


def done(serial, cut=None):
    """Return the last answer to the prompt of this serial, cut off where that is said."""
    (text,) = Mind()({"messages": [{"role": "user", "content": prompt_text(serial)}]})
    return Message.assistant(text.text[:cut])


def call_of(*ids):
    return Message.assistant("", tool_calls=tuple(ToolCall(call_id=id_, name="put") for id_ in ids))


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ((call_of("call_q_0_0", "call_x-again"), done("q")), 0),
        ((done("q", cut=-1), done("q", cut=5)), 0),
        ((Message.assistant("Very well."),), 0),
        ((done("p"),), 1),
        ((call_of("call_p_0_0"), done("q")), 1),
        ((call_of("call_q_0_0", "call_p_0_1"),), 1),
    ],
)
def test_an_answer_belongs_to_the_prompt_before_it(answers, found):
    """What a request of an earlier prompt had to say is none of its answers."""
    said = [Message.user(prompt_text(serial)) for serial in ("p", "q")]

    assert len(strays([*said, Message.user("Rather."), *answers])) == found


def test_a_request_is_looked_at():
    """What a provider would refuse is kept with the name of the session, or with nobody's."""
    mind = Mind()
    mind(asking({"role": "assistant", "content": "Yes."}))
    mind({"messages": [{"role": "user", "content": " "}], "tools": asking()["tools"] * 2})

    assert mind.problems == [
        ("1-1", "the last word is the assistant's"),
        (NOBODY, "message 0: the user's text is blank"),
        (NOBODY, "tool look_up twice"),
    ]
