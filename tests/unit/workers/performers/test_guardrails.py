"""Guardrails as they run: all at once, within a time, and whatever they return."""

import asyncio

import pytest

from cmdc_runtime.guardrail import Tripwire
from cmdc_runtime.plain import short
from workers.core.inputs import FirstChunk, StreamSilent, TextArrived, Tripped
from workers.performers import guardrails
from workers.performers.guardrails import Guardrails, Held


def checked(*functions):
    """Return what comes of a check by functions that are called one, two, ..."""
    names = ("one", "two", "three")
    found = Guardrails(tuple(zip(names, functions, strict=False)))
    return asyncio.run(found.check("text", None))


async def later(text, _context):
    await asyncio.sleep(0)
    return text


@pytest.mark.parametrize(
    ("decide", "tripped"),
    [
        (lambda _text, _context: None, None),
        (lambda text, _context: text, Tripped("one", "text")),
        (later, Tripped("one", "text")),
        (lambda text, context: later(text, context), Tripped("one", "text")),  # noqa: PLW0108
        (lambda _text, _context: Tripwire("no", {"n": 1}), Tripped("one", "no", {"n": 1})),
        (lambda _text, _context: Tripwire("no", len), Tripped("one", "no", short(len))),
    ],
)
def test_what_it_returns_is_its_verdict(decide, tripped):
    """None passes; info that is no plain data is put into words."""
    assert checked(decide) == tripped


@pytest.mark.parametrize(
    ("decide", "why"),
    [
        (lambda text, _context: text[9], "it failed: IndexError"),
        (lambda _text: None, "it failed: TypeError"),
        (lambda _text, _context: True, "it returned True; expected None, a str"),
        (lambda _text, _context: Tripwire(5), "it returned <a Tripwire>"),
    ],
)
def test_one_that_cannot_say_has_tripped(decide, why):
    """Its reason names what was wrong."""
    assert checked(decide).reason.startswith(why)


def test_all_run_at_once_and_the_first_that_trips_counts():
    """The others are given up."""
    ended = []

    async def never(_text, _context):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    assert checked(never, lambda _text, _context: "no") == Tripped("two", "no")
    assert ended == [True]


def test_one_has_a_bounded_time(monkeypatch):
    """Whoever asks is not kept waiting."""
    monkeypatch.setattr(guardrails, "GUARDRAIL_S", 0.01)

    async def never(_text, _context):
        await asyncio.Event().wait()

    assert checked(never) == Tripped("one", "it took longer than 0.01 s")


def test_what_shows_the_answer_is_held_and_comes_in_order():
    """What shows nothing of it goes on."""
    posted = []
    held = Held(posted.append)
    first, silent = FirstChunk(1), StreamSilent(1, 30.0)
    one, two = TextArrived(1, "a"), TextArrived(1, "b")
    for result in (first, one, silent):
        held.post(result)
    before = [*posted]
    held.open()
    held.post(two)

    assert before == [first, silent]
    assert posted == [first, silent, one, two]
