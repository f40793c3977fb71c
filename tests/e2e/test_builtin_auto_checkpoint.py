"""A session that is saved by itself, with a real agent and a real journal."""

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ToolCalls, ToolUse

TURN_S = 20.0


@cmdc.tool(effects="read")
def lucky(number: int) -> str:
    """Say whether a number is lucky."""
    return f"{number} is lucky"


def triggers(client, session):
    """Return what the session's checkpoints were made for, oldest first."""
    return [one.metadata["trigger"] for one in client.list_checkpoints(session.id)][::-1]


def saves(session, count):
    """Return the words of so many saves, once they are there."""
    with session.subscribe(since=0, types=["plugin_event"]) as stream:
        found = [stream.get(TURN_S).event for _ in range(count)]
    return [one.payload for one in found if one.name == "auto_checkpoint_saved"]


def test_turns_tools_and_the_end_are_saved(agent, scripted, client):
    """Observers hear of each save; the tool's result is part of its state."""
    watch = cmdc.plugins.AutoCheckpoint(by_turn=2, on_tools=["lucky"])
    answers = (ToolCalls(ToolUse("lucky", {"number": 7})), "yes", "fine")
    session = agent(scripted(*answers), plugins=[watch], tools=[lucky])
    session.run("Lucky?", timeout=TURN_S)
    reported = saves(session, 2)
    session.run("And you?", timeout=TURN_S)

    assert {one["trigger"] for one in reported} == {"tool:lucky", "turns"}
    (by_tool,) = [one for one in reported if one["trigger"] == "tool:lucky"]
    state = session.load_checkpoint(by_tool["checkpoint_id"]).state
    assert "7 is lucky" in [one.get("content") for one in state["messages"]]
    session.stop()
    assert sorted(triggers(client, session)) == ["session_end", "tool:lucky", "turns"]


def test_a_call_that_waits_for_a_person_is_saved(agent, scripted, client, poll):
    """Who resumes it decides there: the approval is part of the state."""
    guard = cmdc.plugins.HumanApproval(require_approval_for=["lucky"], mode="hold")
    watch = cmdc.plugins.AutoCheckpoint(every_n_turns=0, on_events=["approval_required"])
    model = scripted(
        ToolCalls(ToolUse("lucky", {"number": 7})), "never mind", "it is", default="no"
    )
    session = agent(model, plugins=[guard, watch], tools=[lucky])
    session.prompt("Lucky?")
    (reported,) = saves(session, 1)
    fork = client.resume_session(
        session.id, checkpoint_id=reported["checkpoint_id"], new_id=f"{session.id}.f"
    )
    with fork:
        (approval,) = poll(lambda: fork.status().pending_approvals)
        fork.approve(approval)
        assert fork.collect_reply(timeout=TURN_S) == "never mind"
        results = [one.content for one in fork.messages() if one.role == "tool_result"]
        assert results == ["7 is lucky"]
    session.abort()


def test_what_is_too_much_goes(agent, scripted):
    """The newest stay, and the checkpoint of a person."""
    watch = cmdc.plugins.AutoCheckpoint(every_n_turns=1, on_events=[], max_checkpoints=2)
    session = agent(scripted(default="fine"), plugins=[watch])
    mine = session.checkpoint(label="mine")
    for number in range(4):
        session.run(f"{number}?", timeout=TURN_S)
        reported = saves(session, number + 1)  # the next cycle does not wait for it

    ids = [one["checkpoint_id"] for one in reported]
    assert [one.checkpoint_id for one in session.list_checkpoints()] == [
        *ids[:1:-1],
        mine.checkpoint_id,
    ]
    assert [one["removed"] for one in reported] == [0, 0, 1, 1]
