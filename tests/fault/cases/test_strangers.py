"""Who says to the daemon what is not his to say hurts nobody but himself."""

import asyncio
import os
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import runtime_dir
from cmdc_runtime.checked_struct import INDEX_MAX
from cmdc_runtime.events import StreamReset
from cmdc_runtime.reasons import Other
from cmdc_runtime.testing import ToolCalls, ToolUse
from cmdc_runtime.wire.codec import decode, encode, encode_events, raw
from cmdc_runtime.wire.frames import (
    HEADER,
    Batch,
    Completed,
    Detached,
    ExitNotice,
    HostWanted,
    JournalRecord,
    Ready,
    Started,
    Terminate,
    ToWorker,
    ValueReply,
    Write,
)
from tests.fault.cases.conftest import WARM_S, is_warm
from tests.fault.cases.strangers import own_link, stranger
from tests.fault.test_frames import facts_of

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 30.0
ONE = encode_events([(0, StreamReset())])
UNKNOWN = Detached(worker_id="w-1", session_id="other", incarnation=1, first=1)
CONTRACT = "it broke the contract of the wire"


@pytest.fixture(scope="module")
def place(shared_daemon):
    """A daemon whose agents wait for the next one."""
    shared_daemon.grace = 60.0
    shared_daemon.start()
    with shared_daemon.client() as client:
        assert shared_daemon.poll(lambda: is_warm(client), WARM_S)
    return shared_daemon


def batch(first, count):
    return encode(Batch(first=first, count=count, durable=True))


def announcement(entry, first=1):
    return encode(
        Detached(
            worker_id=entry.worker_id,
            session_id=entry.session_id,
            incarnation=entry.incarnation,
            first=first,
        )
    )


def refused_by(place):
    """Return how many frames the daemon has refused."""
    return facts_of(f"ipc://{place.address / 'control.sock'}").refused_frames


def entry_of(place, session):
    """Return what the roll has of a session's agent, which anybody of this user can read."""
    return next(
        one for one in runtime_dir.registrations(place.address) if one.session_id == session.id
    )


# --- another process ------------------------------------------------------------------------------


@pytest.mark.fault_case("F74")
def test_a_stranger_speaks_for_no_worker(place, client, agent, scripted):
    """Not under its name, for none that there is not, and not by any frame; all is counted."""
    session = agent(scripted("one", "two"))
    assert session.run("1", timeout=TURN_S).text == "one"
    before, pid, index = refused_by(place), session.agent_pid(), session.last_index()
    name = entry_of(place, session).worker_id
    frames = [
        [batch(index + 1, 1), ONE],
        [encode(Write(records=(), completed=(), number=1))],
        [encode(HostWanted(address=str(place.address / "control.sock")))],
        [encode(ExitNotice(reason=Other(detail="not mine")))],
        [encode(Started())],
        [encode(Ready(pid=1))],
        [announcement(entry_of(place, session))],
        [b"\xc1"],
    ]
    messages = [(who, (HEADER, *parts)) for who in (f"{name}-1", "w-1-0") for parts in frames]
    with stranger(place.address / "workers.sock", *messages) as heard:
        # An agent that nobody knows is ordered to end; that one frame of each name is not refused.
        refused = len(messages) - 2
        assert place.poll(lambda: refused_by(place) >= before + refused)
        assert session.run("2", timeout=TURN_S).text == "two"

    assert refused_by(place) == before + refused
    assert {type(decode(ToWorker, bytes.fromhex(line.strip()))) for line in heard} <= {Terminate}
    assert (place.address / "control.sock").is_socket()
    assert session.agent_pid() == pid
    assert {one.session_id for one in client.list_sessions()} >= {session.id}


@pytest.mark.fault_case("F74")
def test_a_stranger_is_adopted_in_nobodys_place(place, audit, agent, scripted):
    """He calls for an agent between two daemons, before it does: its own process is taken over."""
    audit.daemon_died = True
    session, other = agent(scripted("one", "two", "three")), agent(scripted("one", "two"))
    assert [one.run("1", timeout=TURN_S).text for one in (session, other)] == ["one", "one"]
    pids = session.agent_pid(), other.agent_pid()
    entry = entry_of(place, session)
    place.kill()
    words = [(HEADER, announcement(entry, first)) for first in (1, 5, INDEX_MAX)]
    names = [entry.worker_id, *(f"{entry.worker_id}-{number}" for number in range(3)), "other"]
    messages = [(name, parts) for name in names for parts in words]
    with stranger(place.address / "workers.sock", *messages) as heard:
        place.start()
        assert session.run("2", timeout=TURN_S).text == "two"
        assert place.poll(lambda: refused_by(place) >= len(messages))
        assert session.run("3", timeout=TURN_S).text == "three"
        assert other.run("2", timeout=TURN_S).text == "two"

    assert (session.agent_pid(), other.agent_pid()) == pids
    assert heard == []


# --- an agent -------------------------------------------------------------------------------------


@cmdc.tool(effects="write", isolation="task")
async def say(parts: list[str]) -> str:
    """Send a message over the agent's own connection, and wait for what comes of it."""
    own_link()._pump.send([bytes.fromhex(part) for part in parts])
    await asyncio.Event().wait()
    return "nothing came of it"


NO_RECORDS = {
    "noise": b"\xc1",
    "cut": b"\x81\xa1a",
    "empty": b"",
    "no map": b"\xc0",
    "too deep": b"\x81\xa1a" + b"\x91" * 2_000 + b"\xc0",
}


def record(body):
    records = (JournalRecord(kind="said", body=body),)
    return encode(Write(records=records, completed=(), number=1))


def wild(place, other):
    """Return what no agent may say, by what it is."""
    foreign = encode(ValueReply(id="c-2", body=raw("mine")))
    return {
        "a count near 2**64": (batch(1, 2**64 - 1), ONE),
        "more events than there are": (batch(1, 5), ONE),
        "an index near 2**64": (batch(2**64 - 1, 1), ONE),
        "events that are none": (batch(1, 1), b"\xc1"),
        "a write near 2**64": (encode(Write(records=(), completed=(), number=2**64 - 1)),),
        "another's outcome": (
            encode(Write(records=(), completed=(Completed(id="c-1", frame=foreign),), number=1)),
        ),
        "a host at the control socket": (
            encode(HostWanted(address=str(place.address / "control.sock"))),
        ),
        "a host at a relative path": (encode(HostWanted(address="control.sock")),),
        "a call for another agent": (announcement(entry_of(place, other)),),
        "a call for an agent that nobody knows": (encode(UNKNOWN),),
        **{f"a record that is {name}": (record(body),) for name, body in NO_RECORDS.items()},
        "noise": (b"\xc1",),
    }


KINDS = (
    *(f"a record that is {name}" for name in NO_RECORDS),
    "a count near 2**64",
    "more events than there are",
    "an index near 2**64",
    "events that are none",
    "a write near 2**64",
    "another's outcome",
    "a host at the control socket",
    "a host at a relative path",
    "a call for another agent",
    "a call for an agent that nobody knows",
    "noise",
)


@pytest.mark.fault_case("F74")
@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_that_breaks_the_contract_ends_itself(place, agent, bystander, scripted, kind):
    """Its frame is refused, its process ended with the reason, its session goes on; nobody else."""
    client = bystander.client
    parts = [HEADER.hex(), *(part.hex() for part in wild(place, bystander)[kind])]
    model = scripted(ToolCalls(ToolUse("say", {"parts": parts})), default="fine")
    session = agent(model, tools=[say])
    before = refused_by(place)
    monitor = session.monitor()
    session.prompt("Go.")
    down = monitor.wait(TURN_S)
    assert session.run("Again.", timeout=TURN_S).text == "fine"
    listed = {one.session_id: one for one in client.list_sessions()}

    assert CONTRACT in str(down.reason)
    assert refused_by(place) == before + 1
    assert listed[session.id].incarnation == 2
    assert listed[session.id].last_index < INDEX_MAX
    assert (place.address / "control.sock").is_socket()
    assert bystander.run("And you?", timeout=TURN_S).text == "fine"


@pytest.mark.fault_case("F74")
def test_last_words_of_any_size_are_cut(place, client, agent, scripted):
    """They go to every monitor and stand in every list: a page of them is enough."""
    words = encode(ExitNotice(reason=Other(detail="x" * (15 * 2**20))))
    path = place.place / "words"
    path.write_text(words.hex())
    model = scripted(ToolCalls(ToolUse("say_and_die", {"path": str(path)})), default="fine")
    session = agent(model, tools=[say_and_die])
    monitor = session.monitor()
    session.prompt("Go.")
    down = monitor.wait(TURN_S)

    assert str(down.reason).startswith("x")
    assert len(encode(down.reason)) < 5_000
    assert len(encode(client.list_sessions())) < 100_000


@cmdc.tool(effects="write", isolation="task")
async def say_and_die(path: str) -> str:
    """Send last words from a file, and end the process."""
    link = own_link()
    link._pump.send([HEADER, bytes.fromhex(await asyncio.to_thread(Path(path).read_text))])
    link.close()
    os._exit(3)
