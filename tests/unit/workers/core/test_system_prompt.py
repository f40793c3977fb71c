"""The system prompt of each mode."""

from itertools import product

import pytest

from cmdc_runtime.extensions.provider import ToolSpec
from workers.core.system_prompt import RENDERERS, PromptMode, Segment, system_prompt


def tool(name, description=""):
    return ToolSpec(name=name, description=description, parameters={"type": "object"})


TOOLS = (tool("read_file", "Read a file.\nLong story."), tool("shell"))


def test_every_mode_has_every_segment():
    """A new mode or segment needs its cells in ``system_prompt._ROWS``."""
    assert set(RENDERERS) == set(product(PromptMode, Segment))


def test_the_users_prompt_comes_first_and_blank_lines_part_the_segments():
    """What the application says leads, then the base prompt, then the tools."""
    prompt = system_prompt(PromptMode.FULL, "  You are Ada.\n", TOOLS)

    assert prompt.startswith("You are Ada.\n\nYou are an agent")
    assert prompt.endswith("\n\nYour tools:\n- read_file: Read a file.\n- shell")


@pytest.mark.parametrize("mode", [PromptMode.FULL, PromptMode.TASK])
def test_the_base_prompt_names_the_tags(mode):
    """A model that is never told of them would not write them."""
    prompt = system_prompt(mode)

    assert "<status>" in prompt
    assert "<title>" in prompt


def test_the_task_prompt_saves_at_least_a_third():
    """The short base prompt exists to be short."""
    full, task = (len(system_prompt(mode)) for mode in (PromptMode.FULL, PromptMode.TASK))

    assert task < full * 2 / 3


@pytest.mark.parametrize(
    ("mode", "user", "tools", "prompt"),
    [
        (PromptMode.MINIMAL, "Hi.", TOOLS, "Hi.\n\nYour tools: read_file, shell"),
        (PromptMode.MINIMAL, "Hi.", (), "Hi."),
        (PromptMode.NONE, "Hi.", TOOLS, "Hi."),
        (PromptMode.NONE, None, TOOLS, ""),
        (PromptMode.NONE, "  ", (), ""),
        (PromptMode.MINIMAL, None, TOOLS, "Your tools: read_file, shell"),
    ],
)
def test_empty_segments_leave_no_trace(mode, user, tools, prompt):
    """The lesser modes say what they say and nothing else."""
    assert system_prompt(mode, user, tools) == prompt
