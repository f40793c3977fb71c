"""What a plugin asks of its session: one question to a model, one task for a subagent."""

import asyncio
import math

import pytest

from cmdc_runtime.errors import CheckpointFailed
from cmdc_runtime.extensions.actions import Emit, UpdateSystemContext
from cmdc_runtime.extensions.context import PluginCallError
from cmdc_runtime.extensions.provider import FailureKind, ProviderError
from cmdc_runtime.messages import Message, TokenUsage
from workers.core.budget import Budget
from workers.core.inputs import (
    DelegationDropped,
    PluginAskedModel,
    PluginDelegated,
    PluginsReported,
)
from workers.core.state import Memory, Policy
from workers.core.verdict import Verdict
from workers.performers import plugin_port as module
from workers.performers.plugin_port import PluginPorts

USED = TokenUsage(total_tokens=7)
MEMORY = Memory(model="x:m", provider_opts={"api_key": "k", "seed": 1})


class Asker:
    """Answers each request, or fails."""

    def __init__(self, error=None):
        self.error, self.requests = error, []

    async def ask(self, request, what):
        self.requests.append((request, what))
        if self.error is not None:
            raise self.error
        return "fine", USED


class Shelf:
    """Checkpoints by their ids, without a daemon; ``error`` is what every call raises."""

    def __init__(self, error=None):
        self.error, self.saved = error, {}

    async def save(self, label, metadata):
        self.check()
        self.saved[label] = metadata
        return label

    async def known(self):
        self.check()
        return list(self.saved)

    async def delete(self, checkpoint_id):
        self.check()
        del self.saved[checkpoint_id]

    def check(self):
        if self.error is not None:
            raise self.error


class FakeSession:
    """Ports of a session without the session; ``answer`` answers what is delegated."""

    def __init__(self, memory=MEMORY, error=None, answer=None):
        self.asker, self.posted, self.answer = Asker(error), [], answer
        self.shelf = Shelf(error)
        self.ports = PluginPorts(self.asker, self.post, lambda: memory, self.shelf, {"who": "me"})

    def post(self, result):
        self.posted.append(result)
        if self.answer is not None and isinstance(result, PluginDelegated):
            self.ports.answer(result.ref, *self.answer)

    def run(self, ask):
        """Return what ``ask`` returns of a port."""
        return self._run(self.ports.of, ask)

    def run_observer(self, ask):
        """Return what ``ask`` returns of the port of one that observes."""
        return self._run(self.ports.of_observer, ask)

    def _run(self, port_of, ask):
        async def scenario():
            return await ask(port_of("judge"))

        return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("given", "model", "opts"),
    [
        ({}, "x:m", {"api_key": "k", "seed": 1}),
        ({"provider_opts": {"seed": 2}}, "x:m", {"api_key": "k", "seed": 2}),
        ({"model": "y:n"}, "y:n", {}),
        ({"model": "y:n", "provider_opts": {"seed": 2}}, "y:n", {"seed": 2}),
    ],
    ids=["own", "own with options", "other", "other with options"],
)
def test_a_question_goes_to_the_sessions_model_or_another(given, model, opts):
    """A key of the session's provider goes to no other one. What it took is reported."""
    session = FakeSession()
    found = session.run(lambda port: port.complete("Well?", system="Be just.", **given))
    ((request, what),) = session.asker.requests

    assert (found.text, found.usage, what) == ("fine", USED, "answer")
    assert (request.model, request.provider_opts, request.system) == (model, opts, "Be just.")
    assert [said.content for said in request.messages] == ["Well?"]
    assert session.posted == [PluginAskedModel("judge", model, USED)]


def test_a_question_may_be_a_conversation():
    """And ask for an answer in a form."""
    session = FakeSession()
    said = [Message.user("a"), Message.assistant("b"), Message.user("c")]
    schema = {"type": "object"}
    session.run(lambda port: port.complete(said, response_format=schema))
    ((request, _),) = session.asker.requests

    assert request.messages == tuple(said)
    assert request.response_format == schema


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            {"default": math.nan},
            r"response_format: no JSON: \['default'\]: nan is not a finite number; leave",
        ),
        ({"enum": ["\ud800"]}, r"response_format: no JSON: \['enum'\]\[0\]: it is no valid UTF-8"),
        ({"type": "text"}, "response_format: no JSON Schema: 'text' is not valid"),
        (
            {"$ref": "#/$defs/A"},
            r"response_format: the schema refers to '#/\$defs/A', which is now",
        ),
    ],
)
def test_a_form_that_cannot_be_sent_asks_no_model(schema, message):
    """The plugin reads where it is, and no request fails again and again."""
    session = FakeSession()

    with pytest.raises(PluginCallError, match=message):
        session.run(lambda port: port.complete("Well?", response_format=schema))
    assert session.asker.requests == []


@pytest.mark.parametrize("name", ["tools", "tool_choice", "response_format", "n"])
def test_options_that_can_never_work_ask_no_model(name):
    """The plugin reads which, and what to do in its place."""
    session = FakeSession()

    with pytest.raises(PluginCallError, match=rf"provider_opts\['{name}'\]: .*; .*"):
        session.run(lambda port: port.complete("Well?", provider_opts={name: 2}))
    assert session.asker.requests == []


def test_a_failure_is_reported_to_the_plugin():
    """As its own error, with the provider's reason; nothing is counted."""
    session = FakeSession(error=ProviderError(FailureKind.PERMANENT, "no such model"))

    with pytest.raises(PluginCallError, match="no such model"):
        session.run(lambda port: port.complete("Well?"))
    assert session.posted == []


def test_a_spent_budget_asks_no_model():
    """The session's limits hold for its plugins too."""
    session = FakeSession(Memory(policy=Policy(budget=Budget(max_total_tokens=1)), model="x:m"))

    with pytest.raises(PluginCallError, match="no model was asked: "):
        session.run(lambda port: port.complete("Well?"))
    assert session.asker.requests == []


@pytest.mark.parametrize(
    ("answer", "expected"), [(("done", None), "done"), ((None, "it crashed"), PluginCallError)]
)
def test_a_task_is_given_and_answered(answer, expected):
    """With the subagent's last words, or its error."""
    session = FakeSession(answer=answer)

    def ask(port):
        return port.delegate("Check.", "checker")

    if isinstance(expected, str):
        assert session.run(ask) == expected
    else:
        with pytest.raises(expected, match="it crashed"):
            session.run(ask)
    assert session.posted == [PluginDelegated("judge", "plugin:judge-1", "checker", "Check.")]


def test_a_task_that_nobody_waits_for_any_more_is_dropped():
    """A hook that takes too long, or an abort, ends the subagent."""
    session = FakeSession()

    async def scenario():
        waiting = asyncio.create_task(session.ports.of("judge").delegate("Check.", "checker"))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])

    asyncio.run(scenario())
    assert session.posted[1:] == [DelegationDropped("plugin:judge-1")]


def test_every_wait_has_a_name_of_its_own():
    """Of all plugins, for as long as the process lives."""
    session = FakeSession(answer=("done", None))
    for _ in range(2):
        session.run(lambda port: port.delegate("Check.", "checker"))

    assert [one.ref for one in session.posted] == ["plugin:judge-1", "plugin:judge-2"]


def test_a_plugin_asks_so_often_and_not_more(monkeypatch):
    """A loop that does not end asks no model for ever."""
    monkeypatch.setattr(module, "CALLS_MAX", 2)

    async def thrice(port):
        for _ in range(3):
            await port.complete("Well?")

    with pytest.raises(PluginCallError, match="2 times at one hook"):
        FakeSession().run(thrice)


def test_a_method_in_a_thread_cannot_ask():
    """It would need the session's loop; the error says what can."""

    async def elsewhere(port):
        def work():
            with pytest.raises(PluginCallError, match='only "async def"'):
                asyncio.run(port.complete("Well?"))

        await asyncio.to_thread(work)

    FakeSession().run(elsewhere)


# --- what observers may ask, too ---------------------------------------------------------------


@pytest.mark.parametrize("face", ["run", "run_observer"])
def test_checkpoints_are_made_listed_and_deleted(face):
    """At a hook and as an observer."""
    session = FakeSession()
    run = getattr(session, face)

    assert run(lambda port: port.checkpoint("a", {"n": 1})) == "a"
    assert run(lambda port: port.checkpoint("b")) == "b"
    assert session.shelf.saved == {"a": {"n": 1}, "b": {}}
    run(lambda port: port.delete_checkpoint("a"))
    assert run(lambda port: port.checkpoints()) == ["b"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda port: port.checkpoint(),
        lambda port: port.checkpoints(),
        lambda port: port.delete_checkpoint("a"),
    ],
    ids=["make", "list", "delete"],
)
def test_a_checkpoint_that_cannot_be_is_an_error_of_the_plugin(ask):
    """It says why."""
    with pytest.raises(PluginCallError, match="the disk is full"):
        FakeSession(error=CheckpointFailed("the disk is full")).run(ask)


def test_a_wrong_label_is_an_error_of_the_plugin():
    """Nothing is saved."""
    session = FakeSession()

    with pytest.raises(PluginCallError, match="label: expected a str"):
        session.run(lambda port: port.checkpoint(5))
    assert session.shelf.saved == {}


def test_an_observer_emits_events():
    """With the application's own data, as an action of a hook does."""
    session = FakeSession()
    session.run_observer(lambda port: port.emit(Emit("seen", {"n": 1})))

    emitted = (("seen", {"n": 1, "user_data": {"who": "me"}}),)
    assert session.posted == [PluginsReported(Verdict(emitted=emitted))]


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        (Emit(""), "name"),
        (Emit("x", object()), "object"),
        (
            Emit(UpdateSystemContext(key="Plan", text="1.")),
            "update_system_context is a kernel emit",
        ),
    ],
    ids=["no name", "no payload", "order"],
)
def test_what_cannot_be_emitted_is_an_error_of_the_plugin(event, problem):
    """Orders are for hooks, where the session waits for them."""
    session = FakeSession()

    with pytest.raises(PluginCallError, match=problem):
        session.run_observer(lambda port: port.emit(event))
    assert session.posted == []


@pytest.mark.parametrize(
    "ask",
    [lambda port: port.complete("Well?"), lambda port: port.delegate("do it", "any")],
    ids=["model", "subagent"],
)
def test_an_observer_asks_for_no_model_and_no_subagent(ask):
    """Nothing waits for it, so nothing would end them."""
    session = FakeSession()

    with pytest.raises(PluginCallError, match="an observer may ask"):
        session.run_observer(ask)
    assert session.asker.requests == []
    assert session.posted == []
