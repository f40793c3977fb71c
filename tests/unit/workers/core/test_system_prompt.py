"""The system prompt of each mode."""

from itertools import pairwise, product

import pytest

from cmdc_runtime.extensions.provider import ToolSpec
from workers.core.system_prompt import RENDERERS, PromptMode, PromptParts, Segment, system_prompt


def tool(name, description=""):
    return ToolSpec(name=name, description=description, parameters={"type": "object"})


TOOLS = (tool("read_file", "Read a file.\nLong story."), tool("shell"))
TYPICAL = PromptParts(
    user="You review changes of a Python project. Tell what is wrong, with file and line.",
    tools=(
        tool("read_file", "Reads a text file, in parts if it is long."),
        tool("write_file", "Writes a text file, with the folders above it."),
        tool("edit_file", "Replaces one passage of a text file by another."),
        tool("list_dir", "Lists a folder."),
        tool("glob", "Finds files by a pattern of their paths."),
        tool("grep", "Finds lines by a regular expression."),
        tool("shell", "Runs a command in the session's working folder."),
        tool("write_todos", "Replaces the list of what is to be done."),
        tool("task", "Gives a task to a subagent and returns its report."),
        tool("ask_user", "Asks the user and waits for the answer."),
        tool("compact_conversation", "Replaces old messages by a summary."),
    ),
    identity="You are reviewer.\nYour purpose: to keep mistakes out of the main branch",
)
EVERYTHING = PromptParts(
    user="<user>",
    tools=(tool("shell", "<tools>"),),
    identity="<identity>",
    skills="- pdf: <skills>",
    memory=(("AGENTS.md", "<memory>"),),
    sections=(("Plan", "<sections>"),),
)


def shown(mode):
    """Return which segments of EVERYTHING a mode shows, in order."""
    prompt = system_prompt(mode, EVERYTHING)
    marks = [segment.value for segment in Segment if f"<{segment.value}>" in prompt]
    places = [prompt.index(f"<{mark}>") for mark in marks]
    assert all(before < after for before, after in pairwise(places))
    return marks


def test_every_mode_has_every_segment():
    """A new mode or segment needs its cells in ``system_prompt._ROWS``."""
    assert set(RENDERERS) == set(product(PromptMode, Segment))


def test_the_users_prompt_comes_first_and_blank_lines_part_the_segments():
    """What the application says leads, then the base prompt, then the tools."""
    prompt = system_prompt(PromptMode.FULL, PromptParts(user="  You are Ada.\n", tools=TOOLS))

    assert prompt.startswith("You are Ada.\n\nYou are an agent")
    assert prompt.endswith("\n\nYour tools:\n- read_file: Read a file.\n- shell")


@pytest.mark.parametrize(
    ("mode", "segments"),
    [
        (PromptMode.FULL, ["user", "tools", "identity", "skills", "memory", "sections"]),
        (PromptMode.TASK, ["user", "tools", "identity", "sections"]),
        (PromptMode.MINIMAL, ["user", "identity"]),
        (PromptMode.NONE, ["user"]),
    ],
)
def test_a_mode_shows_its_segments_in_one_order(mode, segments):
    """What changes stands last, so that a provider's cache serves what is before it."""
    assert shown(mode) == segments


@pytest.mark.parametrize("mode", [PromptMode.FULL, PromptMode.TASK])
def test_the_base_prompt_names_the_tags(mode):
    """A model that never reads of them would not write them."""
    prompt = system_prompt(mode, PromptParts())

    assert "<status>" in prompt
    assert "<title>" in prompt


def test_the_task_prompt_saves_a_third_to_a_half():
    """It does with the prompt and the tools of an ordinary agent, which both modes show."""
    full, task = (len(system_prompt(mode, TYPICAL)) for mode in (PromptMode.FULL, PromptMode.TASK))

    assert 0.30 <= 1 - task / full <= 0.50


@pytest.mark.parametrize(
    ("mode", "user", "tools", "prompt"),
    [
        (PromptMode.MINIMAL, "Hi.", TOOLS, "Hi.\n\nYour tools: read_file, shell"),
        (PromptMode.MINIMAL, "Hi.", (), "Hi."),
        (PromptMode.NONE, "Hi.", TOOLS, "Hi."),
        (PromptMode.NONE, "", TOOLS, ""),
        (PromptMode.NONE, "  ", (), ""),
        (PromptMode.MINIMAL, "", TOOLS, "Your tools: read_file, shell"),
    ],
)
def test_empty_segments_leave_no_trace(mode, user, tools, prompt):
    """The lesser modes say what they say and nothing else."""
    assert system_prompt(mode, PromptParts(user=user, tools=tools)) == prompt


def test_what_is_empty_within_a_segment_is_left_out():
    """A section, a skill or a memory without a text has no title either."""
    blank = (("Plan", " \n"),)
    nothing = system_prompt(
        PromptMode.FULL, PromptParts(identity=" ", skills=" \n", memory=blank, sections=blank)
    )

    assert nothing == system_prompt(PromptMode.FULL, PromptParts())


def test_sections_are_shown_under_their_titles():
    """Each is a paragraph of its own."""
    sections = (("Plan", "1. look\n2. leap\n"), ("Empty", ""), ("Budget", "3 turns"))
    prompt = system_prompt(PromptMode.TASK, PromptParts(sections=sections))

    assert prompt.endswith("\n\nPlan:\n1. look\n2. leap\n\nBudget:\n3 turns")


def test_skills_and_memory_are_shown_by_name():
    """A skill is one line; a memory file comes whole."""
    parts = PromptParts(skills="- pdf: Reads PDF.", memory=(("AGENTS.md", "Use tabs."),))
    prompt = system_prompt(PromptMode.FULL, parts)

    memory = '<agent_memory name="AGENTS.md">\nUse tabs.\n</agent_memory>'
    assert prompt.endswith(f"\n\nYour skills:\n- pdf: Reads PDF.\n\n{memory}")
