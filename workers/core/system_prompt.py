"""The system prompt: what the application says, then what the runtime adds, segment by segment.

Segments that turn out empty are skipped, the others are joined by blank lines. What a mode says in
a segment is one cell of ``RENDERERS``; a new segment is a row of functions in ``_ROWS``. A part
that changes while a session runs, a plan for example, needs no segment: it is one of
``PromptParts.sections``, which stand last so that the prompt before them stays the same.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from cmdc_runtime.extensions.provider import ToolSpec


class PromptMode(StrEnum):
    """How much the runtime adds to the application's own prompt."""

    FULL = "full"
    TASK = "task"
    MINIMAL = "minimal"
    NONE = "none"


class Segment(StrEnum):
    """A part of the system prompt, in the order of the prompt."""

    USER = "user"
    BASE = "base"
    TOOLS = "tools"
    IDENTITY = "identity"
    SKILLS = "skills"
    MEMORY = "memory"
    SECTIONS = "sections"


Named = tuple[tuple[str, str], ...]
"""Texts with the names that they have in the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptParts:
    """What a system prompt is made from; what is empty is left out."""

    user: str = ""
    """The application's own prompt."""
    tools: tuple[ToolSpec, ...] = ()
    identity: str = ""
    """Who the agent is, as its blueprint says."""
    skills: str = ""
    """A line for each."""
    memory: Named = ()
    """Name and content of each memory file."""
    sections: Named = ()
    """Title and text of what the session itself adds."""


_FULL_BASE: Final = """\
You are an agent that gets things done with the tools you are given.

How to answer: say what matters and stop. No flattery, no filler, no repeating of the question. \
Write plain Markdown where structure helps and nothing where it does not.

How to judge: facts come before agreement. If a premise is wrong, say so and show why. If you do \
not know, say that you do not know; never invent names, paths, numbers or results.

How to work: understand first, by reading what is there. Then act in small steps. Then check that \
the result is what was asked for, by running or reading it, before you call it done. Change only \
what the task needs.

How to use tools: prefer a tool to a guess. Calls that do not depend on each other belong in one \
reply. Give every argument that the schema requires and nothing that it does not name. Do not \
repeat a call that has already given its answer.

When something fails: read the error, change something because of it, and try again. After several \
failures of the same kind, stop and report what you tried and what is in the way.

Progress: when a new phase of a longer task begins, you may write <status>what you are doing \
now</status>. Once a conversation has a topic, you may write <title>a short name for it</title> of \
at most 60 characters. Both are shown to the user apart from your reply and are not part of it."""

_SHORT_BASE: Final = """\
You carry out one task and report its result. Be brief and factual; never invent anything. Read \
before you act, check the result before you report it, and change only what the task needs. Prefer \
a tool to a guess and put independent calls in one reply. After an error, change something before \
you try again; if you are stuck, say what is in the way.

You may write <status>what you are doing now</status> when a new step begins, and once \
<title>a short name for the task</title>; neither is part of your reply."""


def _user(parts: PromptParts) -> str:
    return parts.user.strip()


def _full(_parts: PromptParts) -> str:
    return _FULL_BASE


def _short(_parts: PromptParts) -> str:
    return _SHORT_BASE


def _tools(parts: PromptParts) -> str:
    lines = [f"- {tool.name}: {_summary(tool)}".rstrip(": ") for tool in parts.tools]
    return "\n".join(["Your tools:", *lines]) if lines else ""


def _tool_names(parts: PromptParts) -> str:
    names = ", ".join(tool.name for tool in parts.tools)
    return f"Your tools: {names}" if names else ""


def _identity(parts: PromptParts) -> str:
    return parts.identity.strip()


def _skills(parts: PromptParts) -> str:
    listing = parts.skills.strip()
    return f"Your skills:\n{listing}" if listing else ""


def _memory(parts: PromptParts) -> str:
    blocks = [
        f"<agent_memory name={msgspec.json.encode(name).decode()}>\n{text.strip()}\n</agent_memory>"
        for name, text in parts.memory
        if text.strip()
    ]
    return "\n\n".join(blocks)


def _sections(parts: PromptParts) -> str:
    return _titled(parts.sections)


def _titled(texts: Iterable[tuple[str, str]]) -> str:
    return "\n\n".join(f"{title}:\n{text.strip()}" for title, text in texts if text.strip())


def _nothing(_parts: PromptParts) -> str:
    return ""


def _summary(tool: ToolSpec) -> str:
    # The schema goes to the model with the request; one line is enough to choose by.
    lines = tool.description.strip().splitlines()
    return lines[0].strip() if lines else ""


# fmt: off
_ROWS: Final[Mapping[Segment, tuple[Callable[[PromptParts], str], ...]]] = {
    #                  full       task       minimal      none
    Segment.USER:     (_user,     _user,     _user,       _user),
    Segment.BASE:     (_full,     _short,    _nothing,    _nothing),
    Segment.TOOLS:    (_tools,    _tools,    _tool_names, _nothing),
    Segment.IDENTITY: (_identity, _identity, _identity,   _nothing),
    Segment.SKILLS:   (_skills,   _nothing,  _nothing,    _nothing),
    Segment.MEMORY:   (_memory,   _nothing,  _nothing,    _nothing),
    Segment.SECTIONS: (_sections, _sections, _nothing,    _nothing),
}
# fmt: on
RENDERERS: Final[Mapping[tuple[PromptMode, Segment], Callable[[PromptParts], str]]] = {
    (mode, segment): renderer
    for segment, row in _ROWS.items()
    for mode, renderer in zip(PromptMode, row, strict=True)
}


def system_prompt(mode: PromptMode, parts: PromptParts) -> str:
    """Return the system prompt of a session; empty where there is nothing to say."""
    rendered = (RENDERERS[mode, segment](parts) for segment in Segment)
    return "\n\n".join(text for text in rendered if text)
