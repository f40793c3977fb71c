"""Wrong plugins, strategies, tools and options of theirs: what is known here is refused here."""

import math

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client.resuming import resume_request, start_request
from cmdc_runtime.options import Options
from cmdc_runtime.requests import Origin
from cmdc_runtime.spec import agent_spec


class Guard(cmdc.Plugin):
    """A plugin of an application's own."""

    class Config(msgspec.Struct, frozen=True):
        """Options."""

        limit: float = 1.0
        share: dict[str, list[float]] = {}

    def before_tool(self, event, context):
        """Let everything pass."""


def problems(**given):
    with pytest.raises(cmdc.InvalidOptions) as caught:
        start_request(None, {"model": "a:b", **given})
    return list(caught.value.problems)


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        (
            {"plugins": ["cost_gard"]},
            "plugins[0]: there is no built-in plugin 'cost_gard', did you mean cost_guard?",
        ),
        ({"plugins": ["nosuch"]}, "plugins[0]: there is no built-in plugin 'nosuch', only auto_"),
        (
            {"plugins": [("nosuch", {})]},
            "plugins[0]: there is no built-in plugin 'nosuch', only auto_checkpoint, ",
        ),
        (
            {"plugins": [("cost_guard", {"max_tokns": 1})]},
            "plugins[0]: plugin 'cost_guard': there is no option 'max_tokns', only max_tokens, ",
        ),
        (
            {"plugins": [("cost_guard", {"max_tokens": "many"})]},
            "plugins[0]: plugin 'cost_guard': option 'max_tokens': Expected `int | null`",
        ),
        (
            {"plugins": [("output_filter", {"patterns": ["("]})]},
            "plugins[0]: plugin 'output_filter': patterns[0]",
        ),
        (
            {"reasoning_strategy": "adaptiv"},
            "reasoning_strategy: there is no built-in strategy 'adaptiv', did you mean adaptive?",
        ),
        (
            {"reasoning_strategy": "nosuch"},
            "reasoning_strategy: there is no built-in strategy 'nosuch', only adaptive, chain_of",
        ),
        (
            {"reasoning_strategy": ("adaptive", {"probs": 3})},
            "reasoning_strategy: strategy 'adaptive': there is no option 'probs', only probes, ",
        ),
        (
            {"reasoning_strategy": "chain"},
            "reasoning_strategy: strategy 'chain': templates: give the texts of your own chain",
        ),
        (
            {"subagents": [cmdc.SubAgent("a", "b", plugins=["nosuch"])]},
            "subagents[0].plugins[0]: there is no built-in plugin 'nosuch', only ",
        ),
    ],
)
def test_a_name_that_no_built_in_has_is_refused_before_anything_starts(given, reported):
    """Also one of an option; the error says which there are, or the nearest."""
    (problem,) = problems(**given)

    assert problem.startswith(reported)


def test_a_name_that_no_built_in_tool_has_is_refused_before_anything_starts():
    """Among the session's own, and those that the ``reason`` tool chooses from."""
    with pytest.raises(cmdc.InvalidTool, match=r"tools\[0\]: .*'shel', did you mean shell\?"):
        start_request(None, {"model": "a:b", "tools": ["shel"]})
    with pytest.raises(cmdc.InvalidTool, match=r"no built-in strategy 'nosuch', only adaptive"):
        start_request(None, {"model": "a:b", "tools": [cmdc.tools.Reason(strategies=["nosuch"])]})


@pytest.mark.parametrize("reference", ["no.such:Thing", "msgspec:nothing"])
def test_what_only_the_agent_can_know_is_left_to_it(reference):
    """What a module has may be installed only where the daemon runs."""
    request = start_request(None, {"model": "a:b", "plugins": [reference], "tools": [reference]})

    assert request.agent


def test_every_wrong_part_is_named_at_once():
    """Options, plugins, the strategy, subagents and tools, each with its place."""
    helper = cmdc.SubAgent("a", "b", plugins=["nosuch"], tools=["nosuch"])
    found = problems(
        max_turns=-1,
        plugins=["nosuch", (Guard, {"limt": 1}), (cmdc.plugins.CostGuard, {"max_tokens": 0}), 7],
        reasoning_strategy="nosuch",
        redact=7,
        tools=["nosuch", 7],
        subagents=[helper],
    )

    assert [problem.partition(":")[0] for problem in found] == [
        "max_turns",
        *(f"plugins[{at}]" for at in range(4)),
        "reasoning_strategy",
        "redact",
        "subagents[0].plugins[0]",
        "subagents[0].tools[0]",
        "tools[0]",
        "tools[1]",
    ]


@pytest.mark.parametrize(
    "extra", [{}, {"max_turns": -1}, {"nonsense": 1}, {"retry_max_delay": 1.0}]
)
def test_every_wrong_plugin_is_named_whatever_else_is_wrong(extra):
    """Whether all other options are right or not."""
    wrong = [(cmdc.plugins.CostGuard, {"max_tokens": 0}), (cmdc.plugins.OutputFilter, {"x": 1})]
    found = problems(plugins=[*wrong, Guard], **extra)

    assert [one[:11] for one in found if one.startswith("plugins")] == [
        "plugins[0]:",
        "plugins[1]:",
    ]
    assert len(found) == 2 + len(extra)


def test_a_session_that_is_resumed_has_every_wrong_part_named_too():
    """As a new one has."""
    old = agent_spec(Options(model="a:b"))
    given = {"plugins": ["nosuch", 7], "max_turns": -1}
    with pytest.raises(cmdc.InvalidOptions) as caught:
        resume_request(Origin(session_id="s-1"), None, old, None, given)

    assert [one.partition(":")[0] for one in caught.value.problems] == [
        "max_turns",
        "plugins[0]",
        "plugins[1]",
    ]


def test_several_wrong_tools_are_one_error():
    """Of its own class, as one is."""
    with pytest.raises(cmdc.InvalidTool, match=r"tools\[0\]: .*; tools\[2\]: 7 is no tool"):
        start_request(None, {"model": "a:b", "tools": ["nosuch", "shell", 7]})


NUMBERS = {
    "not a number": (math.nan, "nan is not a finite number"),
    "infinite": (math.inf, "inf is not a finite number"),
    "below all": (-math.inf, "-inf is not a finite number"),
    "beyond": (2**80, "it is an integer beyond 64 bits"),
    "far beyond": (10**5_000, "it is an integer beyond 64 bits"),
    "below": (-(2**63) - 1, "it is an integer beyond 64 bits"),
}
WAYS = {
    "class": lambda number: (cmdc.plugins.CostGuard, {"max_cost_usd": number}),
    "name": lambda number: ("cost_guard", {"max_cost_usd": number}),
    "by reference": lambda number: ("m:Guard", {"max_cost_usd": number}),
    "by reference, within": lambda number: ("m:Guard", {"a": [{"b": number}]}),
    "own": lambda number: (Guard, {"limit": number}),
    "own, within": lambda number: (Guard, {"share": {"a": [1.0, number]}}),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("number", "reported"), NUMBERS.values(), ids=NUMBERS)
def test_a_number_among_the_options_of_a_plugin_is_one_that_can_be_kept(way, number, reported):
    """In the words that other options have for it, however the plugin is given."""
    (problem,) = problems(plugins=[way(number)])
    (plain,) = problems(provider_opts={"x": number})

    assert problem.endswith(f": {reported}")
    assert plain.endswith(f": {reported}")


@pytest.mark.parametrize(("number", "reported"), NUMBERS.values(), ids=NUMBERS)
def test_a_number_of_a_plugin_that_is_made_here_is_one_that_can_be_kept(number, reported):
    """Where it is written."""
    for make in (
        lambda: Guard(limit=number),
        lambda: cmdc.plugins.CostGuard(max_cost_usd=number),
        lambda: cmdc.reasoning.Adaptive(agreement=number),
    ):
        with pytest.raises(cmdc.InvalidOptions, match=f": {reported}$"):
            make()
