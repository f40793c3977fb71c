"""Handoffs: a call swaps prompt, tools and model, and the next agent goes on in the same cycle."""

import json
import os
import signal

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.testing import Hold, ToolCalls, ToolUse
from cmdc_runtime.testing.daemon import DaemonProcess
from tests.e2e.command_line import command

pytestmark = pytest.mark.process

TURN_S = 20.0


@cmdc.tool(effects="read")
def invoice(number: int) -> str:
    """Return an invoice."""
    return f"invoice {number}: 12 dollars"


@cmdc.tool(effects="read")
def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word} means nothing"


def last_words(messages):
    """Keep what was said last by the user, in other words."""
    said = [message for message in messages if message.role == "user"]
    return [cmdc.Message.user(f"In short: {said[-1].content}")]


async def slow_words(messages):
    """Leave the messages of people, without a thread."""
    return [message for message in messages if message.role != "tool_result"]


def billing(model=None, **more):
    return cmdc.SubAgent(
        "billing",
        "Knows about money.",
        system_prompt="You are the clerk.",
        model=model,
        tools=[invoice],
        **more,
    )


def to(name):
    return ToolCalls(ToolUse(f"transfer_to_{name}", {}))


def only(kind, found):
    return [envelope.event for envelope in found if isinstance(envelope.event, kind)]


def seen(request):
    """Return what a request shows: the system prompt, and the names of its tools."""
    system = "".join(one["content"] for one in request["messages"] if one["role"] == "system")
    return system, sorted(tool["function"]["name"] for tool in request["tools"])


def said(request):
    return [
        one.get("content") for one in request["messages"] if one["role"] not in {"system", "tool"}
    ]


def test_a_handoff_swaps_prompt_tools_and_model(agent, scripted, cycle_of):
    """One call, one event; the answer of the cycle is that of the next agent."""
    front, desk = (
        scripted(to("billing")),
        scripted(ToolCalls(ToolUse("invoice", {"number": 7})), "You owe 12 dollars.", "Still 12."),
    )
    session = agent(
        front, system_prompt="You greet.", tools=[look_up], handoffs=[cmdc.Handoff(billing(desk))]
    )
    stream = session.subscribe()
    before = session.status().agent
    session.prompt("What do I owe?")
    found = cycle_of(stream)
    again = session.run("And now?", timeout=TURN_S).text

    [handed] = only(events.HandedOff, found)
    assert (handed.from_, handed.to) == ("main", "billing")
    assert handed.tools == ("invoice", "transfer_to_main")
    assert only(events.AgentEnd, found)[0].messages[-1].content == "You owe 12 dollars."
    assert (before, session.status().agent) == ("main", "billing")
    prompt, tools = seen(front.requests[0])
    assert prompt.startswith("You greet.")
    assert tools == ["look_up", "transfer_to_billing"]
    prompt, tools = seen(desk.requests[0])
    assert prompt.startswith("You are the clerk.")
    assert tools == ["invoice", "transfer_to_main"]
    assert again == "Still 12."
    assert not only(events.ModelSwitched, found) + only(events.ToolsUpdated, found)


@pytest.mark.parametrize(
    ("history", "left"),
    [
        ("all", ["Before.", "Well.", "What do I owe?", None]),
        ("none", ["What do I owe?"]),
        (last_words, ["In short: What do I owe?"]),
        ("tests.e2e.test_handoffs:slow_words", ["Before.", "Well.", "What do I owe?", None]),
    ],
    ids=["all", "none", "function", "named"],
)
def test_the_history_is_what_the_next_agent_sees(agent, scripted, history, left):
    """It is the conversation from there on, and the id of each message is its own."""
    front, desk = scripted("Well.", to("billing")), scripted("12.", "Yes.")
    session = agent(front, handoffs=[cmdc.Handoff(billing(desk), history=history)])
    session.run("Before.", timeout=TURN_S)
    session.run("What do I owe?", timeout=TURN_S)
    session.run("Sure?", timeout=TURN_S)
    ids = [message.id for message in session.messages()]

    assert said(desk.requests[0]) == left
    assert said(desk.requests[1]) == [*left, "12.", "Sure?"]
    assert len(ids) == len(set(ids))


def raises(messages):
    """Fail."""
    raise ValueError(f"no {len(messages)} messages")


def nothing(messages):
    """Leave nothing."""
    return messages[:0]


@pytest.mark.parametrize(
    ("history", "why"),
    [
        (raises, "failed: ValueError: no 3 messages"),
        (nothing, "left no message"),
        (len, "returned what can't be a history: expected a list of messages, got 3"),
    ],
    ids=["raises", "nothing", "number"],
)
def test_a_history_that_fails_leaves_the_session_as_it_is(agent, scripted, cycle_of, history, why):
    """The agent that acts reads it as the result of its call, and the application as an event."""
    front = scripted(to("billing"), "I cannot.")
    session = agent(front, handoffs=[cmdc.Handoff(billing(), history=history)])
    stream = session.subscribe()
    session.prompt("What do I owe?")
    found = cycle_of(stream)

    [failed] = only(events.HandoffFailed, found)
    assert why in failed.reason
    results = [one["content"] for one in front.requests[1]["messages"] if one["role"] == "tool"]
    assert results == [f"Error: the handoff was not made: {failed.reason}"]
    assert session.status().agent == "main"
    assert not only(events.HandedOff, found)


def test_the_own_agent_comes_back_as_it_was_left(agent, scripted):
    """With a tool that was attached and a model that was switched, which the other has not."""
    first, own = scripted(to("billing")), scripted(to("billing"), "Back.")
    desk = scripted(to("Front_desk"))
    session = agent(
        first,
        blueprint=cmdc.Blueprint(name="Front desk", purpose="Greets."),
        handoffs=[billing(desk)],
    )
    session.attach_tool(look_up)
    session.switch_model(own)
    text = session.run("Go.", timeout=TURN_S).text

    assert text == "Back."
    assert seen(desk.requests[0])[1] == ["invoice", "transfer_to_Front_desk"]
    assert seen(own.requests[1])[1] == ["look_up", "transfer_to_billing"]
    assert session.status().agent == "Front_desk"


def test_agents_that_hand_a_prompt_round_and_round_are_stopped(agent, scripted):
    """After eight handoffs the call is an error that says so; the next prompt begins anew."""
    front, desk = scripted(default=to("billing")), scripted(default=to("main"))
    session = agent(front, handoffs=[billing(desk)], loop_abort=5)
    with pytest.raises(cmdc.AgentAborted, match="loop_detected"):
        session.run("Go.", timeout=TURN_S)
    results = [one for one in session.messages() if one.role == "tool_result"]

    assert [one.is_error for one in results].count(False) == 8
    assert "this prompt was handed over 8 times" in results[8].content


def test_one_answer_hands_over_once_and_behind_its_other_calls(agent, scripted, cycle_of):
    """The calls beside it run with the tools that they were asked of; a second way is an error."""
    calls = ToolCalls(
        ToolUse("transfer_to_billing", {}),
        ToolUse("look_up", {"word": "owe"}),
        ToolUse("transfer_to_care", {}),
    )
    front, desk = scripted(calls), scripted("12.")
    care = cmdc.SubAgent("care", "Is kind.")
    session = agent(front, tools=[look_up], handoffs=[billing(desk), care], max_parallel_tools=1)
    stream = session.subscribe()
    session.prompt("Go.")
    found = cycle_of(stream)

    results = [one["content"] for one in desk.requests[0]["messages"] if one["role"] == "tool"]
    assert results[1:] == [
        "owe means nothing",
        "Error: the handoff was not made: the conversation is being handed to billing already",
    ]
    assert [one.to for one in only(events.HandedOff, found)] == ["billing"]
    ends = [one for one in found if isinstance(one.event, events.ToolExecutionEnd)]
    handed = next(one for one in found if isinstance(one.event, events.HandedOff))
    assert handed.index > max(end.index for end in ends)


def test_a_fork_and_a_resumed_session_have_the_agent_that_acts(agent, client, scripted):
    """The saved state says who it is, and the way back is there."""
    front, desk = scripted(to("billing"), "Front."), scripted("12.", to("main"), "Again.")
    session = agent(front, system_prompt="You greet.", handoffs=[billing(desk)])
    session.run("What do I owe?", timeout=TURN_S)
    saved = session.checkpoint()
    with client.resume_session(
        session.id, checkpoint_id=saved.checkpoint_id, new_id=f"{session.id}-fork"
    ) as fork:
        acting = fork.status().agent
        back = fork.run("Hand me back.", timeout=TURN_S).text
    session.stop()
    with client.resume_session(session.id) as again:
        still = again.status().agent, again.run("And?", timeout=TURN_S).text

    assert (acting, back) == ("billing", "Front.")
    assert still == ("billing", "Again.")
    assert seen(desk.requests[2])[0].startswith("You are the clerk.")


def test_a_process_that_dies_leaves_the_agent_that_acts(agent, scripted, poll):
    """The next one has its prompt, its tools and its model, and the way back to the first one."""
    front, desk = scripted(to("billing"), "Front."), scripted((Hold(), "12."), "12.", to("main"))
    session = agent(front, tools=[look_up], handoffs=[billing(desk)])
    session.prompt("What do I owe?")
    desk.wait_held()
    os.kill(session.agent_pid(), signal.SIGKILL)
    text = session.collect_reply(timeout=TURN_S)
    front_again = session.run("Hand me back.", timeout=TURN_S).text

    assert (text, front_again) == ("12.", "Front.")
    assert seen(desk.requests[1]) == seen(desk.requests[0])
    assert seen(front.requests[1]) == seen(front.requests[0])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"handoffs": ["biling"], "subagents": [cmdc.SubAgent("billing", "B.")]},
            r"handoffs\[0\].to: no subagent is called 'biling'; did you mean 'billing'\?",
        ),
        (
            {"handoffs": [cmdc.SubAgent("a", "A."), cmdc.Handoff(cmdc.SubAgent("b", "B."), "a")]},
            r"handoffs\[1\].name: 'a' is taken by handoffs\[0\]",
        ),
        (
            {"handoffs": [cmdc.SubAgent("main", "M.")]},
            r"handoffs\[0\].name: 'main' is taken by the session's own agent",
        ),
        (
            {"handoffs": [cmdc.SubAgent("a", "A.", max_turns=3)]},
            r"handoffs\[0\].to.max_turns: a handoff swaps prompt, tools and model",
        ),
        (
            {"handoffs": [cmdc.Blueprint(name="a", purpose="A.", plugins=["cost_guard"])]},
            r"handoffs\[0\].to.plugins: a handoff swaps prompt, tools and model",
        ),
        ({"handoffs": [cmdc.Blueprint(name="a")]}, r"handoffs\[0\].description: expected"),
        (
            {"handoffs": [cmdc.Handoff(cmdc.SubAgent("a", "A."), history="some")]},
            r"handoffs\[0\].history: expected \"all\", \"none\", a function",
        ),
        ({"handoffs": [cmdc.SubAgent("a" * 60, "A.")]}, r"at most 52 characters"),
        ({"handoffs": [3]}, r"handoffs\[0\].to: expected a cmdc.SubAgent, a cmdc.Blueprint"),
        (
            {"handoffs": [cmdc.SubAgent("a", "A.")], "reasoning_strategy": "adaptive"},
            r"handoffs: reasoning_strategy answers in the model's place",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(client, options, problem):
    """Before a session starts."""
    with pytest.raises(InvalidOptions, match=problem):
        client.create_agent(model="openai:x", **options)


# --- replayed and moved ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def elsewhere():
    """Another daemon with a state directory of its own."""
    daemon = DaemonProcess()
    try:
        yield daemon
    finally:
        daemon.close()


@pytest.fixture
def move(cmdc_daemon, elsewhere, tmp_path):
    """Carry a session to the other daemon, and return the address of that."""

    def moved(session_id):
        file = str(tmp_path / "session")
        command(cmdc_daemon.address, "export", session_id, "--move", "-o", file)
        command(elsewhere.address, "import", file)
        return elsewhere.address

    return moved


HISTORIES = {"all": "all", "none": "none", "function": last_words}


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_a_session_that_was_handed_over_replays_the_same(agent, scripted, cmdc_daemon, history):
    """Every record is kept again, to the next agent and back, and the state says who acts."""
    front, desk = scripted(to("billing"), "Front."), scripted("12.", to("main"))
    session = agent(front, tools=[look_up], handoffs=[cmdc.Handoff(billing(desk), history=history)])
    session.run("What do I owe?", timeout=TURN_S)
    half = command(cmdc_daemon.address, "replay", session.id, "--json").splitlines()
    session.run("Hand me back.", timeout=TURN_S)
    whole = command(cmdc_daemon.address, "replay", session.id, "--json").splitlines()
    printed = [json.loads(lines[-1]) for lines in (half, whole)]

    assert [one["records"] == one["of"] > 0 for one in printed] == [True, True]
    assert not any(json.loads(line)["kind"] == "difference" for line in whole)
    assert json.loads(whole[-2])["stands"]["state"] == "idle"
    assert session.status().agent == "main"


def test_a_replay_can_be_forked_at_the_handoff(agent, scripted, client, cmdc_daemon):
    """The new session has the agent that acted there, with its prompt and its tools."""
    front, desk = scripted(to("billing"), "Front."), scripted("12.", to("main"), "Mine.")
    session = agent(front, handoffs=[billing(desk)])
    session.run("What do I owe?", timeout=TURN_S)
    steps = command(cmdc_daemon.address, "replay", session.id, "--json").splitlines()
    last = json.loads(steps[-2])["last"]
    session.run("Hand me back.", timeout=TURN_S)
    more = ("--until", str(last), "--fork", "--json")
    printed = command(cmdc_daemon.address, "replay", session.id, *more).splitlines()
    with cmdc.Session(json.loads(printed[-1])["session_id"], client) as fork:
        acting, answer = fork.status().agent, fork.run("And now?", timeout=TURN_S).text

    assert (acting, answer) == ("billing", "Mine.")
    assert seen(desk.requests[2]) == seen(desk.requests[0])
    assert session.status().agent == "main"


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_a_session_that_was_handed_over_moves(agent, scripted, move, history):
    """Elsewhere the same agent acts, with its prompt, tools and model, and hands back."""
    front, desk = scripted(to("billing"), "Front."), scripted("12.", "Still 12.", to("main"))
    session = agent(
        front,
        system_prompt="You greet.",
        tools=[look_up],
        handoffs=[cmdc.Handoff(billing(desk), history=history)],
    )
    session.run("What do I owe?", timeout=TURN_S)
    before = [one.content for one in session.messages()]
    address = move(session.id)
    with cmdc.Client(address) as there, cmdc.Session(session.id, there) as moved:
        acting, after = moved.status().agent, [one.content for one in moved.messages()]
        texts = [moved.run(text, timeout=TURN_S).text for text in ("Sure?", "Hand me back.")]
        replayed = command(address, "replay", session.id, "--json").splitlines()
        back = moved.status().agent

    assert (acting, after) == ("billing", before)
    assert texts == ["Still 12.", "Front."]
    assert seen(desk.requests[1]) == seen(desk.requests[0])
    assert seen(front.requests[1]) == seen(front.requests[0])
    assert back == "main"
    assert json.loads(replayed[-1])["records"] == json.loads(replayed[-1])["of"]
