"""A client of another make, which checks nothing of what it sends: only its own calls fail."""

import contextlib
import math

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.checked_struct import COMMAND_VALUES_MAX
from cmdc_runtime.client import connection
from cmdc_runtime.client.engine import ClientEngine
from cmdc_runtime.client.resuming import start_request
from cmdc_runtime.commands import UserRespond
from cmdc_runtime.errors import CmdcError, ProtocolError, UsageError
from cmdc_runtime.plain import PACKED_DEPTH_MAX
from cmdc_runtime.requests import Monitor, Replay, StopSession
from cmdc_runtime.wire import codec

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 30.0


def nested(levels):
    value = "x"
    for _ in range(levels):
        value = [value]
    return value


@pytest.fixture
def engine(place, monkeypatch):
    """The calls of a client that sends whatever it is given."""
    monkeypatch.setattr(connection, "_packed", lambda value, _values_max: codec.raw(value))
    with contextlib.closing(ClientEngine(place.address)) as found:
        yield found


def ask(engine, request):
    """Send a request to the daemon as it is."""

    async def sent():
        link = await engine.exchange._connector.connected()
        return await link.ask(request)

    return engine.call(sent())


@pytest.mark.fault_case("F73")
@pytest.mark.parametrize("levels", [PACKED_DEPTH_MAX + 1, 600])
def test_a_body_that_nests_too_deep_reaches_no_agent(agent, engine, levels):
    """The daemon, which opens none, says so; the session has the process that it had."""
    session = agent()
    pid = session.agent_pid()
    with pytest.raises(UsageError, match="the command's body: it nests more than 96 levels"):
        engine.call(engine.exchange.send(session.id, UserRespond(ref="r", response=nested(levels))))
    many = UserRespond(ref="r", response=[0] * COMMAND_VALUES_MAX)
    with pytest.raises(UsageError, match="the command's body: it has more than 200,000 values"):
        engine.call(engine.exchange.send(session.id, many))

    assert session.run("Still there?", timeout=TURN_S).text == "fine"
    assert session.agent_pid() == pid


@pytest.mark.fault_case("F73")
def test_a_definition_that_nests_too_deep_starts_nothing(engine, client):
    """The error names the definition."""
    request = start_request(None, {"model": "openai:x", "session_id": "too-deep"})
    spec = msgspec.msgpack.decode(request.agent) | {"user_data": {"x": nested(600)}}
    with pytest.raises(UsageError, match="the agent's definition: it nests more than 96 levels"):
        engine.call(engine.exchange.start(msgspec.structs.replace(request, agent=codec.raw(spec))))
    with pytest.raises(cmdc.InvalidSession):
        client.status("too-deep")


@pytest.mark.fault_case("F73")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("unresponsive_after", 0.0),
        ("unresponsive_after", 1e300),
        ("unresponsive_after", math.nan),
        ("max_seconds", math.inf),
        ("start_timeout", -1.0),
        ("shutdown", 1e300),
        ("restart_delay", (0.0, 1e300)),
        ("max_restarts", -1),
        ("max_restarts", 2**63),
        ("memory_limit", 2**63),
        ("event_buffer_size", 2**40),
    ],
)
def test_wild_numbers_of_supervision_start_nothing(engine, client, field, value):
    """The daemon checks again what clients check."""
    request = start_request(None, {"model": "openai:x", "session_id": "too-wild"})
    wild = msgspec.structs.replace(request.supervision, **{field: value})
    with pytest.raises(ProtocolError, match=field):
        ask(engine, msgspec.structs.replace(request, supervision=wild))
    with pytest.raises(cmdc.InvalidSession):
        client.status("too-wild")


@pytest.mark.fault_case("F73")
def test_wild_numbers_and_names_of_requests_are_refused(agent, engine):
    """Graces, indexes and references; nothing of them is kept."""
    session = agent()
    for request in (
        StopSession(session_id=session.id, timeout=math.nan),
        StopSession(session_id=session.id, timeout=1e300),
        StopSession(session_id=session.id, reason="x" * 10_000),
        Monitor(session_id=session.id, ref="r", since=2**63),
        Monitor(session_id=session.id, ref="r" * 10_000),
        Replay(session_id=session.id, after=-1, through=1),
        Replay(session_id=session.id, after=0, through=2**64 - 1),
    ):
        with pytest.raises(CmdcError):
            ask(engine, request)

    assert session.run("Still there?", timeout=TURN_S).text == "fine"
