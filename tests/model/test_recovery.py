"""An agent's tables driven at random, with crashes: the journal knows all that must survive.

``Life`` (``conftest.py``) checks after each step that the rebuilt memory is the live one. Here is
what has to hold at the end of a life, as its journal and its events show it.
"""

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cmdc_runtime.commands import (
    Abort,
    Approve,
    AttachPlugin,
    AttachTools,
    AwaitCycle,
    DetachPlugin,
    DetachTools,
    Prompt,
    Reject,
    ReplaceTools,
    Steer,
    SwitchModel,
)
from cmdc_runtime.events import (
    AgentAbort,
    AgentEnd,
    AgentError,
    AgentRecovered,
    PromptDropped,
    ToolBlocked,
    ToolExecutionEnd,
    ToolExecutionStart,
)
from cmdc_runtime.extensions.hooks import HOOKS
from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.messages import OpeningCall, TokenUsage
from cmdc_runtime.packed_code import Packed
from workers.core import evolve, inputs, records
from workers.core.assemble import Reply
from workers.core.budget import Budget
from workers.core.conversation import repair
from workers.core.loops import fingerprint
from workers.core.state import State
from workers.core.verdict import Aborted, Verdict

from .conftest import NAMES

ENDS = AgentEnd | AgentAbort | AgentError
POLICIES = {
    "plain": {},
    "formatted": {"response_format": {"type": "integer"}},
    "plugged": {"hooks": frozenset(HOOKS)},
    "budgeted": {"budget": Budget(max_total_tokens=400, max_cost_usd=4.0), "max_tokens": 1},
}
GUARD = Packed(kind="ref", label="guard", ref="guard")
MAY_RUN_AGAIN = {"read", "ask", "compact", "gated", "fork"}
KINDS = tuple(FailureKind)
CLIENTS = ("prompt", "prompt_a_call", "steer", "abort", "wait", "decide", "change_tools", "switch")
ALWAYS = (
    *CLIENTS,
    "respond",
    "load",
    "child",
    "judge",
    "speak_up",
    "delegate",
    "let_go",
    "lag",
    "expire",
    "change_plugins",
    "load_plugin",
)
HELD_UP = ("apply_verdict", "summarize")
ASKING = (*("speak", "answer") * 4, "fail", "retry", *HELD_UP * 3, *ALWAYS)
# What brings a session on is drawn more often, so that batches get far enough to be cut.
HAPPENS = {
    State.IDLE: (*ALWAYS, *("prompt", "decide") * 2),
    State.RUNNING: ASKING,
    State.STREAMING: ASKING,
    State.EXECUTING_TOOLS: (
        *("begin", "want", "give") * 8,
        *("respond", "child", "summarize") * 2,
        "drop",
        *("stop", *ALWAYS),
    ),
}
numbers = st.integers(0, 3)
histories = st.lists(st.tuples(st.integers(0, 1000), numbers), min_size=10, max_size=60)
policies = st.sampled_from(sorted(POLICIES))


# --- what can happen, beside what the shell does: each with a number from 0 to 3 -----------------


def prompt(session, number):
    session.order(Prompt(text=f"do {number}" if number < 3 else " "), "p")


def prompt_a_call(session, number):
    name = NAMES[session.number % len(NAMES)]
    call = OpeningCall(name=name, arguments={"n": number % 2}, text_as="text")
    session.order(Prompt(text=f"have {number}", call=call), "p")


def steer(session, number):
    scope = ("session", "tree")[number % 2]
    session.order(Steer(text=f"rather {number}" if number < 3 else " ", scope=scope), "s")


def abort(session, number):
    kill = ("killable", "all", "none", "none")[number]
    session.order(Abort(clear_queue=number != 1, kill_tools=kill, children=number != 2), "a")


def wait(session, number):
    latest = session.memory.latest_prompt
    session.asked.append(f"w-{session.number + 1}")
    session.order(AwaitCycle(prompt_id=(None, None, "p-404", latest)[number]), "w")


def decide(session, number):
    waiting = [one.id for one in session.memory.approvals] or ["approval-404"]
    kind = ("approve_once", "approve_always")[session.number % 8 == 0]
    command = (
        Reject(approval_id=waiting[0], auto_resume=session.number % 2 == 0)
        if number == 0
        else Approve(approval_id=waiting[-1], auto_resume=number != 1, kind=kind)
    )
    session.order(command, "d")


def change_tools(session, number):
    command = (
        AttachTools(tools=(), single=True),
        ReplaceTools(tools=()),
        DetachTools(names=("ask", "write")),
        DetachTools(names=("read",), single=True),
    )[number]
    session.order(command, "t")


def change_plugins(session, number):
    attach = AttachPlugin(plugin=GUARD)
    command = (
        attach,
        DetachPlugin(name="guard"),
        attach,
        AttachPlugin(plugin=GUARD, is_update=True),
    )[number]
    session.order(command, "g")


def switch(session, number):
    opts = (None, None, {"seed": 1}, {})[number]
    session.order(SwitchModel(model=("x:m", "y:n", "y:n", "none")[number], provider_opts=opts), "m")


def speak(session, number):
    if session.is_held_up:
        return
    session.post(inputs.FirstChunk)
    kind = (inputs.TextArrived, inputs.ThoughtArrived)[number % 2]
    session.post(kind, ("word ", "hm", "<sta", "x")[number])
    session.post(inputs.StreamSilent, 1.0)


def fail(session, number):
    if not session.is_held_up:
        session.post(inputs.StreamFailed, KINDS[number], "broke", 1)


def retry(session, _number):
    if not session.is_held_up:
        session.post(inputs.RetryDue, 1)


def speak_up(session, number):
    """A plugin has something to say where nothing waits for it."""
    spoken = inputs.PluginsReported(Verdict(interventions=(f"by the way {number}",)))
    session.feed(spoken)


def delegate(session, number):
    """A plugin that is asked wants a subagent, of a kind that there is or not."""
    session.number += 1
    ref, kind = f"plugin:p-{session.number}", ("none", "any", "any", "any")[number]
    session.feed(inputs.PluginDelegated("p", ref, kind, "look"))


def let_go(session, number):
    """It waits no longer for one of those that it has asked for, or for one that is over."""
    refs = [one.ref for one in session.memory.children if one.call_id.startswith("plugin:")]
    ref = refs[number % len(refs)] if refs else "plugin:p-404"
    session.feed(inputs.DelegationDropped(ref or "plugin:p-404"))


def stop(session, number):
    if number == 0:
        session.post(inputs.PluginsAborted, Aborted("plugin", "no"), 7)


def lag(session, number):
    if late := min(number + 1, session.memory.work):
        session.post(inputs.StreamEnded, Reply("", None, (), TokenUsage(), "stop"), 1, late=late)
        session.post(inputs.ToolReturned, "read:2-0", True, "late", 6, late=late)


INPUTS = {
    happens.__name__: happens
    for happens in (
        *(prompt, prompt_a_call, steer, abort, wait, decide, change_tools, change_plugins, switch),
        *(speak, fail, retry, speak_up, delegate, let_go, stop, lag),
    )
}


def do(session, name, number):
    """Let one thing happen: a function here or a method of the session."""
    if name in INPUTS:
        INPUTS[name](session, number)
    else:
        getattr(session, name)(number)


def lived(life, history, policy, *, stormy=True):
    """Return a session to which one thing happened after another, as its state allows."""
    session = life(**POLICIES[policy])
    prompt(session, 0)
    for draw, number in history:
        kinds = HAPPENS[session.state] + (("crash",) if stormy else ())
        do(session, kinds[draw % len(kinds)], number)
    return session


def finish(session):
    """Answer everything until the session rests and nobody waits for anything."""
    for _ in range(300):
        if session.loads or session.judging or session.plugin_loads:
            session.load(1)
            session.load_plugin(1)
            session.judge(0)
        elif session.asked_plugins:
            session.apply_verdict(0)
        elif session.state is State.EXECUTING_TOOLS:
            work_on(session)
        elif session.state is not State.IDLE:
            session.summarize(1) if session.summary else session.answer(0)
        elif session.children:
            session.child(1)
        else:
            return
    raise AssertionError("the session does not come to rest")


def work_on(session):
    """Bring the batch one step on."""
    if session.calls("new"):
        session.begin(0)
    elif session.calls("running"):
        session.give(1)
    elif session.memory.asks:
        session.respond(0)
    elif any(one.ref for one in session.memory.approvals):
        held = next(one.id for one in session.memory.approvals if one.ref)
        session.order(Approve(approval_id=held), "d")
    elif session.summary:
        session.summarize(1)
    else:
        session.child(1)


def of(journal, *kinds):
    return [record for record in journal if isinstance(record, kinds)]


def calls_of(journal):
    """Return every call that a model made, by its id."""
    return {
        call.call_id: call
        for said in of(journal, records.MessageAdded)
        for call in said.message.tool_calls
    }


def steering_shown(journal):
    """Return the references of steering that the model was given, once for each time."""
    shown = [said.message.metadata for said in of(journal, records.MessageAdded)]
    shown += [begun.metadata for begun in of(journal, records.CycleStarted)]
    return [ref for metadata in shown for ref in metadata.get("steering", ())]


def check_accepted(journal):
    """Whatever was accepted has one end: its cycle's, or the model was given it, or dropped."""
    begun = [record.command_id for record in of(journal, records.CycleStarted)]
    dropped = [record.command_id for record in of(journal, records.PromptDiscarded)]
    queued = [record.command_id for record in of(journal, records.PromptQueued)]
    steered = [record.ref for record in of(journal, records.Steered)]
    shown = steering_shown(journal)

    assert [record.command_id for record in of(journal, records.CycleEnded)] == begun
    assert len(set(begun)) == len(begun)
    assert Counter(queued) == Counter(one for one in [*begun, *dropped] if one in queued)
    assert Counter(steered) == Counter([*shown, *(one for one in dropped if one in steered)])
    assert [one for one in queued if one in begun] == [one for one in begun if one in queued]


def check_calls(journal):
    """Each call has one result; one that may not run twice did not, nor one without leave."""
    calls = calls_of(journal)
    ends = Counter(record.message.call_id for record in of(journal, records.ToolEnded))

    assert ends == Counter(dict.fromkeys(calls, 1))
    assert wrong_starts(journal, calls) == []
    check_granted(journal, calls)


def wrong_starts(journal, calls):
    """Return the calls that began again: their tool may not, and they had nothing to go on with."""
    kept, begun, wrong = {}, set(), []
    for record in of(journal, records.ToolStarted, records.CallKept):
        call_id = record.call_id
        if isinstance(record, records.CallKept):
            kept[call_id] = record.content
        elif (
            call_id in begun and calls[call_id].name not in MAY_RUN_AGAIN and not kept.get(call_id)
        ):
            wrong.append(call_id)
        begun.add(call_id)
    return wrong


def check_granted(journal, calls):
    """An approval is used once at most, and only for the call that it was granted for."""
    asked = {record.id: record for record in of(journal, records.ApprovalRequested)}
    left, begun = Counter(), set()
    for record in of(journal, records.ApprovalDecided, records.ToolStarted):
        if isinstance(record, records.ApprovalDecided):
            approval = asked[record.approval_id]
            granted = fingerprint(approval.tool, approval.args, None)
            left[granted] += 1 if record.decision == "approve_once" else 0
            left[approval.tool] += 1 if record.decision == "approve_always" else 0
            continue
        call = calls[record.call_id]
        granted = fingerprint(call.name, call.arguments, None)
        if call.name in {"gated", "held"} and call.call_id not in begun:
            assert left[granted] + left[call.name] > 0
        left[granted] -= 1 if record.granted == granted else 0
        begun.add(call.call_id)
        assert left[granted] >= 0


def check_outcomes(session):
    """Each cycle has one end event, each dropped text one too, each command one outcome."""
    ended = Counter(
        event.command_id
        for event in session.events
        if isinstance(event, ENDS) and event.command_id is not None
    )
    dropped = [event.command_id for event in session.events if isinstance(event, PromptDropped)]

    assert ended == Counter(record.command_id for record in of(session.journal, records.CycleEnded))
    assert dropped == [record.command_id for record in of(session.journal, records.PromptDiscarded)]
    assert session.settled == Counter(session.ordered)


def check_call_events(session):
    """Each call of an answer is reported twice: it starts or is not made, then it ends."""
    asked = [call.call_id for call in calls_said(session.journal)]
    reported = {call_id: [] for call_id in asked}
    for event in session.events:
        if isinstance(event, ToolExecutionStart | ToolBlocked | ToolExecutionEnd):
            reported[event.call_id].append(type(event))

    assert len(reported) == len(asked)
    for call_id, kinds in reported.items():
        assert kinds in (
            [ToolExecutionStart, ToolExecutionEnd],
            [ToolBlocked, ToolExecutionEnd],
        ), call_id


def calls_said(journal):
    """Return every call that a model asked for."""
    return [call for said in of(journal, records.MessageAdded) for call in said.message.tool_calls]


def check_subagents(session):
    """Each is counted once, and none is left."""
    spawned = [record.child_id for record in of(session.journal, records.SubagentSpawned)]
    spent = [record.child_id for record in of(session.journal, records.SubagentSpent)]

    assert sorted(spent) == sorted(spawned)
    assert session.memory.children == ()
    check_branches(session.journal)


def check_branches(journal):
    """A branch that has an answer is not started again, and has one answer."""
    refs, answered = {}, set()
    for record in of(journal, records.SubagentSpawned, records.SubagentSpent):
        if isinstance(record, records.SubagentSpawned):
            assert record.ref not in answered
            refs[record.child_id] = record.ref if record.digest else ""
        elif record.ok is not None:
            assert refs[record.child_id] not in {"", *answered}
            answered.add(refs[record.child_id])


@given(history=histories, policy=policies)
def test_a_session_comes_to_rest_with_everything_reported_once(life, history, policy):
    """Without a crash: each question has its answer too."""
    session = lived(life, history, policy, stormy=False)
    finish(session)
    check_accepted(session.journal)
    check_calls(session.journal)
    check_outcomes(session)
    check_call_events(session)
    check_subagents(session)

    assert session.memory.waiters == ()
    assert session.replied == Counter(session.asked)


@given(history=histories, policy=policies)
def test_a_crash_between_steps_loses_nothing(life, history, policy):
    """However many there were, all of it ends as it would have without them."""
    session = lived(life, history, policy)
    session.crash(0)
    finish(session)
    check_accepted(session.journal)
    check_calls(session.journal)
    check_outcomes(session)
    check_call_events(session)
    check_subagents(session)

    assert session.state is State.IDLE


@given(history=histories, policy=policies, data=st.data())
def test_any_torn_journal_leads_to_a_valid_end(life, history, policy, data):
    """Cut after any record, also within a step: the session goes on, and no prompt is lost."""
    records = lived(life, history, policy).journal
    cut = records[: data.draw(st.integers(0, len(records)), label="records left")]
    session = life(**POLICIES[policy])
    session.journal += cut
    session.resume(evolve.rebuild(session.memory, cut))
    finish(session)
    check_accepted(session.journal)
    check_calls(session.journal)
    check_subagents(session)

    assert repair(session.memory.messages) == session.memory.messages


@pytest.mark.parametrize("policy", POLICIES)
@given(between=st.lists(st.sampled_from(["begin", "want", "give", "steer"]), max_size=3))
def test_a_prompt_that_kills_its_process_is_given_up(life, policy, between):
    """After ``max_cycle_crashes`` it is aborted with the reason, and what waits has its turn."""
    session = life(**POLICIES[policy])
    prompt(session, 0)
    prompt(session, 1)
    session.answer(2)
    first = session.ordered[0]
    for _ in range(session.memory.policy.max_cycle_crashes):
        for happens in between:
            do(session, happens, 0)
        assume(session.memory.cycle and session.memory.cycle.command_id == first)
        session.crash(0)
    aborted = [event for event in session.events if isinstance(event, AgentAbort)]
    recovered = [event for event in session.events if isinstance(event, AgentRecovered)]

    assert [event.command_id for event in aborted] == [first]
    assert aborted[0].reason.startswith("crashed(")
    assert session.memory.cycle.command_id in session.ordered[1:]
    assert len(recovered) == session.memory.policy.max_cycle_crashes
