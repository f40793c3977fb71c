"""The MCP servers of a session: attached and detached while it lives, and what they list.

What their processes do the shell reports; a server's tools are none of the memory's, but for the
digest of each definition: one that is not as it was at first needs a person's approval.
"""

from typing import Final

from cmdc_runtime.commands import AttachMcpServer, DetachMcpServer
from cmdc_runtime.errors import AlreadyAttached, McpServerNotFound, Overloaded, UsageError
from cmdc_runtime.events import McpServerChanged
from cmdc_runtime.mcp_servers import SERVERS_MAX, server_problems
from workers.core.inputs import McpServerReported, McpToolsListed, Order
from workers.core.records import McpServersChanged, McpToolsSeen
from workers.core.state import Memory
from workers.core.step import ChangeServers, Step

TOOLS_SEEN_MAX: Final = 4_096
"""Tools of all servers of whose definitions the first is remembered; later ones are approved."""


def attach(step: Step, order: Order, command: AttachMcpServer) -> None:
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


def detach(step: Step, order: Order, command: DetachMcpServer) -> None:
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


def report(step: Step, reported: McpServerReported) -> None:
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
