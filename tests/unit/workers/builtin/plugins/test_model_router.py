"""The model router: which rule holds, which comes first, and when it switches."""

from typing import get_args

import msgspec
import pytest

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.extensions.actions import SwitchModel
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import BeforeRequest
from cmdc_runtime.messages import Message, ToolCall
from cmdc_runtime.packing import pack_plugin
from cmdc_runtime.plugins.thinking import (
    RULES_MAX,
    Condition,
    CostGt,
    Rule,
    TaskComplexity,
    TaskComplexityIn,
    TimeOfDayIn,
    TokenBudgetLt,
    TokensGt,
    TurnGt,
    UserData,
    UserDataGt,
    UserTier,
    UserTierIn,
)
from cmdc_runtime.plugins.thinking import ModelRouter as Options
from workers.builtin.plugins.model_router import _TESTS, ModelRouter, choice, complexity, holds
from workers.core.conversation import NOTES, REPAIR
from workers.loader import load_plugins

NOON = 12


def seen(**facts):
    """Return what the router sees."""
    return PluginContext(session_id="s-1", **{"model": "openai:start", **facts})


def asked(text, *later):
    """Return a conversation that a user's text opened."""
    return (Message.user("Before."), Message.assistant("So."), Message.user(text), *later)


def calls(count):
    """Return an answer with so many tool calls."""
    return Message.assistant(
        "", tuple(ToolCall(call_id=f"c-{at}", name="look") for at in range(count))
    )


# --- conditions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "facts", "hour", "is_true"),
    [
        (TurnGt(5), {"turn": 5}, NOON, False),
        (TurnGt(5), {"turn": 6}, NOON, True),
        (CostGt(0.5), {"cost_usd": 0.5}, NOON, False),
        (CostGt(0.5), {"cost_usd": 0.51}, NOON, True),
        (CostGt(0.0), {"cost_usd": 0.0}, NOON, False),
        (TokensGt(100), {"total_tokens": 100}, NOON, False),
        (TokensGt(100), {"total_tokens": 101}, NOON, True),
        (TokenBudgetLt(100), {"total_tokens": 900}, NOON, False),
        (
            TokenBudgetLt(100),
            {"total_tokens": 900, "user_data": {"token_budget": 1000}},
            NOON,
            False,
        ),
        (TokenBudgetLt(100), {"total_tokens": 901, "user_data": {"token_budget": 1000}}, 0, True),
        (TokenBudgetLt(100), {"user_data": {"token_budget": "99"}}, NOON, False),
        (TokenBudgetLt(100), {"user_data": {"token_budget": True}}, NOON, False),
        (TaskComplexity("simple"), {"messages": asked("Hi!")}, NOON, True),
        (TaskComplexity("complex"), {"messages": asked("Hi!")}, NOON, False),
        (TaskComplexityIn(("normal", "simple")), {"messages": asked("Hi!")}, NOON, True),
        (TaskComplexityIn(("normal", "complex")), {"messages": asked("Hi!")}, NOON, False),
        (TimeOfDayIn(((9, 17),)), {}, 8, False),
        (TimeOfDayIn(((9, 17),)), {}, 9, True),
        (TimeOfDayIn(((9, 17),)), {}, 16, True),
        (TimeOfDayIn(((9, 17),)), {}, 17, False),
        (TimeOfDayIn(((22, 6),)), {}, 21, False),
        (TimeOfDayIn(((22, 6),)), {}, 22, True),
        (TimeOfDayIn(((22, 6),)), {}, 0, True),
        (TimeOfDayIn(((22, 6),)), {}, 5, True),
        (TimeOfDayIn(((22, 6),)), {}, 6, False),
        (TimeOfDayIn(((0, 24),)), {}, 0, True),
        (TimeOfDayIn(((0, 24),)), {}, 23, True),
        (TimeOfDayIn(((20, 24), (3, 4))), {}, 23, True),
        (TimeOfDayIn(((20, 24), (3, 4))), {}, 3, True),
        (TimeOfDayIn(((20, 24), (3, 4))), {}, 0, False),
        (UserTier("gold"), {"user_data": {"user_tier": "gold"}}, NOON, True),
        (UserTier("gold"), {"user_data": {"user_tier": "free"}}, NOON, False),
        (UserTier("gold"), {}, NOON, False),
        (UserTierIn(("gold", "silver")), {"user_data": {"user_tier": "silver"}}, NOON, True),
        (UserTierIn(("gold", "silver")), {"user_data": {"user_tier": "free"}}, NOON, False),
        (UserData("region", "eu"), {"user_data": {"region": "eu"}}, NOON, True),
        (UserData("region", "eu"), {"user_data": {"region": "us"}}, NOON, False),
        (UserData("region", None), {}, NOON, False),
        (UserData("region", None), {"user_data": {"region": None}}, NOON, True),
        (UserDataGt("age", 17), {"user_data": {"age": 17}}, NOON, False),
        (UserDataGt("age", 17), {"user_data": {"age": 17.5}}, NOON, True),
        (UserDataGt("age", 17), {"user_data": {"age": "18"}}, NOON, False),
        (UserDataGt("age", 0), {"user_data": {"age": True}}, NOON, False),
        (UserDataGt("age", 17), {}, NOON, False),
    ],
)
def test_conditions(condition, facts, hour, is_true):
    """Each condition holds where its docstring says so, at its bounds too."""
    assert holds(condition, seen(**facts), hour) is is_true


def test_every_condition_has_a_meaning():
    """The table of tests has a row for each kind of condition."""
    missing = set(get_args(Condition)) - set(_TESTS)

    assert missing == set(), f"missing in workers/builtin/plugins/model_router.py: {missing}"


# --- complexity ---------------------------------------------------------------------------------

LIST = "\n- one\n- two\n- three"


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ((), "simple"),
        ((Message.assistant("Hello."),), "simple"),
        (asked("What time is it?"), "simple"),
        (asked("Rent a plane on this planet."), "simple"),
        (asked("- one\n- two"), "simple"),
        (asked("Refactor the parser."), "normal"),
        (asked("请分析这个问题"), "normal"),
        (asked("word " * 50), "normal"),
        (asked("字" * 40), "normal"),
        (asked("字" * 39), "simple"),
        (asked("word " * 250), "normal"),
        (asked(LIST), "normal"),
        (asked("1、甲\n2、乙\n3、丙"), "normal"),
        (asked("Why?\n```\nx = 1\n```"), "normal"),
        (asked("Do it.", calls(2)), "simple"),
        (asked("Do it.", calls(2), calls(1)), "normal"),
        (asked("Do it.", calls(10)), "normal"),
        (asked(f"Refactor this:{LIST}\n```\nx\n```"), "complex"),
        (asked("Design this. " * 100), "complex"),
        (asked("Implement it.", calls(10)), "complex"),
    ],
)
def test_complexity_is_what_the_signs_say(messages, found):
    """Length, lists, code, words of work and tool calls count, since the user spoke last."""
    assert complexity(messages) == found


@pytest.mark.parametrize("key", [NOTES, REPAIR])
def test_what_no_user_wrote_is_no_task(key):
    """A note of a plugin is longer than the prompt that it follows, and says nothing about it."""
    note = Message(role="user", content="Plan and design. " * 100, metadata={key: True})

    assert complexity(asked("Hi!", note)) == "simple"


# --- rules --------------------------------------------------------------------------------------

RULES = (
    Rule(TurnGt(10), "openai:late"),
    Rule(TokensGt(100), "openai:long", {"temperature": 0}),
    Rule(TimeOfDayIn(((22, 6),)), "openai:night"),
)


@pytest.mark.parametrize(
    ("facts", "hour", "found"),
    [
        ({"turn": 11, "total_tokens": 500}, NOON, SwitchModel("openai:late")),
        ({"turn": 1, "total_tokens": 500}, NOON, SwitchModel("openai:long", {"temperature": 0})),
        ({"turn": 1}, 23, SwitchModel("openai:night")),
        ({"turn": 1}, NOON, SwitchModel("openai:day", {"top_p": 1})),
    ],
    ids=["first", "second", "third", "none"],
)
def test_the_first_rule_that_holds_counts(facts, hour, found):
    """Where none does, the default model is chosen."""
    options = Options(rules=RULES, default_model="openai:day", default_provider_opts={"top_p": 1})

    assert choice(options, seen(**facts), hour) == found


def test_without_a_default_nothing_is_chosen():
    """Where no rule holds, the model stays."""
    assert choice(Options(rules=RULES), seen(turn=1), NOON) is None


def ask(router, **facts):
    """Return what the router says to a request."""
    return router.before_request(BeforeRequest(()), seen(**facts))


def test_it_switches_only_to_another_model():
    """It says nothing where its choice is in use, and remembers what it chose."""
    router = ModelRouter(rules=[Rule(TurnGt(1), "openai:late")])

    assert ask(router, turn=1) is None
    assert router.state.chosen is None
    assert ask(router, turn=2) == SwitchModel("openai:late")
    assert router.state.chosen == "openai:late"
    assert ask(router, turn=3, model="openai:late") is None


def test_a_persons_switch_lasts_until_the_next_request():
    """The router decides again each time."""
    router = ModelRouter(default_model="openai:small")

    assert ask(router) == SwitchModel("openai:small")
    assert ask(router, model="openai:small") is None
    assert ask(router, model="openai:by-hand") == SwitchModel("openai:small")


def test_without_rules_nothing_happens():
    """A router with no options lets every request pass."""
    assert ask(ModelRouter()) is None


# --- options ------------------------------------------------------------------------------------

CONDITIONS = (
    TurnGt(1),
    CostGt(0.5),
    TokensGt(1),
    TokenBudgetLt(1),
    TaskComplexity("normal"),
    TaskComplexityIn(("simple", "complex")),
    TimeOfDayIn(((22, 6), (12, 13))),
    UserTier("gold"),
    UserTierIn(("gold",)),
    UserData("flags", {"beta": [1]}),
    UserDataGt("age", 17.5),
)


def test_rules_travel():
    """Every condition arrives at the worker as it was given."""
    assert {type(condition) for condition in CONDITIONS} == set(get_args(Condition))
    given = Options(rules=tuple(Rule(condition, "openai:x", {"n": 1}) for condition in CONDITIONS))
    [plugin] = load_plugins([pack_plugin(given, "plugins[0]")])

    assert plugin.config == given


def test_rules_may_be_data():
    """A configuration file can hold them."""
    rules = [{"condition": {"kind": "task_complexity", "value": "complex"}, "model": "openai:big"}]
    [plugin] = load_plugins([pack_plugin(("model_router", {"rules": rules}), "plugins[0]")])

    assert plugin.config == Options(rules=(Rule(TaskComplexity("complex"), "openai:big"),))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rules": [Rule(TurnGt(-1), "x:m")]}, r">= 0 - at `\$.rules\[0\].condition.n`"),
        ({"rules": [Rule(CostGt("much"), "x:m")]}, "Expected `float`, got `str`"),
        ({"rules": [Rule(TaskComplexity("hard"), "x:m")]}, "Invalid enum value 'hard'"),
        ({"rules": [Rule(UserTierIn(()), "x:m")]}, "length >= 1"),
        (
            {"rules": [Rule(TurnGt(1), "")]},
            r"rules\[0\].model: expected 'provider:model_id', got ''",
        ),
        ({"rules": [Rule(TimeOfDayIn(((0, 25),)), "x:m")]}, "<= 24"),
        ({"rules": [Rule(TurnGt(1), "x:m")] * (RULES_MAX + 1)}, f"length <= {RULES_MAX}"),
        ({"default_model": ""}, "length >= 1"),
    ],
)
def test_bad_options_are_refused(options, message):
    """Before the session starts, with the option and its bound."""
    with pytest.raises(InvalidOptions, match=message):
        pack_plugin(Options(**options), "plugins[0]")


@pytest.mark.parametrize("hours", [(9, 9), (0, 0), (24, 0), (9,), (9, "10"), 9])
def test_hours_that_are_no_range_are_refused(hours):
    """The error shows them, and how the whole day is written."""
    with pytest.raises(ValueError, match=r"is no range of hours: .* \(0, 24\) for the whole day"):
        TimeOfDayIn((hours,))


def test_options_of_no_model_are_refused():
    """The error says what is missing."""
    with pytest.raises(InvalidOptions, match="default_model, which is not given"):
        Options(default_provider_opts={"temperature": 0})


def test_unknown_condition_names_those_there_are():
    """A typo in a configuration file is found before the session starts."""
    with pytest.raises(msgspec.ValidationError, match="turn_get"):
        msgspec.convert({"condition": {"kind": "turn_get", "n": 1}, "model": "m"}, Rule)
