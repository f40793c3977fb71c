"""Every input is made again from the records of its step, and decided again as it was.

``LIVES`` has a short life for each input that keeps records: its last step is that input's. What
only observers see of an input is empty in it, so that it comes back as it was fed.
"""

from dataclasses import replace

import msgspec
import pytest

from cmdc_runtime.commands import (
    Abort,
    Approve,
    AttachPlugin,
    AttachTools,
    Prompt,
    ReplaceTools,
    Steer,
    SwitchModel,
    UserRespond,
)
from cmdc_runtime.events import PluginEvent
from cmdc_runtime.extensions.kernel_emits import RequireApproval
from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.messages import Message, OpeningCall, TokenUsage, ToolCall
from cmdc_runtime.parcels import Packed
from workers.core import inputs, snapshot
from workers.core.assemble import Reply
from workers.core.budget import Grant
from workers.core.inputs import Order
from workers.core.records import (
    RECORDS,
    Cause,
    CodeTaken,
    Continued,
    CycleEnded,
    PluginSetChanged,
    PromptQueued,
    SetAside,
    Where,
)
from workers.core.replaying import Played, play
from workers.core.replaying_inputs import INPUTS, NotDerivableError, Scene, inputs_of
from workers.core.state import Memory, PluginFacts, State, ToolFacts
from workers.core.verdict import Aborted, Verdict

IDLE, RUNNING, STREAMING, TOOLS = State
USED = TokenUsage(prompt_tokens=2, completion_tokens=1, total_tokens=3)
LONG = tuple(Message(id=f"old-{n}", role="user", content="old") for n in range(12))
CALL = ToolCall(call_id="a", name="read", arguments={"n": 1})
NEW = ToolFacts(
    "new", True, "thread", Packed(kind="value", label="new", data=b"\x80", python=(3, 11)), 7
)
GUARD = Packed(kind="ref", label="guard", ref="guard")
OPENING = OpeningCall(name="read", arguments={"n": 1})
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
    return session.at(TOOLS).report(inputs.ApprovalNeeded, "b", HELD, 9, ref="b:approval")


def blocked(session):
    """Return a batch of which a call has ended because a person is asked."""
    return session.at(TOOLS).report(inputs.ApprovalNeeded, "b", RequireApproval(), 9)


def waiting(session):
    """Return a session that waits for what plugins say of a request."""
    return session.new(hooks={"before_request"}).prompt()


def branched(session):
    """Return a batch of which a call has a branch."""
    task, limit = inputs.BranchTask(""), Grant(tokens=40, cost_usd=0.5)
    return session.at(TOOLS).report(
        inputs.BranchWanted, "a", "a:branch-b1", task, "digest", limit, 2
    )


def delegated(session):
    """Return a batch of which a call has a subagent."""
    return session.at(TOOLS).report(inputs.SubagentWanted, "a", "a:sub-1", "any", "")


def loaded(session, command, *found):
    """Return a session whose parcels were opened for a command."""
    named = tuple(inputs.Found(tool.name, tool) for tool in found)
    return session.new().give(command, "t").post(inputs.ToolsLoaded("t", command, named))


def attached(session, verdict):
    """Return a session that has a plugin more."""
    command, facts = AttachPlugin(plugin=GUARD), PluginFacts("guard", frozenset({"x"}), GUARD)
    return session.new().give(command, "g").post(inputs.PluginLoaded("g", command, facts, verdict))


def judged(session, verdict):
    """Return a session in which plugins were asked about guidance."""
    before = session.at(STREAMING, hooks={"before_steering"}).give(Steer(text="left"), "s-1")
    order = before.taken[-1].given
    return before.post(inputs.SteeringJudged(order, order.command, verdict))


def returned(session, *, ok=True, text="fine", **fields):
    """Return a batch of which a call that writes has returned."""
    return session.at(TOOLS).begin("b").report(inputs.ToolReturned, "b", ok, text, 10, **fields)


LIVES = {
    "order": {
        "prompt": lambda s: s.new().prompt(),
        "queued prompt": lambda s: s.at(RUNNING).prompt("more", "p-2"),
        "abort": lambda s: s.at(STREAMING).prompt("more", "p-2").give(Abort(reason="why"), "a-1"),
        "abort of silence": lambda s: (
            s.at(RUNNING).report(inputs.FirstChunk).give(Abort(reason="why"), "a-1")
        ),
        "guidance": lambda s: s.at(TOOLS).begin("b").give(Steer(text="left"), "s-1"),
        "leave": lambda s: blocked(s).give(Approve(approval_id="approval-4"), "y-1"),
        "answer": lambda s: (
            s.at(TOOLS)
            .begin("a")
            .report(inputs.QuestionAsked, "a", "a:ask-1", "", ())
            .give(UserRespond(ref="a:ask-1", response={"n": [1]}), "r-1")
        ),
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
        "": lambda s: (
            s.at(TOOLS).begin("a").report(inputs.ToolTold, "a", PluginEvent(name="", payload=None))
        ),
    },
    "approval_needed": {"blocks": blocked, "held": held},
    "tool_returned": {
        "well": returned,
        "with an error": lambda s: returned(s, ok=False, text="no"),
        "cut": lambda s: returned(s, ok=False, text="late", is_cut=True),
        "with todos": lambda s: returned(
            s, effect=("update_todos", {"todos": ({"content": "sow"},)})
        ),
    },
    "tool_refused": {"": lambda s: s.at(TOOLS).report(inputs.ToolRefused, "a", "not now", 9)},
    "question_asked": {
        "": lambda s: s.at(TOOLS).begin("a").report(inputs.QuestionAsked, "a", "a:ask-1", "", ()),
    },
    "subagent_wanted": {"": delegated},
    "branch_wanted": {"": branched},
    "plugin_delegated": {
        "": lambda s: s.at(RUNNING).post(inputs.PluginDelegated("judge", "judge-1", "any", "")),
    },
    "subagent_done": {
        # Of one that is no branch the journal does not tell how it ended: its call's result does.
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
    "plugin_loaded": {
        "in silence": lambda s: attached(s, Verdict()),
        "with words": lambda s: attached(s, WORDS),
    },
    "consulted": {
        "in silence": lambda s: (
            s.new(hooks={"before_prompt"}).prompt().give(Steer(text="left"), "s-1")
        ).report(inputs.Consulted, Verdict(), 7),
        "with words": lambda s: waiting(s).report(inputs.Consulted, WORDS, 7),
        "with an end": lambda s: waiting(s).report(
            inputs.Consulted, Verdict(abort=Aborted("p", "no")), 7
        ),
        "against a summary": lambda s: (
            s.new(Memory(model="x:m", messages=LONG), hooks={"before_compact"})
            .prompt()
            .report(inputs.StreamFailed, FailureKind.OVERFLOW, "too long", 8)
            .report(inputs.Consulted, Verdict(skipped="p"), 9)
        ),
    },
    "plugins_spoke": {
        "": lambda s: s.at(STREAMING).post(inputs.PluginsSpoke(WORDS)),
        "with a leave": lambda s: blocked(s).post(
            inputs.PluginsSpoke(
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
        "rejected": lambda s: judged(s, replace(WORDS, abort=Aborted("p", "no"))),
    },
}
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


def scene_of(taken, commands):
    """Return what the journal tells of a step."""
    first, *rest = taken.records
    records = (msgspec.structs.replace(first, cause=None), *rest)
    return Scene(first.cause, records, taken.memory, commands)


def kept(memory):
    """Return what of a memory is there for the next process."""
    return snapshot.restore(Memory(), snapshot.encode(memory))


def test_every_input_and_every_record_has_a_life(session):
    """None can be forgotten here: a new one is named."""
    lives = {name: [live(session) for live in lives.values()] for name, lives in LIVES.items()}
    taken = [one for some in lives.values() for life in some for one in life.taken]
    told = {type(record) for one in taken for record in one.records}

    assert lives.keys() == INPUTS.keys()
    assert told | AT_BEGINNING == set(RECORDS)
    assert {
        life.taken[-1].records[0].cause.input for some in lives.values() for life in some
    } == lives.keys()


@every_life
def test_an_input_comes_back_as_it_was_fed(session, live):
    """After the text that an answer had so far, where a step keeps that."""
    life = live(session)
    last = life.taken[-1]
    *before, again = inputs_of(scene_of(last, life.commands))
    text = [inputs.TextArrived(last.memory.work, "part", ())]
    is_told = any(one.message.content == "part" for one in last.records if hasattr(one, "message"))

    assert again == last.given
    assert before == (text if is_told else [])


@every_life
def test_a_life_is_decided_again_as_it_was(session, live):
    """Each step keeps the same records, and leaves the same behind."""
    life = live(session)
    steps = list(play(life.first, life.entries, life.commands))

    assert [type(one) for one in steps] == [Played] * len(steps)
    assert [entry for one in steps for entry in one.entries] == life.entries
    assert (steps[-1].state, kept(steps[-1].memory)) == (life.state, kept(life.memory))


# --- what the journal has dropped ----------------------------------------------------------------

RETOLD = {
    "prompt": (lambda s: s.new(), Prompt(text="go", call=OPENING)),
    "queued prompt": (lambda s: s.at(RUNNING), Prompt(text="more")),
    "guidance": (lambda s: s.at(STREAMING), Steer(text="left")),
    "model": (lambda s: s.new(), SwitchModel(model="y:n", provider_opts={"seed": 1})),
    "answer": (
        lambda s: s.at(TOOLS).begin("a").report(inputs.QuestionAsked, "a", "a:ask-1", "which?", ()),
        UserRespond(ref="a:ask-1", response=["yes"]),
    ),
}
UNTOLD = {
    "abort": (lambda s: s.at(RUNNING), Abort()),
    "guidance that ends calls": (lambda s: s.at(TOOLS), Steer(text="left", scope="tree")),
}


@pytest.mark.parametrize("name", RETOLD)
def test_a_command_is_read_out_of_its_record(session, name):
    """Of those that the journal has dropped, where the record tells all of it."""
    begin, command = RETOLD[name]
    life = begin(session).give(command, "c-1", at_ms=5)

    assert inputs_of(scene_of(life.taken[-1], {})) == (Order("c-1", command, 5),)


@pytest.mark.parametrize("name", UNTOLD)
def test_a_command_that_no_record_tells_is_missed(session, name):
    """It is said which; nothing is guessed."""
    begin, command = UNTOLD[name]
    life = begin(session).give(command, "c-1", at_ms=5)

    with pytest.raises(NotDerivableError, match="does not keep command c-1"):
        inputs_of(scene_of(life.taken[-1], {}))


def test_a_prompt_with_metadata_was_no_command_of_that_name():
    """A decision of a person opened it: the record does not tell which."""
    queued = PromptQueued(command_id="c-1", text="go", metadata={"approval_id": "approval-3"})
    scene = Scene(Cause("order", Where("running"), "c-1"), (queued,), Memory(), {})

    with pytest.raises(NotDerivableError, match="does not keep command c-1"):
        inputs_of(scene)


ENDED = CycleEnded(command_id="p-1", outcome="failed")
DETACHED = PluginSetChanged(detached=("old",))
PROMPT = {"c-1": Prompt(text="go")}
ODD = {
    "unknown": ("of_the_future", {}, ENDED, "no input 'of_the_future'"),
    "no record": ("stream_ended", {}, ENDED, "has no said, which stream_ended is known by"),
    "no fact": ("stream_failed", {"kind": "transient"}, ENDED, "does not tell 'reason'"),
    "odd fact": ("stream_failed", {"kind": "gone", "reason": ""}, ENDED, "failed is odd: 'gone'"),
    "odd reason": ("recovery", {"reason": {"type": "gone"}}, ENDED, "recovery is odd"),
    "other command": ("plugin_loaded", {}, DETACHED, "no command for plugin_loaded"),
    "no tools": ("tools_loaded", {}, ENDED, "command c-1 brings no tools"),
    "no end": ("plugins_aborted", {}, ENDED, "does not tell which plugin ended the cycle"),
}


@pytest.mark.parametrize("name", ODD)
def test_what_the_journal_does_not_tell_is_said(name):
    """Whoever wrote it, and whatever it says instead."""
    kind, facts, record, why = ODD[name]
    cause = Cause(kind, Where("running"), "c-1", facts=facts)

    with pytest.raises(NotDerivableError, match=why):
        inputs_of(Scene(cause, (record,), Memory(), PROMPT))


def test_a_plugin_that_nobody_attached_is_missed():
    """Its record is that of another change."""
    cause = Cause("plugin_loaded", Where("idle"), "c-1")
    scene = Scene(cause, (DETACHED,), Memory(), {"c-1": AttachPlugin(plugin=GUARD)})

    with pytest.raises(NotDerivableError, match="names no plugin that was attached"):
        inputs_of(scene)
