"""Nothing that a session has started acts as a person: not with the CLI, not with a client.

The programs here try what they would need for it with all that a process of the same user has: the
daemon's address and its token are given to them.
"""

import json
import os
import sys
from pathlib import Path

import pytest
import zmq

import cmdc_runtime as cmdc
from cmdc_runtime.client.link import Link
from cmdc_runtime.errors import AccessDenied, CmdcError
from cmdc_runtime.requests import FindSession, ListSessions, StopSession
from cmdc_runtime.runtime_dir import read_token
from cmdc_runtime.testing import ToolCalls, ToolUse
from cmdc_runtime.testing.daemon import DaemonProcess

pytestmark = [pytest.mark.process, pytest.mark.slow]

TURN_S = 60.0
HEARD_S = 1.5
"""For a watermark to come to a subscription: it is welcomed with one at once."""
CMDC = Path(sys.executable).with_name("cmdc")


def shell_call(command):
    return ToolCalls(ToolUse("shell", {"command": command}))


def results(session):
    return [one.content for one in session.messages() if one.role == "tool_result"]


@pytest.fixture
def address(cmdc_daemon):
    return str(cmdc_daemon.address)


@pytest.fixture
def victim(agent, scripted):
    """Another session, which has something to hide."""
    session = agent(scripted("the secret is 4711", default="fine"))
    session.run("Tell it.", timeout=TURN_S)
    return session


@pytest.fixture
def tried(agent, scripted):
    """Have a session's shell run a command, and return what the model reads of it."""

    def tried(command, **options):
        session = agent(
            scripted(shell_call(command), default="done"), tools=[cmdc.tools.Shell], **options
        )
        session.run("Go.", timeout=TURN_S)
        return results(session)[0]

    return tried


@pytest.mark.parametrize(
    "arguments",
    ["ps", "prompt {victim} Hello", "approve {victim} a-1", "stop {victim}", "tail {victim}"],
)
def test_a_command_of_the_shell_tool_is_refused(tried, victim, address, arguments):
    """Whatever it is, and though it knows where the daemon is."""
    command = f"{CMDC} {arguments.format(victim=victim.id)} --address {address}"
    text = tried(f"cd {Path.cwd()} && timeout 30 {command}")

    assert "only a person or an application outside of every session" in text
    assert "4711" not in text


def test_what_a_command_has_set_free_is_refused_too(tried, victim, address, tmp_path, poll):
    """A double fork, a POSIX session of its own, an empty environment, and its parents dead."""
    out = tmp_path / "out"
    command = f"{CMDC} ps --address {address} > {out} 2>&1; echo over >> {out}"
    tried(
        f"cd {Path.cwd()} && (env -i setsid setsid bash -c 'sleep 1; {command}' &) ; echo started"
    )
    assert poll(lambda: out.exists() and "over" in out.read_text(), TURN_S)

    assert "only a person or an application outside of every session" in out.read_text()


@cmdc.tool
def pose(address: str, victim: str) -> str:
    """Use a client as an application does."""
    answers = []
    for ask in ("messages", "stop", "status"):
        try:
            with cmdc.Client(address) as client:
                answers.append(str(getattr(client, ask)(victim)))
        except CmdcError as error:
            answers.append(type(error).__name__)
    return json.dumps(answers)


@cmdc.tool
async def pose_in_agent(address: str, victim: str) -> str:
    """Use the connection that agents have, in the agent's own process."""
    link, answers = Link(address), []
    for request in (ListSessions(), FindSession(session_id=victim), StopSession(session_id=victim)):
        try:
            daemon = await link.connected()
            answers.append(str(await daemon.ask(request)))
        except CmdcError as error:
            answers.append(type(error).__name__)
    await link.disconnect()
    return json.dumps(answers)


@pytest.mark.parametrize("tool", [pose, pose_in_agent], ids=["process", "agent"])
def test_a_client_in_a_tool_is_refused(agent, scripted, victim, address, tool):
    """In a process of its own or in the agent's: there is nothing of another session to be had."""
    arguments = {"address": address, "victim": victim.id}
    model = scripted(ToolCalls(ToolUse(tool.name, arguments)), default="done")
    session = agent(model, tools=[tool])
    session.run("Go.", timeout=TURN_S)

    assert json.loads(results(session)[0]) == ["AccessDenied"] * 3
    assert victim.run("Still there?", timeout=TURN_S).text == "fine"


@pytest.fixture
def other():
    """Another daemon of the same user, of which the first knows nothing."""
    daemon = DaemonProcess()
    yield daemon
    daemon.close()


@pytest.mark.parametrize("freed", ["", "env -i ", "env -i setsid -w setsid -w "])
def test_a_command_is_refused_at_another_daemon_too(tried, other, freed):
    """Whatever it has taken off: that daemon's token is there to be read, and a person's."""
    text = tried(f"cd {Path.cwd()} && timeout 30 {freed}{CMDC} ps --address {other.address}")

    assert "only a person or an application outside of every session" in text
    with other.client() as client:
        assert client.list_sessions() == []


@pytest.mark.parametrize("tool", [pose, pose_in_agent], ids=["process", "agent"])
def test_a_client_in_a_tool_is_refused_at_another_daemon_too(agent, scripted, other, tool):
    """In a process of its own or in the agent's."""
    arguments = {"address": str(other.address), "victim": "nobody"}
    session = agent(
        scripted(ToolCalls(ToolUse(tool.name, arguments)), default="done"), tools=[tool]
    )
    session.run("Go.", timeout=TURN_S)

    assert json.loads(results(session)[0]) == ["AccessDenied"] * 3


EMBEDDED = """
import cmdc_runtime as cmdc
from cmdc_runtime.testing import ScriptedModel
with ScriptedModel([], default="from within") as model, cmdc.create_agent(model=model) as session:
    print(session.run("Go.", timeout=60).text, len(cmdc.list_sessions()))
"""


@cmdc.tool
def embed(script: str) -> str:
    """Run a program of cmdc's own in the call's process."""
    import atexit  # noqa: PLC0415 - in the call alone
    import contextlib  # noqa: PLC0415
    import io  # noqa: PLC0415

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(script, {})
        atexit._run_exitfuncs()  # a call ends without them, and would leave the daemon to be killed
    return said.getvalue()


def test_a_tool_has_a_daemon_of_its_own(agent, scripted, tried, tmp_path):
    """A script that the shell runs, and the process of a call, with the daemons they start."""
    script = tmp_path / "script.py"
    script.write_text(EMBEDDED)
    assert "from within 1" in tried(f"cd {Path.cwd()} && {sys.executable} {script}")
    model = scripted(ToolCalls(ToolUse("embed", {"script": EMBEDDED})), default="done")
    session = agent(model, tools=[embed])
    session.run("Go.", timeout=TURN_S)

    assert "from within 1" in results(session)[0]


@cmdc.tool
async def remember(address: str, *, context: cmdc.Context) -> str:
    """Look oneself up, in the agent's own process."""
    link = Link(address)
    daemon = await link.connected()
    found = await daemon.ask(FindSession(session_id=context.session_id))
    await link.disconnect()
    return found.session_id


def test_an_agent_reads_its_own_past(agent, scripted, address):
    """A run of a strategy that goes on after a death reads what it has recorded."""
    model = scripted(ToolCalls(ToolUse("remember", {"address": address})), default="done")
    session = agent(model, tools=[remember])
    session.run("Go.", timeout=TURN_S)

    assert results(session) == [session.id]


@cmdc.tool
def overhear(address: str) -> str:
    """Subscribe to everything at the daemon's socket of events."""
    with zmq.Context() as context, context.socket(zmq.SUB) as peer:
        peer.setsockopt(zmq.LINGER, 0)
        peer.connect(f"ipc://{address}/events.sock")
        peer.setsockopt(zmq.SUBSCRIBE, b"")
        return f"heard {peer.poll(round(HEARD_S * 1000))}"


def test_a_tool_gets_no_events_and_a_person_does(agent, scripted, victim, address):
    """A subscription to all is welcomed at once, where it is let in."""
    model = scripted(ToolCalls(ToolUse("overhear", {"address": address})), default="done")
    session = agent(model, tools=[overhear])
    session.run("Go.", timeout=TURN_S)

    assert results(session) == ["heard 0"]
    assert overhear.execute({"address": address}, None) == "heard 1"


def test_without_the_token_nobody_is_heard(cmdc_daemon, address, monkeypatch):
    """A program of another release, or one that cannot read it, reads what is amiss."""
    monkeypatch.setattr("cmdc_runtime.client.connection.read_token", lambda _place: "")

    with pytest.raises(AccessDenied, match="token"), cmdc.Client(address) as client:
        client.list_sessions()


def test_a_token_that_was_removed_comes_back(cmdc_daemon, address):
    """Nobody notices: who comes without it is asked for it once more."""
    token = read_token(cmdc_daemon.address)
    with cmdc.Client(address) as before:
        before.list_sessions()
        (cmdc_daemon.address / "token").unlink()
        before.list_sessions()
    with cmdc.Client(address) as client:
        client.list_sessions()

    assert read_token(cmdc_daemon.address) == token
    assert (cmdc_daemon.address / "token").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_in_the_place_of_the_token_keeps_nobody_out(cmdc_daemon, address, make):
    """A new client waits for no pipe, and finds the token there when it is refused once."""
    path = cmdc_daemon.address / "token"
    token = read_token(cmdc_daemon.address)
    path.unlink()
    make(path)
    with cmdc.Client(address) as client:
        client.list_sessions()

    assert read_token(cmdc_daemon.address) == token


def test_a_subagent_is_its_parents_and_nobody_elses(agent, scripted):
    """The task tool starts, prompts, counts and ends sessions below its own."""
    below = scripted("The river ends in the sea.")
    call = ToolCalls(ToolUse("task", {"description": "Look.", "subagent_type": "scout"}))
    session = agent(
        scripted(call, default="done"), subagents=[cmdc.SubAgent("scout", "Looks.", model=below)]
    )
    reply = session.run("Go.", timeout=TURN_S)

    assert reply.text == "done"
    assert results(session) == ["The river ends in the sea."]
