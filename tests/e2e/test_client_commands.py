"""The calls that guide a session, against real agents: what the caller gets, and what it led to."""

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.testing import Hold, ToolCalls, ToolUse

TURN_S = 20.0


@cmdc.tool(effects="write", needs_approval=True)
async def launch(code: str) -> str:
    """Launch it; a person must allow that."""
    return f"launched {code}"


@cmdc.tool(effects="read")
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@cmdc.tool(effects="read")
async def double(a: int) -> str:
    """Double a number."""
    return str(2 * a)


def launching(code="7"):
    return ToolCalls(ToolUse("launch", {"code": code}))


def event_of(stream, kind):
    """Read a stream up to the first event of a kind and return it."""
    while True:
        envelope = stream.get(TURN_S)
        if isinstance(envelope.event, kind):
            return envelope.event


def results(session):
    return [message.content for message in session.messages() if message.role == "tool_result"]


# --- steering ---------------------------------------------------------------------------------


def test_steering_of_an_idle_session_is_a_prompt(agent, scripted):
    """The call's reference is the id of the cycle that it opened, and its reply can be had."""
    session = agent(scripted("At once."))
    stream = session.subscribe()
    ref = session.steer("Go left.")

    assert session.collect_reply(timeout=TURN_S) == "At once."
    assert event_of(stream, events.AgentStart).command_id == ref


def test_steering_reaches_the_model_at_the_next_gap(agent, scripted):
    """A running tool gives way; the model reads the text, and the same cycle goes on."""
    model = scripted(ToolCalls(ToolUse("shell", {"command": "sleep 60"})), "Left it is.")
    session = agent(model, tools=[cmdc.tools.Shell])
    stream = session.subscribe()
    session.prompt("Go right.")
    event_of(stream, events.ToolExecutionStart)
    ref = session.steer("Go left.")
    received = event_of(stream, events.SteeringReceived)

    assert (received.ref, received.status) == (ref, "queued")
    assert event_of(stream, events.ToolKilled).name == "shell"
    assert session.collect_reply(timeout=TURN_S) == "Left it is."
    assert "Go left." in model.requests[-1]["messages"][-1]["content"]


def test_too_many_steerings_are_refused(agent, scripted, cycle_of):
    """The queue is bounded; who comes too late gets an error, and observers hear of it."""
    model = scripted((Hold(), "never"), default="on")
    session = agent(model, max_steering_queue=1)
    stream = session.subscribe()
    session.prompt("Go.")
    model.wait_request()
    session.steer("One.")
    with pytest.raises(cmdc.QueueFull):
        session.steer("Two.")
    session.abort()
    statuses = [
        one.event.status
        for one in cycle_of(stream)
        if isinstance(one.event, events.SteeringReceived)
    ]

    assert statuses == ["queued", "rejected_full"]


# --- people -----------------------------------------------------------------------------------


def test_approved_call_is_made_in_the_cycle_that_is_waited_for(agent, scripted):
    """The call waits, the session rests; leave opens the cycle whose reply is collected."""
    model = scripted(launching(), launching(), "It is up.")
    session = agent(model, tools=[launch])
    stream = session.subscribe()
    session.prompt("Launch.")
    wanted = event_of(stream, events.ApprovalRequired)
    session.collect_reply(timeout=TURN_S)
    waiting = session.status().pending_approvals
    session.approve(wanted.id)

    assert (wanted.tool, wanted.args, waiting) == ("launch", {"code": "7"}, (wanted.id,))
    assert session.collect_reply(timeout=TURN_S) == "It is up."
    assert results(session)[-1] == "launched 7"
    assert session.status().pending_approvals == ()


def test_decided_approval_is_gone(agent, scripted):
    """A call is decided on once; the next word about it is an error that says so."""
    session = agent(scripted(launching()), tools=[launch])
    stream = session.subscribe()
    session.prompt("Launch.")
    wanted = event_of(stream, events.ApprovalRequired)
    session.collect_reply(timeout=TURN_S)
    session.reject(wanted.id)

    with pytest.raises(cmdc.ApprovalNotFound, match=wanted.id):
        session.approve(wanted.id)
    assert session.status().state == "idle"


def test_question_is_answered(agent, scripted):
    """The answer is the call's result, whatever kind of value it is."""
    ask = ToolCalls(ToolUse("ask_user", {"question": "Which?", "options": ["red", "blue"]}))
    session = agent(scripted(ask, "Blue."), tools=["ask_user"])
    stream = session.subscribe()
    session.prompt("Paint.")
    asked = event_of(stream, events.AskUser)
    session.user_respond(asked.ref, {"colour": "blue"})

    assert asked.options == ("red", "blue")
    assert session.collect_reply(timeout=TURN_S) == "Blue."
    assert results(session) == ['{"colour":"blue"}']
    with pytest.raises(cmdc.AskNotFound):
        session.user_respond(asked.ref, "red")


# --- tools and the model ----------------------------------------------------------------------


def test_attached_tool_is_used_in_the_next_request(agent, scripted):
    """Code of the application's own script travels to the running agent."""
    model = scripted("Ready.", ToolCalls(ToolUse("add", {"a": 2, "b": 3})), "Five.")
    session = agent(model)
    session.run("Hello.", timeout=TURN_S)
    session.attach_tool(add)
    reply = session.run("Add.", timeout=TURN_S)
    offered = [one["function"]["name"] for one in model.requests[-1]["tools"]]

    assert (reply.text, results(session)) == ("Five.", ["5"])
    assert offered == ["add"]


def test_tools_are_changed_as_a_whole_or_not_at_all(agent, scripted):
    """A batch with one wrong entry changes nothing; each wrong one is named with its reason."""
    session = agent(scripted("unused"), tools=[add])
    with pytest.raises(cmdc.ToolValidationFailed) as attached:
        session.attach_tools([double, add])
    with pytest.raises(cmdc.ToolValidationFailed) as detached:
        session.detach_tools(["add", "none"])
    with pytest.raises(cmdc.ToolValidationFailed) as replaced:
        session.replace_tools([double, double])

    assert attached.value.problems == [("add", "already_attached")]
    assert detached.value.problems == [("none", "not_found")]
    assert replaced.value.problems == [("double", "duplicate_in_list")]
    assert session.replace_tools([add]) == cmdc.ToolsDiff(attached=(), detached=())


def test_tool_table_follows_the_calls(agent, scripted):
    """Names come back, single calls have errors of their own, and a diff says what changed."""
    session = agent(scripted("unused"))

    assert session.attach_tools([add, double]) == ["add", "double"]
    with pytest.raises(cmdc.AlreadyAttached):
        session.attach_tool(add)
    assert session.detach_tools(["add"]) == ["add"]
    with pytest.raises(cmdc.ToolNotFound):
        session.detach_tool("add")
    diff = session.replace_tools([add, "read_file"])
    assert (sorted(diff.attached), diff.detached) == (["add", "read_file"], ("double",))


def test_next_request_goes_to_the_new_model(agent, scripted):
    """A model object is switched to with its address; a name that is none is refused."""
    first, second = scripted("One."), scripted("Two.")
    session = agent(first)
    one = session.run("Hello.", timeout=TURN_S).text
    session.switch_model(second)
    two = session.run("Hello again.", timeout=TURN_S).text

    assert (one, two) == ("One.", "Two.")
    with pytest.raises(cmdc.InvalidOptions):
        session.switch_model("no-provider")


# --- groups -----------------------------------------------------------------------------------


def test_group_is_heard_as_one(client, agent, scripted):
    """A stream of a group has the events of its sessions, later ones included, and of no other."""
    model = scripted(default="Yes.")
    first = agent(model, group_id="team")
    stranger = agent(model, group_id="others")
    with client.subscribe_group("team", types=["agent_end"]) as stream:
        later = agent(model, group_id="team")
        for session in (stranger, first, later):
            session.run("Hello.", timeout=TURN_S)
        heard = {stream.get(TURN_S).session_id for _ in range(2)}

    assert heard == {first.id, later.id}
