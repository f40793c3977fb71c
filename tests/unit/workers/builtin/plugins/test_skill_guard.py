"""The skill guard: what the active skills allow together, and what becomes of other calls."""

import pytest
import structlog

from cmdc_runtime import plugins
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.extensions.actions import BlockTool, Emit
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import BeforeTool
from cmdc_runtime.plugins.guards import SkillRule
from workers.builtin.plugins.skill_guard import SkillGuard

READER = SkillRule(name="reader", allowed_tools=("read_file", "grep"))
WRITER = SkillRule(name="writer", allowed_tools=("write_file", "read_file"))
SILENT = SkillRule(name="silent", allowed_tools=())
FREE = SkillRule(name="free")
CONTEXT = PluginContext(session_id="s-1")


def ask(tool, **options):
    """Return what the guard says to a call."""
    return SkillGuard(**options).before_tool(BeforeTool(tool, "call_1", {}), CONTEXT)


@pytest.mark.parametrize(
    ("skills", "active", "allowed"),
    [
        ([READER, WRITER], None, {"read_file", "grep", "write_file"}),
        ([READER, WRITER], ["reader"], {"read_file", "grep"}),
        ([READER, WRITER], ["writer", "reader"], {"read_file", "grep", "write_file"}),
        ([READER, SILENT], ["silent"], set()),
        ([READER, SILENT], None, {"read_file", "grep"}),
        ([READER, FREE], ["reader"], {"read_file", "grep"}),
    ],
    ids=["all", "one", "both", "none allowed", "union with none", "the free one is not active"],
)
def test_union_of_active_skills_is_allowed(skills, active, allowed):
    """Every other tool is blocked."""
    found = {
        tool
        for tool in ("read_file", "grep", "write_file", "shell")
        if ask(tool, skills=skills, active=active) == []
    }

    assert found == allowed


@pytest.mark.parametrize(
    ("skills", "active"),
    [([], None), ([READER], []), ([READER, FREE], None), ([READER, FREE], ["free"])],
    ids=["no skills", "none active", "one is free", "only the free one"],
)
def test_nothing_is_restricted(skills, active):
    """With no active skill, or one that names no tools."""
    assert ask("shell", skills=skills, active=active) == []


def test_a_blocked_call_names_tool_skills_and_what_is_allowed():
    """So that the model can choose another tool."""
    assert ask("shell", skills=[READER, WRITER]) == [
        Emit(
            "skill_violation",
            {
                "tool": "shell",
                "call_id": "call_1",
                "active": ["reader", "writer"],
                "allowed_tools": ["grep", "read_file", "write_file"],
                "blocked": True,
            },
        ),
        BlockTool(
            "The tool shell is not allowed by the active skills (reader, writer). Allowed tools:"
            " grep, read_file, write_file. Use one of these, or tell the user that the task needs"
            " shell."
        ),
    ]


def test_no_tool_at_all_is_said():
    """An empty list allows none."""
    assert "Allowed tools: none." in ask("shell", skills=[SILENT])[-1].reason


def test_warn_lets_the_call_run():
    """A log line and the event report it."""
    with structlog.testing.capture_logs() as logs:
        [emit] = ask("shell", skills=[READER], enforce_mode="warn")

    assert (emit.name, emit.payload["blocked"]) == ("skill_violation", False)
    assert logs == [
        {"event": "skill.violated", "log_level": "warning", "tool": "shell", "active": ["reader"]}
    ]


def test_skills_may_be_written_as_objects():
    """As they come from a file."""
    skills = [{"name": "reader", "allowed_tools": ["read_file"]}]

    assert ask("read_file", skills=skills) == []
    assert ask("shell", skills=skills)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"skills": [READER], "active": ["redaer"]}, "active has redaer, .* use some of reader"),
        ({"active": ["reader"]}, "active has reader, .* there are none"),
        ({"skills": [READER, READER]}, "skills has reader more than once"),
        ({"skills": [{"name": "Bad Name"}]}, "skills"),
        ({"skills": [{"name": "a", "tools": []}]}, "skills"),
        ({"enforce_mode": "log"}, "enforce_mode"),
    ],
)
def test_bad_options_are_named(options, problem):
    """Before the session starts."""
    with pytest.raises(InvalidOptions, match=problem):
        SkillGuard(**options)


def test_the_reference_checks_as_well():
    """An application gets the error where it writes the option."""
    with pytest.raises(InvalidOptions, match="active has nobody"):
        plugins.SkillGuard(skills=(READER,), active=("nobody",))
