"""Blueprints as values: extended, overridden, turned into options."""

import pytest

from cmdc_runtime import plugins, tools
from cmdc_runtime.blueprint import Blueprint, identity_of
from cmdc_runtime.errors import InvalidOptions, InvalidTool
from cmdc_runtime.extensions import Tool, tool
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.options import BLUEPRINTS_MAX, Options, parse
from cmdc_runtime.packing import pack_plugin
from cmdc_runtime.subagent import SubAgent

MODEL = "openai:gpt-4o-mini"


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


@tool(name="echo")
def louder(text: str) -> str:
    """Say it again, in capitals."""
    return text.upper()


class Lookup(Tool):
    """A tool as a class."""

    name = "lookup"

    def execute(self, args, context):
        """Look up."""
        return str(args)


class Reviewer:
    """A blueprint as a class: it is made when it is used."""

    name = "reviewer"
    purpose = "to find mistakes"

    def build(self, opts):
        return Options(model=MODEL, max_turns=7, max_tokens=int(opts.get("max_turns", 9)))


class Strict:
    """A blueprint on top of another one, and never made."""

    @classmethod
    def build(cls, opts):
        return Options(blueprint=Reviewer, max_turns=3, group_id="strict")


class Broken:
    """A blueprint with a mistake in its code."""

    def build(self, opts):
        return opts["nothing"]


class Circle:
    """A blueprint that never comes to an end."""

    def to_options(self):
        return Options(blueprint=Circle())


class Coder(Blueprint, frozen=True, kw_only=True):
    """A blueprint as a subclass, with a method of its own."""

    name: str = "coder"
    model: str = MODEL

    def build(self, opts):
        return self.add_tools(echo)


def test_a_blueprint_becomes_options():
    """What it does not say is left to the defaults."""
    blueprint = Blueprint(
        name="ada",
        model=MODEL,
        tools=[echo],
        prompt_mode="task",
        options={"max_retries": 1, "restart": "permanent"},
    )

    assert blueprint.to_options() == Options(
        blueprint=blueprint,
        model=MODEL,
        tools=[echo],
        prompt_mode="task",
        max_retries=1,
        restart="permanent",
    )


def test_tools_are_added_by_name():
    """The later one takes the earlier one's place, whatever form each has."""
    shell = tools.Shell(timeout=5)
    first = Blueprint(tools=[echo, tools.Shell, "read_file", "pkg.mod:thing"])
    second = first.add_tools(Lookup, louder, shell, tools.ReadFile, Lookup(), "pkg.mod:thing")

    assert second.tools[:4] == [louder, shell, tools.ReadFile, "pkg.mod:thing"]
    assert [type(one) for one in second.tools[4:]] == [Lookup]
    assert first.tools == [echo, tools.Shell, "read_file", "pkg.mod:thing"]


def test_what_is_no_tool_cannot_be_added():
    """It is reported at once, where it was written."""
    with pytest.raises(InvalidTool, match="5 is no tool"):
        Blueprint().add_tools(5)


def test_subagents_are_added_by_name():
    """The later one takes the earlier one's place."""
    one, two, other = SubAgent("a", "1"), SubAgent("a", "2"), SubAgent("b", "3")

    assert Blueprint(subagents=[one, other]).add_subagents(two).subagents == [two, other]


def test_any_option_can_be_overridden():
    """Fields of the blueprint and options that it has no field for alike; the first stays as is."""
    first = Blueprint(name="a", model=MODEL, options={"max_retries": 1, "restart": "permanent"})
    second = first.override(name="b", max_retries=2, max_turns=5)

    assert (second.name, second.model, second.max_turns) == ("b", MODEL, 5)
    assert second.options == {"max_retries": 2, "restart": "permanent"}
    assert first.options["max_retries"] == 1


def test_an_unknown_field_is_reported_with_what_was_meant():
    """All of them at once."""
    with pytest.raises(InvalidOptions) as caught:
        Blueprint().override(max_turn=5, purpos="x")

    assert caught.value.problems == (
        "max_turn: no such option; did you mean max_turns?",
        "purpos: no such option; did you mean purpose?",
    )


def test_options_of_a_blueprint_are_options():
    """A field's name among them would be said twice, and an unknown one is a typo."""
    with pytest.raises(InvalidOptions) as caught:
        parse(None, {"blueprint": Blueprint(options={"model": MODEL, "max_retry": 1})})

    (line,) = caught.value.problems
    assert "max_retry: no such option; did you mean max_retries?" in line
    assert "options: model is a field: give it as one" in line


def test_a_subclass_may_build():
    """It is made without arguments and keeps its class through every change."""
    parsed = parse(None, {"blueprint": Coder})

    assert (parsed.model, parsed.tools) == (MODEL, [echo])
    assert type(Coder().override(max_turns=3)) is Coder
    assert identity_of(parsed.blueprint) == "You are coder."


@pytest.mark.parametrize(
    ("blueprint", "identity"),
    [
        (None, ""),
        (Blueprint(), ""),
        (Blueprint(name=" Ada "), "You are Ada."),
        (Blueprint(purpose="to help"), "Your purpose: to help"),
        (Blueprint(name="Ada", purpose="to help"), "You are Ada.\nYour purpose: to help"),
        (Coder, ""),  # a descriptor is no name
    ],
)
def test_the_identity_is_name_and_purpose(blueprint, identity):
    """What is not said is not in it."""
    assert identity_of(blueprint) == identity


# --- as an option --------------------------------------------------------------------------------


def test_what_is_given_outranks_the_blueprint():
    """Keywords first, then the struct, then what the blueprint says."""
    blueprint = Blueprint(model="a:1", max_turns=1, max_tokens=1, options={"max_retries": 1})
    parsed = parse(Options(max_turns=2, max_tokens=2, blueprint=blueprint), {"max_tokens": 3})

    assert (parsed.model, parsed.max_turns, parsed.max_tokens) == ("a:1", 2, 3)
    assert (parsed.max_retries, parsed.max_parallel_tools) == (1, 8)


def test_a_class_gets_what_was_given():
    """So that a blueprint can take parameters."""
    parsed = parse(None, {"blueprint": Reviewer, "max_turns": 4})

    assert (parsed.model, parsed.max_turns, parsed.max_tokens) == (MODEL, 4, 4)
    assert parsed.blueprint is Reviewer


@pytest.mark.parametrize(
    "blueprint",
    [Reviewer, Reviewer(), Options(blueprint=Reviewer)],
    ids=["class", "object", "options"],
)
def test_a_blueprint_is_a_class_an_object_or_options(blueprint):
    """Whatever comes, its options come out the same."""
    assert parse(None, {"blueprint": blueprint}).max_turns == 7


def test_a_blueprint_may_stand_on_another():
    """The upper one wins, and the first with a name says who the agent is."""
    parsed = parse(None, {"blueprint": Strict})

    assert (parsed.model, parsed.max_turns, parsed.group_id) == (MODEL, 3, "strict")
    assert parsed.blueprint is Reviewer


def test_parsed_options_can_be_parsed_again():
    """Whoever keeps them gets the same agent once more."""
    parsed = parse(None, {"blueprint": Strict, "max_retries": 1})

    assert parse(parsed, {}) == parsed


def test_a_blueprints_options_are_checked_like_given_ones():
    """Nothing gets in by the back door."""
    with pytest.raises(InvalidOptions, match=r"max_turns: .* got 0"):
        parse(None, {"model": MODEL, "blueprint": Blueprint(max_turns=0)})


def test_what_a_blueprints_code_raises_is_reported():
    """With its cause, and beside the problems of what was given; no more is concluded from it."""
    with pytest.raises(InvalidOptions) as caught:
        parse(None, {"blueprint": Broken, "max_turns": 0})

    assert caught.value.problems == (
        f"blueprint: {Broken!r}: KeyError: 'nothing'",
        "max_turns: Expected `int` >= 1, got 0",
    )
    assert isinstance(caught.value.__cause__, KeyError)


def test_blueprints_that_never_end_are_reported():
    """A circle is a mistake in somebody's code, and no hang."""
    problem = f"more than {BLUEPRINTS_MAX} blueprints stand on each other"

    with pytest.raises(InvalidOptions, match=problem):
        parse(None, {"blueprint": Circle})


def test_a_model_is_required_where_no_blueprint_gives_one():
    """The one option without a default."""
    for given in ({}, {"blueprint": Blueprint(name="nobody")}):
        with pytest.raises(InvalidOptions, match="model: required"):
            parse(None, given)


class Guard(Plugin):
    """A plugin of an application."""

    def before_prompt(self, event, context):
        return None


def test_plugins_are_added_by_their_names():
    """One takes the place of an earlier namesake, in whatever form either was given."""
    first = Blueprint(plugins=["security_guard", Guard]).add_plugins("prompt_cache")
    guard = plugins.SecurityGuard(audit=False)

    found = first.add_plugins(guard, (Guard, {}), plugins.PromptCache)

    assert first.plugins == ["security_guard", Guard, "prompt_cache"]
    assert found.plugins == [guard, (Guard, {}), plugins.PromptCache]
    with pytest.raises(InvalidOptions):
        first.add_plugins(3)


def test_the_base_has_plugins_that_there_are():
    """It is extended as any blueprint."""
    built = Blueprint.Base.add_plugins(Guard).override(model="openai:m").to_options()

    packed = [pack_plugin(one, "plugins").label for one in built.plugins]
    assert packed == [
        "security_guard",
        "patch_tool_calls",
        "memory_loader",
        "prompt_cache",
        "guard",
    ]
