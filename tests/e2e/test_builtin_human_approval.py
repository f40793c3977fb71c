"""People decide about shell commands: the built-in plugin with the shell itself."""

import os
import signal

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.testing import ToolCalls, ToolUse

pytestmark = pytest.mark.process

TURN_S = 20.0


def run(command):
    return ToolCalls(ToolUse("shell", {"command": command}))


@pytest.fixture
def guarded(agent, tmp_path):
    """Make sessions whose shell commands a person must allow."""

    def create(model, **options):
        plugin = cmdc.plugins.HumanApproval(**options)
        return agent(model, tools=["shell"], plugins=[plugin], working_dir=str(tmp_path))

    return create


def waiting(session, stream, text="Go."):
    """Prompt, and return the approval that a call waits for."""
    session.prompt(text)
    return event_of(stream, events.ApprovalRequired)


def event_of(stream, kind):
    while True:
        event = stream.get(TURN_S).event
        if isinstance(event, kind):
            return event


def kill(session, poll):
    """End the agent's process and wait for the next one."""
    incarnation = session.status().incarnation
    os.kill(session.agent_pid(), signal.SIGKILL)
    assert poll(lambda: session.status().incarnation == incarnation + 1)


def results(session):
    return [one.content for one in session.messages() if one.role == "tool_result"]


def test_approved_command_is_repeated_and_runs(guarded, scripted, cycle_of, tmp_path):
    """Blocked, it ends the cycle; the approval opens one in which the model makes the call again.

    What only reads runs at once.
    """
    session = guarded(scripted(run("ls"), run("touch a"), run("touch a"), "Done."))
    stream = session.subscribe()
    wanted = waiting(session, stream)
    cycle_of(stream)
    was_made = (tmp_path / "a").exists()
    session.approve(wanted.id)

    assert session.collect_reply(timeout=TURN_S) == "Done."
    assert (was_made, (tmp_path / "a").exists()) == (False, True)
    assert (wanted.args, wanted.family, wanted.hold) == ({"command": "touch a"}, "touch", False)
    assert wanted.hint == "not on the list of safe commands: 'touch'"
    assert wanted.due_at_ms - wanted.requested_at_ms == 120_000
    assert results(session)[0] == "(no output)"


def test_held_command_runs_by_itself(guarded, scripted, tmp_path):
    """The cycle waits for the person and goes on; nobody has to repeat anything."""
    model = scripted(run("touch a"), "Done.")
    session = guarded(model, mode="hold")
    stream = session.subscribe()
    wanted = waiting(session, stream)
    busy = session.status()
    session.approve(wanted.id)

    assert session.collect_reply(timeout=TURN_S) == "Done."
    assert (busy.state, busy.pending_approvals) == ("executing_tools", (wanted.id,))
    assert ((tmp_path / "a").exists(), len(model.requests), wanted.hold) == (True, 2, True)


def test_rejected_held_command_is_reported_to_the_model(guarded, scripted, tmp_path):
    """As the call's result, in the same cycle."""
    model = scripted(run("touch a"), "Without it, then.")
    session = guarded(model, mode="hold")
    stream = session.subscribe()
    wanted = waiting(session, stream)
    session.reject(wanted.id)
    rejected = event_of(stream, events.ToolRejected)

    assert session.collect_reply(timeout=TURN_S) == "Without it, then."
    assert (rejected.approval_id, rejected.reason) == (wanted.id, None)
    assert "rejected" in model.requests[1]["messages"][-1]["content"]
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("mode", ["block", "hold"])
def test_time_runs_out(guarded, scripted, mode, tmp_path):
    """Nobody's decision is a rejection, and comes too late then."""
    session = guarded(scripted(run("touch a"), "Nobody there."), mode=mode, timeout_ms=50)
    stream = session.subscribe()
    wanted = waiting(session, stream)
    rejected = event_of(stream, events.ToolRejected)
    session.collect_reply(timeout=TURN_S)

    assert rejected == events.ToolRejected(approval_id=wanted.id, reason="timeout")
    assert session.status().pending_approvals == ()
    with pytest.raises(cmdc.ApprovalNotFound):
        session.approve(wanted.id)
    assert not (tmp_path / "a").exists()


def test_family_is_approved_for_good(guarded, scripted, poll, tmp_path):
    """The next command of the family asks nobody, in the next process too; another one does."""
    model = scripted(
        run("touch a"), run("touch b"), "One.", run("touch c && ls"), run("rm a"), "Two."
    )
    session = guarded(model, mode="hold")
    stream = session.subscribe()
    wanted = waiting(session, stream)
    session.approve(wanted.id, kind="approve_always")
    first = session.collect_reply(timeout=TURN_S)
    kill(session, poll)
    other = waiting(session, stream, "More.")
    session.approve(other.id)

    assert (first, session.collect_reply(timeout=TURN_S)) == ("One.", "Two.")
    assert (wanted.family, other.family) == ("touch", "rm")
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"b", "c"}


def test_unreadable_command_is_not_approved_for_good(guarded, scripted):
    """Neither is it offered, nor can it be done; the approval waits on."""
    session = guarded(scripted(run("$SHELL -c ls"), "Done."), mode="hold")
    stream = session.subscribe()
    wanted = waiting(session, stream)
    with pytest.raises(cmdc.CmdcError, match="approve_once, reject_once"):
        session.approve(wanted.id, kind="approve_always")
    session.reject(wanted.id)

    assert session.collect_reply(timeout=TURN_S) == "Done."
    assert wanted.options == ("approve_once", "reject_once")


@pytest.mark.parametrize("crashes", [False, True], ids=["live", "after a crash"])
def test_what_nobody_decided_in_time_is_what_the_model_reads_next(
    guarded, scripted, poll, tmp_path, crashes
):
    """The result of the blocked call does not say any more that it waits."""
    model = scripted(run("touch a"), "well")
    session = guarded(model, timeout_ms=50)
    stream = session.subscribe()
    waiting(session, stream)
    event_of(stream, events.ToolRejected)
    if crashes:
        kill(session, poll)
    session.run("Go on.", timeout=TURN_S)
    (read,) = [one["content"] for one in model.requests[1]["messages"] if one["role"] == "tool"]

    assert "not given in time" in read
    assert "waits" not in read
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("mode", ["block", "hold"])
def test_waiting_approval_outlives_the_process(guarded, scripted, poll, mode, tmp_path):
    """The next process has it under the same id, and the approved command runs once."""
    steps = {"block": [run("echo x >> a"), "Done."], "hold": ["Done."]}
    model = scripted(run("echo x >> a"), *steps[mode])
    session = guarded(model, mode=mode)
    stream = session.subscribe()
    wanted = waiting(session, stream)
    if mode == "block":
        session.collect_reply(timeout=TURN_S)
    kill(session, poll)
    known = session.status().pending_approvals
    session.approve(wanted.id)

    assert session.collect_reply(timeout=TURN_S) == "Done."
    assert (known, (tmp_path / "a").read_text()) == ((wanted.id,), "x\n")


@pytest.mark.parametrize("is_asked_first", [True, False])
def test_confirmed_command_runs(guarded, scripted, cycle_of, tmp_path, is_asked_first):
    """The user's own words decide the approval that waits, or allow the next call; once."""
    call = run("echo x >> a")
    model = scripted(*([call] if is_asked_first else []), call, call, "Never said.")
    session = guarded(model)
    stream = session.subscribe()
    if is_asked_first:
        waiting(session, stream)
        cycle_of(stream)
    again = waiting(session, stream, "confirm: echo x >> a")
    cycle_of(stream)

    assert (tmp_path / "a").read_text() == "x\n"
    assert session.status().pending_approvals == (again.id,)


def test_a_call_of_a_subagent_waits_and_can_be_approved(agent, client, scripted, tmp_path):
    """It is held there: the subagent's only cycle goes on, and its parent has the answer."""
    child = scripted(run("touch made"), "made it")
    parent = scripted(
        ToolCalls(ToolUse("task", {"description": "Make it.", "subagent_type": "maker"})), "Done."
    )
    maker = cmdc.SubAgent(
        "maker", "Makes things.", model=child, tools=["shell"], plugins=[cmdc.plugins.HumanApproval]
    )
    stream = client.subscribe_all()
    session = agent(parent, subagents=[maker], working_dir=str(tmp_path))
    session.prompt("Go.")
    wanted = event_of(stream, events.ApprovalRequired)
    client.approve(wanted.session_id, wanted.id)

    assert (session.collect_reply(timeout=TURN_S), wanted.hold) == ("Done.", True)
    assert wanted.session_id != session.id
    assert (tmp_path / "made").exists()
    assert "made it" in results(session)[-1]


@cmdc.tool(needs_approval=True)
def note(text: str) -> str:
    """Note it, if one may."""
    return f"noted {text}"


@pytest.mark.parametrize("plugins", [[], [cmdc.plugins.HumanApproval]])
def test_calls_of_a_subagent_whose_tool_needs_approval_wait(agent, client, scripted, plugins):
    """Each of several is held and announced, approved or rejected by itself; the others run on."""
    uses = [ToolUse("note", {"text": text}, f"c-{text}") for text in ("one", "two", "three")]
    child = scripted(ToolCalls(*uses), "all done")
    parent = scripted(
        ToolCalls(ToolUse("task", {"description": "Note.", "subagent_type": "maker"})), "Done."
    )
    maker = cmdc.SubAgent("maker", "Notes.", model=child, tools=[note], plugins=plugins)
    stream = client.subscribe_all()
    session = agent(parent, subagents=[maker])
    session.prompt("Go.")
    wanted = [event_of(stream, events.ApprovalRequired) for _ in uses]
    refused = next(one for one in wanted if one.args["text"] == "two")
    for one in wanted:
        decide = client.reject if one is refused else client.approve
        decide(one.session_id, one.id)
    reply = session.collect_reply(timeout=TURN_S)
    read = [one["content"] for one in child.requests[1]["messages"] if one["role"] == "tool"]

    assert reply == "Done."
    assert [(one.hold, one.due_at_ms is None) for one in wanted] == [(True, False)] * len(uses)
    assert read[0] == "noted one"
    assert "a person rejected it" in read[1]
    assert read[2] == "noted three"
    assert "all done" in results(session)[-1]


def test_both_of_two_approvals_are_reported_with_one_resumption(guarded, scripted, tmp_path):
    """The model makes both calls, though only one decision opened a cycle."""
    both = ToolCalls(
        ToolUse("shell", {"command": "touch a"}, "c-1"),
        ToolUse("shell", {"command": "touch b"}, "c-2"),
    )
    model = scripted(both, both, "done")
    session = guarded(model)
    stream = session.subscribe()
    session.prompt("Go.")
    first, second = (event_of(stream, events.ApprovalRequired) for _ in range(2))
    session.collect_reply(timeout=TURN_S)
    session.approve(first.id, auto_resume=False)
    session.approve(second.id)
    session.collect_reply(timeout=TURN_S)
    read = [one["content"] for one in model.requests[1]["messages"] if one["role"] == "tool"]

    assert ["given since" in one for one in read] == [True, True]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a", "b"]
