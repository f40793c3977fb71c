"""``cmdc plugins``: what people read of the built-in plugins, and what programs do."""

import json
import sys

import msgspec
import pytest

from cmdc_runtime.cli.entry import main
from cmdc_runtime.extensions.hooks import HOOKS
from cmdc_runtime.plugins import catalogue
from cmdc_runtime.plugins.catalogue import (
    MethodFacts,
    OptionFacts,
    PartFacts,
    PluginFacts,
    built_in_plugins,
)

GUARD = PluginFacts(
    name="door_guard",
    reference="DoorGuard",
    sentence="Guards the door",
    meaning="Guards the door. It has a bell.",
    priority=20,
    fail="closed",
    methods=(MethodFacts(name="before_prompt", meaning="Ask who it is."),),
    emits=("rung",),
    options=(
        OptionFacts(name="doors", type="tuple[Door, ...]", bound="at most 3 long"),
        OptionFacts(
            name="words", type="str", default='"come in, whoever you may be"', meaning="Said."
        ),
    ),
    parts=(
        PartFacts(
            name="Door",
            module="house.doors",
            meaning="One of them.",
            options=(OptionFacts(name="height", type="int", default="2"),),
        ),
    ),
)
EAR = PluginFacts(
    name="ear",
    reference="Ear",
    sentence="Hears all",
    meaning="Hears all.",
    priority=10,
    fail="open",
    methods=tuple(MethodFacts(name=name, meaning="Hear.") for name in (*HOOKS, "observe")),
)


@pytest.fixture
def two_plugins(monkeypatch):
    """Two plugins in the place of ours."""
    monkeypatch.setattr(catalogue, "built_in_plugins", lambda: (GUARD, EAR))


@pytest.fixture
def printed(capsys):
    """Run a command and return its status and what it printed."""

    def run(*arguments):
        return main(arguments), *capsys.readouterr()

    return run


@pytest.mark.usefixtures("two_plugins")
def test_all_plugins_are_a_table(printed):
    """In the order in which they are asked, with their options as one would write them."""
    status, text, _ = printed("plugins")
    rows = [[cell.strip() for cell in line.split("  ") if cell] for line in text.splitlines()]

    assert status == 0
    assert rows == [
        ["PLUGIN", "PRIORITY", "FAIL", "HOOKS", "OPTIONS"],
        ["ear", "10", "open", "all hooks, observe", "-"],
        ["door_guard", "20", "closed", "before_prompt", 'doors, words="come in, whoever you m…'],
    ]


@pytest.mark.usefixtures("two_plugins")
@pytest.mark.parametrize("name", ["door_guard", "DoorGuard"])
def test_one_plugin_is_shown_at_length(printed, name):
    """By its short name or that of its class."""
    status, text, _ = printed("plugins", name)

    assert status == 0
    assert text.splitlines() == [
        "door_guard  cmdc.plugins.DoorGuard",
        "",
        "Guards the door. It has a bell.",
        "",
        "priority 20, fail closed",
        "events   rung",
        "",
        "hooks",
        "  before_prompt  Ask who it is.",
        "",
        "options",
        "  doors: tuple[Door, ...]  required  (at most 3 long)",
        '  words: str  = "come in, whoever you may be"',
        "      Said.",
        "",
        "Door  house.doors",
        "  One of them.",
        "  height: int  = 2",
    ]


@pytest.mark.usefixtures("two_plugins")
def test_a_plugin_without_events_and_options_says_so(printed):
    """Nothing is left open."""
    _, text, _ = printed("plugins", "ear")

    assert "events   none of its own\n" in text
    assert text.endswith("no options\n")


@pytest.mark.usefixtures("two_plugins")
def test_long_lines_are_wrapped_on_a_terminal(printed, monkeypatch):
    """Words stay whole, and what follows of a line is indented."""
    monkeypatch.setenv("COLUMNS", "24")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    _, text, _ = printed("plugins", "door_guard")

    assert "\n  doors: tuple[Door,\n    ...]  required  (at\n    most 3 long)\n" in text
    assert max(map(len, text.splitlines())) <= 24


@pytest.mark.usefixtures("two_plugins")
@pytest.mark.parametrize(
    ("name", "hint"), [("dor_guard", "do you mean door_guard?"), ("zzz", "lists them")]
)
def test_another_name_is_wrong_usage(printed, name, hint):
    """The error names what is wrong and the way out."""
    status, text, said = printed("plugins", name)

    assert (status, text) == (2, "")
    assert f"there is no built-in plugin '{name}'" in said
    assert hint in said


def test_programs_read_json(printed):
    """All of it: an array of every plugin, or the object of one."""
    _, all_shown, _ = printed("plugins", "--json")
    _, one_shown, _ = printed("plugins", "cost_guard", "--json")
    facts = json.loads(msgspec.json.encode(built_in_plugins()))

    assert sorted(json.loads(all_shown), key=lambda one: one["name"]) == facts
    assert json.loads(one_shown) in facts
