"""What is taken out of an answer as it comes, however it is cut, and what is left as it was."""

import json
import re

import pytest

from workers.builtin.providers._usages import UsageSieve, UsageWatch, usage_problem

EVENT_ENDS = re.compile(rb"\r\n\r\n|\n\n|\r\r")
GOOD = {"choices": [], "usage": {"prompt_tokens": 3, "prompt_tokens_details": {"x_tokens": None}}}
ODD = {"message": {"id": "m\ud800", "usage": {"input_tokens": "many"}}, "n": 1}


def sifted(body, size=10_000):
    watch = UsageWatch()
    sieve = UsageSieve(watch, EVENT_ENDS)
    pieces = [sieve.take(body[at : at + size]) for at in range(0, len(body), size)]
    return b"".join((*pieces, sieve.rest())), watch.problem


@pytest.mark.parametrize("end", [b"\n\n", b"\r\r", b"\r\n\r\n"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_what_cannot_be_read_is_taken_out_however_it_is_cut(end, size):
    """The event keeps its name and all else, and the others are as they came."""
    good = b"data: " + json.dumps(GOOD).encode() + end
    odd = b"event: odd" + end[: len(end) // 2] + b"data: " + json.dumps(ODD).encode() + end
    body, problem = sifted(good + odd + good, size)
    between = body.removeprefix(good).removesuffix(good)
    left = json.loads(between.split(b"data: ")[1])

    assert body.startswith(good)
    assert body.endswith(good)
    assert between.startswith(b"event: odd")
    assert left == {"message": {"id": "m\ud800"}, "n": 1}
    assert problem == "usage['input_tokens']: 'many' is no whole number from 0 to 1,000,000,000,000"


UNTOUCHED = {
    "a usage further in": b'data: {"a": {"b": {"usage": "many"}}}\n\n',
    "no JSON": b'data: {"usage": \n\n',
    "deep": b'data: {"usage": ' + b"[" * 100_000 + b"\n\n",
    "endless number elsewhere": b'data: {"usage": null, "n": ' + b"9" * 5_000 + b"}\n\n",
    "no object": b'data: ["usage"]\n\n',
    "cut": b'data: {"us',
    "null": b'data: {"usage": null}\n\n',
}


@pytest.mark.parametrize("body", UNTOUCHED.values(), ids=UNTOUCHED)
def test_all_else_passes_as_it_came(body):
    """What is no usage, or no JSON, is not judged here."""
    assert sifted(body) == (body, None)


def test_a_line_of_data_in_pieces_is_one():
    """Parsers join the lines of an event."""
    body, problem = sifted(b'data: {"usage":\ndata: 5, "n": 1}\n\n')

    assert body == b'data: {"n": 1}\n\n'
    assert problem == "usage: 5 is no object"


PROBLEMS = {
    "details": ({"x_tokens_details": [1]}, "['x_tokens_details']: [1] is no object"),
    "inside": ({"d": [{"tokenCount": -1}]}, "['d'][0]['tokenCount']: -1 is no whole"),
    "other": ({"queue_time": float("inf")}, "['queue_time']: inf is not a finite number"),
    "key": ({"\ud800": 1}, ": a key of it: it is no valid UTF-8"),
}


@pytest.mark.parametrize(("usage", "problem"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_problem_names_its_place(usage, problem):
    """And the value that is there."""
    assert usage_problem(usage).startswith(problem)


@pytest.mark.parametrize(
    "usage",
    [{}, {"input_tokens": 3.0}, {"queue_time": -0.1, "tier": "x"}, {"d": [{"tokenCount": 1}]}],
    ids=str,
)
def test_what_vendors_send_is_no_problem(usage):
    """Words, times and whole numbers written as floats."""
    assert usage_problem(usage) is None
