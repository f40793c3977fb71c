"""Who is let pass to the request router: by the process, the token and what is asked."""

import asyncio
import os
from types import SimpleNamespace

import pytest

from cmdc_runtime import requests
from cmdc_runtime.commands import Approve, AwaitCycle, Prompt
from cmdc_runtime.errors import AccessDenied
from cmdc_runtime.wire import codec
from cmdc_runtime.wire.frames import Ask, Send
from supervisor.api import gate as gate_module
from supervisor.api.gate import PEERS_MAX, Gate
from supervisor.core.authority import PERSON, Kind, Peer

TOKEN = "0123456789abcdef" * 4
AGENT = Peer(Kind.AGENT, "s-1", 1)
TOOL = Peer(Kind.TOOL, "s-1", 1)
PEERS = {7: PERSON, 8: AGENT, 9: TOOL, 10: Peer(Kind.GONE)}
PARENTS = {"s-1": None, "s-2": "s-1", "s-3": "s-2", "s-9": None}


@pytest.fixture
def gate(monkeypatch):
    """A gate before sessions of which one is below another; ``looks`` has who was looked at."""
    looks = []

    def peer_of(pid, _session_processes):
        looks.append(pid)
        return PEERS.get(pid, PERSON)

    async def look_up(session_id):
        return SimpleNamespace(parent_id=PARENTS[session_id])

    monkeypatch.setattr(gate_module, "peer_of", peer_of)
    made = Gate(SimpleNamespace(look_up=look_up), lambda: None, TOKEN, lambda: None)
    return SimpleNamespace(gate=made, looks=looks, check=made.check)


def ask(token=TOKEN):
    return Ask(id="c-1", body=codec.encode(requests.GetFacts()), token=token)


@pytest.mark.parametrize("token", ["", TOKEN[:-1], TOKEN + "0", TOKEN.upper(), "0" * 64, "\ud800"])
def test_a_person_shows_the_whole_token(gate, token):
    """Whatever else is no token; it is not remembered as shown."""
    for _ in range(2):
        with pytest.raises(AccessDenied, match="has not shown this daemon's token"):
            gate.check(b"a", 7, ask(token))
    gate.check(b"a", 7, ask())
    gate.check(b"a", 7, ask(""))  # it has been shown over this connection


def test_the_daemons_own_process_and_another_machine_need_no_token(gate):
    """The first has it, the second has a key."""
    gate.check(b"a", os.getpid(), ask(""))
    gate.check(b"b", None, ask(""))


def test_an_agent_needs_no_token(gate):
    """Its process is its word."""
    gate.check(b"a", 8, ask(""))

    assert gate.gate.peer(b"a") == AGENT


@pytest.mark.parametrize(("pid", "why"), [(9, "a tool of session 's-1'"), (10, "has ended")])
def test_a_tool_with_the_token_is_refused_each_time(gate, pid, why):
    """So is who has ended, and nothing of it is remembered."""
    for _ in range(2):
        with pytest.raises(AccessDenied, match=why):
            gate.check(b"a", pid, ask())

    assert gate.gate.peer(b"a").kind is Kind.GONE
    assert gate.looks == [pid, pid]


def test_who_takes_the_name_of_a_connection_is_looked_at_himself(gate):
    """What is remembered is of the name and the process together."""
    gate.check(b"a", 7, ask())
    with pytest.raises(AccessDenied):
        gate.check(b"a", 9, ask())
    with pytest.raises(AccessDenied):
        gate.check(b"a", 11, ask(""))
    gate.check(b"a", 7, ask(""))

    assert gate.looks == [7, 9, 11]


def test_of_so_many_connections_is_remembered_who_they_are(gate):
    """One more is looked at again, as the oldest of them."""
    for at in range(PEERS_MAX + 1):
        gate.check(b"%d" % at, 7, ask())

    assert gate.gate.peer(b"0").kind is Kind.GONE
    assert gate.gate.peer(b"%d" % PEERS_MAX) == PERSON


def test_a_person_alone_gets_events(gate):
    """Neither an agent nor a tool, and nobody who has ended."""
    assert [pid for pid in PEERS if gate.gate.lets_listen(pid)] == [7]


ASKED = {
    "facts": (requests.GetFacts(), True),
    "its own": (requests.FindSession(session_id="s-1"), True),
    "one below": (requests.FindSession(session_id="s-3"), True),
    "a stranger": (requests.FindSession(session_id="s-9"), False),
    "stop its own": (requests.StopSession(session_id="s-1", reason="x"), False),
    "stop one below": (requests.StopSession(session_id="s-2", reason="x"), True),
    "stop a stranger": (requests.StopSession(session_id="s-9", reason="x"), False),
    "the checkpoints of its own": (requests.ListCheckpoints(session_id="s-1"), True),
    "the checkpoints of one below": (requests.ListCheckpoints(session_id="s-2"), False),
    "all sessions": (requests.ListSessions(), False),
}


def heard(check, *args):
    """Say whether what is asked is let pass."""
    try:
        asyncio.run(check(*args))
    except AccessDenied:
        return False
    return True


@pytest.mark.parametrize(("request_", "is_own"), ASKED.values(), ids=ASKED)
def test_an_agent_asks_for_what_is_its_own(gate, request_, is_own):
    """A person for everything."""
    assert heard(gate.gate.check_request, AGENT, request_) is is_own
    assert heard(gate.gate.check_request, PERSON, request_) is True
    assert heard(gate.gate.check_request, Peer(Kind.GONE), request_) is (
        type(request_) is requests.GetFacts
    )


@pytest.mark.parametrize(
    ("session_id", "command", "is_own"),
    [
        ("s-2", Prompt(text="x"), True),
        ("s-3", AwaitCycle(), True),
        ("s-1", Prompt(text="x"), False),
        ("s-9", Prompt(text="x"), False),
        ("s-2", Approve(approval_id="a-1"), False),
        ("s-2", None, False),
    ],
)
def test_an_agent_asks_those_below_it_what_subagents_are_asked(gate, session_id, command, is_own):
    """To decide for a person is not among it."""
    body = b"\xc1" if command is None else codec.encode(command)
    send = Send(id="c-1", session_id=session_id, durable=True, body=body)

    assert heard(gate.gate.check_command, AGENT, send) is is_own
    assert heard(gate.gate.check_command, PERSON, send) is True
