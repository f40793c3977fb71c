"""A memory as bytes and back, and when an agent writes its own down."""

import dataclasses

import msgspec
import pytest
from msgspec.structs import fields, replace

from cmdc_runtime.checkpoints import SCHEMA_VERSION, plain_state, read_saved
from cmdc_runtime.commands import SkillStatus
from cmdc_runtime.errors import CheckpointUnreadable
from cmdc_runtime.extensions.context import BranchAnswer
from cmdc_runtime.mcp_servers import McpServer
from cmdc_runtime.messages import Message, TokenUsage, ToolCall
from cmdc_runtime.packed_code import Packed
from tests.numbers import unbounded
from workers.core.budget import Grant
from workers.core.children import Branch, Child, EndedRun, LostBranch, OpenRun, RunningBranch
from workers.core.evolve import rebuild
from workers.core.records import Approval, AttachedPlugin, AttachedTool, Continued, RunEnd
from workers.core.snapshot import (
    SNAPSHOT_RECORD_BYTES,
    SNAPSHOT_RECORDS,
    STRIPPED,
    TRANSIENT,
    SessionHistory,
    SnapshotFields,
    Unsaved,
    continued,
    conversation_of,
    encode,
    restore,
    saved,
)
from workers.core.state import (
    Answering,
    Asking,
    Cycle,
    Memory,
    OpenCall,
    Outcome,
    OwnParts,
    PendingAsk,
    PendingHandoff,
    PluginFacts,
    Policy,
    QueuedPrompt,
    Resting,
    SeenTool,
    State,
    Steering,
    Streaming,
    ToolFacts,
    Waiter,
)

PACKED = Packed(kind="value", label="mine", data=b"\x00code", python=(3, 11))
CALL = ToolCall(call_id="c-1", name="shell", arguments={"command": "ls", "deep": {"n": [1, 2]}})
FULL = Memory(
    model="x:m",
    provider_opts={"api_key": "k", "extra": {"n": 1}},
    former_opts=({"api_key": "before"},),
    tools=(ToolFacts("mine", packed=PACKED, chars=7), ToolFacts("read", is_repeatable=True)),
    messages=(
        Message(id="m-1", role="user", content="hi", metadata={"steering": ["s"]}),
        Message(id="m-2", role="assistant", tool_calls=(CALL,)),
    ),
    mcp_servers=(McpServer("files", command=["a"], env={"A": "b"}),),
    mcp_tools=(SeenTool("files", "mcp__files__read", "one", "two"),),
    base=3,
    agent="desk",
    own_parts=OwnParts((ToolFacts("own", packed=PACKED),), "y:n", {"api_key": "own"}),
    handoff=PendingHandoff("c-9", "clerk"),
    queue=(QueuedPrompt("p-2", "next", {"why": 1}),),
    steering=(Steering("s-1", "rather"),),
    notes=("mind",),
    plugins=(PluginFacts("guard", frozenset({"before_tool"}), PACKED),),
    plugin_states=(("guard", b"\x81state"),),
    memory_contents=(("AGENTS.md", "Use tabs."),),
    sections=(("Plan", "1. sow"),),
    skills=(SkillStatus(name="pdf", digest="d", problem="no"),),
    skill_listing="- pdf: Reads PDF.",
    system_metadata={"cache_control": {"type": "ephemeral"}},
    patches=(Message(id="patch", role="tool_result", call_id="c-0", is_error=True),),
    cycle=Cycle("p-1", 3, TokenUsage(total_tokens=1), started_at_ms=5, turns=2, crashes=1),
    calls=(OpenCall(CALL, 6, None, "again", 3),),
    call_hashes=("h",),
    approvals=(
        Approval(
            id="a-1", call_id="c-1", tool="shell", args={"x": 1}, requested_at_ms=7, due_at_ms=9
        ),
    ),
    granted=("leave",),
    always_approved=frozenset({("shell", "git"), ("web", "")}),
    asks=(PendingAsk("r-1", "c-1"),),
    answers=((PendingAsk("r-0", "c-1"), {"yes": [1, None]}),),
    todos=({"content": "sow"},),
    children=(Child("s.1", "c-1", None, Grant(5, 0.5), "c-1:branch-b2", "digest"),),
    spawns=2,
    branched=1,
    ended_runs=(
        EndedRun(
            OpenRun("c-1@1", "tree", (("b2", "b1"),)),
            RunEnd(status="aborted", reason="enough", waits=True),
            (RunningBranch("s.2", "b2", "b1", TokenUsage(total_tokens=1)),),
        ),
    ),
    branches=(
        Branch(
            *("c-1:branch-b1", "c-1", "digest"),
            BranchAnswer(ok=True, text="42", usage=TokenUsage(total_tokens=1)),
        ),
    ),
    lost_branches=(LostBranch("c-1:branch-b2", "c-1", TokenUsage(total_tokens=1)),),
    turns=4,
    calls_asked=5,
    usage=TokenUsage(total_tokens=9, cost_usd=0.1),
    context=(9, 2),
    outcomes=(Outcome("p-0", "aborted", "why", TokenUsage(), 0, 3),),
    latest_prompt="p-2",
    resumption="fork",
    left_out=frozenset({"digest"}),
    code={"digest": {"shop.tools": "77c1"}},
    has_answered=True,
    is_costed=False,
)


def test_a_fork_has_the_conversation_and_nothing_else():
    """Without the answer whose calls are open; what a branch is also given is in no memory."""
    forked = conversation_of(FULL)
    closed = conversation_of(replace(FULL, calls=()))

    assert len(closed.messages) == len(forked.messages) + 1
    assert forked.messages == closed.messages[:-1]
    assert (forked.base, forked.sections, forked.memory_contents) == (
        *(FULL.base, FULL.sections, FULL.memory_contents),
    )
    kept = {
        *("messages", "base", "sections", "memory_contents", "system_metadata"),
        *("skills", "skill_listing"),
    }
    assert {
        one.name for one in fields(Memory) if getattr(forked, one.name) != _default(one)
    } <= kept


def test_a_full_memory_comes_back_as_it_was():
    """Every field that is data has a value here, and each is back."""
    assert {one.name for one in fields(Memory) if getattr(FULL, one.name) == _default(one)} == {
        *STRIPPED
    }
    assert restore(Memory(), encode(FULL)) == FULL


def _default(field):
    return getattr(Memory(policy=FULL.policy), field.name)


def test_what_only_a_process_has_is_left_behind():
    """It is as a new process finds it: empty, and reported by name."""
    busy = replace(
        FULL,
        activity=Streaming(Answering(retries=1, text="hal")),
        waiters=(Waiter("w-1"),),
        waiting_branches=(("c-1", "c-1:branch-b3"),),
        work=8,
    )

    assert all(getattr(busy, name) != getattr(FULL, name) for name in TRANSIENT)
    assert restore(Memory(), encode(busy)) == FULL
    assert saved(busy).stripped_fields == STRIPPED


def test_the_policy_is_that_of_the_options():
    """Limits are not part of a state: who resumes with others gets them."""
    others = Memory(policy=Policy(max_turns=7))

    assert restore(others, encode(FULL)).policy is others.policy


def test_no_snapshot_is_the_memory_that_there_is():
    """A session without one begins with its options."""
    assert restore(FULL, b"") is FULL


def test_an_older_snapshot_has_no_field_that_came_later():
    """What it does not say is as in a new memory."""
    old = msgspec.msgpack.encode({"schema_version": 1, "state": {"model": "x:m", "gone": 1}})

    assert restore(Memory(), old) == Memory(model="x:m")


def test_a_field_has_the_name_that_snapshots_have_for_it():
    """It was called otherwise when they were written."""
    old = msgspec.msgpack.encode({"schema_version": 1, "state": {"allowances": ["leave"]}})

    assert restore(Memory(), old) == Memory(granted=("leave",))
    assert plain_state(read_saved(encode(FULL)))["allowances"] == ["leave"]


def test_an_approval_has_the_names_that_snapshots_have_for_its_fields():
    """Of which one was called otherwise, and two are other than its record has."""
    written = {
        "id": "a-1",
        "call_id": "c-1",
        "tool": "shell",
        "args": {"x": 1},
        "requested_at_ms": 7,
        "family": "",
        "ref": None,
        "due_ms": 9,
        "options": ["approve_once", "approve_always", "reject_once"],
    }
    old = msgspec.msgpack.encode({"schema_version": 1, "state": {"approvals": [written]}})

    assert restore(Memory(), old) == Memory(approvals=FULL.approvals)
    assert plain_state(read_saved(encode(FULL)))["approvals"] == [written]


def test_a_newer_snapshot_is_refused_by_its_version():
    """The message says which version it is, and what can be read here."""
    newer = msgspec.msgpack.encode({"schema_version": SCHEMA_VERSION + 1, "state": 5})

    with pytest.raises(CheckpointUnreadable, match=rf"version {SCHEMA_VERSION + 1}.*up to 1"):
        restore(Memory(), newer)


@pytest.mark.parametrize(
    "body",
    [
        b"\xff",
        b"x",
        encode(FULL)[:-9],
        msgspec.msgpack.encode({"schema_version": 1}),
        msgspec.msgpack.encode({"schema_version": 1, "state": {"messages": [{"role": "nobody"}]}}),
        msgspec.msgpack.encode({"schema_version": 1, "state": {"model": 5}}),
    ],
)
def test_a_damaged_snapshot_is_refused(body):
    """Nothing of it is taken for a state."""
    with pytest.raises(CheckpointUnreadable, match="damaged"):
        restore(Memory(), body)


def test_a_state_is_plain_values_for_people():
    """What ``redact`` is given: names and plain values."""
    state = plain_state(read_saved(encode(FULL)))

    assert state["messages"][0]["content"] == "hi"
    assert state.keys().isdisjoint(STRIPPED)


@pytest.mark.parametrize("body", [b"\xc1", b"\x05"])
def test_a_state_that_is_none_is_refused(body):
    """Also where only people want to read it."""
    made = msgspec.structs.replace(saved(FULL), state=msgspec.Raw(body))

    with pytest.raises(CheckpointUnreadable, match="damaged"):
        plain_state(made)


# --- when -----------------------------------------------------------------------------------


REST = Memory()
MUCH = Unsaved(records=SNAPSHOT_RECORDS, size=10)


@pytest.mark.parametrize(
    ("unsaved", "state", "memory", "due"),
    [
        (MUCH, State.IDLE, REST, True),
        (Unsaved(records=SNAPSHOT_RECORDS - 1, size=10), State.IDLE, REST, False),
        (Unsaved(records=1, size=SNAPSHOT_RECORD_BYTES), State.IDLE, REST, True),
        (MUCH, State.RUNNING, REST, False),
        (MUCH, State.IDLE, FULL, False),
        (dataclasses.replace(MUCH, newest=41), State.IDLE, REST, False),
        (dataclasses.replace(MUCH, newest=40), State.IDLE, REST, True),
    ],
)
def test_a_session_at_rest_is_written_down_after_so_many_records(unsaved, state, memory, due):
    """Not in a cycle, and not for a few records beside a large snapshot."""
    assert (
        unsaved.is_due(replace(memory, activity=Resting() if state is State.IDLE else Asking()))
        is due
    )


def test_what_is_unsaved_begins_with_what_the_journal_had():
    """A process that dies often does not put the next snapshot off for ever."""
    past = SessionHistory(b"old", (Continued(resumption="a"), Continued(resumption="b")), size=20)

    assert past.unsaved().after(3, 30) == Unsaved(records=5, size=50, newest=3)


def test_a_session_without_a_past_has_nothing_unsaved():
    """The first snapshot is made as late as any other."""
    assert SessionHistory().unsaved() == Unsaved() == Unsaved(records=0, size=0, newest=0)


# --- other options ---------------------------------------------------------------------------


NEW = Memory(
    model="y:n",
    provider_opts={"seed": 1},
    tools=(ToolFacts("shell", packed=PACKED),),
    plugins=(PluginFacts("other", frozenset({"after_turn"}), PACKED),),
)


def test_what_was_not_given_anew_stays():
    """A resumption without options changes nothing but its own id."""
    record = continued(NEW, "r-1", ())

    assert record == Continued(resumption="r-1")
    assert rebuild(FULL, [record]) == replace(FULL, resumption="r-1")


def test_what_was_given_anew_takes_the_place_of_the_old():
    """Leaves and states of what is gone go with it."""
    record = continued(NEW, "r-1", ("model", "provider_opts", "tools", "plugins", "max_turns"))
    after = rebuild(FULL, [record])

    assert record.tools == (
        AttachedTool(name="shell", is_repeatable=False, isolation="process", packed=PACKED),
    )
    assert record.plugins == (
        AttachedPlugin(name="other", hooks=frozenset({"after_turn"}), packed=PACKED),
    )
    assert (after.model, after.provider_opts, after.tools) == ("y:n", {"seed": 1}, NEW.tools)
    assert (after.plugins, after.plugin_states) == (NEW.plugins, ())
    assert after.messages == FULL.messages


def test_every_number_of_a_snapshot_has_its_range():
    """What is rebuilt of it is added to; a file from elsewhere may say anything."""
    assert unbounded(SnapshotFields) == []
