"""What ``create_agent`` takes, and how it says no."""

import math
from pathlib import Path

import pytest

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.messages import Message
from cmdc_runtime.options import HISTORY_MESSAGES_MAX, TOOLS_MAX, Options, parse

MODEL = "openai:gpt-4o-mini"
# fmt: off
DOCUMENTED = {
    "model": None, "session_id": None, "system_prompt": None, "tools": [], "working_dir": ".",
    "provider_opts": {}, "prompt_mode": "full", "messages": [], "user_data": {}, "group_id": None,
    "max_turns": 100, "max_tokens": None, "max_queued_prompts": 100, "max_parallel_tools": 8,
    "tool_timeout": 300.0, "tool_max_retries": 2, "max_retries": 3, "retry_base_delay": 2.0,
    "retry_max_delay": 60.0, "retry_jitter": 0.0, "stall_after": 30.0, "stall_timeout": 120.0,
    "restart": "transient", "max_restarts": 3, "max_seconds": 5.0, "restart_delay": (0.1, 5.0),
    "shutdown": 5.0, "start_timeout": 30.0, "max_cycle_crashes": 2, "event_buffer_size": 1000,
}
# fmt: on


class Source:
    """A model that knows how it is reached."""

    def model_source(self):
        return MODEL, {}


class Place:
    """A path that is no ``Path``."""

    def __fspath__(self):
        return "."


def problems(**given):
    with pytest.raises(InvalidOptions) as caught:
        parse(None, {"model": MODEL, **given})
    return caught.value.problems


def test_the_defaults_are_the_documented_ones():
    """Each with its value; no option is there that is not in the table."""
    assert {name: getattr(Options(), name) for name in Options.__struct_fields__} == DOCUMENTED


def test_a_model_is_all_that_is_needed():
    """Everything else has its default."""
    parsed = parse(None, {"model": MODEL})

    assert parsed == Options(model=MODEL)


def test_keywords_win_over_an_options_struct():
    """So that one struct can serve many agents."""
    base = Options(model=MODEL, max_turns=5, group_id="g")
    parsed = parse(base, {"max_turns": 7})

    assert (parsed.model, parsed.max_turns, parsed.group_id) == (MODEL, 7, "g")


def test_a_struct_is_checked_too():
    """Building one checks nothing, using it does."""
    with pytest.raises(InvalidOptions, match="max_turns"):
        parse(Options(model=MODEL, max_turns=0), {})


def test_every_problem_is_told_at_once():
    """One line each: unknown names, types, bounds, and fields that contradict each other."""
    found = problems(
        max_turn=3,
        max_retries="5",
        retry_jitter=2.0,
        session_id="no/slash",
        stall_after=9.0,
        stall_timeout=8.0,
        working_dir="/no/such/place",
    )

    assert [line.partition(":")[0] for line in found] == [
        "max_retries",
        "max_turn",
        "retry_jitter",
        "session_id",
        "stall_after",
        "working_dir",
    ]


def test_a_wrong_field_is_told_once():
    """Nothing is concluded from a value that is wrong by itself."""
    assert len(problems(stall_after="x", stall_timeout=1.0)) == 1
    assert len(problems(retry_max_delay=-1.0)) == 1


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("max_turn", "max_turns"), ("sesion_id", "session_id"), ("tool", "tools")],
)
def test_a_typo_gets_a_suggestion(typo, meant):
    """The nearest name; where none is near, none is guessed."""
    assert problems(**{typo: 1}) == (f"{typo}: no such option; did you mean {meant}?",)
    assert problems(zzz=1) == ("zzz: no such option",)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_turns", 0),
        ("max_turns", True),
        ("max_turns", 2.5),
        ("max_tokens", 0),
        ("max_queued_prompts", -1),
        ("max_parallel_tools", 0),
        ("tool_timeout", 0),
        ("tool_timeout", math.nan),
        ("retry_jitter", 1.5),
        ("restart", "sometimes"),
        ("restart_delay", (1.0,)),
        ("shutdown", -1.0),
        ("max_cycle_crashes", 0),
        ("event_buffer_size", 1_000_001),
        ("prompt_mode", "fully"),
        ("messages", ["hi"]),
        ("tools", "read_file"),
        ("tools", {1, 2}),
        ("tools", [None] * (TOOLS_MAX + 1)),
        ("messages", [Message(id="m", role="user")] * (HISTORY_MESSAGES_MAX + 1)),
        ("provider_opts", [1]),
        ("user_data", {1: 2}),
        ("working_dir", 5),
        ("session_id", "a b"),
        ("session_id", "x" * 300),
        ("model", 5),
        ("model", "gpt-4o-mini"),
        ("model", ":x"),
        ("model", None),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_wrong_value_is_told_with_its_name(name, value):
    """One line that stays readable, however large the value."""
    (line,) = problems(**{name: value})

    assert line.startswith(f"{name}: ")
    assert len(line) < 250


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("max_queued_prompts", 0, 0),
        ("event_buffer_size", 0, 0),
        ("max_restarts", 0, 0),
        ("tool_timeout", 5, 5.0),
        ("shutdown", None, None),
        ("shutdown", 0, 0.0),
        ("retry_jitter", 1, 1.0),
        ("restart_delay", [0, 1], (0.0, 1.0)),
        ("working_dir", Path(), "."),
        ("working_dir", Place(), "."),
        ("tools", (1, 2), [1, 2]),
        ("messages", [{"role": "user", "id": "m"}], [Message(id="m", role="user")]),
        ("model", "openai/gpt-4o-mini", "openai/gpt-4o-mini"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_value_at_its_bound_is_taken(name, value, right):
    """Also where it comes as another type that means the same."""
    assert getattr(parse(None, {"model": MODEL, name: value}), name) == right


def test_a_model_may_know_how_it_is_reached():
    """A scripted model, for example; it is taken as it is."""
    source = Source()

    assert parse(None, {"model": source}).model is source
