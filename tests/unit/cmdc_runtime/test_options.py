"""What ``create_agent`` takes, and how it says no."""

import math
from pathlib import Path

import msgspec
import pytest

from cmdc_runtime.commands import TOOLS_MAX
from cmdc_runtime.errors import PROBLEMS_MAX, InvalidOptions
from cmdc_runtime.ids import SESSION_ID_RULE
from cmdc_runtime.message_parts import MessagePart
from cmdc_runtime.messages import Message, ToolCall
from cmdc_runtime.option_checks import SUBAGENTS_MAX
from cmdc_runtime.options import HISTORY_MESSAGES_MAX, Options, parse
from cmdc_runtime.subagent import SubAgent

MODEL = "openai:gpt-4o-mini"
# fmt: off
DOCUMENTED = {
    "model": None, "session_id": None, "blueprint": None, "system_prompt": None, "tools": [],
    "plugins": [], "subagents": [], "working_dir": ".", "provider_opts": {},
    "sandbox": None, "require_sandbox": False,
    "skills_dirs": [], "memory": [], "handoffs": [],
    "input_guardrails": [], "output_guardrails": [],
    "response_format": None, "reasoning_strategy": None, "config": None,
    "api_key": None, "send_keys": True, "provider": None,
    "prompt_mode": "full", "messages": [], "code": "pinned", "redact": None,
    "checkpoint_backend": None,
    "user_data": {}, "group_id": None,
    "max_turns": 100,
    "max_tokens": None, "max_cost_usd": None, "max_total_tokens": None, "max_steering_queue": 3,
    "max_queued_prompts": 100, "max_parallel_tools": 8, "tool_timeout": 300.0,
    "cycle_timeout": None,
    "interrupt_immune_tools": [
        "write_file",
        "edit_file",
        "apply_patch",
        "write_todos",
        "compact_conversation",
    ],
    "tool_max_retries": 2, "max_retries": 3, "retry_base_delay": 2.0, "retry_max_delay": 60.0,
    "retry_jitter": 0.0, "stall_after": 30.0, "stall_timeout": 120.0, "loop_threshold": 3,
    "loop_abort": 5, "loop_exempt_tools": [], "exit_on": [], "max_children": 8, "max_spawns": 64,
    "tool_env": [], "mcp_servers": [],
    "max_depth": 1, "event_buffer_size": 1000, "hibernate_after": None, "restart": "transient",
    "max_restarts": 3, "max_seconds": 5.0, "restart_delay": (0.1, 5.0), "shutdown": 5.0,
    "start_timeout": 30.0, "max_cycle_crashes": 2, "unresponsive_after": 30.0,
    "memory_limit": None, "cpu_limit": None, "max_processes": None, "max_open_files": None,
}
# fmt: on


class Source:
    """A model that knows how it is reached."""

    def model_source(self):
        return MODEL, {}


class City(msgspec.Struct):
    """An answer's form."""

    name: str


class Place:
    """A path that is no ``Path``."""

    def __fspath__(self):
        return "."


def nested(levels):
    """Return a dict of so many levels."""
    value = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


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


def test_every_problem_is_reported_at_once():
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


def test_a_wrong_field_is_reported_once():
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
    assert len(problems(**{f"zzz{at}": 1 for at in range(1_000)})) == PROBLEMS_MAX


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
        ("cycle_timeout", 0),
        ("cycle_timeout", "1h"),
        ("retry_jitter", 1.5),
        ("restart", "sometimes"),
        ("restart_delay", (1.0,)),
        ("shutdown", -1.0),
        ("max_cycle_crashes", 0),
        ("unresponsive_after", 0.4),
        ("unresponsive_after", None),
        ("memory_limit", 16 * 2**20 - 1),
        ("memory_limit", 2**62 + 1),
        ("memory_limit", 2.0**31),
        ("memory_limit", True),
        ("memory_limit", "2147483648"),
        ("memory_limit", "512"),
        ("memory_limit", "8M"),
        ("memory_limit", "-1G"),
        ("memory_limit", "1,5G"),
        ("memory_limit", "2GiBs"),
        ("memory_limit", "9999999T"),
        ("memory_limit", f"{'9' * 50}G"),
        ("memory_limit", "\u0662G"),
        ("memory_limit", b"2G"),
        ("cpu_limit", 0),
        ("cpu_limit", 4097),
        ("max_processes", 3),
        ("max_processes", 4.5),
        ("max_open_files", 63),
        ("max_open_files", 1_000_001),
        ("event_buffer_size", 1_000_001),
        ("max_steering_queue", -1),
        ("max_cost_usd", 0),
        ("max_cost_usd", math.inf),
        ("max_total_tokens", 0),
        ("interrupt_immune_tools", "write_file"),
        ("interrupt_immune_tools", ["write file"]),
        ("loop_exempt_tools", [""]),
        ("loop_threshold", 1),
        ("loop_abort", 11),
        ("exit_on", "plugin_aborted"),
        ("exit_on", ["max_turns"]),
        ("max_children", 0),
        ("max_spawns", 0),
        ("max_depth", -1),
        ("max_depth", 9),
        ("hibernate_after", 0),
        ("response_format", 5),
        ("reasoning_strategy", 5),
        ("reasoning_strategy", "no strategy"),
        ("reasoning_strategy", ["adaptive"]),
        ("response_format", {"type": "text"}),
        ("response_format", {"const": b"bytes are no JSON", "enum": {1}}),
        ("response_format", {"type": "number", "default": float("nan")}),
        ("subagents", SubAgent("a", "b")),
        ("subagents", ["researcher"]),
        ("subagents", [SubAgent(f"a{at}", "b") for at in range(SUBAGENTS_MAX + 1)]),
        ("blueprint", 5),
        ("prompt_mode", "fully"),
        ("messages", "hi"),
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
def test_a_wrong_value_is_reported_with_its_name(name, value):
    """One line that stays readable, however large the value."""
    (line,) = problems(**{name: value})

    assert line.startswith(f"{name}: ")
    assert len(line) < 250


HALF = "it is no valid UTF-8: half a surrogate pair (U+D800) at 0"
UNKEPT = {
    "content": ({"content": "\ud800"}, f".content: {HALF}"),
    "thinking": ({"thinking": "\ud800"}, f".thinking: {HALF}"),
    "id": ({"id": "\ud800"}, f".id: {HALF}"),
    "metadata": ({"metadata": {"a": ["\ud800"]}}, f".metadata['a'][0]: {HALF}"),
    "nan": ({"metadata": {"a": math.nan}}, ".metadata['a']: nan is not a finite number"),
    "key": ({"metadata": {1: 2}}, ".metadata: a key is of type int, and only str can be kept"),
    "object": ({"metadata": {"a": object}}, ".metadata['a']: a type is no plain value"),
    "deep": ({"metadata": nested(65)}, ".metadata: it nests more than 64 levels deep"),
    "stack": ({"metadata": nested(9999)}, ".metadata: it nests more than 64 levels deep"),
    "arguments": (
        {"tool_calls": (ToolCall(call_id="c", name="x", arguments={"n": "\ud800"}),)},
        f".tool_calls[0].arguments['n']: {HALF}",
    ),
    "call": (
        {"tool_calls": (ToolCall(call_id="c", name="\ud800"),)},
        f".tool_calls[0].name: {HALF}",
    ),
}


@pytest.mark.parametrize(("fields", "reported"), UNKEPT.values(), ids=UNKEPT)
def test_a_message_that_cannot_be_kept_is_reported_with_its_place(fields, reported):
    """In the words that every other option has, before anything is encoded."""
    kept = Message(id="m", role="user")
    wrong = Message(**{"id": "m", "role": "assistant", **fields})

    assert problems(messages=[kept, wrong]) == (f"messages[1]{reported}",)


TYPES = {
    "role": ("zebra", "expected of system, user, assistant, tool_result, got 'zebra'"),
    "content": (5, "Expected `str`, got `int`, got 5"),
    "id": (5, "Expected `str`, got `int`, got 5"),
    "tool_calls": ("x", "Expected `array`, got `str`, got 'x'"),
    "call_id": (b"c", "Expected `str | null`, got `bytes`, got b'c'"),
    "name": (b"x", "Expected `str | null`, got `bytes`, got b'x'"),
    "is_error": ("no", "Expected `bool`, got `str`, got 'no'"),
    "thinking": (object, "Expected `str | null`, got `type`, got <class 'object'>"),
    "parent_id": ([1], "Expected `str | null`, got `array`, got [1]"),
    "metadata": (5, "Expected `object`, got `int`, got 5"),
    "parts": ("x", "Expected `array`, got `str`, got 'x'"),
}


@pytest.mark.parametrize("name", Message.__struct_fields__)
def test_a_field_of_a_message_is_checked_whoever_made_it(name):
    """By place, in the words of every other option, of a struct as of a dict."""
    value, reported = TYPES[name]
    fields = {"role": "user", name: value}

    for wrong in (Message(**fields), fields):
        (line,) = problems(messages=[Message.user("a"), wrong])
        assert line.startswith(f"messages[1].{name}: ")
        assert line.endswith(reported)


def test_a_history_has_images_as_messages_gives_them():
    """A part that no message can have is named by its place."""
    part = MessagePart(media_type="image/png", digest="0" * 64, size=1)
    kept = Message(role="user", content="", parts=(part,))
    wrong = Message(role="user", parts=(MessagePart(media_type="image"),))

    assert parse(None, {"model": "m:m", "messages": [kept]}).messages == [kept]
    (line,) = problems(messages=[kept, wrong])
    assert line.startswith("messages[1].parts[0]: media_type: expected one such as image/png")


def test_each_wrong_part_of_a_history_is_reported_at_once():
    """Of all messages, and of the calls in them; what is no message is named by its index."""
    call = ToolCall(call_id=5, name=b"n", arguments=[1])
    history = [
        Message(role="user", content=5, metadata={1: 2}),
        Message(role="assistant", tool_calls=(ToolCall(call_id="c", name="n"), call, 5)),
        {"content": "no role"},
        "hi",
    ]

    assert [line.partition(": ")[0] for line in problems(messages=history)] == [
        "messages[0].content",
        "messages[0].metadata",
        "messages[1].tool_calls[1].arguments",
        "messages[1].tool_calls[1].call_id",
        "messages[1].tool_calls[1].name",
        "messages[1].tool_calls[2]",
        "messages[2].role",
        "messages[3]",
    ]


def test_as_many_problems_of_a_history_are_reported_as_of_anything():
    """A long one that is wrong throughout is not reported line by line."""
    assert len(problems(messages=[Message(role="user", content=5)] * 1000)) <= PROBLEMS_MAX


def test_a_message_may_nest_as_deep_as_any_value():
    """What a session has kept can begin another one."""
    call = ToolCall(call_id="c", name="x", arguments=nested(64))
    kept = Message(id="m", role="assistant", tool_calls=(call,), metadata=nested(64))

    assert parse(None, {"model": MODEL, "messages": [kept]}).messages == [kept]


def test_a_description_that_cannot_be_sent_is_reported():
    """As any text of an option is."""
    odd = SubAgent(name="a", description="\ud800")

    assert problems(subagents=[odd]) == (f"subagents[0].description: {HALF}",)


@pytest.mark.parametrize("session_id", [".x", "_x", "-x", ":", "@a"])
def test_a_session_id_that_begins_with_a_sign_is_refused_by_the_whole_rule(session_id):
    """The error says that the first is a letter or a digit."""
    (line,) = problems(session_id=session_id)

    assert line == f"session_id: expected {SESSION_ID_RULE}, got {session_id!r}"


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("max_queued_prompts", 0, 0),
        ("event_buffer_size", 0, 0),
        ("max_restarts", 0, 0),
        ("tool_timeout", 5, 5.0),
        ("cycle_timeout", 0.001, 0.001),
        ("cycle_timeout", 1_000_000, 1_000_000.0),
        ("cycle_timeout", None, None),
        ("unresponsive_after", 0.5, 0.5),
        ("memory_limit", None, None),
        ("memory_limit", 16 * 2**20, 16 * 2**20),
        ("memory_limit", 2**62, 2**62),
        ("memory_limit", "16M", 16 * 2**20),
        ("memory_limit", "512M", 512 * 2**20),
        ("memory_limit", "2G", 2 * 2**30),
        ("memory_limit", "1.5GiB", 3 * 2**29),
        ("memory_limit", " 100000 kB ", 100_000 * 2**10),
        ("memory_limit", "0.1t", 2**40 // 10),
        ("cpu_limit", 0.01, 0.01),
        ("cpu_limit", 2, 2.0),
        ("cpu_limit", None, None),
        ("max_processes", 4, 4),
        ("max_processes", None, None),
        ("max_open_files", 64, 64),
        ("max_open_files", None, None),
        ("shutdown", None, None),
        ("shutdown", 0, 0.0),
        ("retry_jitter", 1, 1.0),
        ("restart_delay", [0, 1], (0.0, 1.0)),
        ("max_steering_queue", 0, 0),
        ("max_depth", 0, 0),
        ("loop_abort", 3, 3),
        ("exit_on", {"plugin_aborted"}, ["plugin_aborted"]),
        ("exit_on", ("provider_timeout",), ["provider_timeout"]),
        ("interrupt_immune_tools", frozenset({"shell"}), ["shell"]),
        ("hibernate_after", 0.001, 0.001),
        ("response_format", {"type": "object"}, {"type": "object"}),
        ("response_format", {}, {}),
        ("response_format", list[int], {"type": "array", "items": {"type": "integer"}}),
        ("subagents", (SubAgent("a", "b"),), [SubAgent("a", "b")]),
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


def test_a_closed_set_of_words_is_named():
    """Whoever mistypes one reads what there is."""
    (line,) = problems(exit_on={"timeout"})

    assert "expected of max_turns_exceeded, provider_timeout, plugin_aborted, got" in line


def test_a_wrong_size_is_reported_with_a_right_one():
    """Whoever forgets the unit reads how one is written."""
    (line,) = problems(memory_limit="512")

    assert line == (
        "memory_limit: expected 16 MiB to 4 EiB, as bytes or as '512M', '2G' or '1.5GiB', got '512'"
    )


def test_a_loop_is_reported_before_it_is_aborted():
    """The notice would come too late otherwise."""
    assert problems(loop_threshold=6) == ("loop_threshold: 6 is more than loop_abort 5",)


def test_an_answers_type_becomes_its_schema():
    """The type itself stays with the application."""
    schema = parse(None, {"model": MODEL, "response_format": City}).response_format

    assert schema["$defs"]["City"]["properties"] == {"name": {"type": "string"}}


# --- subagents ----------------------------------------------------------------------------------


def test_every_problem_of_every_subagent_is_reported():
    """With its place; what they share with the options is checked like the options."""
    found = problems(
        subagents=[
            SubAgent("a b", " "),
            SubAgent("same", "one", model="gpt", tools="shell", max_turns=0, prompt_mode="long"),
            SubAgent("same", "two", user_data={"at": object()}, provider_opts={"n": 1 << 70}),
        ]
    )

    assert [line.partition(":")[0] for line in found] == [
        "subagents[0].description",
        "subagents[0].name",
        "subagents[1].max_turns",
        "subagents[1].model",
        "subagents[1].prompt_mode",
        "subagents[1].tools",
        "subagents[2].name",
        "subagents[2].provider_opts['n']",
        "subagents[2].user_data['at']",
    ]
    assert "'same' is taken by subagents[1]" in found[6]


def test_a_subagents_keys_are_not_shown():
    """An error message goes to logs."""
    (line,) = problems(
        subagents=[SubAgent("a", "b", provider_opts={"api_key": "sk-1", "n": 1 << 70})]
    )

    assert "sk-1" not in line


def test_the_general_purpose_subagent_may_be_replaced():
    """Its name is like any other."""
    own = SubAgent("general-purpose", "Does it our way.")

    assert parse(None, {"model": MODEL, "subagents": [own]}).subagents == [own]


def test_a_model_may_be_a_dict():
    """Its options lie below those that are given, and its key takes the place of ``api_key``."""
    model = {"provider": "openai", "id": "m", "api_key": "sk", "temperature": 1, "timeout": 2}

    found = parse(None, {"model": model, "provider_opts": {"temperature": 0}})

    assert (found.model, found.api_key) == ("openai:m", "sk")
    assert found.provider_opts == {"temperature": 0, "timeout": 2}


@pytest.mark.parametrize("model", [{}, {"provider": "openai"}, {"provider": 3, "id": "m"}])
def test_a_dict_that_names_no_model_is_refused(model):
    """It says what belongs into one."""
    assert problems(model=model) == (
        "model: a dict that names a model has provider and id, both texts",
    )
