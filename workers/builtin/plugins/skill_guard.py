"""Blocks calls of tools that no active skill allows, or only reports them.

What is allowed is fixed when the session starts: the union of what the active skills allow.
"""

from typing import Any

import structlog

from cmdc_runtime import plugins
from cmdc_runtime.extensions.actions import BlockTool, Emit
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import BeforeTool
from cmdc_runtime.extensions.plugin import Plugin

log = structlog.get_logger()


class SkillGuard(Plugin):
    """Guards the tools of skills."""

    name = "skill_guard"
    priority = 20
    fail = "closed"
    emits = ("skill_violation",)
    Config = plugins.SkillGuard

    def __init__(self, **config: Any) -> None:  # Any: options as they come
        """Take together what the active skills allow."""
        super().__init__(**config)
        wanted = self.config.active
        active = [one for one in self.config.skills if wanted is None or one.name in wanted]
        self._active = [skill.name for skill in active]
        lists = [skill.allowed_tools for skill in active]
        self._allowed: list[str] | None = None
        if lists and None not in lists:
            self._allowed = sorted({tool for tools in lists for tool in tools or ()})

    def before_tool(
        self,
        event: BeforeTool,
        context: PluginContext,  # noqa: ARG002 - the contract of the hook
    ) -> list[BlockTool | Emit]:
        """Block a call, or report it, that no active skill allows."""
        if self._allowed is None or event.name in self._allowed:
            return []
        is_blocked = self.config.enforce_mode == "strict"
        violation = {
            "tool": event.name,
            "call_id": event.call_id,
            "active": self._active,
            "allowed_tools": self._allowed,
            "blocked": is_blocked,
        }
        emit = Emit("skill_violation", violation)
        if is_blocked:
            return [emit, BlockTool(self._reason(event.name))]
        log.warning("skill.violated", tool=event.name, active=self._active)
        return [emit]

    def _reason(self, tool: str) -> str:
        allowed = ", ".join(self._allowed or ()) or "none"
        return (
            f"The tool {tool} is not allowed by the active skills ({', '.join(self._active)})."
            f" Allowed tools: {allowed}. Use one of these, or tell the user that the task needs"
            f" {tool}."
        )


create = SkillGuard
