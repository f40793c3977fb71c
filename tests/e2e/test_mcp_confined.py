"""MCP servers in the session's sandbox: they work there, and what leads out of it is stopped."""

import contextlib
import shlex
import socket
import sys
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.errors import SandboxUnavailable
from cmdc_runtime.extensions.sandbox import SandboxPlace
from tests.e2e.mcp_servers import SERVER, call, declared, result_of, status_of
from workers.builtin.sandboxes import bubblewrap, landlock

pytest.importorskip("mcp", reason="the extra mcp is not installed")
pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(400)]

TURN_S = 120.0

KINDS = {
    "landlock": (cmdc.sandbox.Landlock, landlock.create),
    "bubblewrap": (cmdc.sandbox.Bubblewrap, bubblewrap.create),
}
CODE = str(Path(SERVER[1]).parent)
KEY = "sk-of-the-agent-4711"


@pytest.fixture(name="sandbox", params=KINDS)
def _sandbox(request, tmp_path):
    """Return a sandbox that this machine has, in which the server for tests can be read."""
    reference, create = KINDS[request.param]
    try:
        create().begin(SandboxPlace(session_id="s", working_dir=str(tmp_path)))
    except SandboxUnavailable as missing:
        pytest.skip(str(missing))
    return lambda **given: reference(readable=[CODE], **given)


@pytest.fixture(name="work")
def _work(tmp_path):
    (tmp_path / "work/.git/hooks").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/key").write_text(KEY)
    return tmp_path / "work"


@pytest.fixture(name="port")
def _port():
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield listener.getsockname()[1]


def python(code):
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"


def dialled(port):
    return python(f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)")


@pytest.fixture(name="tried")
def _tried(cmdc_daemon, work, port):
    """Return commands by what they try to do."""
    outside, directory = work.parent / "outside", cmdc_daemon.address
    knock = f"import socket; socket.socket(socket.AF_UNIX).connect('{directory}/control.sock')"
    return {
        "read a key": f"grep -q {KEY} {outside}/key",
        "read a key by a link": f"ln -sfn {outside}/key by_link; grep -q {KEY} by_link",
        "write outside": f"echo x > {outside}/made",
        "plant a hook": "echo x > .git/hooks/post-commit",
        "read the token": f"cat {directory}/token",
        "knock at the daemon": python(knock),
        "look into the agent": "head -c1 /proc/$(cat agent)/environ | grep -q .",
        "look into its launcher": "grep -qz . /proc/$(cat launcher)/environ",
        "signal the agent": "kill -0 $(cat agent)",
        "dial": dialled(port),
    }


def call_of(commands):
    """Return a call that runs all commands, and prints the names of those that end well."""
    lines = [f"({it}) >/dev/null 2>&1 && echo {shlex.quote(name)}" for name, it in commands.items()]
    return call("shell", command="\n".join([*lines, "true"]))


def done_of(session):
    return {*result_of(session).content.removeprefix("0 ").splitlines()}


def write_pids(session, work):
    """Say in files which processes are to be looked into; the server is started by then."""
    session.run("Hello.", timeout=TURN_S)
    pid = session.agent_pid()
    launcher = next(
        one.pid
        for one in psutil.Process(pid).children()
        if "launcher.py" in " ".join(one.cmdline())
    )
    (work / "agent").write_text(str(pid))
    (work / "launcher").write_text(str(launcher))


def strays(left):
    """Return the processes that a server has left behind."""
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            found += [one.pid] if one.cmdline()[-1:] == [str(left)] else []
    return found


def test_a_server_works_in_the_sandbox_and_gets_nowhere_else(agent, scripted, work, sandbox, tried):
    """It reads no key, writes nothing outside, and reaches neither daemon nor network."""
    allowed = {"write inside": "echo x > made", "run a program": "ls", "home": "touch ~/mine"}
    session = agent(
        scripted("Hello.", call_of({**tried, **allowed}), "Done."),
        mcp_servers=[declared()],
        sandbox=sandbox(),
        require_sandbox=True,
        working_dir=str(work),
    )
    write_pids(session, work)
    session.run("Go.", timeout=TURN_S)

    status = status_of(session)
    assert done_of(session) == {*allowed}
    assert [path.name for path in (work.parent / "outside").iterdir()] == ["key"]
    assert (work / "made").exists()
    assert (status.state, status.network) == ("ready", False)
    assert status.confined_by in KINDS


def test_without_a_sandbox_it_looks_into_no_process(agent, scripted, work, tried):
    """The attempts are real; what is held always is held of servers as of tools."""
    session = agent(
        scripted("Hello.", call_of(tried), "Done."),
        mcp_servers=[declared()],
        working_dir=str(work),
    )
    write_pids(session, work)
    session.run("Go.", timeout=TURN_S)

    assert {*tried} - done_of(session) == {"look into the agent", "look into its launcher"}
    assert status_of(session).confined_by == ""


def test_a_server_that_needs_the_network_has_it(agent, scripted, work, sandbox, port):
    """And the status says so; nothing else is given to it."""
    tried = {"dial": dialled(port), "read a key": f"grep -q {KEY} {work.parent}/outside/key"}
    session = agent(
        scripted(call_of(tried), "Done."),
        mcp_servers=[declared(network=True)],
        sandbox=sandbox(),
        working_dir=str(work),
    )
    session.run("Go.", timeout=TURN_S)

    assert done_of(session) == {"dial"}
    assert status_of(session).network


def test_what_a_confined_server_leaves_ends_with_it(agent, scripted, work, sandbox, poll):
    """Also where it lives in namespaces of its own."""
    left = work / "left"
    session = agent(
        scripted(call("add", a=1, b=2), "Done."),
        mcp_servers=[declared(env={"SERVER_LEAVES": str(left)})],
        sandbox=sandbox(),
        working_dir=str(work),
    )
    session.run("Go.", timeout=TURN_S)
    there = strays(left)

    session.stop()

    assert there
    assert poll(lambda: not strays(left))


def test_a_program_that_the_sandbox_does_not_show_fails_at_once(agent, scripted, work, sandbox):
    """With what the sandbox says of it."""
    program = work.parent / "outside/server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    server = cmdc.McpServer("tests", command=[str(program)], timeout=TURN_S)
    session = agent(
        scripted("Alone."), mcp_servers=[server], sandbox=sandbox(), working_dir=str(work)
    )

    assert session.run("Go.", timeout=TURN_S).text == "Alone."
    assert status_of(session).state == "failed"
    assert "Cannot run the command" in status_of(session).problem


class Elsewhere(cmdc.Sandbox):
    """Confines, and does not say how a server is started in it."""

    confines = True

    def read_file(self, path, offset=1, limit=1):
        raise cmdc.SandboxError("there are no files")

    write_file = edit_file = list_dir = glob = grep = file_exists = read_file

    async def execute(self, command, settings=None):
        raise cmdc.SandboxError("there is no shell")


def test_a_sandbox_that_starts_no_servers_gets_none(agent, scripted):
    """Nothing of it runs outside."""
    session = agent(scripted("Alone."), mcp_servers=[declared()], sandbox=Elsewhere)

    assert session.run("Go.", timeout=TURN_S).text == "Alone."
    assert status_of(session).state == "failed"
    assert "elsewhere has no server_program" in status_of(session).problem
