"""What a step came of is written down with its records, read again, and decided again as it was.

``LIVES`` has a short life for each input that keeps records: its last step is that input's. What
only observers see of an input is empty in it, so that it comes back as it was fed.
"""

import dataclasses

import msgspec
import pytest
from msgspec.structs import replace

from cmdc_runtime.commands import (
    Abort,
    Approve,
    AttachMcpServer,
    AttachPlugin,
    AttachTools,
    Prompt,
    ReplaceTools,
    Steer,
    SwitchModel,
    UserRespond,
)
from cmdc_runtime.events import PluginEvent
from cmdc_runtime.extensions.actions import RequireApproval
from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.mcp_servers import McpServer
from cmdc_runtime.messages import Message, OpeningCall, TokenUsage, ToolCall
from cmdc_runtime.packed_code import Packed
from workers.core import causes, inputs, snapshot
from workers.core.assemble import Reply
from workers.core.budget import Grant
from workers.core.inputs import Order
from workers.core.records import (
    RECORDS,
    Cause,
    CodeTaken,
    Continued,
    CycleEnded,
    RecordedActivity,
    SetAside,
    decode_record,
)
from workers.core.replaying import PlayedStep, play, reread
from workers.core.state import (
    AgentFacts,
    AskingPlugins,
    Memory,
    PluginFacts,
    Resting,
    State,
    ToolFacts,
)
from workers.core.verdict import Aborted, Verdict

IDLE, RUNNING, STREAMING, TOOLS = State
USED = TokenUsage(prompt_tokens=2, completion_tokens=1, total_tokens=3)
LONG = tuple(Message(id=f"old-{n}", role="user", content="old") for n in range(12))
CALL = ToolCall(call_id="a", name="read", arguments={"n": 1})
FILES = McpServer("files", command=["files"])
NEW = ToolFacts(
    "new", True, "thread", Packed(kind="value", label="new", data=b"\x80", python=(3, 11)), 7
)
GUARD = Packed(kind="ref", label="guard", ref="guard")
NOTHING_SAID = PluginEvent(name="", payload=None)
OPENING = OpeningCall(name="read", arguments={"n": 1})
RECORD = [CycleEnded(command_id="p-1", outcome="finished", reason=None)]
HELD = RequireApproval(family="any", hold=True, timeout_s=1.5, options=("approve_once",))
WORDS = Verdict(
    states=(("p", b"state"),),
    emitted=(("update_system_context", {"key": "Plan", "text": "1. sow"}),),
    model=("y:n", {"seed": 1}),
    interventions=("mind", "the gap"),
)


def overflown(session):
    """Return a session whose request waits for a summary."""
    begun = session.new(Memory(model="x:m", messages=LONG)).prompt()
    return begun.report(inputs.StreamFailed, FailureKind.OVERFLOW, "too long", 8)


def held(session):
    """Return a batch of which a call waits for a person."""
    return session.at(TOOLS).report(inputs.ApprovalRequest, "b", HELD, 9, ref="b:approval")


def blocked(session):
    """Return a batch of which a call has ended because a person is asked."""
    return session.at(TOOLS).report(inputs.ApprovalRequest, "b", RequireApproval(), 9)


def waiting(session):
    """Return a session that waits for what plugins say of a request."""
    return session.new(hooks={"before_request"}).prompt()


def branched(session):
    """Return a batch of which a call has a branch."""
    task, limit = inputs.BranchTask(""), Grant(tokens=40, cost_usd=0.5)
    return session.at(TOOLS).report(
        inputs.BranchWanted, "a", "a:branch-b1", task, "digest", limit, 2
    )


def client_called(session):
    """Return a session with a call that its tool's program is to make."""
    begun = session.at(TOOLS).begin("a")
    return begun.report(inputs.ClientCallWanted, "a", "a:client-1", "o-1", {})


def delegated(session):
    """Return a batch of which a call has a subagent."""
    return session.at(TOOLS).report(inputs.SubagentWanted, "a", "a:sub-1", "any", "")


def loaded(session, command, *found):
    """Return a session whose packed code was opened for a command."""
    named = tuple(inputs.FoundTool(tool.name, tool) for tool in found)
    return session.new().give(command, "t").post(inputs.ToolsLoaded("t", command, named))


def attached(session, verdict):
    """Return a session that has a plugin more."""
    command, facts = AttachPlugin(plugin=GUARD), PluginFacts("guard", frozenset({"x"}), GUARD)
    return session.new().give(command, "g").post(inputs.PluginLoaded("g", command, facts, verdict))


def judged(session, verdict):
    """Return a session in which plugins were asked about steering."""
    before = session.at(STREAMING, hooks={"before_steering"}).give(Steer(text="left"), "s-1")
    order = before.taken[-1].given
    return before.post(inputs.SteeringAnswered(order, order.command, verdict))


def returned(session, *, ok=True, text="fine", **fields):
    """Return a batch of which a call that writes has returned."""
    return session.at(TOOLS).begin("b").report(inputs.ToolReturned, "b", ok, text, 10, **fields)


def handing(session, **of_agent):
    """Return a session whose call to hand it over has returned."""
    way = ToolFacts("transfer_to_b", True, "task", Packed(kind="ref", label="b", ref="transfer"))
    agents = (AgentFacts("main", is_own=True), AgentFacts("b", model="y:n", **of_agent))
    begun = session.new(Memory(model="x:m", tools=(way,)), agents=agents).prompt()
    return begun.call("transfer_to_b:t").begin("t").end("t")


LIVES = {
    "order": {
        "prompt": lambda s: s.new().prompt(),
        "queued prompt": lambda s: s.at(RUNNING).prompt("more", "p-2"),
        "abort": lambda s: s.at(STREAMING).prompt("more", "p-2").give(Abort(reason="why"), "a-1"),
        "abort of silence": lambda s: (
            s.at(RUNNING).report(inputs.FirstChunk).give(Abort(reason="why"), "a-1")
        ),
        "abort of thinking": lambda s: (
            s.at(RUNNING)
            .report(inputs.FirstChunk)
            .report(inputs.ThoughtArrived, "hm, hm, hm")
            .give(Abort(reason="why"), "a-1")
        ),
        "steering": lambda s: s.at(TOOLS).begin("b").give(Steer(text="left"), "s-1"),
        "leave": lambda s: blocked(s).give(Approve(approval_id="approval-4"), "y-1"),
        "answer": lambda s: (
            s.at(TOOLS)
            .begin("a")
            .report(inputs.QuestionAsked, "a", "a:ask-1", "", ())
            .give(UserRespond(ref="a:ask-1", response={"n": [1]}), "r-1")
        ),
        "server": lambda s: s.new().give(AttachMcpServer(server=FILES), "m-1"),
        "model": lambda s: s.new().give(SwitchModel(model="y:n"), "m-1"),
    },
    "recovery": {
        "of a batch": lambda s: s.at(TOOLS).begin("b").crash(),
        "twice": lambda s: s.at(STREAMING).crash().report(inputs.FirstChunk).crash(),
    },
    "stream_ended": {
        "with a call": lambda s: s.at(STREAMING).report(
            inputs.StreamEnded, Reply("part", "hm", (CALL,), USED, "tool_calls"), 8
        ),
        "with text held back": lambda s: (
            s.at(RUNNING)
            .speak("part <tit")
            .report(inputs.StreamEnded, Reply("", None, (), USED, ""), 8)
        ),
        "without a text": lambda s: (
            s.at(RUNNING)
            .report(inputs.FirstChunk)
            .report(inputs.StreamEnded, Reply("", None, (), USED, ""), 8)
        ),
    },
    "stream_failed": {
        "for good": lambda s: s.at(STREAMING).report(
            inputs.StreamFailed, FailureKind.PERMANENT, "why", 9
        ),
    },
    "summarized": {
        "with a file": lambda s: overflown(s).report(
            inputs.Summarized, "short", USED, "history.md", 9
        ),
        "without a file": lambda s: overflown(s).report(inputs.Summarized, "short", USED, None, 9),
    },
    "summary_failed": {"": lambda s: overflown(s).report(inputs.SummaryFailed, "busy", 9)},
    "tool_begun": {"": lambda s: s.at(TOOLS).report(inputs.ToolBegun, "a", 9)},
    "tool_told": {
        "": lambda s: s.at(TOOLS).begin("a").report(inputs.ToolStepReported, "a", NOTHING_SAID)
    },
    "tool_kept": {"": lambda s: s.at(TOOLS).begin("a").report(inputs.ToolKept, "a", b"here", 1)},
    "approval_needed": {"blocks": blocked, "held": held},
    "tool_returned": {
        "well": returned,
        "with an error": lambda s: returned(s, ok=False, text="no"),
        "cut": lambda s: returned(s, ok=False, text="late", is_cut=True),
        "with a handoff": handing,
        "with todos": lambda s: returned(
            s, effect=("update_todos", {"todos": [{"content": "sow"}]})
        ),
    },
    "history_filtered": {
        "": lambda s: handing(s, has_filter=True).report(
            inputs.HistoryFiltered, "b", (Message(id="m-1", role="user", content="short"),), 12
        ),
        "failed": lambda s: handing(s, has_filter=True).report(
            inputs.HistoryFiltered, "b", None, 12, "it raised"
        ),
    },
    "guardrails_answered": {
        "input": lambda s: s.at(STREAMING, guards_input=True).report(
            inputs.GuardrailsAnswered, inputs.Tripped("guard", "no", {"n": 1}), 9
        ),
        "output": lambda s: (
            s.at(STREAMING, guards_output=True)
            .answer()
            .report(inputs.GuardrailsAnswered, inputs.Tripped("guard", "no"), 9)
        ),
        "call": lambda s: (
            s.new(guards_input=True, opening_call=OpeningCall(name="read"))
            .prompt()
            .report(inputs.GuardrailsAnswered, None, 9)
        ),
        "passed": lambda s: (
            s.at(STREAMING, guards_output=True).answer().report(inputs.GuardrailsAnswered, None, 9)
        ),
    },
    "tool_refused": {"": lambda s: s.at(TOOLS).report(inputs.ToolRefused, "a", "not now", 9)},
    "question_asked": {
        "": lambda s: s.at(TOOLS).begin("a").report(inputs.QuestionAsked, "a", "a:ask-1", "", ()),
    },
    "client_call_wanted": {"": client_called},
    "client_call_dropped": {
        "": lambda s: client_called(s).report(inputs.ClientCallDropped, "a", "a:client-1"),
    },
    "subagent_wanted": {"": delegated},
    "branch_wanted": {"": branched},
    "plugin_delegated": {
        "": lambda s: s.at(RUNNING).post(inputs.PluginDelegated("judge", "judge-1", "any", "")),
    },
    "subagent_done": {
        # Of one that is no branch the journal does not say how it ended: its call's result does.
        "subagent": lambda s: delegated(s).post(
            inputs.SubagentDone("s.1", True, "", USED, is_lost=True)
        ),
        "branch": lambda s: branched(s).post(inputs.SubagentDone("s.1", True, "did it", USED)),
        "bad branch": lambda s: branched(s).post(inputs.SubagentDone("s.1", False, "no", USED)),
        "lost branch": lambda s: branched(s).post(
            inputs.SubagentDone("s.1", True, "", USED, is_lost=True)
        ),
    },
    "approval_expired": {
        "": lambda s: held(s).post(inputs.ApprovalExpired("approval-4", 10**9)),
    },
    "cycle_expired": {
        "": lambda s: s.at(STREAMING, cycle_timeout_s=1.0).post(inputs.CycleExpired("p-1", 10**9)),
    },
    "stopped": {"": lambda s: s.at(TOOLS).begin("b").post(inputs.Stopped(9))},
    "tools_loaded": {
        "attached": lambda s: loaded(s, AttachTools(tools=(NEW.packed,)), NEW),
        "in place of others": lambda s: loaded(
            s, ReplaceTools(tools=(NEW.packed,)), ToolFacts("write"), NEW
        ),
    },
    "mcp_tools_listed": {
        "": lambda s: s.new(Memory(model="x:m", mcp_servers=(FILES,))).post(
            inputs.McpToolsListed("files", {"mcp__files__read": "d"})
        ),
    },
    "plugin_loaded": {
        "in silence": lambda s: attached(s, Verdict()),
        "with words": lambda s: attached(s, WORDS),
    },
    "consulted": {
        "in silence": lambda s: (
            s.new(hooks={"before_prompt"}).prompt().give(Steer(text="left"), "s-1")
        ).report(inputs.PluginsAnswered, Verdict(), 7),
        "with words": lambda s: waiting(s).report(inputs.PluginsAnswered, WORDS, 7),
        "with an end": lambda s: waiting(s).report(
            inputs.PluginsAnswered, Verdict(abort=Aborted("p", "no")), 7
        ),
        "against a summary": lambda s: (
            s.new(Memory(model="x:m", messages=LONG), hooks={"before_compact"})
            .prompt()
            .report(inputs.StreamFailed, FailureKind.OVERFLOW, "too long", 8)
            .report(inputs.PluginsAnswered, Verdict(skipped="p"), 9)
        ),
    },
    "plugins_spoke": {
        "": lambda s: s.at(STREAMING).post(inputs.PluginsReported(WORDS)),
        "with a leave": lambda s: blocked(s).post(
            inputs.PluginsReported(
                Verdict(
                    emitted=(
                        (
                            "decide_approval",
                            {"approval_id": "approval-4", "decision": "approve_once"},
                        ),
                    )
                )
            )
        ),
    },
    "plugin_asked_model": {
        "": lambda s: s.at(RUNNING).post(inputs.PluginAskedModel("judge", "x:m", USED)),
    },
    "plugins_aborted": {
        "": lambda s: s.at(STREAMING).report(inputs.PluginsAborted, Aborted("p", ["no"]), 9),
    },
    "steering_judged": {
        "in silence": lambda s: judged(s, Verdict()),
        "with words": lambda s: judged(s, WORDS),
        "rejected": lambda s: judged(s, dataclasses.replace(WORDS, abort=Aborted("p", "no"))),
    },
}
SILENT = {
    *("first_chunk", "text_arrived", "thought_arrived", "stream_silent", "retry_due"),
    *("tool_emitted", "compact_wanted", "delegation_dropped", "branch_dropped", "wait_expired"),
    "mcp_server_reported",
}
"""Inputs whose steps keep no record, in any state."""
AT_BEGINNING = {Continued, SetAside, CodeTaken}
"""Records of a process that has taken no step yet: no input."""
every_life = pytest.mark.parametrize(
    "live",
    [
        pytest.param(live, id=f"{name}: {more}" if more else name)
        for name, lives in LIVES.items()
        for more, live in lives.items()
    ],
)


def read(taken, left):
    """Return what is read of a step in the journal: the memory that it began with, its input."""
    first, *rest = map(reread, taken.records)
    bare = (msgspec.structs.replace(first, cause=None), *rest)
    return causes.read_cause(first.cause, bare, left)


def kept(memory):
    """Return what of a memory is there for the next process."""
    return snapshot.restore(Memory(), snapshot.encode(memory))


def test_every_input_and_every_record_has_a_life(session):
    """None can be forgotten here: a new one is named."""
    lives = {name: [live(session) for live in lives.values()] for name, lives in LIVES.items()}
    taken = [one for some in lives.values() for life in some for one in life.taken]
    recorded = {type(record) for one in taken for record in one.records}

    assert lives.keys() == causes.INPUTS.keys() - SILENT
    assert recorded | AT_BEGINNING == set(RECORDS)
    assert {
        life.taken[-1].records[0].cause.input for some in lives.values() for life in some
    } == lives.keys()


@every_life
def test_an_input_comes_back_as_it_was_fed(session, live):
    """And so does what it met, where the step before had left the session at something else."""
    last = live(session).taken[-1]
    is_recorded = last.records[0].cause.activity is not None
    left = replace(last.memory, activity=Resting(), work=0) if is_recorded else last.memory

    memory, again = read(last, left)

    assert again == last.given
    assert met(memory) == met(last.memory)


def met(memory):
    """Return what a decision may see of a memory: not how much of an answer was shown."""
    came = memory.answering
    seen = replace(came, is_text_started=False, is_thinking_started=False, tags=came.tags.held)
    return replace(memory, activity=(memory.state, seen, memory.point, memory.compacting))


@every_life
def test_a_life_is_decided_again_as_it_was(session, live):
    """Each step keeps the same records, and leaves the same behind."""
    life = live(session)
    steps = list(play(life.first, life.entries))

    assert [type(one) for one in steps] == [PlayedStep] * len(steps)
    assert [entry for one in steps for entry in one.entries] == life.entries
    assert (steps[-1].state, kept(steps[-1].memory)) == (life.state, kept(life.memory))


# --- what is written down -------------------------------------------------------------------------

ENDED = CycleEnded(command_id="p-1", outcome="failed", reason="why")
WORDY = "a text that is long enough to be quoted"


def cause_of(given, *kept, memory=None, since=None):
    """Return the cause of a step."""
    (first, *_) = causes.with_cause([*kept, ENDED], given, memory or Memory(), since)
    return first.cause


def test_the_first_record_of_a_step_has_the_cause_of_all(session):
    """The name of the input, its fields, how many records there are, and what was being done."""
    running = session.at(RUNNING).memory
    order = Order("p-1", Prompt(text="go"), at_ms=5)
    first, second = causes.with_cause([ENDED, ENDED], order, running, None)
    recorded = {"id": "p-1", "command": {"type": "prompt", "text": "go"}, "at_ms": 5}

    assert reread(first).cause == Cause(
        "order", recorded, running.work, 2, RecordedActivity("asking")
    )
    assert second == ENDED


def test_a_step_without_a_record_has_no_cause():
    """Nothing is written down then."""
    assert causes.with_cause([], inputs.FirstChunk(1), Memory(), None) == []


@pytest.mark.parametrize("changed", [False, True])
def test_what_the_session_was_doing_is_recorded_where_it_is_another_thing(session, changed):
    """Than it was behind the last step that kept records; ``work`` is recorded in any case."""
    before = session.at(RUNNING).memory
    memory = session.at(STREAMING).memory if changed else replace(before, work=7)
    cause = cause_of(inputs.Stopped(9), memory=memory, since=before)

    assert (cause.activity is not None, cause.work) == (changed, memory.work)


def test_a_text_that_a_record_has_is_not_repeated():
    """Its place there is enough; without such a record it stands for itself."""
    failed = inputs.StreamFailed(1, FailureKind.PERMANENT, WORDY, 8)
    record = CycleEnded(command_id="p-1", outcome="failed", reason=f"it is {WORDY}")

    assert cause_of(failed).given["reason"] == WORDY
    assert isinstance(cause_of(failed, record).given["reason"], msgspec.msgpack.Ext)


SEEN = {
    "tool_begun": inputs.ToolBegun(1, "a", 9, "reads it", {"n": 2}),
    "tool_told": inputs.ToolStepReported(1, "a", PluginEvent(name="odd", payload=WORDY)),
    "approval_needed": inputs.ApprovalRequest(1, "a", RequireApproval(), 9, {"n": 2}),
    "question_asked": inputs.QuestionAsked(1, "a", "r", "which?", ("this", "that")),
    "client_call_wanted": inputs.ClientCallWanted(1, "a", "r", "o-1", {"n": 2}),
    "subagent_wanted": inputs.SubagentWanted(1, "a", "r", "any", "look"),
    "plugin_delegated": inputs.PluginDelegated("judge", "r", "any", "look"),
    "branch_wanted": inputs.BranchWanted(1, "a", "r", inputs.BranchTask("why?"), "digest"),
    "consulted": inputs.PluginsAnswered(1, Verdict(messages=LONG, crashed=(("p", "h", "e"),)), 9),
    "plugins_spoke": inputs.PluginsReported(Verdict(args={"n": 2}, ignored=(("p", "skip"),))),
    "plugin_loaded": inputs.PluginLoaded(
        "c", AttachPlugin(plugin=GUARD), None, Verdict(crashed=(("p", "h", "e"),)), "why"
    ),
    "steering_judged": inputs.SteeringAnswered(
        Order("s-1", Steer(text="l"), 5), Steer(text="l"), Verdict(ignored=(("p", "skip"),))
    ),
}


@pytest.mark.parametrize("name", SEEN)
def test_what_only_observers_see_is_not_written_down(name):
    """No record depends on it, so nobody finds it in the journal."""
    recorded = str(cause_of(SEEN[name]).given)

    assert name in causes.INPUTS
    for word in ("reads it", "'n'", WORDY, "which?", "look", "why?", "old-1", "'h'", "'skip'"):
        assert word not in recorded


def test_what_was_shown_of_an_answer_is_not_written_down(session):
    """Of one that is not held back somewhere: what comes of it is decided by its end."""
    shown = session.at(RUNNING).speak("part").report(inputs.ThoughtArrived, "hm")
    memory = shown.memory

    assert memory.answering.is_text_started
    assert memory.answering.is_thinking_started
    fields = cause_of(inputs.Stopped(9), memory=memory).activity.fields
    assert fields["answering"].keys().isdisjoint({"is_text_started", "is_thinking_started"})


def test_an_activity_has_the_name_that_journals_have_for_it(session):
    """It is read again by it, also where its class was called otherwise when it was written."""
    asking = session.new(hooks={"before_request"}).prompt().memory

    assert cause_of(inputs.Stopped(9), memory=asking).activity.name == "consulting"


# --- what the journal does not say ----------------------------------------------------------------

ODD = {
    "unknown": (Cause("of_the_future", {}), "no input 'of_the_future'"),
    "no field": (Cause("stopped", {}), "of stopped is odd: .*at_ms"),
    "other field": (Cause("stopped", {"at_ms": 1, "why": 2}), "stopped is odd: Stopped has no why"),
    "odd field": (Cause("stopped", {"at_ms": "noon"}), "stopped is odd: Expected `int`"),
    "odd reason": (Cause("recovery", {"reason": {"type": "gone"}, "at_ms": 1}), "recovery is odd"),
    "odd command": (
        Cause("order", {"id": "c", "command": {"type": "gone"}, "at_ms": 1}),
        "order is odd: not a Command",
    ),
    "no activity": (
        Cause("stopped", {"at_ms": 1}, activity=RecordedActivity("gone")),
        "stopped is odd: 'gone'",
    ),
    "odd activity": (
        Cause("stopped", {"at_ms": 1}, activity=RecordedActivity("streaming")),
        "stopped is odd",
    ),
    "no text": (
        Cause("stopped", {"at_ms": msgspec.msgpack.Ext(127, b"\x93\x09\x00\x01")}),
        "stopped is odd: it quotes a part that is not there",
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_what_cannot_be_read_is_said(name):
    """Whoever wrote it."""
    cause, why = ODD[name]

    with pytest.raises(causes.UnreadableCauseError, match=why):
        causes.read_cause(cause, (ENDED,), Memory())


@pytest.mark.parametrize("body", [b"\x82\xa6record\xabcycle_ended\xaacommand_id\xa1p"])
def test_a_record_of_an_older_program_has_no_cause(body):
    """It is read as before; a cause of another form is no cause of ours."""
    older = b"\x84" + body[1:] + b"\xa7outcome\xa6failed" + b"\xa5cause\x92\xa5order\x91\xa4idle"

    assert decode_record(older).cause is None


@pytest.mark.parametrize(
    ("given", "ref", "at_ms"),
    [
        (Order("c-1", Abort(), 5), "c-1", 5),
        (inputs.ToolBegun(1, "a", 9), "a", 9),
        (inputs.SubagentDone("s.1", True, "", USED), "s.1", 0),
        (inputs.ApprovalExpired("approval-4", 7), "approval-4", 7),
        (inputs.CycleExpired("p-1", 7), "p-1", 7),
        (inputs.PluginAskedModel("judge", "x:m", USED), "judge", 0),
        (inputs.Stopped(9), "", 9),
        (
            inputs.SteeringAnswered(Order("s-1", Steer(text="l"), 5), Steer(text="l"), Verdict()),
            "s-1",
            5,
        ),
    ],
)
def test_what_an_input_is_about_and_when_it_came(given, ref, at_ms):
    """For people who read a replay."""
    assert (causes.ref_of(given), causes.at_ms_of(given)) == (ref, at_ms)


@pytest.mark.parametrize(
    ("hook", "word"),
    [
        ("before_prompt", "prompt"),
        ("before_request", "request"),
        ("after_response", "response"),
        ("after_tool_batch", "batch"),
        ("before_finish", "finish"),
        ("before_compact", "compact"),
        ("before_steering", "before_steering"),
    ],
)
def test_a_hook_that_is_waited_at_has_the_word_of_journals(hook, word):
    """Agents of before read it, and have written it; a hook of later is called by its kind."""
    memory = Memory(activity=AskingPlugins(hook))
    [recorded] = causes.with_cause(RECORD, inputs.Stopped(1), memory, None)

    assert recorded.cause.activity.fields["point"] == word
    assert causes.read_cause(recorded.cause, RECORD, Memory())[0] == memory


def test_a_hook_that_nobody_knows_is_reported():
    """An agent of later may wait at one that this program has not."""
    [recorded] = causes.with_cause(
        RECORD, inputs.Stopped(1), Memory(activity=AskingPlugins("on_tuesday")), None
    )

    with pytest.raises(causes.UnreadableCauseError, match="on_tuesday"):
        causes.read_cause(recorded.cause, RECORD, Memory())
