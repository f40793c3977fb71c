"""The command line's side of steering, against a peer that speaks the daemon's frames."""

import json
import threading

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.cli import main
from cmdc_runtime.cli.conversation import Conversation
from cmdc_runtime.commands import (
    Abort,
    Approve,
    AwaitCycle,
    CycleResult,
    Prompt,
    Reject,
    Steer,
    SteerReceipt,
    SwitchModel,
    UserRespond,
)
from cmdc_runtime.messages import Message, TokenUsage

WAIT_S = 10.0
NOTHING = {Approve, Reject, UserRespond, SwitchModel}


@pytest.fixture(name="steered")
def _steered(peer):
    """A peer whose session takes every steering."""
    peer.answers |= dict.fromkeys(NOTHING, True)
    peer.answers[Steer] = SteerReceipt(ref="r-1", opened=False)
    return peer


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        (["steer", "s1", "left"], Steer(text="left")),
        (["approve", "s1", "a-1"], Approve(approval_id="a-1")),
        (
            ["approve", "s1", "a-1", "--always", "--no-resume"],
            Approve(approval_id="a-1", auto_resume=False, kind="approve_always"),
        ),
        (["reject", "s1", "a-1"], Reject(approval_id="a-1")),
        (["reject", "s1", "a-1", "--resume"], Reject(approval_id="a-1", auto_resume=True)),
        (["respond", "s1", "q-1", "red"], UserRespond(ref="q-1", response="red")),
        (["model", "s1", "openai:other"], SwitchModel(model="openai:other")),
        (
            ["model", "s1", "openai:other", "--provider-opt", "temperature=0.5"],
            SwitchModel(model="openai:other", provider_opts={"temperature": 0.5}),
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_command_sends_what_it_says(arguments, sent, steered, capsys):
    """Each command is one call; with ``--json`` its outcome is an object that names the session."""
    plain = main(arguments)
    as_json = main([*arguments, "--json"])
    first, second = capsys.readouterr().out.splitlines()

    assert (plain, as_json) == (0, 0)
    assert steered.of(type(sent)) == [sent, sent]
    assert first
    assert json.loads(second)["session_id"] == "s1"


@pytest.mark.parametrize(
    ("arguments", "error", "status"),
    [
        (["steer", "s1", " "], None, 2),
        (["model", "s1", "gpt"], None, 2),
        (["approve", "s1", "a-9"], cmdc.ApprovalNotFound("no approval 'a-9' waits"), 1),
        (["reject", "s1", "a-9"], cmdc.ApprovalNotFound("no approval 'a-9' waits"), 1),
        (["respond", "s1", "q-9", "x"], cmdc.AskNotFound("no question 'q-9' waits"), 1),
        (["steer", "s1", "left"], cmdc.QueueFull("3 steerings wait"), 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_refused_command_is_one_line(arguments, error, status, steered, capsys):
    """What the session or the call refuses is reported in a line, with the status that fits."""
    steered.answers |= dict.fromkeys((*NOTHING, Steer), error)
    found = main(arguments)

    assert found == status
    assert capsys.readouterr().err.count("\n") == 1


# --- a conversation ---------------------------------------------------------------------------


class Asked:
    """Somebody who has the answers ready."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.questions = []

    def decision(self, event):
        return self._next(event)

    def response(self, event):
        return self._next(event)

    def _next(self, event):
        self.questions.append(event)
        answer = self.answers.pop(0)
        if answer is KeyboardInterrupt:
            raise KeyboardInterrupt
        return answer


class View:
    """Records what is shown."""

    def __init__(self):
        self.kinds = []
        self.replies = []

    def take(self, envelope):
        self.kinds.append(envelope.event.kind)

    def finish(self, reply):
        self.replies.append(reply.text)


class Agent:
    """What the peer's session does, cycle by cycle, in the peer's own thread."""

    def __init__(self, peer):
        self.peer = peer
        peer.add("s1")
        peer.answers |= {
            Prompt: self.prompted,
            Approve: self.approved,
            Reject: self.rejected,
            UserRespond: True,
            Abort: self.aborted,
        }
        self.wanted = []  # approvals that the first cycle asks for
        self.asks = None  # a question that holds the first cycle up
        self.is_busy = False  # with somebody else's cycle, when the approval comes
        self.running = None

    def prompted(self, _command, frame):
        self.running = frame.id
        self.peer.publish_events("s1", events.AgentStart(command_id=frame.id))
        for approval_id in self.wanted:
            self.want(approval_id)
        if self.asks is None:
            self.end(frame.id, "first")
        else:
            self.peer.publish_events("s1", self.asks)
        return cmdc.PromptReceipt(queued=False, command_id=frame.id)

    def want(self, approval_id):
        call_id = f"c-{approval_id}"
        blocked = events.ToolBlocked(name="shell", call_id=call_id, reason="approval_required")
        self.peer.publish_events("s1", blocked, approval(approval_id, call_id))

    def approved(self, command, frame):
        self.peer.publish_events("s1", events.ToolApproved(approval_id=command.approval_id))
        if self.is_busy:
            return True
        resumed = events.AgentResumed(trigger="tool_approved", approval_id=command.approval_id)
        self.peer.publish_events("s1", resumed, events.AgentStart(command_id=frame.id))
        self.end(frame.id, f"after {command.approval_id}")
        return frame.id

    def rejected(self, command, _frame):
        self.peer.publish_events("s1", events.ToolRejected(approval_id=command.approval_id))
        return True

    def aborted(self, command, _frame):
        self.peer.publish_events(
            "s1", events.AgentAbort(reason=command.reason, command_id=self.running)
        )
        return True

    def responded(self, command, _frame):
        published = events.UserResponded(
            session_id="s1", ref=command.ref, response=command.response
        )
        self.peer.publish_events("s1", published)
        self.end(self.running, f"{command.response} it is")
        return True

    def end(self, command_id, text):
        messages = (Message.assistant(text),)
        ended = events.AgentEnd(messages=messages, usage=TokenUsage(), command_id=command_id)
        self.peer.publish_events("s1", ended)


def approval(approval_id, call_id):
    return events.ApprovalRequired(
        id=approval_id,
        tool="shell",
        args={"command": "ls"},
        hint="",
        requested_at_ms=1,
        session_id="s1",
        call_id=call_id,
    )


@pytest.fixture(name="agent")
def _agent(peer):
    return Agent(peer)


@pytest.fixture(name="talk")
def _talk(agent):
    """Make a conversation with the agent in which somebody has these answers."""
    with cmdc.Client(agent.peer.directory) as client:
        session = cmdc.Session("s1", client)
        with client.subscribe("s1") as stream:
            yield lambda *answers: Conversation(session, stream, View(), Asked(*answers))


def asked_ids(talk):
    return [getattr(one, "id", None) or one.ref for one in talk._user.questions]


def test_allowed_call_goes_on_in_a_cycle_of_its_own(agent, talk):
    """A person is asked when the cycle has ended; the reply is that of the resumed one."""
    agent.wanted = ["a-1"]
    talking = talk("approve_once")
    reply = talking.ask("go")

    assert reply.text == "after a-1"
    assert talking._view.replies == ["after a-1"]
    assert agent.peer.of(Approve) == [Approve(approval_id="a-1")]
    assert "agent_resumed" in talking._view.kinds


def test_every_call_is_asked_about(agent, talk):
    """Calls are decided on one after the other; one that is refused or left open opens nothing."""
    agent.wanted = ["a-1", "a-2", "a-3", "a-4"]
    talking = talk("approve_always", "reject", None, "approve_once")
    reply = talking.ask("go")

    assert asked_ids(talking) == ["a-1", "a-2", "a-3", "a-4"]
    assert [one.kind for one in agent.peer.of(Approve)] == ["approve_always", "approve_once"]
    assert agent.peer.of(Reject) == [Reject(approval_id="a-2")]
    assert reply.text == "after a-4"


def test_refused_call_is_the_end_of_it(agent, talk):
    """Without leave the first cycle's reply stands, and the person says what comes next."""
    agent.wanted = ["a-1"]
    reply = talk("reject").ask("go")

    assert reply.text == "first"


def test_busy_session_is_not_waited_for(agent, talk):
    """Where somebody else's cycle runs, leave is given and no cycle of it is waited for."""
    agent.wanted = ["a-1"]
    agent.is_busy = True
    reply = talk("approve_once").ask("go")

    assert reply.text == "first"


def test_call_decided_elsewhere_is_no_error(agent, talk):
    """Somebody else may be quicker, and then there is nothing left to decide."""
    agent.wanted = ["a-1"]
    agent.peer.answers[Approve] = cmdc.ApprovalNotFound("decided")
    reply = talk("approve_once").ask("go")

    assert reply.text == "first"


def test_call_that_holds_its_cycle_is_asked_about_at_once(agent, talk):
    """An approval whose call was not given up is decided while the cycle waits."""
    agent.asks = msgspec.structs.replace(approval("a-1", "c-1"), hold=True)
    agent.is_busy = True
    agent.peer.answers[Approve] = lambda command, frame: (
        agent.end(agent.running, "held") or agent.approved(command, frame)
    )
    reply = talk("approve_once").ask("go")

    assert reply.text == "held"


def test_question_is_answered_while_the_cycle_waits(agent, talk):
    """The answer goes to the call that asked, and its cycle goes on."""
    agent.asks = events.AskUser(session_id="s1", question="Which?", options=("red",), ref="q-1")
    agent.peer.answers[UserRespond] = agent.responded
    talking = talk("red")
    reply = talking.ask("go")

    assert asked_ids(talking) == ["q-1"]
    assert agent.peer.of(UserRespond) == [UserRespond(ref="q-1", response="red")]
    assert reply.text == "red it is"


def test_interrupted_question_ends_the_cycle(agent, talk):
    """Ctrl-C in place of an answer aborts the cycle that waits for it."""
    agent.asks = events.AskUser(session_id="s1", question="Which?", options=(), ref="q-1")

    with pytest.raises(cmdc.AgentAborted, match="interrupted"):
        talk(KeyboardInterrupt).ask("go")
    assert agent.peer.of(UserRespond) == []


def test_unanswered_question_waits_for_somebody_else(agent, talk):
    """Where nobody sits the cycle waits; an answer from elsewhere lets it end."""
    agent.asks = events.AskUser(session_id="s1", question="Which?", options=(), ref="q-1")
    agent.peer.answers[UserRespond] = agent.responded
    talking = talk(None)

    def elsewhere():
        agent.peer.wait_for(lambda: talking._user.questions)
        with cmdc.Client(agent.peer.directory) as client:
            client.user_respond("s1", "q-1", "blue")

    answering = threading.Thread(target=elsewhere)
    answering.start()
    reply = talking.ask("go")
    answering.join(WAIT_S)

    assert reply.text == "blue it is"


def test_lost_events_of_a_resumed_cycle_are_asked_for(agent, talk):
    """When events cannot be had any more, the session itself says how the cycle ended."""
    agent.wanted = ["a-1"]
    agent.peer.answers[AwaitCycle] = CycleResult(outcome="finished", text="all the same")

    def approved(command, frame):
        agent.peer._publish("s1", ("a", "b", "c"), is_lost=True, is_kept=False)
        agent.peer.publish_events("s1", events.SteeringApplied(count=1))
        return frame.id

    agent.peer.answers[Approve] = approved
    reply = talk("approve_once").ask("go")

    assert reply.text == "all the same"
    assert agent.peer.of(AwaitCycle)[-1].prompt_id == agent.peer.ids_of(Approve)[-1]
