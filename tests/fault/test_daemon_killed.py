"""``kill -9`` of the daemon: nothing stays behind, and nothing that was accepted is lost."""

import subprocess
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.reasons import Other, Shutdown
from cmdc_runtime.testing import Hold, Text, ToolCalls, ToolUse

pytestmark = [pytest.mark.fault, pytest.mark.process]

TURN_S = 30.0
PATIENCE_S = 5.0
RESTARTED = Other(detail="the daemon was restarted")


def test_all_of_a_killed_daemon_ends(own_daemon, scripted, poll, tmp_path):
    """Zygote, tracker, spares, agents and their commands end by themselves."""
    model = scripted(ToolCalls(ToolUse("shell", {"command": "sleep 300 & sleep 300"})), "never")
    own_daemon.start()
    with own_daemon.client() as client:
        client.create_agent(model=model)
        session = client.create_agent(model=model, tools=[cmdc.tools.Shell], working_dir=tmp_path)
        session.prompt("Sleep.")
        agent = psutil.Process(session.agent_pid())
        assert poll(lambda: len(agent.children(recursive=True)) >= 2)
        daemon = psutil.Process(own_daemon.process.pid)
        known = poll(lambda: len(found := daemon.children(recursive=True)) >= 8 and found)
        own_daemon.kill()
    gone, left = psutil.wait_procs(known, 15.0)

    assert left == []
    assert len(gone) >= 8
    assert own_daemon.left() == []


def test_new_daemon_goes_on_with_every_session(own_daemon, scripted):
    """Prompts accepted before the kill are answered; indexes go on beyond what was published."""
    model = scripted("one", (Text("half "), Hold(), "never"), "two", "three", "four")
    own_daemon.start()
    with own_daemon.client() as client:
        busy = client.create_agent(model=model, session_id="busy")
        busy.run("1", timeout=TURN_S)
        idle = client.create_agent(model=scripted("fine"), session_id="idle")
        over = client.create_agent(model=model, session_id="over")
        over.stop(reason="enough")
        before = busy.subscribe()
        busy.prompt("2")
        busy.prompt("3")
        model.wait_held()
        while before.get(TURN_S).event.kind != "message_delta":
            pass
        last = busy.last_index()
        own_daemon.kill()
    model.wait_abandoned()
    own_daemon.start()
    with own_daemon.client() as client:
        assert client.collect_reply("busy", timeout=TURN_S) == "three"
        said = [(one.role, one.content) for one in client.messages("busy")[1:]]
        events = []
        stream = client.subscribe("busy", since=last)
        while not events or events[-1].index < client.last_index("busy"):
            events.append(stream.get(TURN_S))
        idle_status = client.status(idle)
        fine = client.run(idle, "5", timeout=TURN_S).text
        live = {status.session_id for status in client.list_sessions()}
        with pytest.raises(cmdc.SessionNotAlive) as caught:
            client.status("over")

    assert [text for role, text in said if role == "user"] == ["1", "2", "3"]
    assert [text for role, text in said if role == "assistant"] == ["one", "two", "three"]
    lost, recovered, *rest = events
    assert (lost.event.kind, lost.event.first) == ("events_lost", last + 1)
    assert recovered.index == lost.event.last + 1
    restarted = Other(detail="the daemon was restarted")
    assert recovered.event == cmdc.events.AgentRecovered(
        incarnation=2, reason=restarted, resumed="stream"
    )
    assert [one.index for one in rest] == [*range(recovered.index + 1, events[-1].index + 1)]
    assert (idle_status.incarnation, idle_status.state) == (2, "idle")
    assert fine == "fine"
    assert live == {"busy", "idle"}
    assert caught.value.reason == Shutdown(detail="enough")


@pytest.mark.parametrize("end", ["kill", "terminate"])
def test_client_goes_on_with_the_next_daemon(own_daemon, scripted, end):
    """A client that is connected when the daemon ends, however, uses the next one by itself."""
    model = scripted((Hold(), "never"), "two", default="more")
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=model)
        stream = session.subscribe()
        monitor = session.monitor()
        session.prompt("1")
        model.wait_held()
        getattr(own_daemon.process, end)()
        own_daemon.process.wait(TURN_S)
        own_daemon.start()

        assert session.collect_reply(timeout=TURN_S) == "two"
        kinds = []
        while not kinds or kinds[-1] != "agent_end":
            kinds.append(stream.get(TURN_S).event.kind)
        assert kinds.index("events_lost") < kinds.index("agent_recovered")
        assert session.run("3", timeout=TURN_S).text == "more"
        session.stop()
        down = monitor.wait(TURN_S)
        assert (down.reason, down.incarnation, down.restarting) == (RESTARTED, 1, True)


def test_second_daemon_is_refused(own_daemon):
    """A runtime directory has one daemon: a second one says whose it is and ends."""
    pid = own_daemon.start()
    second = subprocess.run(
        own_daemon.command(),
        env=own_daemon.environment(),
        capture_output=True,
        text=True,
        timeout=TURN_S,
        check=False,
    )

    assert second.returncode == 3
    assert str(pid) in second.stderr
    assert str(own_daemon.address) in second.stderr
    with own_daemon.client() as client:
        assert client.list_sessions() == []


def test_prompt_of_a_dead_daemon_is_not_reported_as_never_given(own_daemon, scripted, poll):
    """It is safe and not answered, and no daemon comes in time: the next one has it done, once."""
    own_daemon.grace = 60.0
    own_daemon.start()
    with own_daemon.client() as client, ThreadPoolExecutor(1) as threads:
        session = client.create_agent(model=scripted(default="fine"), session_id="s-1")
        agent = psutil.Process(session.agent_pid())
        agent.suspend()
        prompting = threads.submit(session.run, "Once.", timeout=PATIENCE_S)
        assert poll(lambda: len(client._engine._link._connection._mailbox))
        with pytest.raises(cmdc.InvalidSession):
            client.status("nobody")  # the journal has been asked, behind the prompt
        own_daemon.kill()
        with pytest.raises(cmdc.CommandTimeout, match="may still take effect, once"):
            prompting.result(TURN_S)
        agent.resume()
        own_daemon.start()
        assert poll(lambda: session.status().turns == 1 and session.status().state == "idle")
        heard = [one.content for one in session.messages() if one.role == "user"]

    assert heard == ["Once."]
