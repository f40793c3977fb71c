"""The plugin of skills: what it asks a person for, and what it takes back."""

import pytest

from cmdc_runtime.extensions.actions import Emit, ReplaceToolResult, RequireApproval, SkillsFound
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import AfterTool, BeforeCompact, BeforeTool, SessionStart
from tests.unit.cmdc_runtime.test_skills import skill
from workers.builtin.plugins import skills as module
from workers.builtin.plugins.skills import Skills


@pytest.fixture
def project(tmp_path):
    """A working folder with a skill in it."""
    skill(tmp_path / "s", "pdf", "Reads PDF.")
    return tmp_path


def context(project, **given):
    return PluginContext(session_id="s-1", working_dir=str(project), **given)


def asked(plugin, project, call_id="c-1", name="pdf", **given):
    """Return what the plugin asks a person for, None if for nothing."""
    event = BeforeTool("load_skill", call_id, {"name": name})
    found = plugin.before_tool(event, context(project, **given))
    return None if found is None else found.name


def answered(plugin, project, digest, call_id="c-1"):
    """Return what the plugin says to an answer of the tool."""
    text = f'<skill name="pdf" digest="{digest}">\nDo it.\n</skill>'
    return plugin.after_tool(
        AfterTool("load_skill", call_id, text, is_error=False), context(project)
    )


def digest_of(plugin, project):
    plugin.session_start(SessionStart(), context(project))
    return next(iter(plugin.state.known.values()))


def test_a_text_is_asked_for_once(project):
    """By its digest, which is the family of what is approved."""
    plugin = Skills(dirs=[("", "s")])
    digest = digest_of(plugin, project)
    order = asked(plugin, project)
    answered(plugin, project, digest)

    assert isinstance(order, RequireApproval)
    assert (order.family, order.hold) == (f"pdf {digest}", True)
    assert asked(plugin, project, "c-2") is None
    assert plugin.state.asked == {}


def test_what_is_approved_for_good_needs_no_question(project):
    """Also after the state was lost: the session remembers it."""
    plugin = Skills(dirs=[("", "s")])
    family = f"pdf {digest_of(plugin, project)}"

    assert asked(plugin, project, always_approved=frozenset({("load_skill", family)})) is None


@pytest.mark.parametrize("is_gone", [False, True])
def test_another_text_than_was_agreed_to_is_taken_back(project, is_gone):
    """It was written between the question and the answer, and the skill may be gone by now."""
    plugin = Skills(dirs=[("", "s")])
    digest_of(plugin, project)
    asked(plugin, project)
    if is_gone:
        (project / "s" / "pdf" / "SKILL.md").unlink()
    [action] = answered(plugin, project, "0" * 32)

    assert isinstance(action, ReplaceToolResult)
    assert action.is_error
    assert plugin.state.agreed == []


def test_a_refusal_is_no_agreement(project):
    """What ends with an error has shown no text."""
    plugin = Skills(dirs=[("", "s")])
    digest_of(plugin, project)
    asked(plugin, project)
    event = AfterTool("load_skill", "c-1", "rejected", is_error=True)

    assert plugin.after_tool(event, context(project)) == []
    assert isinstance(asked(plugin, project, "c-2"), RequireApproval)


def test_calls_that_never_end_are_forgotten(project, monkeypatch):
    """The oldest first."""
    monkeypatch.setattr(module, "ASKED_MAX", 2)
    plugin = Skills(dirs=[("", "s")])
    digest_of(plugin, project)
    for number in range(4):
        asked(plugin, project, f"c-{number}")

    assert list(plugin.state.asked) == ["c-2", "c-3"]


def test_a_compaction_makes_the_list_anew(project):
    """What was said of changes goes with the old messages."""
    plugin = Skills(dirs=[("", "s")])
    digest_of(plugin, project)
    skill(project / "s", "xml", "Reads XML.")
    order = plugin.before_compact(BeforeCompact(()), context(project))

    assert isinstance(order, Emit)
    assert isinstance(order.name, SkillsFound)
    assert "- xml: " in order.name.listing
    assert "Reads XML." not in order.name.listing
