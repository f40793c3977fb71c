"""Conversations longer than any frame, and sessions that sleep: read by many, while others die."""

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.testing import Text
from cmdc_runtime.wire.frames import FRAME_BYTES_MAX
from tests.fault.audit import SLEEPER

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 120.0
SOON_S = 0.3
ANSWERS = 6
CMDC = Path(sys.executable).with_name("cmdc")
LONG = "\U0001f600" * 1_900_000
"""An answer of 7.2 MiB, which is about as long as one may be."""
FEW = TokenUsage(prompt_tokens=10, completion_tokens=10)
"""What the provider says it has counted: nothing is compacted."""


def said(messages):
    """Return who said what, long texts by their sums."""
    return [
        (one.role, hashlib.sha256(one.content.encode()).hexdigest())
        for one in messages
        if one.role != "system"
    ]


async def read_as_coroutine(address, session_id):
    async with cmdc.AsyncClient(address) as client:
        return said(await client.messages(session_id))


def restarted(place, session, before):
    """Return the status of the process after ``before``, once it is idle."""

    def look():
        status = session.status()
        is_next = status.incarnation > before and status.state == "idle"
        return status if is_next else None

    return place.poll(look, TURN_S)


def long_session(agent, scripted, answers):
    """Return a session with so many answers of 7.2 MiB, of which its ring holds the last."""
    steps = [Text(LONG, chunk_chars=len(LONG) // 4, usage=FEW) for _ in range(answers)]
    session = agent(scripted(*steps), event_buffer_size=10)
    for number in range(answers):
        assert session.run(f"{number}?", timeout=TURN_S).text == LONG
    return session


@pytest.fixture
def long(agent, scripted):
    """A session with a conversation of more than 40 MiB, which its ring does not hold."""
    return long_session(agent, scripted, ANSWERS)


@pytest.mark.fault_case("F82")
def test_a_conversation_of_40_mib_is_whole_whoever_dies(place, audit, long):
    """Read by several at once while its agent is killed, and after the daemon was."""
    audit.daemon_died = True
    messages, before = long.messages(), long.status()
    whole, size = said(messages), sum(len(one.content.encode()) for one in messages)
    with ThreadPoolExecutor(3) as pool:
        reads = [pool.submit(lambda: said(long.messages())) for _ in range(3)]
        os.kill(before.pid, signal.SIGKILL)
        amid = [one.result(TURN_S) for one in reads]
    after = restarted(place, long, before.incarnation)
    by_coroutine = asyncio.run(read_as_coroutine(place.address, long.id))
    place.kill()
    place.start()
    again = restarted(place, long, after.incarnation)

    assert (size > 40 * 2**20, len(whole)) == (True, 2 * ANSWERS)
    assert amid == [whole] * 3
    assert (by_coroutine, said(long.messages())) == (whole, whole)
    assert (before.turns, after.turns, again.turns) == (ANSWERS,) * 3


@pytest.mark.fault_case("F82")
def test_a_conversation_of_40_mib_is_saved_forked_moved_and_replayed(
    place, own_daemon, long, client, tmp_path
):
    """Whatever a shorter one can be; the fork's process may die, too."""
    whole = said(long.messages())
    with long.subscribe(since=0, types=["agent_end"]) as stream:
        ends = first_of(stream, ANSWERS)
    saved = long.checkpoint(label="long")
    loaded = client.load_checkpoint(long, saved.checkpoint_id)
    fork = client.resume_session(long.id, checkpoint_id=saved.checkpoint_id, new_id="forked")
    file = tmp_path / "session"
    run_cli(place, "export", long.id, "-o", str(file))
    own_daemon.start()
    run_cli(own_daemon, "import", str(file), "--as", "moved")
    with own_daemon.client() as elsewhere:
        moved, kept = said(elsewhere.messages("moved")), elsewhere.list_checkpoints("moved")
    copies = [said(fork.messages()), moved]
    os.kill(fork.agent_pid(), signal.SIGKILL)
    restarted(place, fork, 1)
    reborn = said(fork.messages())
    client.stop("forked")

    assert all(len(one.messages) == 2 for one in ends)
    assert len(loaded.state["messages"]) == 2 * ANSWERS
    assert (copies, reborn) == ([whole, whole], whole)
    assert [one.label for one in kept] == ["long"]


def first_of(stream, count):
    """Return so many events of a stream, the words of what its ring did not keep left out."""
    found = []
    while len(found) < count:
        event = stream.get(TURN_S).event
        if event.kind != "events_lost":
            found.append(event)
    return found


def run_cli(place, *words):
    """Run the command line, which must succeed."""
    done = subprocess.run(
        [CMDC, *words, "--address", str(place.address)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TURN_S,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.fault_case("F82")
def test_a_definition_that_just_fits_starts_restarts_and_resumes(place, agent, client):
    """What the daemon adds to it on its way has room; a longer one is refused at once."""
    history = [cmdc.Message.user("x" * 1_000_000) for _ in range(15)]
    with pytest.raises(cmdc.UsageError, match="is the most for all options together"):
        agent(messages=[*history, cmdc.Message.user("x" * 1_600_000)])
    session = agent(messages=[*history, cmdc.Message.user("x" * 1_450_000)])
    whole = said(session.messages())
    os.kill(session.agent_pid(), signal.SIGKILL)
    restarted(place, session, 1)
    fork = client.resume_session(session.id, new_id="long-fork")
    forked = said(fork.messages())
    client.stop("long-fork")

    assert len(whole) == len(history) + 1
    assert said(session.messages()) == whole == forked
    assert sum(len(one.content) for one in session.messages()) > 0.9 * FRAME_BYTES_MAX


@pytest.mark.fault_case("F83")
def test_sleepers_sleep_on_however_many_look(place, agent, audit, scripted, client):
    """Readers that are killed are reported; a daemon that dies wakes them with what they had."""
    audit.daemon_died = True
    sessions = [
        agent(scripted("hello", "again"), hibernate_after=SOON_S, session_id=f"{SLEEPER}{number}")
        for number in range(6)
    ]
    for session in sessions:
        session.run("Hi.", timeout=TURN_S)
    awake = {one.id: one.status() for one in sessions}
    conversation = said(sessions[0].messages())

    def are_asleep():
        client.list_sessions()  # who looks keeps nobody awake
        return all(one.agent_pid() is None for one in sessions)

    assert place.poll(are_asleep, TURN_S)
    known = {one.session_id: one for one in client.list_sessions()}
    workers = workers_of(place)
    with ThreadPoolExecutor(12) as pool:
        reads = [pool.submit(one.messages) for one in sessions * 3]
        kill_a_new_one(place, workers)
        answers = [read.exception(TURN_S) or said(read.result()) for read in reads]
    failed = [one for one in answers if isinstance(one, cmdc.TransientError)]
    later = [said(one.messages()) for one in sessions]
    asleep = [one.status() for one in sessions]

    assert all(one == conversation for one in answers if one not in failed)
    assert later == [conversation] * len(sessions)
    assert [one.state for one in asleep] == ["hibernated"] * len(sessions)
    for one in asleep:
        before = awake[one.session_id]
        assert (one.turns, one.token_usage, one.model) == (1, before.token_usage, before.model)
        assert (one.incarnation, one.restarts) == (before.incarnation, 0)
        assert known[one.session_id].turns == 1

    place.kill()
    place.start()
    assert {said(one.messages())[0] for one in sessions} == {conversation[0]}
    assert [one.status().turns for one in sessions] == [1] * len(sessions)
    assert sessions[0].run("Once more.", timeout=TURN_S).text == "again"


def workers_of(place):
    return {one.pid for one in psutil.Process(place.process.pid).children(recursive=True)}


def kill_a_new_one(place, known):
    """Kill one reader while it reads; which of the new processes it is does not matter here."""
    new = place.poll(lambda: workers_of(place) - known, TURN_S)
    os.kill(new.pop(), signal.SIGKILL)


@pytest.mark.fault_case("F83")
def test_stopped_agents_are_listed_as_unresponsive_and_hold_nobody_up(agent, poll, client):
    """However many there are; the others answer for themselves."""
    sessions = [agent(unresponsive_after=60.0) for _ in range(5)]
    for session in sessions:
        session.run("Hi.", timeout=TURN_S)
    pids = [one.agent_pid() for one in sessions[:3]]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        found = {one.session_id: one.state for one in client.list_sessions()}
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    states = [found[one.id] for one in sessions]

    assert states == ["unresponsive"] * 3 + ["idle"] * 2
    assert poll(lambda: all(one.status().state == "idle" for one in sessions), TURN_S)
