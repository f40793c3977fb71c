"""A provider of the application's own: a function, a class, an object, or the name of one."""

import os
import signal
import sys

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.messages import TokenUsage

pytestmark = pytest.mark.process

MODEL = "mine:small"
TURN_S = 30.0


async def says(request: cmdc.ModelRequest) -> str:
    """Answer with what was asked last, and how."""
    opts = sorted(name for name in request.provider_opts if name != "api_key")
    return f"{request.model} {request.messages[-1].content} {opts}"


async def streams(request):
    """Ask for a tool first, then answer by what came of it."""
    last = request.messages[-1]
    if last.role == "user":
        yield cmdc.ToolCallChunk(index=0, call_id="c", name="double", arguments='{"x": 21}')
    else:
        yield "It is "
        yield cmdc.TextChunk(text=last.content)
    yield cmdc.UsageChunk(usage=TokenUsage(prompt_tokens=3, completion_tokens=2, total_tokens=5))


class Counting:
    """An object with a state of its own, which knows its models."""

    def __init__(self, word: str = "made") -> None:
        self.word, self.asked = word, 0

    async def stream(self, request):
        self.asked += 1
        yield cmdc.TextChunk(text=f"{self.word} {self.asked}")
        yield cmdc.FinishChunk(reason="stop")

    def context_window(self, _model):
        return 1_000

    def price_usd(self, _model, _prompt, _completion):
        return 0.0


class Talking:
    """An object whose pieces are texts, so that it need not say the end."""

    async def stream(self, request):
        yield "You said: "
        yield request.messages[-1].content


class Broken:
    """Fails in each way."""

    async def stream(self, request):
        last = request.messages[-1].content
        if last == "bug":
            raise ValueError("a bug of its own")
        if last == "exit":
            sys.exit(4)
        if last == "kind":
            raise cmdc.ProviderError("rate_limit", "slow")
        raise cmdc.ProviderError(cmdc.FailureKind.PERMANENT, "no such model here")
        yield


@cmdc.tool(effects="read")
def double(x: int) -> int:
    """Double a number."""
    return 2 * x


@pytest.mark.parametrize(
    "given", [Talking, Talking(), f"{__name__}:Talking"], ids=["class", "object", "name"]
)
def test_a_class_may_yield_texts(agent, given):
    """As a function may, whichever way it is given."""
    session = agent(MODEL, provider=given)

    assert session.run("Hello.", timeout=TURN_S).text == "You said: Hello."


def test_a_function_that_returns_a_text(agent):
    """It gets the request as any provider does."""
    session = agent(MODEL, provider=says, provider_opts={"temperature": 0})

    assert session.run("Hello?", timeout=TURN_S).text == "mine:small Hello? ['temperature']"


def test_a_function_that_yields_chunks(agent):
    """Texts, calls and a usage; the end comes by itself."""
    session = agent(MODEL, provider=streams, tools=[double])
    reply = session.run("Go.", timeout=TURN_S)

    assert reply.text == "It is 42"
    assert reply.usage.total_tokens == 2 * 5


@pytest.mark.parametrize(
    ("provider", "word"),
    [(Counting, "made"), (Counting("given"), "given"), (f"{__name__}:Counting", "made")],
    ids=["class", "object", "name"],
)
def test_a_class_or_an_object_serves_all_requests_of_a_process(agent, provider, word):
    """It travels as tools do, and a new process begins with a new one."""
    session = agent(MODEL, provider=provider)
    texts = [session.run("1", timeout=TURN_S).text, session.run("2", timeout=TURN_S).text]
    monitor = session.monitor()
    os.kill(session.agent_pid(), signal.SIGKILL)
    monitor.wait(TURN_S)
    texts.append(session.run("3", timeout=TURN_S).text)

    assert texts == [f"{word} 1", f"{word} 2", f"{word} 1"]


def test_a_subagent_asks_by_the_provider_of_its_parent(agent):
    """Whatever model it has."""

    async def delegates(request):
        last = request.messages[-1]
        if request.model == "mine:helper":
            yield "helped"
        elif last.role == "user":
            words = '{"description": "Do it.", "subagent_type": "helper"}'
            yield cmdc.ToolCallChunk(index=0, call_id="c", name="task", arguments=words)
        else:
            yield last.content

    helper = cmdc.SubAgent(name="helper", description="Helps.", model="mine:helper")
    session = agent(MODEL, provider=delegates, subagents=[helper])

    assert session.run("Go.", timeout=TURN_S).text == "helped"


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("bug", "bug of its own"),
        ("x", "no such model he"),
        ("exit", "the provider's code tried to end the process: SystemExit: 4"),
        ("kind", "ProviderError: kind: expected one of transient, .*, got 'rate_limit'"),
    ],
)
def test_a_failure_of_it_ends_the_cycle(agent, prompt, message):
    """Its own errors say their kind; a bug is no reason to try again, and no end of the process."""
    session = agent(MODEL, provider=Broken)
    with pytest.raises(cmdc.AgentFailed, match=message):
        session.run(prompt, timeout=TURN_S)

    assert session.status().incarnation == 1


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        (3, "provider: expected a class or object with stream"),
        (lambda request: "x", "provider: expected a class or an object with stream"),
        ("nowhere", 'provider: expected "module:Class"'),
    ],
)
def test_what_is_none_is_refused(client, provider, message):
    """Before anything is started."""
    with pytest.raises(cmdc.InvalidOptions, match=message):
        client.create_agent(model=MODEL, provider=provider)


def test_a_class_that_is_none_does_not_start(client):
    """It is made in the agent's process, which says what it is not."""
    with pytest.raises(cmdc.StartFailed, match="provider 'Thing' cannot be loaded: TypeError"):
        client.create_agent(model=MODEL, provider=type("Thing", (), {}))


def test_a_resumed_session_takes_another_one(client, agent):
    """The conversation goes on."""
    session = agent(MODEL, provider=Counting)
    session.run("1", timeout=TURN_S)
    session.stop()
    with client.resume_session(session.id, provider=says) as again:
        text = again.run("And now?", timeout=TURN_S).text

    assert text.startswith("mine:small And now?")


def test_a_model_may_be_given_as_a_dict(agent, scripted):
    """What is beside provider and id are options of requests; its key is not journaled."""
    model = scripted("fine")
    name, opts = model.model_source()
    provider, _, model_id = name.replace("/", ":").partition(":")
    session = agent({"provider": provider, "id": model_id, "temperature": 0.5, **opts})

    assert session.run("Hi.", timeout=TURN_S).text == "fine"
    assert model.requests[0]["temperature"] == 0.5
