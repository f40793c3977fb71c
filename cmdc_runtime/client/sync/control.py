# Made by `make sync` of cmdc_runtime/client/control.py: change that, not this.
"""``cmdc_runtime.client.control`` for threads."""

import os
from collections.abc import Iterable
from functools import partial
from typing import Any, TypeVar

import msgspec

from cmdc_runtime import reasons
from cmdc_runtime.checked_struct import RING_EVENTS_MAX
from cmdc_runtime.checkpoints import Snapshot, checkpoint_facts
from cmdc_runtime.client.arguments import (
    Asked,
    SessionLike,
    checked,
    checked_callback,
    checked_checkpoint,
    checked_content,
    checked_flag,
    checked_group,
    checked_id,
    checked_list,
    checked_model,
    checked_name,
    checked_plugin,
    checked_question,
    checked_reason,
    checked_ref,
    checked_response,
    checked_server,
    checked_text,
    checked_timeout,
    packed_tools,
    tool_names,
)
from cmdc_runtime.client.callers import Caller
from cmdc_runtime.client.engine import Callback
from cmdc_runtime.client.exchange import Exchange
from cmdc_runtime.client.limits import STOP_TIMEOUT_S
from cmdc_runtime.client.monitors import Watch
from cmdc_runtime.client.option_types import AnyPlugin, AnyTool
from cmdc_runtime.client.saved_states import deleted, listed, loaded
from cmdc_runtime.client.sync.stream import Monitor
from cmdc_runtime.commands import (
    Abort,
    AddMemory,
    AddSkillsDirs,
    ApprovalKind,
    Approve,
    AttachMcpServer,
    AttachPlugin,
    AttachTools,
    DetachMcpServer,
    DetachPlugin,
    DetachTools,
    GetMessages,
    KillTools,
    Prompt,
    PromptReceipt,
    Reject,
    ReplaceTools,
    SaveCheckpoint,
    Status,
    Steer,
    SteerScope,
    SwitchModel,
    ToolsDiff,
    UserRespond,
)
from cmdc_runtime.content import Content
from cmdc_runtime.errors import CmdcError, SessionNotAlive, UsageError
from cmdc_runtime.ids import EventIndex, SessionId
from cmdc_runtime.mcp_servers import McpServer
from cmdc_runtime.messages import Message
from cmdc_runtime.option_checks import check_memory, check_skills_dirs
from cmdc_runtime.options import ModelSource
from cmdc_runtime.packing import pack, pack_plugin
from cmdc_runtime.plain import whole_problem
from cmdc_runtime.requests import (
    GetTree,
    ResizeBuffer,
    StopSession,
    TreeNode,
    stop_reason_problem,
)
from cmdc_runtime.skills import SkillsDir

Said = TypeVar("Said", Prompt, Steer)


def _as_list(given: Any) -> list[Any]:  # Any: what is in it is checked one by one
    return list(given)


class Control(Caller):
    """A client's calls that neither begin a session nor take part in its conversation."""

    def _with_parts(self, session_id: SessionId, command: Said, asked: Asked) -> Said:
        """Return a prompt or a steering with its images and files, which are kept by then."""
        if not asked.given:
            return command
        chars = len(asked.text)
        parts = self._run(Exchange.keep_parts, session_id, asked.given, chars)
        return msgspec.structs.replace(command, parts=parts)

    def steer(self, session: SessionLike, text: Content, *, scope: SteerScope = "session") -> str:
        """Guide the running cycle and return the reference that the events of it name.

        The model reads it before the next turn; killable tools end at once, and with ``scope``
        "tree" subagents too. To an idle session it is a prompt.

        Raises:
            InvalidText: ``text`` is not a non-empty str, nor such a list as ``prompt`` takes.
            InvalidPart: an image or a file is none that the model is known to take, or too large.
            QueueFull: too many steerings wait.
            SteeringRejected: a plugin refused it.

        """
        session_id, asked = checked_id(session), checked_content(text, "steering")
        plain = checked(Steer(text=asked.text, scope=scope))
        command = self._with_parts(session_id, plain, asked)
        return self._run(Exchange.steer, session_id, command)

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
        command = Abort(
            reason=checked_reason(reason),
            clear_queue=clear_queue,
            kill_tools=kill_tools,
            children=children,
        )
        self._run(Exchange.send, checked_id(session), checked(command))

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
        command = checked(Approve(approval_id=approval_id, auto_resume=auto_resume, kind=kind))
        checked_name(command.approval_id, "approval_id")
        self._run(Exchange.decide, checked_id(session), command)

    def reject(self, session: SessionLike, approval_id: str, *, auto_resume: bool = False) -> None:
        """Refuse a call that waits for approval; ``auto_resume`` opens a cycle that says so.

        Raises:
            ApprovalNotFound: no such approval is pending.
            QueueFull: too many prompts wait; nothing was decided.

        """
        command = checked(Reject(approval_id=approval_id, auto_resume=auto_resume))
        checked_name(command.approval_id, "approval_id")
        self._run(Exchange.decide, checked_id(session), command)

    def user_respond(self, session: SessionLike, ref: str, response: object) -> None:
        """Answer a tool's question, with whatever MessagePack takes.

        Raises:
            AskNotFound: no such question is pending.

        """
        command = UserRespond(ref=checked_question(ref), response=checked_response(response))
        self._run(Exchange.send, checked_id(session), command)

    def stop(
        self,
        session: SessionLike,
        *,
        reason: str = "normal",
        timeout: float = STOP_TIMEOUT_S,
    ) -> None:
        """End the session and return when its process is gone; SIGKILL after ``timeout`` s."""
        if (seconds := checked_timeout(timeout)) is None:
            raise UsageError("timeout: expected seconds until SIGKILL, got None")
        if (problem := stop_reason_problem(reason)) is not None:
            raise UsageError(f"reason: {problem}")
        request = StopSession(session_id=checked_id(session), reason=reason, timeout=seconds)
        self._run(Exchange.stop, request)

    def attach_tool(self, session: SessionLike, tool: AnyTool) -> None:
        """Add a tool; the model has it from the next request on.

        Raises:
            InvalidTool: it is no tool, or cannot travel.
            AlreadyAttached: the session has a tool of this name.

        """
        command = AttachTools(tools=(pack(tool, label="tool"),), single=True)
        self._run(Exchange.change_tools, checked_id(session), command)

    def attach_tools(self, session: SessionLike, tools: Iterable[AnyTool]) -> list[str]:
        """Add tools, all or none, and return their names.

        Raises:
            ToolValidationFailed: ``problems`` pairs each wrong tool with what is wrong.

        """
        command = AttachTools(tools=packed_tools(tools))
        return list(self._run(Exchange.change_tools, checked_id(session), command))

    def detach_tool(self, session: SessionLike, name: str) -> None:
        """Remove a tool; its calls that run go on.

        Raises:
            ToolNotFound: the session has none of this name.

        """
        command = DetachTools(names=tool_names([name]), single=True)
        self._run(Exchange.send, checked_id(session), command)

    def detach_tools(self, session: SessionLike, names: Iterable[str]) -> list[str]:
        """Remove tools, all or none, and return their names.

        Raises:
            ToolValidationFailed: ``problems`` pairs each wrong name with what is wrong.

        """
        command = DetachTools(names=tool_names(names))
        return list(self._run(Exchange.send, checked_id(session), command))

    def replace_tools(self, session: SessionLike, tools: Iterable[AnyTool]) -> ToolsDiff:
        """Make these the session's tools; one whose name and code are kept stays as it is.

        Raises:
            ToolValidationFailed: ``problems`` pairs each wrong tool with what is wrong.

        """
        command = ReplaceTools(tools=packed_tools(tools))
        changed: ToolsDiff = self._run(Exchange.change_tools, checked_id(session), command)
        return changed

    def attach_plugin(self, session: SessionLike, plugin: AnyPlugin) -> str:
        """Add a plugin; it is asked from the next hook on, at ``session_start`` first.

        Raises:
            InvalidOptions: it is no plugin, its options are wrong, or it refused to start.
            AlreadyAttached: the session has a plugin of this name.

        """
        command = AttachPlugin(plugin=pack_plugin(plugin, label="plugin"))
        return str(self._run(Exchange.send, checked_id(session), command))

    def update_plugin(self, session: SessionLike, plugin: AnyPlugin) -> str:
        """Put a plugin in the place of the one of its name, whose state it keeps.

        Raises:
            InvalidOptions: it is no plugin, its options are wrong, or it refused to start.
            PluginNotFound: the session has no plugin of this name.

        """
        command = AttachPlugin(plugin=pack_plugin(plugin, label="plugin"), is_update=True)
        return str(self._run(Exchange.send, checked_id(session), command))

    def detach_plugin(self, session: SessionLike, name: str) -> None:
        """Remove a plugin, with what it knew; a hook that it is being asked at goes on.

        Raises:
            PluginNotFound: the session has no plugin of this name.

        """
        command = DetachPlugin(name=checked_plugin(name))
        self._run(Exchange.send, checked_id(session), command)

    def add_skills_dirs(self, session: SessionLike, dirs: Iterable[SkillsDir]) -> None:
        """Have the skills of more folders, as by ``skills_dirs``; they outrank the others.

        The model reads of them in its next request, in the middle of a cycle, too.

        Raises:
            UsageError: one is no folder's path, or they are too many together.
            AlreadyAttached: the session has a plugin of its own named ``skills``.

        """
        command = AddSkillsDirs(dirs=checked_list(check_skills_dirs, dirs, "dirs"))
        self._run(Exchange.send, checked_id(session), command)

    def add_memory(self, session: SessionLike, files: Iterable[str | os.PathLike[str]]) -> None:
        """Show more memory files, as by ``memory``, from the next request on.

        Raises:
            UsageError: one is no path, or they are too many together.
            AlreadyAttached: the session has a plugin of its own named ``memory_loader``.

        """
        command = AddMemory(files=checked_list(check_memory, files, "files"))
        self._run(Exchange.send, checked_id(session), command)

    def attach_mcp_server(self, session: SessionLike, server: McpServer) -> None:
        """Add an MCP server; the next request starts it, and the model has its tools.

        Raises:
            UsageError: it is none, or wrong; the text names each problem.
            AlreadyAttached: the session has a server of this name.

        """
        command = AttachMcpServer(server=checked_server(server))
        self._run(Exchange.send, checked_id(session), command)

    def detach_mcp_server(self, session: SessionLike, name: str) -> None:
        """Remove an MCP server and its tools, and end it; its calls that run fail.

        Raises:
            McpServerNotFound: the session has no server of this name.

        """
        command = DetachMcpServer(name=checked_name(name, "name"))
        self._run(Exchange.send, checked_id(session), command)

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
        name, opts = checked_model(model, provider_opts)
        command = SwitchModel(model=name, provider_opts=opts)
        self._run(Exchange.send, checked_id(session), command)

    def checkpoint(
        self,
        session: SessionLike,
        *,
        label: str | None = None,
        metadata: dict[str, Any] | None = None,  # Any: whatever MessagePack takes
    ) -> Snapshot:
        """Save the session's state under a name, busy or not, and return when it is durable.

        It is the state that the journal would give a new process: a running cycle is part of it.

        Raises:
            CheckpointFailed: the session's ``redact`` refused or killed two processes in a row, the
                state is too large, or the session's ``checkpoint_backend`` failed.

        """
        wish = checkpoint_facts(label, metadata)
        command = SaveCheckpoint(label=wish.label, metadata=wish.metadata)
        return self._run(Exchange.checkpoint, checked_id(session), command)

    def list_checkpoints(self, session: SessionLike) -> list[Snapshot]:
        """Return the session's checkpoints without their states, newest first.

        They are in the journal, or where its ``checkpoint_backend`` keeps them: where that fails it
        is ``CheckpointFailed``, as for ``load_checkpoint`` and ``delete_checkpoint``. One whose
        ``problem`` is not None is damaged: ``delete_checkpoint`` takes it away.
        """
        session_id = checked_id(session)
        return self._run(Exchange.with_daemon, session_id, listed)

    def load_checkpoint(self, session: SessionLike, checkpoint_id: str | None = None) -> Snapshot:
        """Return a checkpoint with its state, or with None the newest.

        Raises:
            CheckpointNotFound: it is not there.
            CheckpointUnreadable: it is damaged, or of a newer program.

        """
        session_id, wanted = checked_id(session), checked_checkpoint(checkpoint_id)
        return self._run(Exchange.with_daemon, session_id, partial(loaded, name=wanted))

    def delete_checkpoint(self, session: SessionLike, checkpoint_id: str | None = None) -> None:
        """Delete a checkpoint, or with None all of the session; none to delete is no error."""
        session_id, gone = checked_id(session), checked_checkpoint(checkpoint_id)
        self._run(Exchange.with_daemon, session_id, partial(deleted, name=gone))

    def enable_buffer(self, session: SessionLike, size: int = 1000) -> None:
        """Keep the session's newest ``size`` events for replays, from now on.

        It is what ``event_buffer_size`` begins with; of a buffer that shrinks the newest stay. It
        holds for as long as the daemon runs, and is no part of the session's definition.

        Raises:
            UsageError: ``size`` is not 1 to 1,000,000.

        """
        if (problem := whole_problem(size, 1, RING_EVENTS_MAX)) is not None:
            raise UsageError(f"size: {problem}")
        session_id = checked_id(session)
        self._run(Exchange.ask, ResizeBuffer(session_id=session_id, events=size), session_id)

    def disable_buffer(self, session: SessionLike) -> None:
        """Keep no events for replays any more, and let those go that are kept.

        Durable events are in the journal all the same, and are replayed from there.
        """
        session_id = checked_id(session)
        self._run(Exchange.ask, ResizeBuffer(session_id=session_id, events=0), session_id)

    def last_index(self, session: SessionLike) -> EventIndex:
        """Return the index of the session's newest event, for a later ``since``."""
        found = self._run(Exchange.find_live, checked_id(session))
        return found.last_index

    def session_id(self, session: SessionLike) -> SessionId:
        """Return the session's id; a str that can be one comes back as it is."""
        return checked_id(session)

    def agent_pid(self, session: SessionLike) -> int | None:
        """Return the process id of the agent, None between two incarnations."""
        found = self._run(Exchange.find_live, checked_id(session))
        return found.pid

    def status(self, session: SessionLike) -> Status:
        """Return how the session stands, also while its process does not answer."""
        return self._run(Exchange.status, checked_id(session))

    def monitor(
        self,
        session: SessionLike,
        callback: Callback | None = None,
        *,
        persistent: bool = False,
    ) -> Monitor:
        """Watch for the end of the session's process; ``persistent``: each of its processes.

        ``callback(down)`` runs in a thread for callbacks only, and may call this client.
        The streams that this client has of the session hold every event of the process by then.
        """
        checked_callback(callback)
        deliver = self._deliver(callback)
        watch = Monitor(checked_id(session), deliver, persistent=persistent)
        self._run(Exchange.watch, watch)
        return watch

    def demonitor(self, session: SessionLike, ref: Monitor | str) -> None:
        """Forget a monitor; after this returned no notice of it is delivered."""
        checked_id(session)
        watch: Watch | None = None
        if isinstance(ref, Monitor):
            ref.mark_removed()
            watch, ref = ref, ref.ref
        watch = self._run(Exchange.unwatch, checked_ref(ref)) or watch
        if watch is not None:
            self._await_callbacks(watch)

    def broadcast(
        self,
        text: str,
        *,
        sessions: Iterable[SessionLike] | None = None,
        group_id: str | None = None,
    ) -> dict[SessionId, PromptReceipt | CmdcError]:
        """Give one prompt to many sessions: to those that are named, or to the living of a group.

        Each takes it as by ``prompt``, one after another. What is returned has for each session its
        receipt, or the error that ``prompt`` would have raised: the others have it all the same.

        Raises:
            InvalidText: ``text`` is not a non-empty str.
            UsageError: it is not one of ``sessions`` and ``group_id`` that is given, or too many.

        """
        command = Prompt(text=checked_text(text, "prompt"))
        if (sessions is None) == (group_id is None):
            raise UsageError("sessions, group_id: give one of them")
        if group_id is None:
            ids = [checked_id(one) for one in checked_list(_as_list, sessions, "sessions")]
        else:
            group = checked_group(group_id)
            living = self._run(Exchange.list_sessions)
            ids = [one.session_id for one in living if one.group_id == group]
        outcomes: dict[SessionId, PromptReceipt | CmdcError] = {}
        for one in dict.fromkeys(ids):
            try:
                outcomes[one] = self._run(Exchange.prompt, one, command)
            except CmdcError as error:
                outcomes[one] = error
        return outcomes

    def list_sessions(self, *, ended: bool = False) -> list[Status]:
        """Return how all live sessions stand.

        With ``ended`` those follow that are parked or have ended, the newest first, as long as the
        journal keeps them (``retain_days``); ``reason`` says why. At most 500 are listed.
        """
        checked_flag(ended, "ended")
        found = self._run(Exchange.list_sessions)
        return found + self._run(Exchange.list_inactive) if ended else found

    def tree(self) -> TreeNode:
        """Return the supervision tree."""
        found: TreeNode = self._run(Exchange.ask, GetTree())
        return found

    def messages(self, session: SessionLike) -> list[Message]:
        """Return the conversation, oldest first, system message and tool results included.

        That of a session that has ended is read from the journal, as long as that keeps it. One
        that failed to start has none.
        """
        try:
            return list(self._run(Exchange.send, checked_id(session), GetMessages()))
        except SessionNotAlive as error:
            if not isinstance(error.reason, reasons.StartFailed):
                raise
            return []
