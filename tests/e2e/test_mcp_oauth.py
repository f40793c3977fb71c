"""MCP servers that want a login: a person logs in once, sessions use and renew what is kept."""

import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.mcp_logins import FOLDER, LoginFile
from cmdc_runtime.testing import ToolCalls, ToolUse
from tests.e2e.mcp_servers import answers, free_port, result_of, status_of

pytest.importorskip("mcp", reason="the extra mcp is not installed")
pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(400)]

TURN_S = 120.0
SERVER = Path(__file__).parents[1] / "mcp" / "oauth_server.py"
CLI = [
    sys.executable,
    "-c",
    "import sys; from cmdc_runtime.cli import main; sys.exit(main())",
    "mcp",
]


EMBEDDED = f"""
import sys
import cmdc_runtime as cmdc
from cmdc_runtime.testing import ScriptedModel
server = cmdc.McpServer("tickets", url=sys.argv[1], oauth="embedded", timeout={TURN_S})
with ScriptedModel(["Done."]) as model:
    with cmdc.create_agent(model=model, mcp_servers=[server]) as session:
        session.run("go", timeout={TURN_S})
        print(session.status().mcp_servers[0].state)
"""


@pytest.fixture(name="url", scope="module")
def _url():
    """Start a server that wants a login, with its authorization server."""
    port = free_port()
    with subprocess.Popen([sys.executable, SERVER, str(port)], stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(1200):
                if answers(port):
                    break
                with pytest.raises(subprocess.TimeoutExpired):
                    server.wait(0.05)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.kill()


@pytest.fixture(name="login")
def _login(cmdc_daemon, url):
    """Log in by the command, with a browser that says yes; return the file."""

    def log_in(user, state_dir=cmdc_daemon.state_dir):
        command = [*CLI, "login", url, "--user", user, "--state-dir", state_dir]
        with subprocess.Popen(
            [*command, "--no-browser"], stdout=subprocess.PIPE, text=True
        ) as process:
            address = process.stdout.readline().removeprefix("log in at ").strip()
            with urllib.request.urlopen(address, timeout=TURN_S) as page:
                assert b"You are back" in page.read()
            assert process.stdout.read() == f"logged in at {url} as {user}\n"
            assert process.wait(TURN_S) == 0
        return LoginFile(state_dir, url, user)

    return log_in


def expire(file, **tokens):
    """Have the access token be of no use any more."""
    login = file.read()
    file.write(msgspec.structs.replace(login, expires_at_s=1.0, tokens={**login.tokens, **tokens}))


def number(call_id="c1"):
    return ToolCalls(ToolUse("mcp__tickets__number", {}, id=call_id))


def declared(url, user):
    return cmdc.McpServer("tickets", url=url, oauth=user, timeout=TURN_S)


def tokens_in(folder):
    """Return the tokens that stand in the files of a folder, those of logins left aside."""
    files = [path for path in folder.rglob("*") if path.is_file() and FOLDER not in path.parts]
    return {
        found
        for path in files
        for found in re.findall(rb"(?:access|refresh)-[0-9a-f]{32}", path.read_bytes())
    }


def test_a_login_is_used_and_renewed(agent, scripted, cmdc_daemon, url, login):
    """What has expired is renewed and kept; no token stands anywhere else."""
    file = login("used")
    session = agent(
        scripted(number(), "One.", default="Done."), mcp_servers=[declared(url, "used")]
    )
    session.run("go", timeout=TURN_S)
    first = file.read()
    expire(file)
    again = agent(scripted(number(), "Two."), mcp_servers=[declared(url, "used")])
    again.run("go", timeout=TURN_S)
    second = file.read()

    assert int(result_of(again).content) == int(result_of(session).content) + 1
    assert second.tokens["access_token"] != first.tokens["access_token"]
    assert second.tokens["refresh_token"] != first.tokens["refresh_token"]
    assert second.expires_at_s > first.expires_at_s - 1.0
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert tokens_in(cmdc_daemon.state_dir.parent) == set()


def test_sessions_that_renew_at_once_do_it_once(agent, scripted, url, login):
    """A refresh token is good for one renewal: the others take what the first has got."""
    file = login("both")
    expire(file)
    sessions = [
        agent(scripted(number(), "Done."), mcp_servers=[declared(url, "both")]) for _ in range(3)
    ]
    for session in sessions:
        session.prompt("go")
    for session in sessions:
        session.collect_reply(timeout=TURN_S)

    assert len({result_of(session).content for session in sessions}) == 1


def test_a_login_that_has_ended_is_reported(agent, scripted, cmdc_daemon, url, login):
    """With what to do about it, and without the token that was refused."""
    file = login("ended")
    refused = f"refresh-{'0' * 32}"
    expire(file, refresh_token=refused)
    session = agent(scripted("Alone."), mcp_servers=[declared(url, "ended")])

    assert session.run("go", timeout=TURN_S).text == "Alone."
    status = status_of(session)
    assert status.state == "failed"
    assert f"the login has ended: run `cmdc mcp login {url} --user ended`" in status.problem
    assert tokens_in(cmdc_daemon.state_dir.parent) == set()


def test_without_a_login_a_server_fails_at_once(agent, scripted, url, login, cmdc_daemon):
    """Also where one was forgotten."""
    login("gone")
    command = [*CLI, "logout", url, "--user", "gone", "--state-dir", cmdc_daemon.state_dir]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TURN_S, check=True)
    session = agent(scripted("Alone."), mcp_servers=[declared(url, "gone")])

    assert done.stdout == f"forgotten: gone at {url}\n"
    assert session.run("go", timeout=TURN_S).text == "Alone."
    assert "nobody has logged in: run `cmdc mcp login" in status_of(session).problem


def test_an_embedded_daemon_has_its_users_logins(url, login, tmp_path):
    """Its own state ends with it; who has logged in before need not do so again."""
    file = login("embedded", tmp_path / "state")
    environ = {name: it for name, it in os.environ.items() if not name.startswith("CMDC_")}
    places = {
        "CMDC_STATE_DIR": str(file.path.parents[1]),
        "CMDC_RUNTIME_DIR": str(tmp_path / "nowhere"),
    }
    done = subprocess.run(
        [sys.executable, "-c", EMBEDDED, url],
        env=environ | places,
        capture_output=True,
        text=True,
        timeout=2 * TURN_S,
        check=False,
    )

    assert done.stdout == "ready\n", done.stderr


def test_an_address_that_is_none_is_refused(tmp_path):
    """Before anybody is sent anywhere."""
    command = [*CLI, "login", "http://a.example.org/mcp", "--state-dir", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TURN_S, check=False)

    assert done.returncode == 2
    assert "https:// alone" in done.stderr
