"""What is written down can be read back, by this version and by a later one."""

import inspect
import random

import msgspec
import pytest

from cmdc_runtime.mcp_servers import McpServer
from cmdc_runtime.messages import Message, OpeningCall, TokenUsage
from cmdc_runtime.packed_code import Packed
from tests.numbers import unbounded
from workers.core import records
from workers.core.records import (
    RECORDS,
    AnswerRetracted,
    Approval,
    ApprovalDecided,
    ApprovalRequested,
    AttachedPlugin,
    AttachedTool,
    CallKept,
    Cause,
    CodeTaken,
    Compacted,
    Continued,
    CutSpent,
    CycleEnded,
    CycleStarted,
    HandedOff,
    HandoffFailed,
    McpServersChanged,
    McpToolsSeen,
    MessageAdded,
    ModelChanged,
    Noted,
    PluginOrdered,
    PluginsChanged,
    PluginSetChanged,
    PluginSpent,
    PromptDiscarded,
    PromptQueued,
    Record,
    RecordedActivity,
    Resumed,
    RunEnd,
    RunStep,
    SetAside,
    Steered,
    SubagentSpawned,
    SubagentSpent,
    TodosChanged,
    ToolEnded,
    ToolsChanged,
    ToolStarted,
    ToolStepRecorded,
    TurnSpent,
    UserAnswered,
    UserAsked,
    approval_of,
    approval_requested,
    decode_record,
)

TOOL = AttachedTool(
    name="t",
    is_repeatable=True,
    isolation="thread",
    packed=Packed(kind="value", label="t", data=b"\x80", python=(3, 11)),
)
EXAMPLES = [
    PromptQueued(command_id="p-1", text="hé\x00"),
    CycleStarted(
        command_id="p-1",
        text="go",
        at_ms=1,
        metadata={"steering": ["s-1"]},
        call=OpeningCall(name="t", arguments={"n": 1}, text_as="q"),
    ),
    MessageAdded(message=Message.assistant("yes", thinking="hm")),
    TurnSpent(usage=TokenUsage(prompt_tokens=1, cost_usd=0.5)),
    ToolStarted(call_id="a", at_ms=2, granted="5e94dc8a6afbef1f"),
    ToolStepRecorded(call_id="a"),
    CallKept(call_id="a", content=b"here", asked=1),
    ToolEnded(message=Message.tool_result("a", "no", is_error=True)),
    CycleEnded(command_id="p-1", outcome="failed", reason="why"),
    PromptDiscarded(command_id="p-2"),
    Steered(ref="s-1", text="left"),
    ApprovalRequested(
        id="approval-3", call_id="a", tool="t", args={"x": [None]}, requested_at_ms=4
    ),
    ApprovalDecided(approval_id="approval-3", decision="approve_always"),
    UserAsked(ref="a:ask-1", call_id="a"),
    UserAnswered(ref="a:ask-1", response={"n": [1, b"x"]}),
    TodosChanged(todos=({"content": "sow", "status": "pending"},)),
    ToolsChanged(attached=(TOOL,), detached=("old",)),
    McpServersChanged(attached=(McpServer("files", command=["a"]),), detached=("old",)),
    McpToolsSeen(server="files", tools={"mcp__files__read": "d"}),
    AnswerRetracted(guardrail="guard"),
    HandedOff(
        to="b",
        is_return=True,
        tools=(TOOL,),
        model="y:n",
        provider_opts={"seed": 1},
        messages=(Message.user("short"),),
    ),
    HandoffFailed(why="no message"),
    ModelChanged(model="y:n", provider_opts={"headers": {"a": "b"}, "seed": None}),
    Compacted(evicted=3, summary=Message.user("short"), usage=TokenUsage(total_tokens=9)),
    SubagentSpawned(child_id="s.1", call_id="a", ref="a:sub-1", tokens=9, cost_usd=0.5),
    SubagentSpent(child_id="s.1", usage=TokenUsage(total_tokens=9), ok=False, text="no"),
    Noted(notes=("mind", "the gap")),
    PluginsChanged(states={"plugin": b"\x00"}),
    PluginSetChanged(
        attached=(
            AttachedPlugin(
                name="guard",
                hooks=frozenset({"before_tool"}),
                packed=Packed(kind="ref", label="guard", ref="guard"),
            ),
        ),
        detached=("old",),
    ),
    PluginOrdered(name="update_system_context", payload={"key": "Plan", "text": "1. sow"}),
    CutSpent(usage=TokenUsage(total_tokens=9)),
    PluginSpent(plugin="judge", usage=TokenUsage(total_tokens=9)),
    Resumed(incarnation=3),
    SetAside(digest="5e94", what="said", why="it kills"),
    CodeTaken(code={"5e94": {"shop.tools": "77c1"}}),
    Continued(
        resumption="c-1",
        model="x:m",
        provider_opts={"seed": 1},
        tools=(TOOL,),
        plugins=(AttachedPlugin(name="p", hooks=frozenset({"before_tool"}), packed=TOOL.packed),),
    ),
]

IN_ORDER = (records.RecordedActivity, records.Cause)
"""A pair of values each, which everybody gives in their order."""


def is_struct(kind):
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def test_a_tool_of_an_older_version_adds_nothing_to_what_the_model_reads():
    """How much of its text the model reads was not counted then."""
    older = msgspec.to_builtins(TOOL)
    del older["chars"]

    assert msgspec.convert(older, AttachedTool).chars == 0


def test_every_record_has_an_example():
    """The examples below are all the records that there are."""
    assert {type(example) for example in EXAMPLES} == set(RECORDS) == set(Record.__subclasses__())


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)
def test_a_record_comes_back_as_itself(record):
    """The decoder knows every class; what a later version adds to one is passed over."""
    body = msgspec.msgpack.encode(record)
    fields = msgspec.msgpack.decode(body)
    later = msgspec.msgpack.encode({**fields, "added_later": 1})

    assert decode_record(body) == decode_record(later) == record
    assert fields["record"] == TAGS.get(type(record), records.snake(type(record).__name__))


TAGS = {
    MessageAdded: "said",
    ToolStepRecorded: "tool_told",
    ApprovalRequested: "approval_asked",
}
"""Of records whose classes have other names than journals have."""


CAUSE = Cause("order", {"id": "c"}, 7)
PARTS = [
    CAUSE,
    RecordedActivity("resting"),
    TOOL,
    AttachedPlugin(name="p", hooks=frozenset(), packed=TOOL.packed),
]


@pytest.mark.parametrize(
    "value", [Record(), *EXAMPLES, *PARTS], ids=lambda value: type(value).__name__
)
def test_what_was_written_down_stays_as_it_is(value):
    """Memory, journal and observers have the same one: nobody changes it for the others."""
    (name, *_) = type(value).__struct_fields__

    with pytest.raises(AttributeError, match="immutable"):
        setattr(value, name, None)


@pytest.mark.parametrize(
    "kind",
    [Record, *RECORDS, AttachedTool, AttachedPlugin],
    ids=lambda kind: kind.__name__,
)
def test_a_record_is_written_by_the_names_of_its_fields(kind):
    """One more among them, which is how records grow, can't shift what is recorded into another."""
    with pytest.raises(TypeError, match="positional"):
        kind(None)


def test_a_cause_is_as_short_as_it_can_be():
    """Each step has one: they are lists, in which the tail that says nothing may be absent."""
    assert msgspec.to_builtins(CAUSE) == ["order", {"id": "c"}, 7, 1, None]
    assert msgspec.convert(["order", {"id": "c"}, 7], Cause) == CAUSE
    assert msgspec.convert(["stopped", {}], Cause) == Cause("stopped", {}, 0, 1, None)
    assert msgspec.to_builtins(RecordedActivity("resting")) == ["resting", {}]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (
            {"record": "cycle_ended", "command_id": "p", "outcome": "failed"},
            CycleEnded(command_id="p", outcome="failed", reason=None),
        ),
        (
            {"record": "cycle_started", "command_id": "p", "text": "go", "at_ms": 1},
            CycleStarted(command_id="p", text="go", at_ms=1, metadata={}),
        ),
        (
            {"record": "tool_started", "call_id": "a", "at_ms": 1},
            ToolStarted(call_id="a", at_ms=1, granted=None),
        ),
        ({"record": "resumed", "incarnation": 2}, Resumed(incarnation=2, is_blamed=True)),
        (
            {
                "record": "tool_ended",
                "message": {"role": "tool_result", "id": "m", "call_id": "a"},
                "run_end": {"status": "failed", "reason": "x"},
            },
            ToolEnded(
                message=Message(id="m", role="tool_result", call_id="a"),
                run_end=RunEnd(status="failed", reason="x", waits=False),
            ),
        ),
    ],
    ids=lambda one: one["record"] if isinstance(one, dict) else "",
)
def test_what_an_older_version_wrote_is_read(written, read):
    """A field with a default may be absent: that is how records grow."""
    assert decode_record(msgspec.msgpack.encode(written)) == read


RECORDED = {
    "record": "approval_asked",
    "input": None,
    "approval_id": "approval-3",
    "call_id": "a",
    "tool": "t",
    "args": {"x": [None]},
    "at_ms": 4,
    "family": "git push",
    "ref": "a:approval",
    "due_ms": 2004,
    "options": ["approve_once", "reject_once"],
}
"""The record of an approval as journals have it, in the order that causes quote it by."""
APPROVAL = Approval(
    id="approval-3",
    call_id="a",
    tool="t",
    args={"x": [None]},
    requested_at_ms=4,
    family="git push",
    ref="a:approval",
    due_at_ms=2004,
    options=("approve_once", "reject_once"),
)


def test_an_approval_is_recorded_as_journals_have_it():
    """Under names that are older than those of its fields, and in their order."""
    body = msgspec.msgpack.encode(RECORDED)

    assert msgspec.msgpack.encode(approval_requested(APPROVAL)) == body
    assert approval_of(decode_record(body)) == APPROVAL


def test_an_approval_of_an_older_version_may_be_decided_in_any_way_at_any_time():
    """Its record has neither family nor reference, time or options."""
    said = {"family", "ref", "due_ms", "options"}
    older = {key: value for key, value in RECORDED.items() if key not in said}
    decoded = decode_record(msgspec.msgpack.encode(older))

    assert approval_of(decoded) == Approval(
        id="approval-3", call_id="a", tool="t", args={"x": [None]}, requested_at_ms=4
    )


@pytest.mark.parametrize("key", ["at_ms", "due_ms"])
def test_a_time_of_an_approval_is_checked_when_it_is_read(key):
    """As it is in the type that its record has the fields of."""
    with pytest.raises(msgspec.ValidationError, match=rf"\.{key}"):
        decode_record(msgspec.msgpack.encode(RECORDED | {key: -1}))


def test_a_step_of_a_run_is_as_short_as_it_can_be():
    """A run of many branches has some records of each."""
    written = msgspec.to_builtins(RunStep(run_id="r", strategy="s", come="b1"))

    assert written == {"run_id": "r", "strategy": "s", "come": "b1"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode({"record": "of_the_future"}),
        msgspec.msgpack.encode({"record": "resumed"}),
        b"\x82\xa6record\xacprompt_queued\xa4text\xa2\xff\xff",
        b"\x82\xa6record\xa4said\xa7message" + b"\x81\xa8metadata" + b"\x81\xa1x" * 100_000,
    ],
    ids=["empty", "no type", "unknown", "half", "no utf-8", "too deep"],
)
def test_what_is_no_record_is_an_error(body):
    """Whatever is wrong with it, the error is one class."""
    with pytest.raises(msgspec.DecodeError):
        decode_record(body)


def test_random_bytes_are_no_record():
    """Torn and mixed up bodies of real records raise one class of error or are records."""
    draw = random.Random(8)
    bodies = [msgspec.msgpack.encode(example) for example in EXAMPLES]
    refused = 0
    for _ in range(5_000):
        body = bytearray(draw.choice(bodies))
        body[draw.randrange(len(body))] = draw.randrange(256)
        try:
            assert isinstance(decode_record(bytes(body[: draw.randrange(1, 200)])), Record)
        except msgspec.DecodeError:
            refused += 1

    assert refused > 0


@pytest.mark.parametrize("record", RECORDS)
def test_every_number_of_a_record_has_its_range(record):
    """Memory adds them up and is saved as 64 bits; a journal from elsewhere may say anything."""
    assert unbounded(record) == []


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in vars(records).values()
        if is_struct(kind) and kind.__module__ == records.__name__
    ],
    ids=lambda kind: kind.__name__,
)
def test_what_is_written_down_is_never_changed_and_says_what_it_is(kind):
    """Its fields are given by name, so that one more in their midst changes no meaning."""
    kinds = {one.kind for one in inspect.signature(kind).parameters.values()}

    assert kind.__struct_config__.frozen
    assert kinds <= {inspect.Parameter.KEYWORD_ONLY} or kind in IN_ORDER


def test_a_call_that_keeps_something_before_it_asks_has_asked_nothing():
    """So nothing of the user's answers is gone on with."""
    assert CallKept(call_id="a", content=b"here").asked == 0
