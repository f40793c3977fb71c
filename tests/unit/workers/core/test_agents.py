"""What records of handoffs change in the memory."""

from msgspec.structs import replace

from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.packed_code import Packed
from workers.core import agents
from workers.core.conversation import attached_tool, place
from workers.core.records import HandedOff, HandoffFailed
from workers.core.state import AgentFacts, Cycle, Memory, PendingHandoff, ToolFacts

SAID = Message(id="m-1", role="user", content="go")
TO_B = HandedOff(to="b", model="x:m")


def tool(name, ref="own"):
    return ToolFacts(name, packed=Packed(kind="ref", label=name, ref=ref))


def handed(call_id, content="fine"):
    """Return the result of a call that has handed the session over."""
    result = Message.tool_result(call_id, content)
    return replace(result, metadata={agents.HANDOFF: "b"})


def test_a_record_of_which_little_is_said_is_no_return():
    """The agent that it names acts; in a cycle it counts as one."""
    after = agents.hand_over(Memory(model="x:m", cycle=Cycle("p-1", 0, TokenUsage())), TO_B)

    assert (after.agent, after.cycle.handoffs) == ("b", 1)
    assert after.own_parts.model == "x:m"


def test_without_a_handoff_nothing_is_refuted():
    """A record that comes behind the end of its cycle."""
    memory = Memory(model="x:m", messages=(SAID,))

    assert agents.fail_handoff(memory, HandoffFailed(why="gone")) is memory


def test_only_the_call_that_asked_says_that_it_failed():
    """An earlier one that was made stays as it is, and so does what has its number alone."""
    same = Message.tool_result("b", "no handoff")
    memory = Memory(
        messages=(handed("a"), same, handed("b")), handoff=PendingHandoff("b", "billing")
    )
    first, other, last = agents.fail_handoff(memory, HandoffFailed(why="gone")).messages

    assert (first, other) == memory.messages[:2]
    assert (last.is_error, last.content) == (True, "Error: the handoff was not made: gone")


def test_what_was_allowed_is_kept_for_the_same_tools_alone():
    """By their code, not by their names alone."""
    allowed = frozenset((name, "") for name in ("same", "other", "bare", "gone"))
    tools = (tool("same"), tool("other"), ToolFacts("bare"), tool("gone"))
    memory = Memory(model="x:m", tools=tools, always_approved=allowed)
    given = (attached_tool(tool("same")), attached_tool(tool("other", "of-b")))
    after = agents.hand_over(memory, replace(TO_B, tools=given))

    assert after.always_approved == {("same", "")}


def test_the_next_message_has_a_place_of_its_own():
    """Whether the other conversation is shorter or longer than the one before."""
    memory = Memory(model="x:m", messages=(SAID,) * 3, base=2)
    shorter = agents.hand_over(memory, replace(TO_B, messages=(SAID,)))
    longer = agents.hand_over(memory, replace(TO_B, messages=(SAID,) * 7))

    assert (shorter.base, place(shorter)) == (4, 5)
    assert (longer.base, place(longer)) == (0, 7)


def test_an_agent_without_a_prompt_has_none():
    """Its first request is counted without one."""
    memory = agents.hand_over(Memory(model="x:m"), TO_B)
    policy = replace(memory.policy, system_chars=9, agents=(AgentFacts("b"),))

    assert replace(memory, policy=policy).system_chars == 0
