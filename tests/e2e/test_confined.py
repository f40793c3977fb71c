"""A session in a confining sandbox: its tools work, and reach nothing that is not theirs."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.errors import SandboxUnavailable
from cmdc_runtime.extensions.sandbox import SandboxPlace
from cmdc_runtime.testing import ToolCalls, ToolUse
from workers.builtin.sandboxes import bubblewrap, landlock

pytestmark = [pytest.mark.process, pytest.mark.slow]

TURN_S = 60.0
KINDS = {
    "landlock": (cmdc.sandbox.Landlock, landlock.create),
    "bubblewrap": (cmdc.sandbox.Bubblewrap, bubblewrap.create),
}


@cmdc.tool(effects="write")
def probe(runtime_dir: str, outside: str, *, context: cmdc.Context) -> str:
    """Try what a call in a process may not, and what it may."""
    import json  # noqa: PLC0415 - the code travels
    import os  # noqa: PLC0415
    import socket  # noqa: PLC0415
    import subprocess  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    def can(attempt):
        try:
            attempt()
        except OSError:
            return False
        return True

    return json.dumps(
        {
            "list the runtime directory": can(lambda: [*Path(runtime_dir).iterdir()]),
            "read the token": can(lambda: Path(runtime_dir, "token").read_text()),
            "make a socket": can(lambda: socket.socket(socket.AF_UNIX)),
            "look into its parent": can(lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes()),
            "write outside": can(lambda: Path(outside, "x").write_text("x")),
            "signal its parent": can(lambda: os.kill(os.getppid(), 0)),
            "write inside": can(lambda: Path("made").write_text("x")),
            "run a program": can(lambda: subprocess.run(["ls"], check=True, capture_output=True)),
            "use the sandbox": context.sandbox.file_exists("made"),
        }
    )


ALLOWED = {"write inside", "run a program", "use the sandbox"}


@pytest.fixture(params=KINDS)
def sandbox(request, tmp_path):
    """Return the light reference of a sandbox that this machine has."""
    reference, create = KINDS[request.param]
    try:
        create().begin(SandboxPlace(session_id="s", working_dir=str(tmp_path)))
    except SandboxUnavailable as missing:
        pytest.skip(str(missing))
    return reference()


def test_tools_work_and_reach_nothing_else(agent, scripted, cmdc_daemon, tmp_path, sandbox):
    """A function in a process and a shell command alike; ``require_sandbox`` takes it."""
    work, outside = tmp_path / "work", tmp_path / "outside"
    work.mkdir()
    outside.mkdir()
    directory = str(cmdc_daemon.address)
    arguments = {"runtime_dir": directory, "outside": str(outside)}
    attempts = (
        f"ls {directory}",
        f"cat {directory}/token",
        f"echo x > {outside}/x",
        "kill -0 1",
        "cat /proc/1/environ | grep -q . && test $(ls -d /proc/[0-9]* | wc -l) -gt 20",
    )
    command = " ".join(f"({one}) >/dev/null 2>&1 && echo done;" for one in attempts)
    script = scripted(
        ToolCalls(ToolUse("probe", arguments)),
        ToolCalls(ToolUse("shell", {"command": f"{command} echo x > by_shell; ls"})),
        ToolCalls(ToolUse("write_file", {"path": ".git/hooks/post-commit", "content": "x"})),
        default="done",
    )
    session = agent(
        script,
        tools=[probe, cmdc.tools.Shell, cmdc.tools.WriteFile],
        sandbox=sandbox,
        require_sandbox=True,
        working_dir=str(work),
    )
    session.run("Go.", timeout=TURN_S)
    probed, shell, hook = [one.content for one in session.messages() if one.role == "tool_result"]

    assert {what for what, was in json.loads(probed).items() if was} == ALLOWED
    assert {"by_shell", "made"} <= set(shell.split())
    assert "done" not in shell.split()
    assert "is protected" in hook
    assert not (work / ".git").exists()
    assert [*outside.iterdir()] == []


@cmdc.tool(effects="read")
def fetched(urls: list[str]) -> str:
    """Return the status of each URL, or what kept it from being had."""
    import json  # noqa: PLC0415 - the code travels
    import urllib.error  # noqa: PLC0415
    import urllib.request  # noqa: PLC0415

    def status(url):
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError as error:
            return type(error).__name__

    return json.dumps([status(url) for url in urls])


def test_a_session_reaches_the_hosts_that_it_names(agent, scripted, tmp_path, sandbox, monkeypatch):
    """Through the proxy, whatever its environment says; a shell and a tool in a process alike."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "*")
    work = tmp_path / "work"
    work.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server, ThreadPoolExecutor(1) as pool:
        pool.submit(server.serve_forever)
        try:
            port = server.server_address[1]
            page = f"http://127.0.0.1:{port}/"
            urls = [page, "http://127.0.0.1:1/", "http://169.254.169.254/", "http://example.org/"]
            program = f"import urllib.request; print(urllib.request.urlopen({page!r}).status)"
            script = scripted(
                ToolCalls(ToolUse("fetched", {"urls": urls})),
                ToolCalls(ToolUse("shell", {"command": f'{sys.executable} -c "{program}"'})),
                default="done",
            )
            session = agent(
                script,
                tools=[fetched, cmdc.tools.Shell(env={"http_proxy": "http://127.0.0.1:9"})],
                sandbox=type(sandbox)(network="proxy", allow_hosts=[f"127.0.0.1:{port}"]),
                working_dir=str(work),
                tool_env=["HTTP_PROXY", "no_proxy"],
            )
            session.run("Go.", timeout=TURN_S)
        finally:
            server.shutdown()
    tool, shell = [one.content for one in session.messages() if one.role == "tool_result"]

    assert json.loads(tool) == [200, 403, 403, 403]
    assert shell.strip() == "200"


def test_a_session_without_a_network_fetches_what_it_may(agent, scripted, tmp_path, sandbox):
    """The agent asks for the page, by the tool's own list; the tool is there where it is named."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server, ThreadPoolExecutor(1) as pool:
        pool.submit(server.serve_forever)
        try:
            port = server.server_address[1]
            script = scripted(
                ToolCalls(ToolUse("fetch_url", {"url": f"http://127.0.0.1:{port}/"})),
                ToolCalls(ToolUse("fetch_url", {"url": "http://localhost:1/"})),
                default="done",
            )
            session = agent(
                script,
                tools=[cmdc.tools.FetchUrl(allow=[f"127.0.0.1:{port}"])],
                sandbox=sandbox,
                working_dir=str(tmp_path),
            )
            session.run("Go.", timeout=TURN_S)
        finally:
            server.shutdown()
    page, elsewhere = [one for one in session.messages() if one.role == "tool_result"]

    assert (page.content, page.is_error) == ("(nothing is there)", False)
    assert "localhost:1 is not in the list of allowed hosts" in elsewhere.content
    for allow in ([], ["http://example.org"]):
        with pytest.raises((ValueError, cmdc.InvalidOptions)):
            cmdc.tools.FetchUrl(allow=allow)


def test_a_subagent_has_no_less_of_a_sandbox(agent, scripted, tmp_path, sandbox):
    """What a child is given names none, and what it runs ends where its parent's does."""
    work, outside = tmp_path / "work", tmp_path / "outside"
    work.mkdir()
    outside.mkdir()
    with pytest.raises((TypeError, cmdc.InvalidOptions), match="sandbox"):
        cmdc.SubAgent(name="free", description="Free.", sandbox=cmdc.sandbox.Local())
    command = f"echo x > {outside}/x; cat /proc/$PPID/environ; echo y > inside"
    below = scripted(ToolCalls(ToolUse("shell", {"command": command})), default="below")
    child = cmdc.SubAgent(
        name="child", description="Writes.", model=below, tools=[cmdc.tools.Shell]
    )
    task = {"description": "Write.", "subagent_type": "child"}
    session = agent(
        scripted(ToolCalls(ToolUse("task", task)), default="done"),
        subagents=[child],
        sandbox=sandbox,
        working_dir=str(work),
    )
    session.run("Go.", timeout=TURN_S)

    assert (work / "inside").read_text() == "y\n"
    assert [*outside.iterdir()] == []


class Page(BaseHTTPRequestHandler):
    """One page."""

    def do_GET(self):
        """Have it."""
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Say nothing."""


def test_a_machine_without_a_layer_is_refused_by_name(tmp_path, monkeypatch):
    """Before anything of the session runs."""
    monkeypatch.setattr("cmdc_runtime.confinement.apply.abi", lambda: 1)
    with pytest.raises(SandboxUnavailable) as caught:
        landlock.create().begin(SandboxPlace(session_id="s", working_dir=str(tmp_path)))

    assert caught.value.layer == "landlock"
    assert "ABI 1, and 3 is needed" in caught.value.why


def test_a_policy_that_is_none_is_refused_at_once():
    """Where it is written."""
    for options in (
        {"writable": ["/"]},
        {"protected": ["/etc"]},
        {"readable": ["a/../.."]},
        {"network": "proxy"},
        {"network": "proxy", "allow_hosts": ["https://pypi.org"]},
        {"allow_hosts": ["pypi.org"]},
    ):
        with pytest.raises((ValueError, cmdc.InvalidOptions)):
            cmdc.sandbox.Landlock(**options)


ABSENT, OTHER = "is not there: make the folder first", "is no folder"


@pytest.mark.parametrize("path", ["missing", "missing/below", "dangling", "file", "link"])
def test_what_is_to_be_written_is_a_folder(agent, scripted, tmp_path, sandbox, path):
    """A session whose every command would fail is not started."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("gone")
    kind = type(sandbox)
    with pytest.raises(cmdc.SandboxUnavailable) as caught:
        agent(scripted(), sandbox=kind(writable=[".", path]), working_dir=str(tmp_path))

    assert caught.value.layer == "writable"
    why = OTHER if path in {"file", "link"} else ABSENT
    assert caught.value.why == f"'{tmp_path / path}' {why}"
