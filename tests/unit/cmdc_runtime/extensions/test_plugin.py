"""The base class: names, options, which hooks are heard, and what narrows them."""

import asyncio
import re
from collections.abc import Callable
from typing import Annotated

import msgspec
import pytest

from cmdc_runtime.errors import PROBLEMS_MAX, InvalidOptions
from cmdc_runtime.extensions.actions import Continue, Emit
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import (
    HOOKS,
    AfterTool,
    BeforeFinish,
    BeforePrompt,
)
from cmdc_runtime.extensions.plugin import (
    HOOK_TIMEOUT_S_MAX,
    HookSettings,
    NoOptions,
    Plugin,
    config_of,
    hook,
    hooks_of,
    is_async,
    settings_of,
)

CONTEXT = PluginContext(session_id="s-1")


class CommandGuard(Plugin):
    """Has options, a state and two hooks."""

    class Config(msgspec.Struct, frozen=True):
        """Options."""

        limit: Annotated[int, msgspec.Meta(gt=0)]
        denied: frozenset[str] = frozenset({"rm"})
        pattern: re.Pattern | None = None
        judge: Callable[[str], bool] | None = None

    class State(msgspec.Struct):
        """Memory."""

        hits: int = 0

    @hook(timeout=2)
    def before_prompt(self, event, context):
        """Answer with what was heard."""
        return Emit("heard", event.text)

    @hook(tools=["shell"])
    async def after_tool(self, event, context):
        """Answer later."""
        return Continue()


class Everything(Plugin):
    """Hears all hooks by one method."""

    name = "all-of-it"

    def handle_event(self, event, context):
        """Answer with the kind."""
        match event:
            case BeforePrompt(text=text):
                return Emit("text", text)
            case _:
                return super().handle_event(event, context)


class Child(Everything):
    """A subclass."""


def test_name_is_the_class_in_snake_case():
    """A class is named by itself unless it says otherwise, and never by its base."""
    assert (CommandGuard.name, Everything.name, Child.name) == (
        "command_guard",
        "all-of-it",
        "child",
    )


def test_options_are_converted_and_filled_in():
    """A list is as good as a set, code may be an option, and what is not given has its default."""
    plugin = CommandGuard(limit=3, denied=["dd"], judge=str.isdigit)

    assert plugin.config == CommandGuard.Config(
        limit=3, denied=frozenset({"dd"}), judge=str.isdigit
    )
    assert plugin.state == CommandGuard.State(hits=0)


def test_every_wrong_option_is_reported_at_once():
    """One error names the plugin and each option that is missing, unknown or wrong."""
    with pytest.raises(InvalidOptions) as caught:
        CommandGuard(denied=7, pattern="x", colour="red")

    assert list(caught.value.problems) == [
        "plugin 'command_guard': there is no option 'colour', only limit, denied, pattern, judge",
        "plugin 'command_guard': option 'limit' is missing",
        "plugin 'command_guard': option 'denied': Expected `array`, got `int`, got 7",
        "plugin 'command_guard': option 'pattern': Expected `re.Pattern`, got `str`, got 'x'",
    ]


def test_plugin_without_options_takes_none():
    """An option of a plugin that has none is a mistake."""
    with pytest.raises(InvalidOptions, match="there is no option 'x', only none at all"):
        Everything(x=1)


def test_of_many_unknown_options_some_are_reported():
    """Each is named with all that there are."""
    with pytest.raises(InvalidOptions) as caught:
        CommandGuard(limit=1, **{f"x{at}": at for at in range(1_000)})

    assert len(caught.value.problems) == PROBLEMS_MAX


def test_options_are_checked_together_too():
    """A ``Config`` may refuse what its fields allow."""

    class Config(msgspec.Struct):
        low: int = 0

        def __post_init__(self):
            raise ValueError("low is above high")

    with pytest.raises(InvalidOptions, match="plugin 'odd': low is above high"):
        config_of("odd", Config, {})


def test_unreadable_config_is_reported():
    """A ``Config`` whose annotations name what is not there is the plugin's fault, and reported."""

    class Config(msgspec.Struct):
        limit: "Nowhere"  # noqa: F821

    with pytest.raises(InvalidOptions, match="its Config cannot be read: name 'Nowhere'"):
        config_of("odd", Config, {})


def test_plugin_hears_what_it_overrides():
    """A method of its own is what makes a plugin hear a hook; one for all of them hears all."""
    assert hooks_of(CommandGuard(limit=1)) == {"before_prompt", "after_tool"}
    assert hooks_of(Everything()) == set(HOOKS)
    assert hooks_of(Child()) == set(HOOKS)


def test_events_reach_their_methods():
    """``handle_event`` hands each hook to the method of its name."""
    plugin = CommandGuard(limit=1)
    answer = plugin.handle_event(BeforePrompt("hi"), CONTEXT)
    later = plugin.handle_event(AfterTool("shell", "call_1", "", is_error=False), CONTEXT)

    assert answer == Emit("heard", "hi")
    assert asyncio.run(later) == Continue()
    assert plugin.handle_event(BeforeFinish(), CONTEXT) is None


def test_one_entry_may_leave_the_rest_to_the_methods():
    """An overridden ``handle_event`` may pass on what it does not answer itself."""
    assert Everything().handle_event(BeforePrompt("hi"), CONTEXT) == Emit("text", "hi")
    assert Everything().handle_event(BeforeFinish(), CONTEXT) is None


def test_decorator_narrows_one_method():
    """``@hook`` is about the method it stands on."""
    plugin = CommandGuard(limit=1)

    assert settings_of(plugin, "before_prompt") == HookSettings(timeout_s=2.0)
    assert settings_of(plugin, "after_tool") == HookSettings(tools=frozenset({"shell"}))
    assert settings_of(plugin, "before_finish") == HookSettings()


def test_decorator_on_the_one_entry_is_for_all_hooks():
    """``@hook`` on ``handle_event`` is about every hook whose method has none of its own."""

    class Slow(Plugin):
        @hook(timeout=5)
        def handle_event(self, event, context):
            return None

        @hook(timeout=1)
        def before_tool(self, event, context):
            return None

    assert settings_of(Slow(), "before_prompt").timeout_s == 5
    assert settings_of(Slow(), "before_tool").timeout_s == 1


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"tools": "shell"}, "tools must be a list of names, got 'shell'"),
        ({"tools": [7]}, "tools must be a list of names"),
        ({"tools": [""]}, "tools must be a list of names"),
        ({"timeout": 0}, "timeout must be seconds, above 0 and up to 3600"),
        ({"timeout": True}, "timeout must be seconds"),
        ({"timeout": "2"}, "timeout must be seconds"),
        ({"timeout": float("nan")}, "timeout must be seconds"),
        ({"timeout": HOOK_TIMEOUT_S_MAX + 1}, "timeout must be seconds"),
    ],
)
def test_settings_that_cannot_be_are_reported(settings, problem):
    """A decorator with a wrong value fails where it stands."""
    with pytest.raises(InvalidOptions, match=problem):
        hook(**settings)


def test_methods_may_be_async():
    """What makes a coroutine runs in the loop; where one entry hears all, it alone counts."""
    plugin = CommandGuard(limit=1)

    assert [is_async(plugin, kind) for kind in ("before_prompt", "after_tool")] == [False, True]
    assert not is_async(Everything(), "before_prompt")


class Limits(msgspec.Struct, frozen=True):
    """Options that stand beside their plugin."""

    most: int = 3


class Hits(msgspec.Struct):
    """What it remembers."""

    count: int = 0


class Typed(Plugin[Limits, Hits]):
    """Says both by its base."""


class Half(Plugin[Limits]):
    """Says the options alone."""


class Below(Typed):
    """Says nothing new."""


class Own(Plugin[Limits, Hits]):
    """What stands inside counts."""

    class Config(msgspec.Struct, frozen=True):
        """Others."""

        least: int = 1


def test_options_and_state_may_be_said_by_the_base():
    """They are those of classes below, too; what stands inside of a class outranks them."""
    assert (Typed(most=4).config, Typed().state) == (Limits(4), Hits())
    assert (Half(most=4).config, Half.State) == (Limits(4), Plugin.State)
    assert (Below(most=4).config, Below().state) == (Limits(4), Hits())
    assert (Own(least=2).config.least, Own().state) == (2, Hits())
    assert (Plugin.Config, Typed.name) == (NoOptions, "typed")
