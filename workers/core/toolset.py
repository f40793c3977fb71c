"""Hot tools, servers and models: attached, detached, replaced, switched while the session lives.

Packed code is opened by the shell: the command asks for it, and ``use_loaded`` decides when it is
open. A batch is changed as a whole or not at all.

What the processes of MCP servers do the shell reports; a server's tools are none of the memory's,
but for the digest of each definition: one that is not as it was at first needs a person's approval.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from cmdc_runtime.commands import (
    TOOLS_MAX,
    AttachMcpServer,
    AttachTools,
    DetachMcpServer,
    DetachTools,
    ReplaceTools,
    SwitchModel,
    ToolsDiff,
)
from cmdc_runtime.errors import (
    AlreadyAttached,
    CmdcError,
    InvalidTool,
    McpServerNotFound,
    Overloaded,
    ToolNotFound,
    ToolValidationFailed,
    UsageError,
)
from cmdc_runtime.events import McpServerChanged, ToolAttached, ToolDetached, ToolsUpdated
from cmdc_runtime.mcp_servers import SERVERS_MAX, server_problems
from cmdc_runtime.packed_code import digest_of
from cmdc_runtime.provider_options import model_problem
from cmdc_runtime.subagent import STARTERS
from workers.core.conversation import attached_tool
from workers.core.inputs import FoundTool, McpServerReported, McpToolsListed, Order, ToolsLoaded
from workers.core.plugins import switch_model
from workers.core.records import McpServersChanged, McpToolsSeen, ToolsChanged
from workers.core.state import Memory, ToolFacts
from workers.core.step import ChangeServers, ChangeTools, LoadTools, Step

TOOLS_SEEN_MAX: Final = 4_096
"""Tools of all servers of whose definitions the first is remembered; later ones are approved."""
Problems = list[tuple[str, str]]
"""Tool name or label, and what is wrong with it."""
_TOO_DEEP: Final = (
    "it starts sessions, and max_depth allows none below this one: begin with a greater max_depth"
)


def load(step: Step, order: Order, command: AttachTools | ReplaceTools) -> None:
    """Have the packed code opened; ``use_loaded`` goes on."""
    step.perform(LoadTools(order.id, command))


def use_loaded(step: Step, loaded: ToolsLoaded) -> None:
    """Attach what was opened, or refuse all of it and say what is wrong."""
    memory, command = step.memory, loaded.command
    is_new_table = isinstance(command, ReplaceTools)
    opened = [found.tool for found in loaded.found if found.tool is not None]
    is_one = isinstance(command, AttachTools) and command.single
    is_update = isinstance(command, AttachTools) and command.is_update
    problems = _problems(memory, loaded.found, is_new_table=is_new_table, is_update=is_update)
    if problems:
        error = _single_error(loaded.found, problems) if is_one else ToolValidationFailed(problems)
        step.complete(loaded.id, error)
        step.perform(ChangeTools(loaded.id, (), ()))
        return
    given = {tool.name: tool for tool in opened}
    present = {tool.name for tool in memory.tools}
    # What opens each cycle was no part of the table: it is an option of the session.
    opening = memory.policy.opening_call
    kept = given.keys() | ({opening.name} if opening is not None else set())
    changed = {tool.name for tool in memory.tools if _is_other(tool, given.get(tool.name))}
    gone = tuple(
        tool.name for tool in memory.tools if tool.name not in kept or tool.name in changed
    )
    detached = gone if is_new_table else ()
    attached = tuple(tool for name, tool in given.items() if name not in present or name in changed)
    names = tuple(tool.name for tool in attached)
    _change(step, attached, detached, is_batch=not is_one)
    answer = ToolsDiff(attached=names, detached=detached) if is_new_table else names
    step.complete(loaded.id, answer)
    step.perform(ChangeTools(loaded.id, names, detached))


def _is_other(present: ToolFacts, given: ToolFacts | None) -> bool:
    """Say whether a tool of a new table has other code than the one of its name."""
    if given is None or present.packed is None or given.packed is None:
        return False
    return digest_of(present.packed) != digest_of(given.packed)


def detach(step: Step, order: Order, command: DetachTools) -> None:
    """Remove tools, all or none; calls that run go on to their ends."""
    present = {tool.name for tool in step.memory.tools}
    names = tuple(dict.fromkeys(command.names))
    missing: Problems = [(name, "not_found") for name in names if name not in present]
    if missing:
        known = ", ".join(sorted(present)) or "none"
        error: CmdcError = ToolValidationFailed(missing)
        if command.single:
            error = ToolNotFound(f"there is no tool {missing[0][0]!r}; tools: {known}")
        step.complete(order.id, error)
        return
    _change(step, (), names, is_batch=not command.single)
    step.complete(order.id, names)
    step.perform(ChangeTools(order.id, (), names))


def switch(step: Step, order: Order, command: SwitchModel) -> None:
    """Send the next request elsewhere; the one under way ends where it began."""
    memory = step.memory
    opts = memory.provider_opts if command.provider_opts is None else command.provider_opts
    if problem := model_problem(command.model) or memory.policy.vendor_problem_of(
        command.model, opts
    ):
        step.complete(order.id, UsageError(f"model: {problem}"))
        return
    switch_model(step, command.model, command.provider_opts)
    step.complete(order.id, None)


def _change(
    step: Step, attached: Sequence[ToolFacts], detached: tuple[str, ...], *, is_batch: bool
) -> None:
    """Change the tools and publish each change; of a batch as a whole, too."""
    if not attached and not detached:
        return
    names = tuple(tool.name for tool in attached)
    step.record(ToolsChanged(attached=tuple(map(attached_tool, attached)), detached=detached))
    step.publish(*(ToolDetached(name=name) for name in detached))
    step.publish(*(ToolAttached(name=name) for name in names))
    if is_batch:
        step.publish(ToolsUpdated(attached=names, detached=detached))


def _problems(
    memory: Memory, found: Sequence[FoundTool], *, is_new_table: bool, is_update: bool
) -> Problems:
    times = Counter(one.tool.name for one in found if one.tool is not None)
    present = {tool.name for tool in memory.tools}
    problems: Problems = []
    for one in found:
        if one.tool is None:
            problems.append((one.label, "invalid_tool"))
        elif times[one.tool.name] > 1:
            problems.append((one.tool.name, "duplicate_in_list"))
        elif one.tool.name in present and not (is_new_table or is_update):
            problems.append((one.tool.name, "already_attached"))
        elif _starts_sessions(one.tool) and not memory.policy.subagents:
            problems.append((one.tool.name, _TOO_DEEP))
    total = len(found) + (0 if is_new_table else len(present))
    if found and not problems and total > TOOLS_MAX:
        problems.append((found[-1].label, f"more than {TOOLS_MAX} tools"))
    return list(dict.fromkeys(problems))


def _starts_sessions(tool: ToolFacts) -> bool:
    return tool.packed is not None and tool.packed.ref in STARTERS


def _single_error(found: Sequence[FoundTool], problems: Problems) -> CmdcError:
    name, reason = problems[0]
    if reason == "already_attached":
        return AlreadyAttached(f"a tool named {name!r} is attached; detach it first")
    return InvalidTool(next((one.problem for one in found if one.problem), f"{name}: {reason}"))


# --- MCP servers ----------------------------------------------------------------------------------


def attach_server(step: Step, order: Order, command: AttachMcpServer) -> None:
    """Add a server; the next request starts it."""
    servers, name = step.memory.mcp_servers, command.server.name
    if problems := [f"server{one}" for one in server_problems(command.server)]:
        step.complete(order.id, UsageError("; ".join(problems)))
        return
    if any(one.name == name for one in servers):
        error = AlreadyAttached(f"an MCP server named {name!r} is attached; detach it first")
        step.complete(order.id, error)
        return
    if len(servers) >= SERVERS_MAX:
        step.complete(order.id, Overloaded(f"a session has at most {SERVERS_MAX} MCP servers"))
        return
    step.record(McpServersChanged(attached=(command.server,)))
    step.publish(McpServerChanged(name=name, state="declared"))
    step.complete(order.id, None)
    step.perform(ChangeServers(step.memory.mcp_servers))


def detach_server(step: Step, order: Order, command: DetachMcpServer) -> None:
    """Remove a server; it is ended."""
    names, name = [one.name for one in step.memory.mcp_servers], command.name
    if name not in names:
        known = ", ".join(names) or "none"
        error = McpServerNotFound(f"there is no MCP server {name!r}; servers: {known}")
        step.complete(order.id, error)
        return
    step.record(McpServersChanged(detached=(name,)))
    step.publish(McpServerChanged(name=name, state="detached"))
    step.complete(order.id, None)
    step.perform(ChangeServers(step.memory.mcp_servers))


def report_server(step: Step, reported: McpServerReported) -> None:
    """Publish where a server stands."""
    changed = McpServerChanged(
        name=reported.name, state=reported.state, tools=reported.tools, problem=reported.problem
    )
    step.publish(changed)


def note_tools(step: Step, listed: McpToolsListed) -> None:
    """Remember the definitions that were not seen so before."""
    latest = {one.name: one.latest for one in step.memory.mcp_tools}
    news = {name: digest for name, digest in listed.tools.items() if latest.get(name) != digest}
    room = TOOLS_SEEN_MAX - len(latest)
    fresh = [name for name in news if name not in latest]
    for name in fresh[max(0, room) :]:
        del news[name]
    if news and any(one.name == listed.server for one in step.memory.mcp_servers):
        step.record(McpToolsSeen(server=listed.server, tools=news))


def needs_approval(memory: Memory, name: str) -> bool:
    """Say whether a tool is not what it was when it was seen first, or was never noted."""
    return next((one.first != one.latest for one in memory.mcp_tools if one.name == name), True)
