"""``kill -9`` of the daemon under its agents: they go on, and the next daemon takes them over."""

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import runtime_dir
from cmdc_runtime.testing import Hold, Text, ToolCalls, ToolUse
from supervisor.adapters.journal.sqlite import JOURNAL_FILE
from tests.ended import has_ended

pytestmark = [pytest.mark.fault, pytest.mark.process]

TURN_S = 30.0
DAEMONS = 8


@pytest.fixture
def own_daemon(own_daemon):
    """Return directories whose agents wait for the next daemon."""
    own_daemon.grace = 60.0
    return own_daemon


@cmdc.tool(effects="write")
def note(path: str, text: str) -> str:
    """Write a line to a file."""
    with Path(path).open("a") as file:
        file.write(f"{text}\n")
    return "written"


@cmdc.tool(effects="write")
def wait_for(path: str) -> str:
    """Return when there is a file."""
    while not Path(path).exists():
        time.sleep(0.01)  # tidy: a tool has nobody who would notify it
    return "there"


def indexes_of(client, session_id):
    """Return the indexes of all events of a session, those that are reported as lost among them.

    With a daemon goes its ring, and with that what is in no journal.
    """
    last = client.last_index(session_id)
    seen = []
    with client.subscribe(session_id, since=0) as stream:
        while not seen or seen[-1] < last:
            one = stream.get(TURN_S)
            is_lost = one.event.kind == "events_lost"
            seen += range(one.event.first, one.event.last + 1) if is_lost else [one.index]
    return seen


def journal_size(own_daemon):
    """Return how much the journal has written ahead."""
    return (own_daemon.place / "state" / f"{JOURNAL_FILE}-wal").stat().st_size


def test_an_agent_that_cannot_be_found_ends_with_its_daemon(own_daemon, scripted, poll):
    """Where the roll can't be written its session lives all the same, and goes on anew."""
    own_daemon.start()
    Path(own_daemon.address, runtime_dir.REGISTRY).write_text("in the way")
    with own_daemon.client() as client:
        session = client.create_agent(model=scripted("one", "two"), session_id="s-1")
        assert session.run("1", timeout=TURN_S).text == "one"
        pid = session.agent_pid()
        own_daemon.kill()
        assert poll(lambda: not psutil.pid_exists(pid))
        Path(own_daemon.address, runtime_dir.REGISTRY).unlink()
        own_daemon.start()
        assert session.run("2", timeout=TURN_S).text == "two"
        assert session.status().incarnation == 2
        session.stop()


def test_an_idle_agent_is_taken_over(own_daemon, scripted):
    """It is the same process and incarnation, nobody hears of an end, and it answers."""
    model = scripted("one", "two")
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=model, session_id="s-1")
        downs = []
        client.monitor("s-1", downs.append)
        assert session.run("1", timeout=TURN_S).text == "one"
        pid = session.agent_pid()
        own_daemon.kill()
        own_daemon.start()
        assert session.run("2", timeout=TURN_S).text == "two"
        status = session.status()
        assert (status.pid, status.incarnation, status.restarts) == (pid, 1, 0)
        assert downs == []
        indexes = indexes_of(client, "s-1")
    assert indexes == list(range(1, len(indexes) + 1))


def test_a_stream_goes_on_while_there_is_no_daemon(own_daemon, scripted):
    """What the model says meanwhile is there for who follows, each event once."""
    model = scripted((Text("before "), Hold(), Text("meanwhile "), Text("after")))
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=model, session_id="s-1")
        stream = session.subscribe()
        session.prompt("Go.")
        model.wait_held()
        own_daemon.kill()
        model.release()
        own_daemon.start()
        seen = []
        while not seen or seen[-1].event.kind != "agent_end":
            seen.append(stream.get(TURN_S))
        reply = session.collect_reply(timeout=TURN_S)
    assert reply == "before meanwhile after"
    indexes = [one.index for one in seen]
    assert indexes == list(range(indexes[0], indexes[0] + len(indexes)))
    assert "events_lost" not in {one.event.kind for one in seen}


def test_tools_run_on_and_run_once(own_daemon, scripted, poll, tmp_path):
    """A call in a process and a call in the agent end while there is no daemon."""
    go, ran = tmp_path / "go", tmp_path / "ran"
    model = scripted(
        ToolCalls(
            ToolUse("wait_for", {"path": str(go)}),
            ToolUse("note", {"path": str(ran), "text": "x"}),
        ),
        "done",
        ToolCalls(ToolUse("note", {"path": str(ran), "text": "y"})),
        "done again",
    )
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=model, session_id="s-1", tools=[note, wait_for])
        session.prompt("Go.")
        assert poll(ran.exists)
        pid = session.agent_pid()
        own_daemon.kill()
        go.touch()
        assert poll(lambda: len(model.requests) == 2)
        own_daemon.start()
        assert session.collect_reply(timeout=TURN_S) == "done"
        assert session.run("Again.", timeout=TURN_S).text == "done again"
        assert session.agent_pid() == pid
    assert ran.read_text() == "x\ny\n"


def test_a_prompt_that_was_accepted_just_before_is_taken(own_daemon, scripted, poll):
    """Commands in the journal that never reached the agent are given to it by the next daemon."""
    model = scripted((Hold(), "one"), "two", "three")
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=model, session_id="s-1")
        session.prompt("1")
        model.wait_held()
        agent = psutil.Process(session.agent_pid())
        agent.suspend()
        before = journal_size(own_daemon)
        with ThreadPoolExecutor(1) as pool:
            second = pool.submit(client.prompt, "s-1", "2")
            assert poll(lambda: journal_size(own_daemon) > before)
            own_daemon.kill()
            agent.resume()
            model.release()
            own_daemon.start()
            second.result(TURN_S)
        session.prompt("3")
        assert session.collect_reply(timeout=TURN_S) == "three"
        users = [one.content for one in session.messages() if one.role == "user"]
    assert users == ["1", "2", "3"]


def test_an_agent_that_died_meanwhile_is_reported_and_restarted(own_daemon, scripted, poll):
    """Its end is reported once, and its session goes on in a new process."""
    model = scripted("one", "two")
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=model, session_id="s-1")
        downs = []
        client.monitor("s-1", downs.append, persistent=True)
        session.run("1", timeout=TURN_S)
        pid = session.agent_pid()
        own_daemon.kill()
        os.kill(pid, signal.SIGKILL)
        own_daemon.start()
        assert session.run("2", timeout=TURN_S).text == "two"
        assert session.status().incarnation == 2
        assert poll(lambda: downs)
    assert [down.incarnation for down in downs] == [1]


def test_an_adopted_agent_that_dies_is_reported_with_its_status(own_daemon, scripted, poll):
    """The kernel says how it ended, though it is nobody's child."""
    model = scripted("one", "two")
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=model, session_id="s-1")
        own_daemon.kill()
        own_daemon.start()
        downs = []
        client.monitor("s-1", downs.append)
        os.kill(session.agent_pid(), signal.SIGSEGV)
        assert poll(lambda: downs)
        assert session.run("1", timeout=TURN_S).text == "one"
    assert downs[0].reason.name == "SIGSEGV"


def test_no_daemon_comes(own_daemon, scripted, poll):
    """After the grace an agent ends by itself, with all that it started."""
    own_daemon.grace = 1.0
    model = scripted(ToolCalls(ToolUse("shell", {"command": "sleep 300 & sleep 300"})), "never")
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=model, tools=[cmdc.tools.Shell])
        session.prompt("Sleep.")
        agent = psutil.Process(session.agent_pid())
        assert poll(lambda: len(agent.children(recursive=True)) >= 2)
        own_daemon.kill()
        assert agent.is_running()
    assert poll(lambda: not own_daemon.left())
    assert list((own_daemon.address / "agents").iterdir()) == []


def test_many_daemons_in_a_row(own_daemon, scripted):
    """Each is killed with its sessions in the middle of something; nothing is lost or repeated."""
    model = scripted(*[f"answer {number}" for number in range(DAEMONS)])
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=model, session_id="s-1")
        pid = session.agent_pid()
        for number in range(DAEMONS):
            session.prompt(str(number))
            own_daemon.kill()
            own_daemon.start()
            assert session.collect_reply(timeout=TURN_S) == f"answer {number}"
        assert session.agent_pid() == pid
        indexes = indexes_of(client, "s-1")
    assert indexes == list(range(1, len(indexes) + 1))


def test_an_agent_that_is_no_session_any_more_is_ended(own_daemon, scripted, poll, tmp_path):
    """A daemon with another journal does not know it: it ends, and nothing of it is left."""
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=scripted("one"), session_id="s-1")
        agent = psutil.Process(session.agent_pid())
        own_daemon.kill()
    subprocess.run(["mv", str(own_daemon.place / "state"), str(tmp_path / "old")], check=True)
    own_daemon.start()
    assert poll(lambda: has_ended(agent))


LOOK = ToolCalls(ToolUse("task", {"description": "Find out.", "subagent_type": "scout"}))


def delegated(client, above, below):
    """Return a session that waits for its subagent, whose model is held."""
    scout = cmdc.SubAgent("scout", "Looks at things.", model=below)
    session = client.create_agent(model=above, session_id="s-1", subagents=[scout])
    session.prompt("Where does it end?")
    below.wait_held()
    return session


def test_a_subagent_is_taken_over_with_its_parent(own_daemon, scripted):
    """Both keep their processes, and the parent gets the result."""
    below = scripted((Hold(), "The river ends in the sea."))
    above = scripted(LOOK, "In the sea.")
    own_daemon.start()
    with own_daemon.client() as client:
        session = delegated(client, above, below)
        before = {one.session_id: one.pid for one in client.list_sessions()}
        own_daemon.kill()
        own_daemon.start()
        after = {one.session_id: one.pid for one in client.list_sessions()}
        below.release()
        assert session.collect_reply(timeout=TURN_S) == "In the sea."
    assert len(before) == 2
    assert after == before


def test_a_subagent_that_died_meanwhile_is_reported_as_that(own_daemon, scripted, poll):
    """Its parent's process goes on, and has ended nothing."""
    below = scripted((Hold(), "never"))
    above = scripted(LOOK, "Nobody knows.")
    own_daemon.start()
    with own_daemon.client() as client:
        session = delegated(client, above, below)
        pid = {one.session_id: one.pid for one in client.list_sessions()}["s-1.1"]
        own_daemon.kill()
        os.kill(pid, signal.SIGKILL)
        assert poll(lambda: not psutil.pid_exists(pid))
        own_daemon.start()
        assert session.collect_reply(timeout=TURN_S) == "Nobody knows."
        assert session.status().incarnation == 1
    shown = above.requests[-1]["messages"][-1]["content"]
    assert shown == "Error: the subagent crashed: its process ended while no daemon ran"


def test_a_held_call_is_approved_under_the_next_daemon(own_daemon, scripted, tmp_path):
    """The call waits in the agent, for a person who does not know of any daemon."""
    command = {"command": f"echo x >> {tmp_path / 'ran'}"}
    model = scripted(ToolCalls(ToolUse("shell", command)), "done")
    guard = cmdc.plugins.HumanApproval(mode="hold")
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(
            model=model, session_id="s-1", tools=[cmdc.tools.Shell], plugins=[guard]
        )
        with session.subscribe(types=["approval_required"]) as asked:
            session.prompt("Go.")
            approval = asked.get(TURN_S).event.id
        own_daemon.kill()
        own_daemon.start()
        session.approve(approval)
        assert session.collect_reply(timeout=TURN_S) == "done"
        assert session.status().incarnation == 1
    assert (tmp_path / "ran").read_text() == "x\n"


def test_an_agent_of_another_wire_gives_way_to_a_new_process(own_daemon, scripted):
    """An upgrade that changes the frames ends the old processes, and loses nothing else."""
    model = scripted("one", "two")
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=model, session_id="s-1")
        session.run("1", timeout=TURN_S)
        old = psutil.Process(session.agent_pid())
        own_daemon.kill()
        (entry,) = runtime_dir.registrations(own_daemon.address)
        runtime_dir.register(
            own_daemon.address, msgspec.structs.replace(entry, wire=entry.wire - 1)
        )
        own_daemon.start()
        assert session.run("2", timeout=TURN_S).text == "two"
        assert session.status().incarnation == 2
    assert has_ended(old)


def test_a_daemon_that_is_asked_to_leave_ends_at_once(own_daemon, scripted):
    """SIGUSR2 is an orderly end that ends no agent."""
    model = scripted((Hold(), "one"))
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=model, session_id="s-1")
        session.prompt("1")
        model.wait_held()
        pid = session.agent_pid()
        own_daemon.process.send_signal(signal.SIGUSR2)
        assert own_daemon.process.wait(TURN_S) == 0
        model.release()
        own_daemon.start()
        assert session.collect_reply(timeout=TURN_S) == "one"
        assert session.agent_pid() == pid
