"""Calls that need a person: asked for, allowed once or for good, refused, and waited for."""

import asyncio
import os
import signal
import threading
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.testing import Hold, ToolCalls, ToolUse

pytestmark = pytest.mark.process

TURN_S = 20.0
POLL_S = 0.02


def note(log, text):
    with Path(log).open("a") as file:
        file.write(f"{text} ")


def noted(log):
    return log.read_text().split() if log.exists() else []


def wait_for(path):
    never = threading.Event()
    while not Path(path).exists():
        never.wait(POLL_S)


@cmdc.tool(needs_approval=True, meta=lambda args: f"Launch {args['code']}")
async def launch(log: str, code: int) -> str:
    """Launch it; a person must allow each launch."""
    note(log, code)
    return f"launched {code}"


@cmdc.tool(needs_approval=lambda args: args["amount"] > 10)
def pay(log: str, amount: int) -> str:
    """Pay, in a process of its own; a person must allow large amounts."""
    note(log, amount)
    return f"paid {amount}"


@cmdc.tool(effects="read", needs_approval=True)
async def inspect(log: str, *, context: cmdc.Context) -> str:
    """Note the incarnation that inspects; the first one waits for its end."""
    note(log, context.incarnation)
    if context.incarnation == 1:
        await asyncio.Event().wait()
    return "inspected"


@cmdc.tool(effects="read")
def wait(log: str) -> str:
    """Wait until the file is there."""
    wait_for(log)
    return "waited"


def event_of(stream, kind):
    """Read a stream up to the first event of a kind and return it."""
    while True:
        event = stream.get(TURN_S).event
        if isinstance(event, kind):
            return event


def only(kind, envelopes):
    return [one.event for one in envelopes if isinstance(one.event, kind)]


def launching(log, code=7):
    return ToolCalls(ToolUse("launch", {"log": str(log), "code": code}))


def results(session):
    return [one.content for one in session.messages() if one.role == "tool_result"]


def blocked(session):
    """Prompt, and return the approval that the call waits for when the session rests."""
    stream = session.subscribe(types=["approval_required"])
    session.prompt("Launch.")
    wanted = stream.get(TURN_S).event
    session.collect_reply(timeout=TURN_S)
    stream.close()
    return wanted


def kill(session):
    os.kill(session.agent_pid(), signal.SIGKILL)


def test_blocked_call_is_reported_and_the_cycle_ends(agent, scripted, cycle_of, tmp_path):
    """People get all they need to decide; the model is not asked, and the call is not made."""
    model = scripted(launching(tmp_path / "log"))
    session = agent(model, tools=[launch])
    stream = session.subscribe()
    session.prompt("Launch.")
    found = cycle_of(stream)
    (wanted,) = only(events.ApprovalRequired, found)
    (calls,) = [one.tool_calls for one in session.messages() if one.tool_calls]
    status = session.status()

    assert (wanted.tool, wanted.args) == ("launch", {"log": str(tmp_path / "log"), "code": 7})
    assert (wanted.hint, wanted.session_id) == ("Launch 7", session.id)
    assert wanted.call_id == calls[0].call_id
    assert wanted.requested_at_ms > 0
    reported = events.ToolBlocked(name="launch", call_id=wanted.call_id, reason="approval_required")
    assert only(events.ToolBlocked, found) == [reported]
    assert found[-1].event.kind == "agent_end"
    assert (status.state, status.pending_approvals) == ("idle", (wanted.id,))
    result = session.messages()[-1]
    assert (result.is_error, wanted.id in result.content) == (True, True)
    assert (noted(tmp_path / "log"), len(model.requests)) == ([], 1)


def test_approval_lets_the_call_be_made_once(agent, scripted, cycle_of, tmp_path):
    """A cycle is opened in which the model repeats the call; the next one like it waits again."""
    log = tmp_path / "log"
    model = scripted(launching(log), launching(log), launching(log))
    session = agent(model, tools=[launch])
    wanted = blocked(session)
    stream = session.subscribe()
    session.approve(wanted.id)
    found = cycle_of(stream)
    (again,) = only(events.ApprovalRequired, found)

    kinds = [one.event.kind for one in found]
    assert kinds[:3] == ["tool_approved", "agent_resumed", "agent_start"]
    resumed = events.AgentResumed(trigger="tool_approved", approval_id=wanted.id)
    assert only(events.AgentResumed, found) == [resumed]
    assert "was approved" in model.requests[1]["messages"][-1]["content"]
    assert noted(log) == ["7"]
    assert results(session)[1] == "launched 7"
    assert again.id != wanted.id
    assert session.status().pending_approvals == (again.id,)


def test_approval_for_good_holds_for_every_call_of_the_tool(agent, scripted, tmp_path):
    """Whatever its arguments, and in the next process too."""
    log = tmp_path / "log"
    model = scripted(
        launching(log), launching(log), launching(log, 8), "Two.", launching(log, 9), "Three."
    )
    session = agent(model, tools=[launch])
    session.approve(blocked(session).id, kind="approve_always")
    two = session.collect_reply(timeout=TURN_S)
    kill(session)
    three = session.run("Again.", timeout=TURN_S).text

    assert (two, three) == ("Two.", "Three.")
    assert noted(log) == ["7", "8", "9"]
    assert session.status().incarnation == 2


def test_approval_without_a_cycle_is_met_by_the_next_prompt(agent, scripted, tmp_path):
    """The session stays idle; the leave waits for the very same call."""
    log = tmp_path / "log"
    model = scripted(launching(log), launching(log), "Up.")
    session = agent(model, tools=[launch])
    session.approve(blocked(session).id, auto_resume=False)
    state = session.status().state
    reply = session.run("Go on.", timeout=TURN_S)

    assert (state, reply.text, noted(log)) == ("idle", "Up.", ["7"])


def test_rejected_call_is_not_made(agent, scripted, tmp_path):
    """The session stays at rest; the model sees with the next prompt that the call was not made."""
    log = tmp_path / "log"
    model = scripted(launching(log), "Fine.")
    session = agent(model, tools=[launch])
    wanted = blocked(session)
    stream = session.subscribe()
    session.reject(wanted.id)
    reported = stream.get(TURN_S).event
    state = session.status().state
    session.run("Go on.", timeout=TURN_S)

    assert (reported, state) == (events.ToolRejected(approval_id=wanted.id), "idle")
    assert [one["role"] for one in model.requests[1]["messages"][-2:]] == ["tool", "user"]
    assert noted(log) == []


@pytest.mark.parametrize("crashes", [False, True], ids=["live", "after a crash"])
def test_a_rejection_is_what_the_model_reads_next(agent, scripted, tmp_path, poll, crashes):
    """At the next request, whatever that is of: the result does not say any more that it waits."""
    model = scripted(launching(tmp_path / "log"), "well")
    session = agent(model, tools=[launch])
    wanted = blocked(session)
    session.reject(wanted.id)
    if crashes:
        kill(session)
        assert poll(lambda: session.status().incarnation == 2)
    session.run("Go on.", timeout=TURN_S)
    (read,) = [one["content"] for one in model.requests[1]["messages"] if one["role"] == "tool"]

    assert "rejected" in read
    assert "waits" not in read


def test_rejection_may_open_a_cycle(agent, scripted, cycle_of, tmp_path):
    """Then the model is asked to go on without the call."""
    model = scripted(launching(tmp_path / "log"), "Without.")
    session = agent(model, tools=[launch])
    wanted = blocked(session)
    stream = session.subscribe()
    session.reject(wanted.id, auto_resume=True)
    found = cycle_of(stream)

    resumed = events.AgentResumed(trigger="tool_rejected", approval_id=wanted.id)
    assert only(events.AgentResumed, found) == [resumed]
    assert session.collect_reply(timeout=TURN_S) == "Without."
    assert "was rejected" in model.requests[1]["messages"][-1]["content"]


@pytest.mark.parametrize("decide", ["approve", "reject"])
def test_approval_is_decided_once(agent, scripted, tmp_path, decide):
    """One that never was, or that is decided, is an error that names those that wait."""
    session = agent(scripted(launching(tmp_path / "log")), tools=[launch])
    wanted = blocked(session)
    with pytest.raises(cmdc.ApprovalNotFound, match=wanted.id):
        getattr(session, decide)("approval-999")
    session.approve(wanted.id, auto_resume=False)

    with pytest.raises(cmdc.ApprovalNotFound, match="none"):
        getattr(session, decide)(wanted.id)


def test_only_calls_that_need_a_person_wait(agent, scripted, tmp_path):
    """The tool's own function decides for each call; the others of the batch are made."""
    log = tmp_path / "log"
    small, large = ({"log": str(log), "amount": amount} for amount in (3, 300))
    model = scripted(
        ToolCalls(ToolUse("pay", large), ToolUse("pay", small)),
        ToolCalls(ToolUse("pay", large)),
        "Paid.",
    )
    session = agent(model, tools=[pay])
    wanted = blocked(session)
    first = results(session)
    session.approve(wanted.id)

    assert session.collect_reply(timeout=TURN_S) == "Paid."
    assert (wanted.args, first[1]) == (large, "paid 3")
    assert noted(log) == ["3", "300"]


def test_approval_while_the_batch_still_runs(agent, scripted, cycle_of, tmp_path):
    """The cycle ends as it would have, and the next one makes the call: nobody prompts for it."""
    log, end = tmp_path / "log", tmp_path / "end"
    arguments = {"log": str(log), "code": 7}
    calls = (ToolUse("launch", arguments), ToolUse("wait", {"log": str(end)}))
    model = scripted(ToolCalls(*calls), launching(log), "Up.")
    session = agent(model, tools=[launch, wait])
    stream = session.subscribe()
    session.prompt("Launch.")
    wanted = event_of(stream, events.ApprovalRequired)
    event_of(stream, events.ToolExecutionStart)
    session.approve(wanted.id)
    end.touch()
    ends = [cycle_of(stream)[-1].event.kind for _ in range(2)]

    assert ends == ["agent_end", "agent_end"]
    assert session.collect_reply(timeout=TURN_S) == "Up."
    assert noted(log) == ["7"]
    assert "was approved" in model.requests[1]["messages"][-1]["content"]


def test_approvals_of_one_batch_are_served_one_after_the_other(agent, scripted, tmp_path):
    """Whoever allows both at once need not wait: each opens its cycle, the second after the first.

    The client waits for the latest.
    """
    log = tmp_path / "log"
    calls = (ToolUse("launch", {"log": str(log), "code": code}) for code in (1, 2))
    model = scripted(
        ToolCalls(*calls),
        (Hold(), launching(log, 1)),
        "One is up.",
        launching(log, 2),
        "Both are up.",
    )
    session = agent(model, tools=[launch])
    session.run("Launch both.", timeout=TURN_S)
    first, second = session.status().pending_approvals
    session.approve(first)
    model.wait_held()
    session.approve(second)
    model.release()

    assert session.collect_reply(timeout=TURN_S) == "Both are up."
    assert noted(log) == ["1", "2"]
    assert session.status().pending_approvals == ()


def test_approval_while_another_cycle_runs_is_met_by_it(agent, scripted, tmp_path):
    """The running request is not disturbed; when it makes the call, the call is made."""
    log = tmp_path / "log"
    model = scripted(launching(log), (Hold(), launching(log)), "Up.")
    session = agent(model, tools=[launch])
    wanted = blocked(session)
    session.prompt("Something else.")
    model.wait_held()
    session.approve(wanted.id, auto_resume=False)
    model.release()

    assert session.collect_reply(timeout=TURN_S) == "Up."
    assert noted(log) == ["7"]
    assert session.status().pending_approvals == ()


def test_decision_that_waits_for_its_cycle_outlives_the_process(agent, scripted, tmp_path):
    """Both the leave and the cycle that is to use it are there in the next process."""
    log = tmp_path / "log"
    model = scripted(launching(log), (Hold(), "never"), "Else.", launching(log), "Up.")
    session = agent(model, tools=[launch])
    wanted = blocked(session)
    session.prompt("Something else.")
    model.wait_held()
    session.approve(wanted.id)
    kill(session)

    assert session.collect_reply(timeout=TURN_S) == "Up."
    assert noted(log) == ["7"]


def test_steered_cycle_does_not_rest_at_a_blocked_call(agent, scripted, tmp_path):
    """The model reads at once what the user has to say; the approval waits on."""
    log, end = tmp_path / "log", tmp_path / "end"
    arguments = {"log": str(log), "code": 7}
    calls = (ToolUse("launch", arguments), ToolUse("wait", {"log": str(end)}))
    model = scripted(ToolCalls(*calls), "Left it is.")
    session = agent(model, tools=[launch, wait])
    stream = session.subscribe()
    session.prompt("Launch.")
    wanted = event_of(stream, events.ApprovalRequired)
    session.steer("Left.")

    assert session.collect_reply(timeout=TURN_S) == "Left it is."
    assert session.status().pending_approvals == (wanted.id,)


def test_waiting_approval_outlives_the_process(agent, scripted, poll, tmp_path):
    """The next process knows it by the same id, and the approved call is made."""
    log = tmp_path / "log"
    model = scripted(launching(log), launching(log), "Up.")
    session = agent(model, tools=[launch])
    wanted = blocked(session)
    kill(session)
    assert poll(lambda: session.status().incarnation == 2)
    waiting = session.status().pending_approvals
    session.approve(wanted.id)

    assert waiting == (wanted.id,)
    assert session.collect_reply(timeout=TURN_S) == "Up."
    assert noted(log) == ["7"]


def test_an_approval_outlives_the_process_that_got_it(agent, scripted, tmp_path):
    """A process that dies before the call is repeated leaves it to the next, which asks nobody."""
    log = tmp_path / "log"
    model = scripted(launching(log), (Hold(), "never"), launching(log), "Up.")
    session = agent(model, tools=[launch])
    session.approve(blocked(session).id)
    model.wait_held()
    kill(session)

    assert session.collect_reply(timeout=TURN_S) == "Up."
    assert noted(log) == ["7"]
    assert session.status().pending_approvals == ()


def test_approved_call_that_runs_again_asks_nobody(agent, scripted, poll, tmp_path):
    """A call that may be made again after a crash had its leave already."""
    log = tmp_path / "log"
    inspecting = ToolCalls(ToolUse("inspect", {"log": str(log)}))
    model = scripted(inspecting, inspecting, "Seen.")
    session = agent(model, tools=[inspect])
    stream = session.subscribe()
    session.approve(blocked(session).id)
    event_of(stream, events.ToolExecutionStart)  # the daemon has what led to the call
    assert poll(lambda: noted(log) == ["1"])
    kill(session)

    assert session.collect_reply(timeout=TURN_S) == "Seen."
    assert noted(log) == ["1", "2"]
    assert session.status().pending_approvals == ()
