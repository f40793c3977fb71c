"""MCP servers that come and go, and tools of theirs that are not what they were."""

import pytest
from msgspec.structs import replace

from cmdc_runtime.commands import AttachMcpServer, DetachMcpServer
from cmdc_runtime.errors import AlreadyAttached, McpServerNotFound, Overloaded, UsageError
from cmdc_runtime.events import McpServerChanged
from cmdc_runtime.mcp_servers import SERVERS_MAX, McpServer
from workers.core import snapshot, toolset
from workers.core.conversation import go_on_with
from workers.core.inputs import McpToolsListed
from workers.core.records import Continued, McpServersChanged, McpToolsSeen
from workers.core.state import Memory, SeenTool
from workers.core.step import ChangeServers, Complete, Publish, Step

FILES = McpServer("files", command=["files"])
SEARCH = McpServer("search", url="https://a.org/mcp")
MEMORY = Memory(
    model="x:m",
    mcp_servers=(FILES,),
    mcp_tools=(SeenTool("files", "mcp__files__read", "one", "one"),),
    always_approved=frozenset({("mcp__files__read", ""), ("other", "")}),
)


def given(session, command, memory=MEMORY):
    return session.new(memory).give(command, "c-1")


def outcome_of(session):
    (found,) = (one.outcome for one in session.effects if isinstance(one, Complete))
    return found


def listed(memory, **tools):
    step = Step(memory)
    toolset.note_tools(step, McpToolsListed("files", tools))
    return step


# --- attached and detached ------------------------------------------------------------------------


def test_a_server_is_attached(session):
    """The memory has it, an event reports it, and the shell gets all servers."""
    found = given(session, AttachMcpServer(server=SEARCH))

    assert found.memory.mcp_servers == (FILES, SEARCH)
    assert outcome_of(found) is None
    assert ChangeServers((FILES, SEARCH)) in found.effects
    assert Publish(McpServerChanged(name="search", state="declared")) in found.effects


def test_a_server_is_detached_with_what_is_known_of_its_tools(session):
    """One that comes back under its name is a new one."""
    found = given(session, DetachMcpServer(name="files"))

    assert (found.memory.mcp_servers, found.memory.mcp_tools) == ((), ())
    assert outcome_of(found) is None
    assert ChangeServers(()) in found.effects
    assert Publish(McpServerChanged(name="files", state="detached")) in found.effects


@pytest.mark.parametrize(
    ("command", "error", "text"),
    [
        (AttachMcpServer(server=FILES), AlreadyAttached, "an MCP server named 'files' is attached"),
        (AttachMcpServer(server=McpServer("a")), UsageError, "server: expected a command"),
        (DetachMcpServer(name="a"), McpServerNotFound, "no MCP server 'a'; servers: files"),
    ],
)
def test_what_cannot_be_is_refused(session, command, error, text):
    """Nothing changes."""
    found = given(session, command)

    assert isinstance(outcome_of(found), error)
    assert text in str(outcome_of(found))
    assert found.memory.mcp_servers == (FILES,)


def test_there_is_a_bound(session):
    """One more than it is refused."""
    many = tuple(McpServer(f"s{n}", command=["a"]) for n in range(SERVERS_MAX))
    found = given(session, AttachMcpServer(server=SEARCH), replace(MEMORY, mcp_servers=many))

    assert isinstance(outcome_of(found), Overloaded)


def test_a_resumed_session_has_the_servers_that_it_is_given():
    """What is known of those that are no more goes; the others keep it."""
    record = snapshot.continued(replace(MEMORY, mcp_servers=(SEARCH,)), "r", {"mcp_servers"})
    other = snapshot.continued(MEMORY, "r", {"tools"})

    assert record.mcp_servers == (SEARCH,)
    assert other.mcp_servers is None


def test_a_resumed_session_knows_the_tools_of_the_servers_that_stay():
    """One that has changed meanwhile needs approval; those of a server that is gone go with it."""
    search = SeenTool("search", "mcp__search__find", "one", "one")
    before = replace(MEMORY, mcp_servers=(FILES, SEARCH), mcp_tools=(*MEMORY.mcp_tools, search))
    after = go_on_with(before, Continued(resumption="r", mcp_servers=(FILES,)))
    changed = listed(after, mcp__files__read="two").memory

    assert (after.mcp_servers, after.mcp_tools) == ((FILES,), MEMORY.mcp_tools)
    assert toolset.needs_approval(changed, "mcp__files__read")
    assert changed.always_approved == {("other", "")}


# --- definitions ----------------------------------------------------------------------------------


def test_a_tool_that_is_seen_first_needs_no_approval():
    """Its definition is what later ones are compared with."""
    step = listed(MEMORY, mcp__files__write="two")

    assert step.records == (McpToolsSeen(server="files", tools={"mcp__files__write": "two"}),)
    assert not toolset.needs_approval(step.memory, "mcp__files__write")


def test_a_list_that_is_known_records_nothing():
    """As of a server that is started again."""
    assert listed(MEMORY, mcp__files__read="one").records == ()


def test_a_tool_that_is_another_needs_approval_again():
    """A person's word for the former one is no word for this."""
    memory = listed(MEMORY, mcp__files__read="two").memory

    assert toolset.needs_approval(memory, "mcp__files__read")
    assert memory.always_approved == {("other", "")}


def test_the_other_tools_keep_their_approvals():
    """They are what they were, whichever is seen first or is another now."""
    memory = listed(MEMORY, mcp__files__write="w").memory
    both = frozenset({("mcp__files__read", ""), ("mcp__files__write", "")})
    memory = replace(memory, always_approved=both)

    assert listed(memory, mcp__files__new="n").memory.always_approved == both
    assert listed(memory, mcp__files__write="x").memory.always_approved == {
        ("mcp__files__read", "")
    }


def test_a_tool_that_is_what_it_was_needs_none():
    """The first definition was all right."""
    changed = listed(MEMORY, mcp__files__read="two").memory
    memory = listed(changed, mcp__files__read="one").memory

    assert not toolset.needs_approval(memory, "mcp__files__read")


def test_what_is_listed_by_one_that_was_detached_is_not_noted():
    """Its answer was on the way."""
    step = Step(MEMORY)
    toolset.note_tools(step, McpToolsListed("search", {"mcp__search__a": "one"}))

    assert step.records == ()


def test_a_tool_that_there_was_no_room_to_note_needs_approval():
    """Nobody knows whether it is what it was."""
    many = {f"mcp__files__{n}": "d" for n in range(toolset.TOOLS_SEEN_MAX)}
    memory = listed(MEMORY, **many).memory
    left = [name for name in many if toolset.needs_approval(memory, name)]

    assert len(memory.mcp_tools) == toolset.TOOLS_SEEN_MAX
    assert len(left) == 1
    assert listed(memory, mcp__files__late="d").records == ()


def test_a_tool_that_is_another_is_noted_where_there_is_no_more_room():
    """It has its place; what comes new beside it has none."""
    many = {f"mcp__files__{n}": "d" for n in range(toolset.TOOLS_SEEN_MAX)}
    memory = listed(MEMORY, **many).memory
    step = listed(memory, mcp__files__late="d", mcp__files__read="two")

    assert step.records == (McpToolsSeen(server="files", tools={"mcp__files__read": "two"}),)
    assert toolset.needs_approval(step.memory, "mcp__files__read")


def test_a_server_among_others_has_its_tools_noted():
    """By its own name."""
    memory = replace(MEMORY, mcp_servers=(SEARCH, FILES))
    seen = McpToolsSeen(server="files", tools={"mcp__files__write": "two"})

    assert listed(memory, mcp__files__write="two").records == (seen,)


def test_a_change_of_servers_is_rebuilt():
    """By the record alone."""
    step = Step(MEMORY)
    step.record(McpServersChanged(attached=(SEARCH,), detached=("files",)))

    assert step.memory.mcp_servers == (SEARCH,)
