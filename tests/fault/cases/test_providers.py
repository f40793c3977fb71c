"""What models and tools send that nobody can keep, and what comes without end."""

import gzip
import json
import math
import zlib
from typing import Any

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.extensions import Effect
from cmdc_runtime.testing import ToolCalls, ToolUse
from tests.fault.cases.sending import Sender, called, chunk, said, stream

pytestmark = [pytest.mark.fault, pytest.mark.process]

TURN_S = 60.0
MB = 2**20
DEEP = '{"a":' * 970 + "1" + "}" * 970


@cmdc.tool(effects="read")
async def note(a: Any = None) -> str:
    """Take anything."""
    return "noted"


def nested(levels):
    """Return a list in a list, so often."""
    value = []
    for _ in range(levels):
        value = [value]
    return value


class Mute:
    """Has no text."""

    def __repr__(self):
        raise RuntimeError("nothing to say")


RESULTS = {
    "set": lambda: {1},
    "bytes": lambda: b"\xff",
    "nan": lambda: math.nan,
    "surrogate": lambda: "\udcff",
    "large": lambda: "x" * (3 * MB),
    "deep": lambda: nested(900),
    "very deep": lambda: nested(100_000),
    "mute": Mute,
    "large integer": lambda: 2**70,
    "endless integer": lambda: 10**10_000,
    "deep effect": lambda: Effect("news", nested(70)),
    "mute effect": lambda: Effect("news", Mute()),
    "effect": lambda: Effect("news", {"n": 2**64}),
    "nan effect": lambda: Effect("news", [math.nan]),
}


@cmdc.tool(effects="read")
def apart(kind: str) -> Any:
    """Return something odd from a process."""
    return RESULTS[kind]()


@cmdc.tool(effects="read")
async def within(kind: str) -> Any:
    """Return something odd in the agent itself."""
    return RESULTS[kind]()


@cmdc.tool(effects="read")
async def emitting(context: cmdc.Context) -> str:
    """Emit what cannot be emitted."""
    refused = 0
    for payload in (nested(70), 2**64, math.nan, "\ud800", Mute(), {1: 2}):
        try:
            context.session.emit("news", payload)
        except cmdc.ToolError:
            refused += 1
    return f"{refused} refused"


@pytest.mark.fault_case("F92")
@pytest.mark.parametrize("name", ["apart", "within"])
def test_results_that_nobody_can_keep_are_text_or_an_error(audit, agent, scripted, name):
    """The model reads something of each of them, and the process goes on."""
    audit.log_says = ("tool.crashed",)
    calls = ToolCalls(*(ToolUse(name, {"kind": kind}) for kind in RESULTS))
    session = agent(scripted(calls, "fine"), tools=[apart, within], tool_max_retries=0)
    result = session.run("Go.", timeout=TURN_S)
    read = [message for message in session.messages() if message.role == "tool_result"]
    status = session.status()

    assert result.text == "fine"
    assert len(read) == len(RESULTS)
    assert all(0 < len(message.content) < MB for message in read)
    assert (status.incarnation, status.restarts) == (1, 0)


@pytest.mark.fault_case("F92")
def test_events_that_nobody_can_keep_are_refused(agent, scripted):
    """The tool gets an error, and no observer hears of any."""
    session = agent(scripted(ToolCalls(ToolUse("emitting", {})), "fine"), tools=[emitting])
    session.run("Go.", timeout=TURN_S)
    (read,) = [message for message in session.messages() if message.role == "tool_result"]

    assert read.content == "6 refused"


@pytest.fixture
def asking(agent):
    """Make a session that asks a server of the test's own answers."""
    servers = []

    def ask(*answers, **options):
        server = Sender(*answers)
        servers.append(server)
        return server, agent("openai/sent", provider_opts=server.options, tools=[note], **options)

    yield ask
    for server in servers:
        with server:
            pass


ARGUMENTS = {
    "970 deep": (DEEP, "nests more than 64 levels deep"),
    "100,000 deep": ('{"a":' * 100_000, "nests more than 64 levels deep"),
    "65 deep": ('{"a":' * 65 + "1" + "}" * 65, "nests more than 64 levels deep"),
    "large integer": ('{"a": 18446744073709551616}', "an integer beyond 64 bits"),
    "not a number": ('{"a": NaN}', "no JSON object"),
    "surrogate": ('{"a": "\\ud800"}', "no JSON object"),
    "large": (json.dumps({"a": "x" * MB}), "noted"),
}


@pytest.mark.fault_case("F89")
@pytest.mark.parametrize(("raw", "says"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_that_nobody_can_keep_are_reported_to_the_model(asking, raw, says):
    """It reads what is wrong and can send others; the process goes on."""
    server, session = asking(called(("c1", "note", raw)), said("fine"))
    result = session.run("Go.", timeout=TURN_S)
    (read,) = [message for message in session.messages() if message.role == "tool_result"]
    status = session.status()

    assert result.text == "fine"
    assert says in read.content
    assert (status.incarnation, status.restarts, server.asked) == (1, 0, 2)


WORDS = {
    "surrogates": stream(
        chunk({"content": "a\ud800", "role": "assistant"}),
        chunk(
            {
                "tool_calls": [
                    {"index": 0, "id": "\udfff", "function": {"name": "n\ud800", "arguments": "{"}}
                ]
            }
        ),
        chunk({}, "tool_calls\ud800"),
    ),
    "control characters": called(("\x1b[2J\n", "note\x1b", "{}")),
    "large id": called(("x" * MB, "note", "{}")),
    "900 calls": called(*[(f"c{n}", "note", f'{{"a": {n}}}') for n in range(900)]),
    "wild usage": said(
        "fine",
        usage={"prompt_tokens": 2**70, "completion_tokens": -5, "total_tokens": 2**90},
    ),
    "wild price": said(
        "fine", usage={"prompt_tokens": 10**30, "completion_tokens": 0, "total_tokens": 10**30}
    ),
}


@pytest.mark.fault_case("F89")
@pytest.mark.parametrize("answer", WORDS.values(), ids=WORDS)
def test_words_that_nobody_can_keep_are_replaced(asking, answer):
    """Texts are mended, ids are given anew, and a usage that cannot be is unknown."""
    _, session = asking(answer, said("fine"), max_retries=0)
    result = session.run("Go.", timeout=TURN_S)
    status, messages = session.status(), session.messages()
    calls = [call for message in messages for call in message.tool_calls]
    answered = [message.call_id for message in messages if message.role == "tool_result"]

    assert result.text == "fine"
    assert (status.incarnation, status.restarts) == (1, 0)
    assert 0 <= status.total_tokens < 10**12
    assert len(set(answered)) == len(calls)
    assert answered == [call.call_id for call in calls]
    assert [call for call in calls if not is_plain_call(call)] == []
    json.dumps([message.content for message in messages]).encode()


def is_plain_call(call):
    """Say whether the id and the name of a call are short, and safe to print and to keep."""
    return 0 < len(call.call_id) < MB and call.call_id.isprintable() and call.name.isprintable()


@pytest.mark.fault_case("F89")
def test_thousands_of_calls_are_refused_by_name(asking):
    """Nothing of them is run, and nobody asks again."""
    server, session = asking(called(*[(f"c{n}", "note", "{}") for n in range(5_000)]))
    with pytest.raises(cmdc.AgentFailed, match="asks for more than 1000 tool calls"):
        session.run("Go.", timeout=TURN_S)

    assert server.asked == 1


def packed(size):
    """Return so many bytes of one line, packed."""
    packer = zlib.compressobj(9, wbits=31)
    pieces = [packer.compress(b"data: ")]
    pieces += [packer.compress(bytes(MB)) for _ in range(size // MB)]
    return b"".join((*pieces, packer.flush()))


SSE = {"content-type": "text/event-stream"}
ENDLESS = {
    "1 MB of error": ((500, {}, [b'{"error": {"message": "' + b"a=b " * (MB // 4)]), 2),
    "50 MB of error": ((400, {}, [b"password=" * (MB // 9)] * 50), 1),
    "packed": ((200, SSE | {"content-encoding": "gzip"}, [packed(500 * MB)]), 1),
    "packed twice": (
        (200, SSE | {"content-encoding": "gzip, gzip"}, [gzip.compress(packed(64 * MB))]),
        1,
    ),
    "line": ((200, SSE, (b"a" * MB for _ in range(100))), 1),
    "lines": ((200, SSE, (b"data: a\n" * MB for _ in range(100))), 1),
    "html": ((200, {"content-type": "text/html"}, (b"<p>" * MB for _ in range(100))), 1),
}


@pytest.mark.fault_case("F90")
@pytest.mark.parametrize(("answer", "asked"), ENDLESS.values(), ids=ENDLESS)
def test_an_answer_without_end_is_cut_off(asking, client, answer, asked):
    """It holds up no loop, takes no memory, and ends as one error by name."""
    server, session = asking(
        answer,
        max_retries=1,
        retry_base_delay=0.01,
        unresponsive_after=3.0,
        memory_limit="1500M",
    )
    with pytest.raises(cmdc.AgentFailed) as caught:
        session.run("Go.", timeout=TURN_S)
    status = session.status()

    assert len(str(caught.value)) < 1_000
    assert (status.state, status.incarnation, status.restarts) == ("idle", 1, 0)
    assert server.asked == asked
