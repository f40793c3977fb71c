"""What plugins order: prompts, results, metadata and approvals change, and change back the same."""

import msgspec
import pytest

from cmdc_runtime.commands import SkillStatus
from cmdc_runtime.events import PluginEvent, ToolApproved
from cmdc_runtime.extensions.actions import (
    KERNEL_EMITS,
    BadActionError,
    DecideApproval,
    Emit,
    MemoryContents,
    MetadataUpdate,
    RequireApproval,
    SkillsFound,
    SyntheticResult,
    SyntheticToolResults,
    UpdateMessageMetadata,
    UpdateSystemContext,
)
from cmdc_runtime.messages import Message, ToolCall
from tests.unit.workers.core.conftest import taken
from workers.core import evolve as evolving
from workers.core.evolve import evolve, patched
from workers.core.inputs import ApprovalRequest
from workers.core.plugins import apply_verdict, obey
from workers.core.records import ApprovalDecided, PluginOrdered
from workers.core.state import Memory, OpenCall, State
from workers.core.verdict import Reaction, fold

CALL = ToolCall(call_id="a", name="read")
ORPHANED = Memory(messages=(Message.user("go"), Message.assistant("", (CALL,)), Message.user("?")))
MARK = {"cache_control": {"type": "ephemeral"}}


def ordered(memory, order):
    """Return the memory after a kernel emit, as a plugin returns it, and what comes of it."""
    ((name, payload),) = Emit(order).sealed().events()
    step = taken(obey, memory, name, payload)
    return step.memory, step.effects


def marked(message_id, metadata):
    return UpdateMessageMetadata(updates=(MetadataUpdate(id=message_id, metadata=metadata),))


ORDERS = [
    MemoryContents(contents={"AGENTS.md": "Use tabs."}),
    UpdateSystemContext(key="Plan", text="1. sow"),
    SyntheticToolResults(results=(SyntheticResult(call_id="a", content="lost"),)),
    marked(ORPHANED.messages[0].id, MARK),
    marked("m-0", MARK),
    SkillsFound(skills=(SkillStatus(name="pdf"),), listing="- pdf: Reads PDF."),
]


@pytest.mark.parametrize(
    "order", ORDERS, ids=["memory", "section", "result", "message", "system", "skills"]
)
def test_an_order_is_written_down_and_read_back(order):
    """The journal gives the memory that the order made; given again it changes nothing."""
    memory, effects = ordered(ORPHANED, order)
    (kept,) = effects
    record = msgspec.msgpack.decode(msgspec.msgpack.encode(kept.record), type=PluginOrdered)

    assert memory != ORPHANED
    assert evolve(ORPHANED, record) == memory
    assert ordered(memory, order) == (memory, ())


def test_memory_files_stand_as_they_were_read_last():
    """By their names, in the order of the plugin; those of before are gone."""
    before, _ = ordered(Memory(), MemoryContents(contents={"OLD.md": "x"}))
    memory, _ = ordered(before, MemoryContents(contents={"b.md": "2", "a.md": "1"}))

    assert memory.memory_contents == (("b.md", "2"), ("a.md", "1"))


def test_skills_change_without_what_the_prompt_says_of_them():
    """What was said first stays, so that a provider's cache serves the prompt."""
    before, _ = ordered(Memory(), SkillsFound(skills=(SkillStatus(name="a"),), listing="- a: A."))
    memory, _ = ordered(before, SkillsFound(skills=(SkillStatus(name="b"),)))

    assert [one.name for one in memory.skills] == ["b"]
    assert memory.skill_listing == "- a: A."


def test_every_order_is_carried_out_somewhere():
    """By this table, or where approvals are made."""
    assert set(evolving._CHANGES) | {RequireApproval, DecideApproval} == set(KERNEL_EMITS.values())


def test_sections_are_set_changed_and_removed():
    """A section keeps its place; an empty text is none."""
    memory, _ = ordered(Memory(), UpdateSystemContext(key="Plan", text="1. sow"))
    memory, _ = ordered(memory, UpdateSystemContext(key="Rules", text="No."))
    memory, _ = ordered(memory, UpdateSystemContext(key="Plan", text="2. reap"))
    assert memory.sections == (("Plan", "2. reap"), ("Rules", "No."))

    memory, _ = ordered(memory, UpdateSystemContext(key="Plan", text=""))
    assert memory.sections == (("Rules", "No."),)


def test_sections_are_bounded(monkeypatch):
    """The oldest gives way."""
    monkeypatch.setattr(evolving, "SECTIONS_MAX", 2)
    memory = Memory()
    for key in "abc":
        memory, _ = ordered(memory, UpdateSystemContext(key=key, text="x"))

    assert memory.sections == (("b", "x"), ("c", "x"))


def test_a_call_without_a_result_gets_one():
    """Right after the call, for the model and for whoever reads the conversation."""
    memory, _ = ordered(ORPHANED, ORDERS[2])
    shown = patched(memory)

    assert [message.role for message in shown] == ["user", "assistant", "tool_result", "user"]
    assert (shown[2].content, shown[2].is_error, shown[2].call_id) == ("lost", True, "a")
    assert memory.messages == ORPHANED.messages


@pytest.mark.parametrize(
    "memory",
    [
        Memory(messages=(*ORPHANED.messages[:2], Message.tool_result("a", "own"))),
        Memory(messages=ORPHANED.messages[:2], calls=(OpenCall(CALL),)),
    ],
    ids=["answered", "running"],
)
def test_a_call_with_a_result_keeps_it(memory):
    """So does one that will have its own."""
    memory, _ = ordered(memory, ORDERS[2])

    assert patched(memory) == memory.messages


def test_metadata_is_set_and_removed():
    """None removes a key; what others have noted stays."""
    message_id = ORPHANED.messages[0].id
    memory, _ = ordered(ORPHANED, marked(message_id, {"a": 1, "b": 2}))
    memory, _ = ordered(memory, marked(message_id, {"a": None, "c": 3}))

    assert memory.messages[0].metadata == {"b": 2, "c": 3}


def test_an_order_is_not_published():
    """Observers hear of a plugin's events, and not of what it orders."""
    said = Reaction("p", (Emit(ORDERS[1]).sealed(), Emit("news").sealed()))
    step = taken(apply_verdict, Memory(), fold("before_prompt", [said]))
    events = [effect.event for effect in step.effects if hasattr(effect, "event")]

    assert events == [PluginEvent(name="news", payload=None)]


@pytest.mark.parametrize(
    ("name", "payload", "problem"),
    [
        ("memory_contents", {"contents": {"x": 1}}, "contents"),
        ("update_system_context", {"key": "", "text": ""}, "key"),
        ("update_system_context", {"key": "k", "text": "t", "more": 1}, "more"),
        ("require_approval", {"timeout_s": -1}, "timeout_s"),
        ("require_approval", {"options": []}, "options"),
        ("decide_approval", {"approval_id": "a", "decision": "perhaps"}, "perhaps"),
        ("synthetic_tool_results", None, "got `None`"),
    ],
)
def test_a_malformed_order_is_a_bad_action(name, payload, problem):
    """The plugin that gives it has crashed, and the error says what is wrong."""
    with pytest.raises(BadActionError, match=f"emit '{name}'.*{problem}"):
        Emit(name, payload).sealed()


def test_a_plugin_decides_what_has_ended_and_not_what_is_held(session):
    """As a person does, but without a cycle of its own."""
    asked = RequireApproval(hint="sure?")
    waiting = session.at(State.EXECUTING_TOOLS).report(ApprovalRequest, "b", asked, 9).end("a")
    order = DecideApproval(approval_id="approval-4", decision="approve_once")
    memory, (kept, shown) = ordered(waiting.memory, order)

    assert (memory.approvals, len(memory.granted)) == ((), 1)
    assert kept.record == ApprovalDecided(approval_id="approval-4", decision="approve_once")
    assert shown.event == ToolApproved(approval_id="approval-4")
    assert ordered(memory, order) == (memory, ())

    held = session.at(State.EXECUTING_TOOLS)
    held = held.report(ApprovalRequest, "b", asked, 9, None, "b:approval")
    assert ordered(held.memory, order) == (held.memory, ())


def test_an_approval_is_asked_for_before_a_call_only():
    """The first plugin that asks says how; elsewhere it is a mistake that changes nothing."""
    first, second = RequireApproval(hint="one"), RequireApproval(hint="two", hold=True)
    said = [Reaction("p", (Emit(first).sealed(),)), Reaction("q", (Emit(second).sealed(),))]

    assert fold("before_tool", said).approval == first
    assert fold("before_tool", said).emitted == ()
    assert fold("after_tool", said).ignored == (
        ("p", "require_approval"),
        ("q", "require_approval"),
    )
