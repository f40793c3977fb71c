"""How a memory changes when people decide, tools are swapped, or history gives way."""

import pytest
from msgspec.structs import replace

from cmdc_runtime.extensions.context import BranchAnswer
from cmdc_runtime.messages import Message, TokenUsage, ToolCall
from cmdc_runtime.packed_code import Packed, digest_of
from workers.core import conversation
from workers.core.budget import Grant
from workers.core.children import Branch, Child
from workers.core.evolve import open_cycle
from workers.core.loops import fingerprint
from workers.core.records import Approval, AttachedPlugin, AttachedTool, Continued, SubagentSpent
from workers.core.state import (
    Memory,
    OpenCall,
    OwnParts,
    PendingAsk,
    PluginFacts,
    QueuedPrompt,
    Steering,
    ToolFacts,
)

PACKED = Packed(kind="ref", label="guard", ref="guard")
WANTED = Approval(id="approval-1", call_id="a", tool="write", args={"path": "x"}, requested_at_ms=5)
LEAVE = fingerprint("write", {"path": "x"}, None)
USED = TokenUsage(total_tokens=5, cost_usd=0.5)


def running():
    return open_cycle(Memory(), QueuedPrompt("p-1", "go"), 1)


def attached(name):
    packed = Packed(kind="ref", label=name, ref=f"tools:{name}")
    return AttachedTool(name=name, is_repeatable=True, isolation="task", packed=packed)


def test_steering_waits_in_its_order():
    """The first comes first."""
    memory = conversation.add_steering(
        conversation.add_steering(Memory(), Steering("s-1", "a")), Steering("s-2", "b")
    )

    assert [one.ref for one in memory.steering] == ["s-1", "s-2"]


def test_a_call_that_waits_for_a_person_blocks_its_cycle():
    """Where there is one."""
    blocked = conversation.add_approval(running(), WANTED)

    assert blocked.cycle.is_blocked
    assert conversation.add_approval(blocked, WANTED) == blocked
    assert conversation.find_approval(blocked, "approval-1") == WANTED
    assert conversation.add_approval(Memory(), WANTED).cycle is None


@pytest.mark.parametrize(
    ("decision", "granted", "tools"),
    [
        ("approve_once", (LEAVE,), set()),
        ("approve_always", (), {"write"}),
        ("reject", (), set()),
    ],
)
def test_a_decision_is_made_once(decision, granted, tools):
    """It gives what it says, and the approval waits no more; made again it changes nothing."""
    waiting = conversation.add_approval(running(), WANTED)
    memory = conversation.end_approval(waiting, "approval-1", decision)

    assert (memory.approvals, memory.granted) == ((), granted)
    assert memory.always_approved == {(tool, "") for tool in tools}
    assert conversation.end_approval(memory, "approval-1", decision) == memory


def test_a_question_is_asked_once():
    """A call that runs again asks under the same reference."""
    memory = conversation.ask(Memory(), PendingAsk("a:ask-1", "a"))

    assert conversation.ask(memory, PendingAsk("a:ask-1", "a")) == memory
    assert conversation.find_ask(memory, "a:ask-1") == PendingAsk("a:ask-1", "a")
    assert conversation.find_ask(memory, "a:ask-2") is None


def test_an_answer_is_kept_for_the_call():
    """The question waits no more; an answer to nothing changes nothing."""
    asking = conversation.ask(
        conversation.ask(Memory(), PendingAsk("a:ask-1", "a")), PendingAsk("b:ask-1", "b")
    )
    memory = conversation.answer(asking, "a:ask-1", {"n": 1})

    assert memory.asks == (PendingAsk("b:ask-1", "b"),)
    assert memory.answers == ((PendingAsk("a:ask-1", "a"), {"n": 1}),)
    assert conversation.answer(memory, "a:ask-1", "again") == memory


def test_each_question_has_its_own_answer():
    """Whichever was answered first; one that was not answered has none."""
    memory = Memory(
        asks=(PendingAsk("a:ask-1", "a"), PendingAsk("a:ask-2", "a"), PendingAsk("a:ask-3", "a"))
    )
    memory = conversation.answer(memory, "a:ask-1", "one")
    memory = conversation.answer(memory, "a:ask-2", "two")

    assert conversation.answer_of(memory, "a:ask-1") == "one"
    assert conversation.answer_of(memory, "a:ask-2") == "two"
    assert conversation.answer_of(memory, "a:ask-3") is None


def test_tools_go_before_others_come():
    """One that goes and comes back is the new one."""
    memory = Memory(tools=(ToolFacts("x"), ToolFacts("y"), ToolFacts("z")))
    after = conversation.change_tools(memory, (attached("x"), attached("n")), ("x", "z", "gone"))
    new = ToolFacts("x", is_repeatable=True, isolation="task", packed=attached("x").packed)

    assert [tool.name for tool in after.tools] == ["y", "x", "n"]
    assert after.tool("x") == new
    assert after.tool("z") is None


def test_what_was_allowed_of_a_tool_goes_with_it():
    """Another tool of the same name is another tool."""
    memory = Memory(
        tools=(ToolFacts("x"), ToolFacts("y")), always_approved=frozenset({("x", "git"), ("y", "")})
    )

    assert conversation.change_tools(memory, (attached("x"),), ("x",)).always_approved == {
        ("y", "")
    }


def test_a_model_comes_with_its_options():
    """Both are for the next request."""
    memory = conversation.switch_model(Memory(model="x:m"), "y:n", {"seed": 1})

    assert (memory.model, memory.provider_opts) == ("y:n", {"seed": 1})


def test_options_that_were_in_force_are_remembered():
    """Each once, the newest last, those in force left out, and a bounded number of them."""
    memory = Memory(model="x:m")
    for key in ("a", "b", "b", "a", "c"):
        memory = conversation.switch_model(memory, "x:m", {"api_key": key})
    many = memory
    for number in range(2 * conversation.FORMER_OPTS_MAX):
        many = conversation.switch_model(many, "x:m", {"seed": number})

    assert memory.former_opts == ({"api_key": "b"}, {"api_key": "a"})
    assert len(many.former_opts) == conversation.FORMER_OPTS_MAX


def test_history_gives_way_to_a_summary():
    """The conversation keeps its length in places, and what was counted of it is void."""
    said = tuple(Message(id=f"m-{number}", role="user") for number in range(1, 5))
    summary = Message(id="m-3-summary", role="user")
    memory = Memory(messages=said, base=2, context=(9, 4))
    after = conversation.compact(memory, 3, summary, USED)

    assert after.messages == (summary, said[3])
    assert after.base + len(after.messages) == memory.base + len(memory.messages)
    assert (after.context, after.usage) == (None, USED)


def test_plugins_have_notes_and_states():
    """Notes wait in their order; a state replaces the plugin's one before."""
    memory = conversation.note(conversation.note(Memory(), ("a",)), ("b", "c"))
    once = conversation.change_plugins(memory, {"p": b"1"})
    kept = conversation.change_plugins(once, {"p": b"2", "q": b""})

    assert memory.notes == ("a", "b", "c")
    assert kept.plugin_states == (("p", b"2"), ("q", b""))


def test_a_subagent_is_counted_from_its_start_to_its_end():
    """What it used is its parent's; a second end changes nothing."""
    first, second = Child("s.1", "a", "a:sub-1", Grant(5)), Child("s.2", "b", None, Grant())
    memory = conversation.spawn(conversation.spawn(Memory(), first), second)
    spent = SubagentSpent(child_id="s.1", usage=USED)
    after = conversation.count_child(memory, spent)

    assert conversation.find_child(memory, "s.1") == first
    assert conversation.children_of(memory, ("a", "b")) == ("s.1",)
    assert (after.children, after.spawns, after.usage) == ((second,), 2, USED)
    assert conversation.count_child(after, spent) == after


def test_another_model_has_not_answered_yet():
    """A server that is not there is a mistake again, until it has answered once."""
    before = Memory(model="x:m", has_answered=True)
    after = conversation.switch_model(before, "y:n", {})
    same = conversation.go_on_with(before, Continued(resumption="r"))
    other = conversation.go_on_with(
        before, Continued(resumption="r", provider_opts={"api_base": "x"})
    )

    assert before.has_answered
    assert same.has_answered
    assert not after.has_answered
    assert not other.has_answered
    assert (other.model, other.provider_opts) == ("x:m", {"api_base": "x"})


def test_a_decision_changes_what_the_waiting_call_said_and_nothing_else():
    """Another result, or an answer, may quote it."""
    waits = conversation.WAITS.format(approval_id=WANTED.id)
    asked = Message(id="m-1", role="assistant", content=waits)
    mine, other = Message.tool_result("a", waits), Message.tool_result("b", waits)
    memory = Memory(messages=(asked, mine, other), approvals=(WANTED,))
    after = conversation.end_approval(memory, WANTED.id, "reject").messages

    assert (after[0], after[2]) == (asked, other)
    assert after[1].content != waits


def test_only_the_subagents_of_plugins_are_theirs():
    """Those of calls end with their calls."""
    children = (
        Child("s.1", "a", "a:1", Grant()),
        Child("s.2", conversation.plugin_call("audit"), "r", Grant()),
    )

    assert conversation.children_of_plugins(Memory(children=children)) == ("s.2",)


def test_a_plugin_that_stays_keeps_what_it_knew():
    """With its new packed code; what another one knew goes with it."""
    stays, goes = (AttachedPlugin(name=name, hooks=frozenset(), packed=PACKED) for name in "sg")
    memory = conversation.change_plugin_set(Memory(), (stays, goes), ())
    memory = conversation.change_plugins(memory, {"s": b"1", "g": b"2"})
    after = conversation.go_on_with(memory, Continued(resumption="r", plugins=(stays,)))

    assert ([one.name for one in after.plugins], after.plugin_states) == (["s"], (("s", b"1"),))


def branched():
    """Return a memory with two branches of a call, and a subagent that is none."""
    memory = Memory()
    for number, ref, branch in ((1, "a:b1", "a:b1"), (2, "a:b2", "a:b2"), (3, "a:sub-1", "")):
        child = Child(f"s.{number}", "a", ref, Grant(), branch, "digest" if branch else "")
        memory = conversation.spawn(memory, child)
    return memory


def test_a_branch_is_found_under_way_and_after():
    """By its reference: no other subagent of the call is, nor what never was."""
    memory = branched()
    spent = SubagentSpent(child_id="s.2", usage=USED, ok=True, text="42")
    after = conversation.count_child(memory, spent)
    answer = BranchAnswer(ok=True, text="42", usage=USED)

    assert (memory.spawns, memory.branched) == (3, 2)
    assert conversation.find_branch(memory, "a:b2").session_id == "s.2"
    assert conversation.find_branch(after, "a:b2") == Branch("a:b2", "a", "digest", answer)
    assert conversation.find_branch(after, "a:b1").session_id == "s.1"
    assert conversation.find_branch(after, "a:sub-1") is None


@pytest.mark.parametrize(("child_id", "ok"), [("s.1", None), ("s.3", True)])
def test_of_what_is_no_branch_or_was_lost_nothing_is_kept(child_id, ok):
    """But for what it used."""
    memory = branched()
    spent = SubagentSpent(child_id=child_id, usage=USED, ok=ok, text="42")
    after = conversation.count_child(memory, spent)

    assert (after.branches, after.usage, len(after.children)) == ((), USED, 2)


def test_packed_code_that_is_left_out_takes_its_tools_along():
    """Those of other packed code stay, and those of none; what was left out before is, still."""
    gone, stays = (ToolFacts(name, packed=attached(name).packed) for name in ("x", "y"))
    memory = Memory(tools=(gone, stays, ToolFacts("bare")), left_out=frozenset({"before"}))
    digest = digest_of(gone.packed)
    after = conversation.leave_out(memory, digest)

    assert [tool.name for tool in after.tools] == ["y", "bare"]
    assert after.left_out == {"before", digest}


def test_packed_code_that_is_left_out_is_gone_from_what_is_put_by():
    """The session's own agent comes back without its tools."""
    gone, stays = (ToolFacts(name, packed=attached(name).packed) for name in ("x", "y"))
    own = OwnParts((gone, stays, ToolFacts("bare")), "x:m", {})
    after = conversation.leave_out(Memory(own_parts=own), digest_of(gone.packed))

    assert after.own_parts == OwnParts((stays, ToolFacts("bare")), "x:m", {})


def test_what_another_model_costs_is_not_known_to_be_unknown():
    """The next answer shows it."""
    assert (
        conversation.switch_model(Memory(model="x:m", is_costed=False), "y:n", {}).is_costed is True
    )


def test_an_approval_is_found_by_its_id():
    """Whatever else waits."""
    memory = Memory(approvals=(replace(WANTED, id="approval-0"), WANTED))

    assert conversation.find_approval(memory, WANTED.id) is WANTED


def test_what_a_call_said_is_changed_while_its_batch_runs():
    """A call that has no result yet says nothing."""
    waits = conversation.WAITS.format(approval_id=WANTED.id)
    asked, other = (ToolCall(call_id=call_id, name="write") for call_id in "ab")
    calls = (OpenCall(asked, result=Message.tool_result("a", waits)), OpenCall(other))
    memory = conversation.end_approval(
        Memory(calls=calls, approvals=(WANTED,)), WANTED.id, "reject"
    )

    assert "rejected" in memory.calls[0].result.content
    assert memory.calls[1] == calls[1]


def test_what_is_written_down_of_code_brings_it_back():
    """All that the tables know of a tool, and of a plugin."""
    tool = ToolFacts(
        "x", is_repeatable=True, isolation="task", packed=PACKED, chars=7, run_strategy="tree"
    )
    plugin = PluginFacts("guard", frozenset({"after_turn"}), PACKED)
    memory = conversation.change_tools(Memory(), (conversation.attached_tool(tool),), ())
    memory = conversation.change_plugin_set(memory, (conversation.attached_plugin(plugin),), ())

    assert (memory.tools, memory.plugins) == ((tool,), (plugin,))
