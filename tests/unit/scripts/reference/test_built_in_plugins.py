"""What is said of a plugin: its options as people write them, and the methods that it has."""

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, field

from cmdc_runtime.extensions.hooks import HOOKS
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.packing import BuiltIn, Function
from cmdc_runtime.plugins.catalogue import MethodFacts, OptionFacts, PartFacts, PluginFacts
from scripts.reference import built_in_plugins, plugins


class Inner(msgspec.Struct):
    """Is within an ``Outer``."""

    size: int = 1


class Outer(msgspec.Struct):
    """Has an inner one."""

    inner: Inner
    value: Any = None  # Any: the application's own


class Guard(BuiltIn, frozen=True, kw_only=True):
    """Guards."""

    short_name: ClassVar[str] = "guard"
    outers: Annotated[tuple[Outer, ...], Meta(max_length=3)]
    """Which ones."""
    words: tuple[str, ...] = ("a", "b")
    judge: Function | None = None
    """Who decides."""
    rules: dict[str, Outer] = field(default_factory=dict)


class Single(Plugin):
    """Hears one hook, and more than hooks."""

    def __init__(self):
        """Refuse to be made: it is only looked at."""
        raise AssertionError

    def before_prompt(self, event, context):
        """Ask who it is.

        More of it.
        """

    def observe(self, event, context):
        """Listen."""

    def filter_output(self, channel, context):
        """Whisper."""


class Every(Plugin):
    """Hears all hooks by one method."""

    def handle_event(self, event, context):
        """Hear."""


def test_options_are_shown_as_one_writes_them():
    """Required ones have no default, a function is none of ours, an Any says why."""
    assert list(built_in_plugins._options(Guard)) == [
        OptionFacts(
            name="outers", type="tuple[Outer, ...]", bound="at most 3 long", meaning="Which ones."
        ),
        OptionFacts(name="words", type="tuple[str, ...]", default='["a","b"]'),
        OptionFacts(name="judge", type="function | None", default="None", meaning="Who decides."),
        OptionFacts(name="rules", type="dict[str, Outer]", default="{}"),
    ]
    assert [one.meaning for one in built_in_plugins._options(Outer)] == [
        "",
        "the application's own",
    ]


def test_what_options_are_made_of_is_named_once():
    """The outer ones first, and those within them."""
    assert built_in_plugins._parts_of(Guard) == [Outer, Inner]
    assert built_in_plugins._part(Inner) == PartFacts(
        name="Inner",
        module=__name__,
        meaning="Is within an `Outer`.",
        options=(OptionFacts(name="size", type="int", default="1"),),
    )


def test_methods_are_named_with_what_they_do():
    """The first paragraph of each, in the order of the hooks; no plugin is made for it."""
    assert list(built_in_plugins._methods(Single)) == [
        MethodFacts(name="before_prompt", meaning="Ask who it is."),
        MethodFacts(name="observe", meaning="Listen."),
        MethodFacts(name="filter_output", meaning="Whisper."),
    ]
    assert list(built_in_plugins._methods(Every)) == [
        MethodFacts(name=kind, meaning="Hear.") for kind in HOOKS
    ]


def facts_of(plugin, **more):
    given = {"name": "x", "reference": "X", "sentence": "Is", "meaning": "Is.", "priority": 1}
    methods = tuple(built_in_plugins._methods(plugin))
    return PluginFacts(**(given | {"fail": "open", "methods": methods} | more))


def test_one_method_for_all_hooks_is_one_row():
    """Thirteen rows would say the same."""
    every = facts_of(Every)

    assert plugins._row(every)[4] == "all hooks"
    assert "| `all hooks` | Hear. |" in plugins._plugin(every)
    assert plugins._row(facts_of(Single))[4] == "`before_prompt`, `observe`, `filter_output`"


def test_a_section_names_events_options_and_their_parts():
    """And says so where there are none."""
    plain = plugins._plugin(facts_of(Single))
    outer = PartFacts(name="Outer", module="m", meaning="One.", options=(
        OptionFacts(name="at", type="int", bound="at least 1", meaning="Where."),
        OptionFacts(name="to", type="str", default='"in"'),
    ))  # fmt: skip
    option = OptionFacts(name="outers", type="tuple[Outer, ...]")
    rich = plugins._plugin(facts_of(Single, emits=("rung",), options=(option,), parts=(outer,)))

    assert "It has no events of its own." in plain
    assert plain.endswith("It has no options.")
    assert "Events: `rung`." in rich
    assert "| `outers` | `tuple[Outer, ...]` | required |  |  |" in rich
    assert rich.endswith(
        "Its options are made of these, from `m`:\n\n"
        '- `Outer(at: int, to: str = "in")`: One. `at`: at least 1; Where.'
    )


def test_every_built_in_has_facts():
    """The catalogue has the agreed name, priority and reference of a plugin that is there."""
    [guard] = [one for one in built_in_plugins.facts() if one.name == "cost_guard"]

    assert (guard.reference, guard.priority, guard.fail) == ("CostGuard", 120, "closed")
    assert guard.sentence.startswith("Aborts the cycle")
    assert [method.name for method in guard.methods] == ["before_request"]
