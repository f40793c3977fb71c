"""Named states of a session: saved while it works, listed, deleted, resumed and forked."""

import os
import signal

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.checkpoints import SCHEMA_VERSION
from cmdc_runtime.testing import Hold, ToolCalls, ToolUse
from tests.e2e.resuming import kill, said

TURN_S = 20.0


@cmdc.tool(effects="read")
def lucky(number: int) -> str:
    """Say whether a number is lucky."""
    return f"{number} is lucky"


@cmdc.tool(effects="write")
def risky() -> str:
    """Do what must not be done twice."""
    return "done"


def test_a_checkpoint_is_a_state_by_its_name(agent, scripted):
    """What is reported of it is what was given, and its state is the conversation."""
    session = agent(scripted("hello"), user_data={"who": "me"})
    session.run("Hi.", timeout=TURN_S)
    made = session.checkpoint(label="after hello", metadata={"n": 1})

    assert (made.session_id, made.label, made.metadata) == (session.id, "after hello", {"n": 1})
    assert (made.schema_version, made.state) == (SCHEMA_VERSION, None)
    assert "waiters" in made.stripped_fields
    assert session.list_checkpoints() == [made]
    state = session.load_checkpoint(made.checkpoint_id).state
    assert [one["content"] for one in state["messages"]] == ["Hi.", "hello"]


def test_checkpoints_are_listed_newest_first_and_deleted(agent, scripted, client):
    """What is not there is deleted already; all of them go by no id."""
    session = agent(scripted())
    first, second, third = (session.checkpoint(label=label) for label in ("a", "b", "c"))

    assert [one.label for one in session.list_checkpoints()] == ["c", "b", "a"]
    assert session.load_checkpoint().checkpoint_id == third.checkpoint_id
    session.delete_checkpoint(second.checkpoint_id)
    session.delete_checkpoint(second.checkpoint_id)
    assert session.list_checkpoints() == [third, first]
    session.stop()
    assert client.list_checkpoints(session.id) == [third, first]
    client.delete_checkpoint(session.id)
    assert client.list_checkpoints(session.id) == []


def test_what_is_not_there_is_reported(agent, scripted, client):
    """A checkpoint, a session, or one that has ended."""
    session = agent(scripted())

    with pytest.raises(cmdc.CheckpointNotFound, match="no checkpoint 'c-0'"):
        session.load_checkpoint("c-0")
    with pytest.raises(cmdc.CheckpointNotFound, match="no checkpoint;"):
        session.load_checkpoint()
    with pytest.raises(cmdc.CheckpointNotFound, match="no checkpoint 'c-0'"):
        session.resume_session(checkpoint_id="c-0", new_id=f"{session.id}.f")
    for call in (client.list_checkpoints, client.delete_checkpoint, client.resume_session):
        with pytest.raises(cmdc.InvalidSession):
            call("never-seen")
    session.stop()
    with pytest.raises(cmdc.SessionNotAlive):
        session.checkpoint()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"label": ""}, "label: expected a str of 1 to 256 characters, got 0"),
        ({"label": 5}, "label: expected a str of 1 to 256 characters, got int"),
        ({"metadata": [1]}, "metadata: expected a dict"),
        ({"metadata": {1: 2}}, "metadata: expected a dict with names"),
        ({"metadata": {"x": object()}}, r"metadata: \['x'\]: a object is no plain value"),
        ({"metadata": {"x": "y" * 20_000}}, "at most 16,384 fit"),
    ],
)
def test_a_wrong_label_is_refused_before_anything_is_sent(client, given, problem):
    """The error names what was given, and what fits."""
    with pytest.raises(cmdc.UsageError, match=problem):
        client.checkpoint("anybody", **given)


def test_an_ended_session_goes_on_under_its_id(agent, scripted, resumed, poll):
    """With its conversation, its tools by value, its model, its counters and its event indexes."""
    session = agent(scripted("hello"), system_prompt="Be brief.")
    session.attach_tool(lucky)
    session.run("Hi.", timeout=TURN_S)
    other = scripted("seven", ToolCalls(ToolUse("lucky", {"number": 7})), "yes")
    session.switch_model(other)
    session.run("A number?", timeout=TURN_S)
    before, last = session.status(), session.last_index()
    session.stop()

    again = resumed(session.id)
    assert again.id == session.id
    assert said(again)[-1] == ("assistant", "seven")
    assert again.run("Lucky?", timeout=TURN_S).text == "yes"
    status = again.status()
    assert (status.incarnation, status.model) == (before.incarnation + 1, before.model)
    assert status.turns == before.turns + 2
    assert status.total_tokens > before.total_tokens
    assert again.messages()[0].content.startswith("Be brief.")
    seen = [one.index for one in _all(again)]
    assert seen == sorted(seen)
    assert seen[0] < last < seen[-1]


def _all(session):
    """Return the durable events of a session from its beginning, as far as they are there."""
    with session.subscribe(since=0) as stream:
        found = []
        while not found or found[-1].index < session.last_index():
            found.append(stream.get(TURN_S))
    return [one for one in found if one.event.kind != "events_lost"]


def test_a_checkpoint_takes_an_ended_session_back(agent, scripted, resumed):
    """What came after it is gone from the conversation."""
    session = agent(scripted("one", "two", "other"))
    session.run("First?", timeout=TURN_S)
    made = session.checkpoint()
    session.run("Second?", timeout=TURN_S)
    session.stop()

    again = resumed(session, checkpoint_id=made.checkpoint_id)
    assert [text for _, text in said(again)] == ["First?", "one"]
    assert again.run("Instead?", timeout=TURN_S).text == "other"
    assert again.list_checkpoints() == [made]


@pytest.mark.parametrize("by_checkpoint", [True, False])
def test_a_fork_has_the_past_and_a_life_of_its_own(agent, scripted, resumed, by_checkpoint):
    """Also of a session that lives: neither hears of what the other does from then on."""
    session = agent(scripted("one", "mine", "its own"), tools=[lucky])
    session.run("First?", timeout=TURN_S)
    made = session.checkpoint() if by_checkpoint else None
    fork = resumed(session, checkpoint_id=made and made.checkpoint_id, new_id=f"{session.id}.f")

    assert session.run("Me?", timeout=TURN_S).text == "mine"
    assert fork.run("You?", timeout=TURN_S).text == "its own"
    assert [text for _, text in said(session)] == ["First?", "one", "Me?", "mine"]
    assert [text for _, text in said(fork)] == ["First?", "one", "You?", "its own"]
    assert fork.status().incarnation == 1
    assert _all(fork)[0].index == 1


def test_a_live_session_is_forked_or_stopped_first(agent, scripted):
    """The error says so; an id that is taken is refused too."""
    session, other = agent(scripted()), agent(scripted())

    with pytest.raises(cmdc.SessionExists, match="give new_id to fork it, or stop it first"):
        session.resume_session()
    with pytest.raises(cmdc.SessionExists, match="is alive"):
        session.resume_session(new_id=other.id)


def test_a_running_cycle_is_part_of_the_state(agent, scripted, resumed, cycle_of):
    """A fork asks the model again for the answer that was under way; both end their cycles."""
    model = scripted((Hold(), "mine"), "its own")
    session = agent(model)
    session.prompt("Go.")
    model.wait_held()
    made = session.checkpoint()
    fork = resumed(session, checkpoint_id=made.checkpoint_id, new_id=f"{session.id}.f")
    assert fork.collect_reply(timeout=TURN_S) == "its own"
    recovered = [one.event for one in _all(fork) if one.event.kind == "agent_recovered"]

    assert [one.resumed for one in recovered] == ["stream"]
    model.release()
    assert session.collect_reply(timeout=TURN_S) == "mine"


def test_what_may_not_run_twice_does_not_in_a_fork(agent, scripted, resumed):
    """A call whose outcome the state does not know is uncertain, and the model reads so."""
    held = cmdc_held_tool()
    model = scripted(ToolCalls(ToolUse("held", {})), "as you say", "done")
    session = agent(model, tools=[held])
    with session.subscribe(types=["tool_execution_start"]) as stream:
        session.prompt("Go.")
        stream.get(TURN_S)
        made = session.checkpoint()
    fork = resumed(session, checkpoint_id=made.checkpoint_id, new_id=f"{session.id}.f")
    assert fork.collect_reply(timeout=TURN_S) == "as you say"

    results = [text for role, text in said(fork) if role == "tool_result"]
    assert len(results) == 1
    assert "It may or may not have taken effect" in results[0]
    session.abort(kill_tools="all")


def cmdc_held_tool():
    """Return a tool that does not end by itself."""

    @cmdc.tool(effects="write")
    def held() -> str:
        """Wait."""
        signal.pause()
        return "never"

    return held


def test_options_may_be_given_anew(agent, scripted, resumed, poll):
    """They take the place of the old ones, once: what changes after that stays, whoever dies."""
    session = agent(scripted("one"), tools=[lucky], system_prompt="Old.", max_turns=7)
    session.run("First?", timeout=TURN_S)
    session.stop()
    model = scripted(ToolCalls(ToolUse("risky", {})), "two", default="later")
    again = resumed(session, model=model, tools=[risky], system_prompt="New.", max_tokens=9)

    assert again.run("Second?", timeout=TURN_S).text == "two"
    asked = model.wait_request(1)
    assert [one["function"]["name"] for one in asked["tools"]] == ["risky"]
    assert asked["messages"][0]["content"].startswith("New.")
    assert asked["max_tokens"] == 9
    again.detach_tool("risky")
    kill(again, poll)
    assert again.run("Third?", timeout=TURN_S).text == "later"
    assert "tools" not in model.requests[-1]


def test_wrong_options_are_named_at_once(agent, scripted):
    """As ``create_agent`` does; what a state brings along cannot be given."""
    session = agent(scripted(), stall_after=5.0)

    with pytest.raises(cmdc.InvalidOptions) as wrong:
        session.resume_session(new_id="f", max_turns=0, modle="x")
    assert [one.split(":")[0] for one in wrong.value.problems] == ["max_turns", "modle"]
    with pytest.raises(cmdc.InvalidOptions, match="stall_after: 5 is more than stall_timeout 1"):
        session.resume_session(new_id="f", stall_timeout=1.0)
    with pytest.raises(cmdc.InvalidOptions, match="session_id: give new_id"):
        session.resume_session(new_id="f", session_id="g")
    with pytest.raises(cmdc.InvalidOptions, match="messages: a resumed session has"):
        session.resume_session(new_id="f", messages=[])
    with pytest.raises(cmdc.InvalidOptions, match="new_id: expected 1 to 128"):
        session.resume_session(new_id="not an id")


# --- redact ----------------------------------------------------------------------------------


def without_secrets(state):
    """Take keys and numbers out of a state."""
    state["agent"]["provider_opts"] = {}
    state["provider_opts"] = {}
    for message in state["messages"]:
        message["content"] = message["content"].replace("4711", "[gone]")
    return state


def test_redact_changes_what_is_kept_and_not_what_goes_on(agent, scripted, resumed):
    """It travels as other code does, and runs before a byte has left the agent."""
    model = scripted("hello 4711")
    session = agent(model, redact=without_secrets)
    session.run("I am 4711.", timeout=TURN_S)
    made = session.checkpoint()
    fork = resumed(session, checkpoint_id=made.checkpoint_id, new_id=f"{session.id}.f")

    assert [text for _, text in said(session)] == ["I am 4711.", "hello 4711"]
    assert [text for _, text in said(fork)] == ["I am [gone].", "hello [gone]"]
    assert session.load_checkpoint().state["provider_opts"] == {}


@pytest.mark.parametrize(
    ("redact", "problem"),
    [
        (lambda state: state["nothing"], "redact raised KeyError"),
        (lambda _state: None, "redact must return the state, a dict, and returned NoneType"),
        (lambda state: {**state, "model": 5}, "what redact returned is no state"),
        (lambda state: {**state, "model": object()}, "what redact returned is no state"),
        (lambda state: {**state, "agent": {}}, "what redact returned is no state"),
        (lambda _state: {}, "has no 'agent'"),
    ],
    ids=["raises", "none", "wrong type", "no value", "no definition", "empty"],
)
def test_a_redact_that_fails_makes_no_checkpoint(agent, scripted, redact, problem):
    """The error says what it did; the session goes on."""
    session = agent(scripted("hello"), redact=redact)

    with pytest.raises(cmdc.CheckpointFailed, match=f"{problem}.*no checkpoint was made"):
        session.checkpoint()
    assert session.list_checkpoints() == []
    assert session.run("Hi.", timeout=TURN_S).text == "hello"


def test_a_redact_that_kills_its_process_ends_no_session(agent, scripted):
    """The next process is asked once more, no third one, and what was said is still there."""
    session = agent(scripted("hello", "again"), redact=lambda _state: os._exit(9))
    session.run("precious", timeout=TURN_S)

    with pytest.raises(cmdc.CheckpointFailed, match=f"2 processes of session {session.id} died"):
        session.checkpoint()
    assert session.list_checkpoints() == []
    assert session.run("Hi.", timeout=TURN_S).text == "again"
    assert ("user", "precious") in said(session)


@pytest.mark.parametrize("redact", [5, "no name", "module:"])
def test_what_cannot_redact_is_refused(client, redact):
    """Before the session starts."""
    with pytest.raises(cmdc.InvalidOptions, match="redact: expected a function"):
        client.create_agent(model="x:y", redact=redact)


def test_a_redact_that_is_not_there_starts_no_session(client):
    """It is loaded where the agent is, and the error names it."""
    with pytest.raises(cmdc.StartFailed, match=r"redact 'nowhere:at_all' cannot be loaded"):
        client.create_agent(model="x:y", redact="nowhere:at_all")


# --- what is safe ----------------------------------------------------------------------------


def test_a_session_is_what_it_was_after_many_snapshots(agent, scripted, poll):
    """The journal keeps a snapshot and what came after: a new process has all of it."""
    session = agent(scripted(default="fine"), user_data={"n": 1})
    for number in range(120):
        session.run(f"{number}?", timeout=TURN_S)
    before, status = said(session), session.status()
    kill(session, poll)

    assert said(session) == before
    assert session.status().turns == status.turns == 120
    assert session.run("Still there?", timeout=TURN_S).text == "fine"
