"""Chance by a seed: the same plans, the same answers."""

from cmdc_runtime.testing import Error, ToolCalls
from scripts.soak.chance import dice
from scripts.soak.model import NOBODY, Mind
from scripts.soak.plan import plan

TOOL = {"function": {"name": "look_up"}}


def asking(text="Go.", name="soak-0001"):
    return {
        "messages": [
            {"role": "system", "content": f"You are {name}. Be good."},
            {"role": "user", "content": text},
        ],
        "tools": [TOOL],
    }


def test_the_same_words_make_the_same_draws():
    """And other words make others."""
    draws = [dice(1, "a").random(), dice(1, "a").random(), dice(1, "b").random()]

    assert draws[0] == draws[1] != draws[2]


def test_a_seed_makes_the_same_plans():
    """Session by session, and another seed makes others."""
    assert plan(1, 5, 20) == plan(1, 5, 20)
    assert plan(1, 5, 20).moves != plan(2, 5, 20).moves


def test_plans_have_every_move():
    """All prompts, and of a few sessions' moves none is missing."""
    plans = [plan(1, number, 20) for number in range(10)]
    verbs = {move.verb for one in plans for move in one.moves}

    assert all([move.verb for move in one.moves].count("prompt") == 20 for one in plans)
    assert verbs == {
        *("prompt", "steer", "abort", "pause", "rest", "collect_reply", "kill", "status"),
        *("messages", "switch_model", "replace_tools"),
        *("attach_tool", "attach_tools", "detach_tool", "detach_tools"),
    }


def test_a_mind_answers_by_its_seed():
    """Whoever asks for the n-th time gets the n-th answer, which is now and then a failure."""
    one, other = Mind(1, ()), Mind(1, ())
    answers = [one(asking()) for _ in range(200)]

    assert answers == [other(asking()) for _ in range(200)]
    assert {ToolCalls, Error} <= {type(answer) for answer in answers}
    assert (one.problems, one.requests) == ([], {"soak-0001": 200})


def test_an_approved_call_is_made():
    """Most of the time, and as it was."""
    text = 'The call of `look_up` with {"key":"q"} was approved. Make it now.'
    mind = Mind(1, ())
    answers = [mind(asking(text)) for _ in range(20)]
    made = [
        answer
        for answer in answers
        if isinstance(answer, ToolCalls) and answer.calls[0].arguments == {"key": "q"}
    ]

    assert len(made) > 10


def test_a_request_is_looked_at():
    """What a provider would refuse is kept with the name of the session, or with nobody's."""
    mind = Mind(1, ())
    wrong = asking()
    wrong["messages"].append({"role": "assistant", "content": "Yes."})
    mind(wrong)
    mind({"messages": [{"role": "user", "content": " "}], "tools": [TOOL, TOOL]})

    assert mind.problems == [
        ("soak-0001", "request 0: the last word is the assistant's"),
        (NOBODY, "request 0: message 0: the user's text is blank"),
        (NOBODY, "request 0: tool look_up twice"),
    ]
