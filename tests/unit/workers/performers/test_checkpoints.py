"""What an agent hands to the daemon as a checkpoint, and what it refuses to."""

import asyncio
import threading

import pytest

from cmdc_runtime.checkpoints import read_saved
from cmdc_runtime.errors import CheckpointFailed, DaemonUnavailable
from cmdc_runtime.messages import Message
from cmdc_runtime.options import Options
from cmdc_runtime.requests import DeleteCheckpoint, KeepCheckpoint, ListCheckpoints
from cmdc_runtime.spec import AgentSpec, agent_spec
from cmdc_runtime.wire.codec import decode_as
from workers.core.snapshot import restore
from workers.core.state import Memory
from workers.core.step import Answer, MakeCheckpoint, Refuse
from workers.performers import checkpoints as module
from workers.performers.checkpoints import Checkpoints, Saved

SPEC = agent_spec(Options(model="x:m", user_data={"n": 1}))
MEMORY = Memory(model="x:m", messages=(Message.user("hi"),))
WANTED = MakeCheckpoint("c-1", "first", {"n": 1})


class Daemon:
    """Takes every request, or fails; what it was asked is kept."""

    def __init__(self, error=None):
        self.error, self.asked = error, []

    async def connected(self):
        return self

    async def ask(self, request, *, timeout_s):
        assert timeout_s > 0
        if self.error is not None:
            raise self.error
        self.asked.append(request)
        return [one.facts for one in self.asked if isinstance(one, KeepCheckpoint)]


def shelf(redact=None, error=None):
    """Return checkpoints with a daemon, and what they have answered."""
    answered = []
    saved = Saved("s", "g", SPEC, redact)
    made = Checkpoints("/nowhere", saved, lambda: MEMORY, answered.append)
    made._daemon = Daemon(error)
    return made, answered


def make(**given):
    """Return what came of one command: the answers, and what the daemon was asked."""

    async def scenario():
        made, answered = shelf(**given)
        await made.make(WANTED, MEMORY)
        return answered, made._daemon.asked

    return asyncio.run(scenario())


def test_a_checkpoint_is_the_state_with_its_definition():
    """Under the id of the command, and answered for when the daemon has it."""
    (answer,), (kept,) = make()
    state = read_saved(kept.body)

    assert restore(Memory(), kept.body) == MEMORY
    assert (decode_as(AgentSpec, state.agent), state.group_id) == (SPEC, "g")
    assert (kept.facts.checkpoint_id, kept.facts.label) == ("c-1", "first")
    assert isinstance(answer, Answer)
    assert (answer.id, answer.value.checkpoint_id, answer.value.metadata) == (
        "c-1",
        "c-1",
        {"n": 1},
    )


def test_a_daemon_that_does_not_take_it_is_reported():
    """The question is answered with its error."""
    (answer,), _ = make(error=DaemonUnavailable("it ends"))

    assert isinstance(answer, Refuse)
    assert isinstance(answer.error, DaemonUnavailable)


def test_a_state_that_is_too_large_is_refused(monkeypatch):
    """With its size, and what can be done about it."""
    monkeypatch.setattr(module, "CHECKPOINT_BYTES_MAX", 10)
    (answer,), asked = make()

    assert asked == []
    assert "a checkpoint at most 10: compact the conversation" in str(answer.error)


def test_what_redact_returns_is_what_is_kept():
    """And what goes on is the memory as it was."""

    def redact(state):
        state["messages"][0]["content"] = "[gone]"
        state["agent"]["user_data"] = {}
        return state

    _, (kept,) = make(redact=redact)
    saved = read_saved(kept.body)

    assert [one.content for one in restore(Memory(), kept.body).messages] == ["[gone]"]
    assert decode_as(AgentSpec, saved.agent).user_data == {}
    assert MEMORY.messages[0].content == "hi"


def test_a_redact_that_does_not_return_is_left_alone(monkeypatch):
    """Its thread goes on; with too many of them nothing is begun any more."""
    monkeypatch.setattr(module, "REDACT_S", 0.01)
    monkeypatch.setattr(module, "STRAYS_MAX", 2)
    gate = threading.Event()

    def slow(state):
        gate.wait()
        return state

    async def scenario():
        made, _ = shelf(redact=slow)
        problems = []
        for _ in range(3):
            with pytest.raises(CheckpointFailed) as failed:
                await made.save(None, {})
            problems.append(str(failed.value))
        gate.set()
        return problems

    first, second, third = asyncio.run(scenario())
    assert first == second == "redact did not return within 0.01 s; no checkpoint was made"
    assert third == "2 earlier runs of redact have not returned yet"


def test_plugins_make_list_and_delete():
    """Each save has a name of its own."""

    async def scenario():
        made, _ = shelf()
        first, second = await made.save("a", {}), await made.save("b", {})
        known = await made.known()
        await made.delete(first.checkpoint_id)
        return first, second, known, made._daemon.asked

    first, second, known, asked = asyncio.run(scenario())
    assert first.checkpoint_id != second.checkpoint_id
    assert known == [first, second]
    assert isinstance(asked[2], ListCheckpoints)
    assert asked[3] == DeleteCheckpoint(session_id="s", checkpoint_id=first.checkpoint_id)
