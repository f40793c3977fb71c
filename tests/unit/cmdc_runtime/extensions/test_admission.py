"""Which things are plugins, and what the error of a thing that is none says."""

import sys
import threading
from collections.abc import Awaitable
from typing import Annotated, Any

import msgspec
import pytest

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.extensions.actions import (
    Abort,
    Actions,
    BlockTool,
    Emit,
    Intervene,
    ReplaceMessages,
    Skip,
    SwitchModel,
)
from cmdc_runtime.extensions.admission import as_plugin
from cmdc_runtime.extensions.plugin import Plugin, hook

HERE = sys.modules[__name__]


class Guard(Plugin):
    """Keeps the contract."""

    class Config(msgspec.Struct, frozen=True):
        """Options."""

        denied: frozenset[str] = frozenset()

    def before_tool(self, event, context) -> BlockTool | None:
        """Let everything pass."""


class Needy(Guard):
    """Cannot be made without an option."""

    class Config(msgspec.Struct, frozen=True):
        """Options."""

        path: str


class Broken(Guard):
    """Cannot be made at all."""

    def __init__(self):
        """Fail."""
        raise RuntimeError("no")


MADE = Guard(denied={"dd"})


@pytest.fixture
def importable(monkeypatch):
    """Make this module importable by a name, as an installed one is."""
    monkeypatch.setitem(sys.modules, "installed_plugins", HERE)
    return "installed_plugins"


@pytest.mark.parametrize(
    ("candidate", "denied"),
    [
        (Guard, set()),
        (MADE, {"dd"}),
        ((Guard, {"denied": ["curl"]}), {"curl"}),
        ("installed_plugins:Guard", set()),
        ("installed_plugins:MADE", {"dd"}),
        (("installed_plugins:Guard", {"denied": ["curl"]}), {"curl"}),
    ],
    ids=["class", "instance", "options", "name", "name of an instance", "name with options"],
)
def test_forms_of_a_plugin(importable, candidate, denied):
    """A plugin is a class, an instance, a class with options, or the name of one of these."""
    plugin = as_plugin(candidate)

    assert plugin.name == "guard"
    assert plugin.config.denied == denied


@pytest.mark.parametrize(
    ("candidate", "problem"),
    [
        (7, "7 is no plugin: give a cmdc.Plugin class or instance"),
        (int, "<class 'int'> is no plugin"),
        ((Guard, {}, 1), "is no plugin"),
        ((Guard, 1), "is no plugin"),
        ("guard", "'guard' is no plugin"),
        ("no_such_module:x", "plugin 'no_such_module:x': No module named 'no_such_module'"),
        ("json:Nothing", "plugin 'json:Nothing': module 'json' has no attribute"),
        ("json:loads", "'json:loads' is no plugin"),
        ((MADE, {}), "plugin 'guard' is an instance and takes no options"),
        (Needy, "plugin 'needy': option 'path' is missing"),
        (Broken, "plugin 'broken' cannot be made: RuntimeError: no"),
        ((Guard, {"denied": 7}), "plugin 'guard': option 'denied': Expected `array`"),
    ],
    ids=[
        "number", "class", "triple", "pair", "word", "module", "name", "function",
        "instance with options", "missing option", "constructor", "wrong option",
    ],
)  # fmt: skip
def test_what_is_no_plugin_is_reported(candidate, problem):
    """The error says what was given and what would have been right."""
    with pytest.raises(InvalidOptions) as caught:
        as_plugin(candidate)

    assert problem in str(caught.value)


async def _later(self, event, context):
    """Return nothing, but not at once."""


def problems_of(members):
    """Return what is wrong with a plugin that has these attributes and one hook."""
    members = {"before_finish": lambda self, event, context: None, **members}
    with pytest.raises(InvalidOptions) as caught:
        as_plugin(type("Odd", (Plugin,), members))
    return [problem.split(": ", 1)[1] for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"name": "A B"}, "name must be 1 to 64 of a-z 0-9 _ -, got 'A B'"),
        ({"name": 7}, "name must be 1 to 64"),
        ({"priority": 0}, "priority must be 1 to 1000, got 0"),
        ({"priority": 1001}, "priority must be 1 to 1000"),
        ({"priority": True}, "priority must be 1 to 1000"),
        ({"fail": "shut"}, "fail must be one of ('open', 'closed', 'disable'), got 'shut'"),
        ({"__init__": lambda self: None}, "its __init__ must call super().__init__(**config)"),
        ({"helper": hook(timeout=1)(lambda self: None)}, "helper has @hook and is no hook"),
        (
            {"before_prompt": hook(tools=["a"])(lambda self, event, context: None)},
            "before_prompt is not about a tool, so @hook takes no tools there",
        ),
        (
            {"before_prompt": lambda self, event: None},
            "before_prompt is called with (event, context): too many positional arguments",
        ),
        (
            {"observe": lambda self, event, context, more: None},
            "observe is called with (event, context): missing a required argument: 'more'",
        ),
        (
            {"filter_output": lambda self: None},
            "filter_output is called with (channel, context): too many positional arguments",
        ),
        (
            {"handle_event": lambda self, event: None},
            "handle_event is called with (event, context): too many positional arguments",
        ),
        ({"filter_output": _later}, "filter_output must not be async"),
        ({"before_prompt": None}, "before_prompt must be a method, got None"),
        (
            {"before_prompt": lambda self, event, context: (yield)},
            "before_prompt: it yields, so that a call of it would run nothing",
        ),
    ],
    ids=[
        "name",
        "name type",
        "low",
        "high",
        "bool",
        "fail",
        "init",
        "no hook",
        "no tool",
        "few",
        "many",
        "filter",
        "any hook",
        "async filter",
        "no method",
        "yields",
    ],
)
def test_breaches_of_the_contract_are_reported(members, problem):
    """What cannot work in a session is refused before it starts."""
    [found] = problems_of(members)

    assert found.startswith(problem)


def test_breaches_are_reported_at_once():
    """One error has every problem."""
    assert len(problems_of({"name": "A B", "priority": 0, "fail": "shut"})) == 3


def test_plugin_that_hears_nothing_is_refused():
    """A plugin without a hook is a method's name misspelt."""

    class Deaf(Plugin):
        def before_tools(self, event, context):
            return None

    with pytest.raises(InvalidOptions, match="plugin 'deaf': it has no method named as a hook"):
        as_plugin(Deaf)


@pytest.mark.parametrize(
    ("name", "hook"),
    [
        ("befor_tool", "before_tool"),
        ("beforeTool", "before_tool"),
        ("on_tool_errors", "on_tool_error"),
        ("observes", "observe"),
        ("handle_events", "handle_event"),
    ],
)
def test_a_mistyped_hook_beside_others_is_refused(name, hook):
    """It would never be called, and nothing else would show it."""
    kind = type("Typo", (Plugin,), {"before_finish": _two, name: _two})

    with pytest.raises(InvalidOptions) as caught:
        as_plugin(kind)

    assert caught.value.problems == (
        f"plugin 'typo': {name} is no hook; did you mean {hook}? A helper is called _{name}",
    )


def test_a_helper_is_no_mistyped_hook():
    """Neither is one that takes something else, nor one that is called otherwise."""
    helpers = {"_befor_tool": _two, "before_tools": _one, "look_at": _two, "befor_tool": 3}

    assert as_plugin(type("Fine", (Plugin,), {"before_finish": _two, **helpers}))


def _one(self, event):
    return None


def _two(self, event, context):
    return None


class Unkept(msgspec.Struct):
    """A state that MessagePack does not take."""

    lock: Any = msgspec.field(default_factory=threading.Lock)


class Needing(msgspec.Struct):
    """A state that cannot be made anew."""

    hits: int


@pytest.mark.parametrize("state", [Unkept, Needing], ids=["lock", "no default"])
def test_state_must_outlive_a_crash(state):
    """A state that could not be journaled, or not be made anew, is refused."""

    class Odd(Guard):
        State = state

        def __init__(self):
            self.config = Guard.Config()
            self.state = Unkept()

    with pytest.raises(InvalidOptions, match="its State must be fields with defaults"):
        as_plugin(Odd)


def test_state_must_be_of_its_class():
    """A plugin that replaces its state by something else could not be restored."""
    plugin = Guard()
    plugin.state = Unkept(lock=None)

    with pytest.raises(InvalidOptions, match="state must be a State, got Unkept"):
        as_plugin(plugin)


# fmt: off
ANNOTATIONS = [
    # hook             annotation                                   refused
    ("before_tool",    Intervene,                                   ["Intervene"]),
    ("before_tool",    BlockTool | Emit | None,                     []),
    ("before_tool",    list[BlockTool | Skip] | None,               ["Skip"]),
    ("before_tool",    Awaitable[Annotated[Skip, "x"] | None],      ["Skip"]),
    ("before_compact", "Abort",                                     ["Abort"]),
    ("before_request", ReplaceMessages | SwitchModel | Skip | Abort, []),
    ("after_turn",     Abort | Emit,                                ["Abort"]),
    ("on_tool_error",  SwitchModel,                                 []),
    ("session_end",    Actions,                                     []),
    ("session_end",    "Nowhere",                                   []),
    ("session_end",    None,                                        []),
]
# fmt: on


@pytest.mark.parametrize(("kind", "annotation", "refused"), ANNOTATIONS)
def test_annotation_is_held_against_the_table(kind, annotation, refused):
    """A method that says it returns what its hook does not take is refused, by names."""

    def method(self, event, context):
        return None

    method.__annotations__["return"] = annotation
    odd = type("Odd", (Plugin,), {kind: method})
    problems = []
    try:
        as_plugin(odd)
    except InvalidOptions as error:
        problems = list(error.problems)

    assert problems == [f"plugin 'odd': {kind} does not take {action}" for action in refused]
