"""The calls that guide a session while it runs: steering, approvals, answers, tools, the model.

One mixin for threads and one for coroutines, call by call the same. What each sends is made in
``orders``, so a wrong argument is refused before anything goes out.
"""

from collections.abc import Iterable
from typing import Any

from cmdc_runtime.client import orders
from cmdc_runtime.client.calls import Calls
from cmdc_runtime.client.subjects import SessionLike, checked_id
from cmdc_runtime.client.threaded import Threaded
from cmdc_runtime.commands import ApprovalKind, KillTools, SteerScope, ToolsDiff
from cmdc_runtime.options import ModelSource


class Guidance(Threaded):
    """The calls for threads."""

    def steer(self, session: SessionLike, text: str, *, scope: SteerScope = "session") -> str:
        """Guide the running cycle and return the reference that the events of it name.

        The model is told at the next gap; killable tools are ended at once, and with ``scope``
        "tree" subagents too. To an idle session it is a prompt.

        Raises:
            InvalidText: ``text`` is not a non-empty str.
            QueueFull: too many steerings wait.
            SteeringRejected: a plugin refused it.

        """
        return self._run(Calls.steer, checked_id(session), orders.steer(text, scope))

    def abort(
        self,
        session: SessionLike,
        *,
        reason: Any = None,  # Any: plain data
        clear_queue: bool = True,
        kill_tools: KillTools = "killable",
        children: bool = True,
    ) -> None:
        """End the running cycle; the session stays. ``clear_queue`` drops the waiting prompts.

        ``children`` False lets the subagents that the cycle waits for run on.
        """
        command = orders.abort(
            reason=reason, clear_queue=clear_queue, kill_tools=kill_tools, children=children
        )
        self._run(Calls.order, checked_id(session), command)

    def approve(
        self,
        session: SessionLike,
        approval_id: str,
        *,
        auto_resume: bool = True,
        kind: ApprovalKind = "approve_once",
    ) -> None:
        """Allow a call that waits for approval; "approve_always" allows its tool from now on.

        A cycle follows in which the call is made, at once or behind the running one, unless
        ``auto_resume`` is False; ``collect_reply`` waits for that cycle.

        Raises:
            ApprovalNotFound: no such approval is pending.
            QueueFull: too many prompts wait; nothing was decided.

        """
        command = orders.approve(approval_id=approval_id, auto_resume=auto_resume, kind=kind)
        self._run(Calls.decide, checked_id(session), command)

    def reject(self, session: SessionLike, approval_id: str, *, auto_resume: bool = False) -> None:
        """Refuse a call that waits for approval; ``auto_resume`` opens a cycle that tells so.

        Raises:
            ApprovalNotFound: no such approval is pending.
            QueueFull: too many prompts wait; nothing was decided.

        """
        command = orders.reject(approval_id=approval_id, auto_resume=auto_resume)
        self._run(Calls.decide, checked_id(session), command)

    def user_respond(self, session: SessionLike, ref: str, response: object) -> None:
        """Answer a tool's question, with whatever MessagePack takes.

        Raises:
            AskNotFound: no such question is pending.

        """
        self._run(Calls.order, checked_id(session), orders.user_respond(ref, response))

    def attach_tool(self, session: SessionLike, tool: object) -> None:
        """Add a tool; the model has it from the next request on.

        Raises:
            InvalidTool: it is no tool, or cannot travel.
            AlreadyAttached: the session has a tool of this name.

        """
        self._run(Calls.order, checked_id(session), orders.attach_tool(tool))

    def attach_tools(self, session: SessionLike, tools: Iterable[object]) -> list[str]:
        """Add tools, all or none, and return their names.

        Raises:
            ToolValidationFailed: ``problems`` pairs each wrong tool with what is wrong.

        """
        return list(self._run(Calls.order, checked_id(session), orders.attach_tools(tools)))

    def detach_tool(self, session: SessionLike, name: str) -> None:
        """Remove a tool; its calls that run go on.

        Raises:
            ToolNotFound: the session has none of this name.

        """
        self._run(Calls.order, checked_id(session), orders.detach_tool(name))

    def detach_tools(self, session: SessionLike, names: Iterable[str]) -> list[str]:
        """Remove tools, all or none, and return their names.

        Raises:
            ToolValidationFailed: ``problems`` pairs each wrong name with what is wrong.

        """
        return list(self._run(Calls.order, checked_id(session), orders.detach_tools(names)))

    def replace_tools(self, session: SessionLike, tools: Iterable[object]) -> ToolsDiff:
        """Make these the session's tools; one whose name is kept stays as it is.

        Raises:
            ToolValidationFailed: ``problems`` pairs each wrong tool with what is wrong.

        """
        changed: ToolsDiff = self._run(
            Calls.order, checked_id(session), orders.replace_tools(tools)
        )
        return changed

    def attach_plugin(self, session: SessionLike, plugin: object) -> str:
        """Add a plugin; it is asked from the next hook on, at ``session_start`` first.

        Raises:
            InvalidOptions: it is no plugin, its options are wrong, or it refused to start.
            AlreadyAttached: the session has a plugin of this name.

        """
        return str(self._run(Calls.order, checked_id(session), orders.attach_plugin(plugin)))

    def update_plugin(self, session: SessionLike, plugin: object) -> str:
        """Put a plugin in the place of the one of its name, whose state it keeps.

        Raises:
            InvalidOptions: it is no plugin, its options are wrong, or it refused to start.
            PluginNotFound: the session has no plugin of this name.

        """
        return str(self._run(Calls.order, checked_id(session), orders.update_plugin(plugin)))

    def detach_plugin(self, session: SessionLike, name: str) -> None:
        """Remove a plugin, with what it knew; a hook that it is being asked at goes on.

        Raises:
            PluginNotFound: the session has no plugin of this name.

        """
        self._run(Calls.order, checked_id(session), orders.detach_plugin(name))

    def switch_model(
        self,
        session: SessionLike,
        model: str | ModelSource,
        *,
        provider_opts: dict[str, Any] | None = None,  # Any: litellm's own arguments
    ) -> None:
        """Send the next request to ``model``; ``provider_opts`` None keeps those in force.

        Raises:
            InvalidOptions: ``model`` names none, or the options cannot travel.

        """
        self._run(Calls.order, checked_id(session), orders.switch_model(model, provider_opts))


class AsyncGuidance:
    """The calls for coroutines."""

    _calls: Calls

    async def steer(self, session: SessionLike, text: str, *, scope: SteerScope = "session") -> str:
        """Guide the running cycle and return the reference that the events of it name.

        The model is told at the next gap; killable tools are ended at once, and with ``scope``
        "tree" subagents too. To an idle session it is a prompt.

        Raises:
            InvalidText: ``text`` is not a non-empty str.
            QueueFull: too many steerings wait.
            SteeringRejected: a plugin refused it.

        """
        return await self._calls.steer(checked_id(session), orders.steer(text, scope))

    async def abort(
        self,
        session: SessionLike,
        *,
        reason: Any = None,  # Any: plain data
        clear_queue: bool = True,
        kill_tools: KillTools = "killable",
        children: bool = True,
    ) -> None:
        """End the running cycle; the session stays. ``clear_queue`` drops the waiting prompts.

        ``children`` False lets the subagents that the cycle waits for run on.
        """
        command = orders.abort(
            reason=reason, clear_queue=clear_queue, kill_tools=kill_tools, children=children
        )
        await self._calls.order(checked_id(session), command)

    async def approve(
        self,
        session: SessionLike,
        approval_id: str,
        *,
        auto_resume: bool = True,
        kind: ApprovalKind = "approve_once",
    ) -> None:
        """Allow a call that waits for approval; "approve_always" allows its tool from now on.

        A cycle follows in which the call is made, at once or behind the running one, unless
        ``auto_resume`` is False; ``collect_reply`` waits for that cycle.

        Raises:
            ApprovalNotFound: no such approval is pending.
            QueueFull: too many prompts wait; nothing was decided.

        """
        command = orders.approve(approval_id=approval_id, auto_resume=auto_resume, kind=kind)
        await self._calls.decide(checked_id(session), command)

    async def reject(
        self, session: SessionLike, approval_id: str, *, auto_resume: bool = False
    ) -> None:
        """Refuse a call that waits for approval; ``auto_resume`` opens a cycle that tells so.

        Raises:
            ApprovalNotFound: no such approval is pending.
            QueueFull: too many prompts wait; nothing was decided.

        """
        command = orders.reject(approval_id=approval_id, auto_resume=auto_resume)
        await self._calls.decide(checked_id(session), command)

    async def user_respond(self, session: SessionLike, ref: str, response: object) -> None:
        """Answer a tool's question, with whatever MessagePack takes.

        Raises:
            AskNotFound: no such question is pending.

        """
        await self._calls.order(checked_id(session), orders.user_respond(ref, response))

    async def attach_tool(self, session: SessionLike, tool: object) -> None:
        """Add a tool; the model has it from the next request on.

        Raises:
            InvalidTool: it is no tool, or cannot travel.
            AlreadyAttached: the session has a tool of this name.

        """
        await self._calls.order(checked_id(session), orders.attach_tool(tool))

    async def attach_tools(self, session: SessionLike, tools: Iterable[object]) -> list[str]:
        """Add tools, all or none, and return their names.

        Raises:
            ToolValidationFailed: ``problems`` pairs each wrong tool with what is wrong.

        """
        return list(await self._calls.order(checked_id(session), orders.attach_tools(tools)))

    async def detach_tool(self, session: SessionLike, name: str) -> None:
        """Remove a tool; its calls that run go on.

        Raises:
            ToolNotFound: the session has none of this name.

        """
        await self._calls.order(checked_id(session), orders.detach_tool(name))

    async def detach_tools(self, session: SessionLike, names: Iterable[str]) -> list[str]:
        """Remove tools, all or none, and return their names.

        Raises:
            ToolValidationFailed: ``problems`` pairs each wrong name with what is wrong.

        """
        return list(await self._calls.order(checked_id(session), orders.detach_tools(names)))

    async def replace_tools(self, session: SessionLike, tools: Iterable[object]) -> ToolsDiff:
        """Make these the session's tools; one whose name is kept stays as it is.

        Raises:
            ToolValidationFailed: ``problems`` pairs each wrong tool with what is wrong.

        """
        changed: ToolsDiff = await self._calls.order(
            checked_id(session), orders.replace_tools(tools)
        )
        return changed

    async def attach_plugin(self, session: SessionLike, plugin: object) -> str:
        """Add a plugin; it is asked from the next hook on, at ``session_start`` first.

        Raises:
            InvalidOptions: it is no plugin, its options are wrong, or it refused to start.
            AlreadyAttached: the session has a plugin of this name.

        """
        return str(await self._calls.order(checked_id(session), orders.attach_plugin(plugin)))

    async def update_plugin(self, session: SessionLike, plugin: object) -> str:
        """Put a plugin in the place of the one of its name, whose state it keeps.

        Raises:
            InvalidOptions: it is no plugin, its options are wrong, or it refused to start.
            PluginNotFound: the session has no plugin of this name.

        """
        return str(await self._calls.order(checked_id(session), orders.update_plugin(plugin)))

    async def detach_plugin(self, session: SessionLike, name: str) -> None:
        """Remove a plugin, with what it knew; a hook that it is being asked at goes on.

        Raises:
            PluginNotFound: the session has no plugin of this name.

        """
        await self._calls.order(checked_id(session), orders.detach_plugin(name))

    async def switch_model(
        self,
        session: SessionLike,
        model: str | ModelSource,
        *,
        provider_opts: dict[str, Any] | None = None,  # Any: litellm's own arguments
    ) -> None:
        """Send the next request to ``model``; ``provider_opts`` None keeps those in force.

        Raises:
            InvalidOptions: ``model`` names none, or the options cannot travel.

        """
        await self._calls.order(checked_id(session), orders.switch_model(model, provider_opts))
