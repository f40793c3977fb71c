"""The options of the skill guard."""

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.packing import BuiltInPlugin

SkillName = Annotated[str, Meta(pattern="^[a-z0-9-]{1,64}$")]
ToolName = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]


class Skill(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=Checked
):
    """A skill, and the tools that it needs."""

    name: SkillName
    allowed_tools: Annotated[tuple[ToolName, ...], Meta(max_length=512)] | None = None
    """None is every tool, () none."""


class SkillGuard(BuiltInPlugin, frozen=True, kw_only=True):
    """Lets the model call only the tools that its active skills allow, taken together.

    With no active skill, or with one that allows every tool, nothing is restricted.
    """

    short_name: ClassVar[str] = "skill_guard"
    skills: Annotated[tuple[Skill, ...], Meta(max_length=256)] = ()
    active: Annotated[tuple[SkillName, ...], Meta(max_length=256)] | None = None
    """The names of those that are active; None is all."""
    enforce_mode: Literal["strict", "warn"] = "strict"
    """"warn" lets every call run; a log line and the event ``skill_violation`` name those that
    "strict" would block."""

    def __post_init__(self) -> None:
        """Check the names.

        Raises:
            ValueError: a name stands for two skills, or for none.
        """
        names = [skill.name for skill in self.skills]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(
                f"skills has {', '.join(twice)} more than once: give each its own name"
            )
        if unknown := sorted(set(self.active or ()) - set(names)):
            known = ", ".join(sorted(names)) or "there are none"
            raise ValueError(
                f"active has {', '.join(unknown)}, which is no name of skills: use some of {known}"
            )
