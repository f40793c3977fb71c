"""The reference pages say what the code says today, and leave nothing out."""

import re
import tomllib
from typing import get_args

import pytest

from cmdc_runtime import plugins, tools
from cmdc_runtime.commands import Command
from cmdc_runtime.errors import ERRORS_BY_CODE
from cmdc_runtime.events import Event
from cmdc_runtime.extensions.actions import MATRIX
from cmdc_runtime.extensions.hooks import HOOKS
from cmdc_runtime.ids import SESSION_ID_RULE
from cmdc_runtime.options import FIELDS
from cmdc_runtime.reasons import DownReason
from scripts.reference import commands, evasions, markdown, options, pages, reasons, scenes
from scripts.reference.exploration import explore
from scripts.reference.sources import declared
from workers.core.commands import HANDLERS
from workers.core.inputs import Result
from workers.core.results import TRANSITIONS
from workers.core.state import State
from workers.core.step import Effect

REFERENCE = [name for name in pages.PAGES if name.startswith("docs/reference/")]
FIRST_CELL = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)


def read(name):
    return (pages.ROOT / name).read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", pages.PAGES)
def test_a_page_is_what_the_code_says(name):
    """Whoever changes the code makes the pages anew in the same change."""
    assert not pages.is_stale(name), f"{name} is out of date: run `{markdown.COMMAND}`"


@pytest.mark.parametrize("name", REFERENCE)
def test_a_page_says_who_made_it(name):
    """Its first line keeps a reader from editing it, and names the command."""
    assert read(name).splitlines()[0] == markdown.NOTICE


def test_no_page_is_left_behind():
    """What nobody makes any more is deleted."""
    found = {f"docs/reference/{path.name}" for path in (pages.ROOT / "docs/reference").glob("*")}

    assert found == set(REFERENCE)


@pytest.mark.parametrize("kind", declared(Command))
def test_a_command_is_shown_in_every_state(kind):
    """Each pair of command and state has a row of its own."""
    _, _, rest = commands.page().partition(f"\n## {kind.__name__}\n")
    section, _, _ = rest.partition("\n## ")

    assert FIRST_CELL.findall(section) == [str(state) for state in State]


def test_every_event_error_option_and_tool_is_shown():
    """The pages have all of what their module has."""
    shown = [
        (read("docs/reference/errors.md"), [kind.__name__ for kind in ERRORS_BY_CODE.values()]),
        (read("docs/reference/options.md"), FIELDS),
    ]
    headings = re.findall(r"^## (\w+)", read("docs/reference/tools.md"), re.MULTILINE)

    kinds = {kind.__name__ for kind in declared(Event)}
    assert set(FIRST_CELL.findall(read("docs/reference/events.md"))) == kinds
    for text, names in shown:
        assert FIRST_CELL.findall(text) == list(names)
    assert set(headings) == {
        name for name in tools.__all__ if isinstance(getattr(tools, name), type)
    }


def test_every_reason_has_a_sample_and_is_shown():
    """A new reason needs a sample in ``scripts/reference/reasons.py``."""
    kinds = declared(DownReason)
    table, _, _ = read("docs/reference/reasons.md").partition("\n## ")

    assert set(reasons.SAMPLES) == set(kinds)
    assert FIRST_CELL.findall(table) == [kind.__name__ for kind in kinds]


def test_every_built_in_plugin_is_shown():
    """Each has its row in the overview, which leads to its section."""
    page = read("docs/reference/plugins.md")
    links = re.findall(r"^\| \[(\w+)\]\(#(\w+)\)", page, re.MULTILINE)
    headings = re.findall(r"^## (\w+)", page, re.MULTILINE)

    assert sorted(headings) == plugins.__all__
    assert links == [(heading, heading.lower()) for heading in headings]


def test_every_hook_shows_what_it_takes():
    """The matrix has each hook and each action, once."""
    _, _, matrix = read("docs/reference/hooks.md").partition("## Which hook takes which action")
    matrix, _, _ = matrix.partition("\n## ")

    assert FIRST_CELL.findall(matrix) == list(HOOKS)
    assert re.findall(r"`([A-Z]\w+)`", matrix) == [
        action.__name__ for hook, action in MATRIX if hook == "session_start"
    ]


def corpora():
    """Return the cases of each guard, by the file that holds them."""
    paths = sorted(evasions.FOLDER.glob("*.toml"))
    return {path: tomllib.loads(path.read_text(encoding="utf-8"))["case"] for path in paths}


def test_every_way_around_a_guard_is_tried():
    """What the page claims is tested: some test reads the file of each guard."""
    tests = [path.read_text(encoding="utf-8") for path in (pages.ROOT / "tests").rglob("test_*.py")]
    unread = [
        path.name for path in corpora() if not any(f"corpora/{path.name}" in text for text in tests)
    ]

    assert unread == []


def test_what_gets_through_says_why():
    """A case that a guard does not stop has its reason, and no two cases have one name."""
    cases = [(path.stem, case) for path, found in corpora().items() for case in found]
    silent = [
        (guard, case["name"])
        for guard, case in cases
        if case["outcome"] == evasions.GETS_THROUGH and not case.get("why")
    ]
    names = [(guard, case["name"]) for guard, case in cases]

    assert silent == []
    assert len(names) == len(set(names))


def test_samples_cover_every_input():
    """A new command or result needs one in ``scripts/reference/scenes.py``."""
    assert set(scenes.COMMANDS) == set(declared(Command))
    assert set(scenes.RESULTS) == set(get_args(Result))


@pytest.mark.slow
def test_the_picture_has_played_every_row():
    """An edge can be missing only where no row of the tables leads."""
    missing = (set(HANDLERS) | set(TRANSITIONS)) - explore().rows

    assert missing == set(), f"not played, so add a sample or a policy: {missing}"


def test_every_effect_has_words():
    """A new effect needs some in ``scripts/reference/commands.py``."""
    assert set(commands.WORDS) | commands.ELSEWHERE == set(get_args(Effect))
    assert set(commands.WORDS).isdisjoint(commands.ELSEWHERE)


@pytest.mark.parametrize("state", State)
def test_a_scene_is_in_its_state(state):
    """What the page says of a state was found out in it."""
    assert scenes.scene(state).state is state


def test_an_option_has_the_rule_of_its_check():
    """What no annotation says comes out of the check itself."""
    assert options.rules_of("session_id") == [SESSION_ID_RULE]
    assert options.rules_of("stall_after") == ["not more than `stall_timeout`"]
    assert options.rules_of("max_turns") == []
