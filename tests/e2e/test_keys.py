"""Keys of providers that a script gives its sessions: who is asked with them, and who sees them."""

import contextlib
import http.server
import json
import os
import signal
import threading

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.runtime_dir import KEYS
from tests.fault.conftest import OwnDaemon

pytestmark = [pytest.mark.process, pytest.mark.slow]

TURN_S = 60.0
MODEL = "openai:scripted"
OURS = "sk-0f-the-script-0123456789"
OTHER = "sk-0f-the-option-0123456789"
CHUNKS = (
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "fine"}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
)
CALL = {
    "index": 0,
    "id": "c1",
    "type": "function",
    "function": {
        "name": "task",
        "arguments": '{"description": "Do it.", "subagent_type": "helper"}',
    },
}


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers each request with one word, and notes what it was asked with."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append((body["model"], self.headers["authorization"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        is_first = [one["role"] for one in body["messages"]][-1] == "user"
        chunks = list(CHUNKS)
        if is_first and any(one["function"]["name"] == "task" for one in body.get("tools", [])):
            chunks[0] = {"choices": [{"index": 0, "delta": {"tool_calls": [CALL]}}]}
            chunks[1] = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
        for chunk in chunks:
            whole = {"id": "x", "object": "chat.completion.chunk", "model": "m", **chunk}
            self.wfile.write(f"data: {json.dumps(whole)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_args):
        pass


@pytest.fixture
def server():
    """A model's server; ``asked`` has model and credential of each request."""
    found = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.asked, found.daemon_threads = [], True
    thread = threading.Thread(target=found.serve_forever)
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()


@pytest.fixture
def own_daemon(monkeypatch):
    """Directories for a daemon whose environment has no key."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    found = OwnDaemon()
    found.start()
    yield found
    found.close()


@pytest.fixture
def base(server):
    """The options that lead to the server."""
    return {"api_base": f"http://127.0.0.1:{server.server_port}/v1"}


def texts_below(folder):
    """Return what stands in each file of a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def ended(pid):
    """Kill a process, and wait until it is gone."""
    process = psutil.Process(pid)
    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(psutil.NoSuchProcess):
        process.wait(TURN_S)


def test_a_scripts_key_is_used_and_nowhere_written_down(own_daemon, server, base, monkeypatch):
    """It outlives agent and daemon, is in no journal, log or status, and goes at the end."""
    monkeypatch.setenv("OPENAI_API_KEY", OURS)
    with own_daemon.client() as client:
        session = client.create_agent(model=MODEL, provider_opts=base, session_id="one")
        first = session.run("1", timeout=TURN_S).text
        shown = repr((session.status(), session.messages(), client.tree()))
        agent = session.agent_pid()
    own_daemon.kill()
    ended(agent)
    written = texts_below(own_daemon.place)
    monkeypatch.delenv("OPENAI_API_KEY")
    own_daemon.start()
    with own_daemon.client() as client:
        second = client.run("one", "2", timeout=TURN_S).text
        client.stop("one")
        left = texts_below(own_daemon.address / KEYS)

    assert (first, second) == ("fine", "fine")
    assert server.asked == [("scripted", f"Bearer {OURS}")] * 2
    assert OURS not in shown
    holders = [path for path, text in written.items() if OURS.encode() in text]
    assert [path.relative_to(own_daemon.address).parts for path in holders] == [(KEYS, "one")]
    assert [oct(path.stat().st_mode & 0o777) for path in [own_daemon.address / KEYS]] == ["0o700"]
    assert left == {}


def test_a_script_can_keep_its_key(own_daemon, base, monkeypatch):
    """Then its daemon's counts: where there is none that is said at once, with where to put one."""
    monkeypatch.setenv("OPENAI_API_KEY", OURS)
    with own_daemon.client() as client:
        session = client.create_agent(model=MODEL, provider_opts=base, send_keys=False)
        with pytest.raises(cmdc.AgentFailed) as caught:
            session.run("1", timeout=TURN_S)
        session.stop()

    assert "set OPENAI_API_KEY where create_agent is called, or in the daemon's" in str(
        caught.value
    )


def test_the_first_key_that_is_given_counts(own_daemon, server, base, monkeypatch):
    """The option's, then those of provider_opts, the config and the environment."""
    monkeypatch.setenv("OPENAI_API_KEY", OURS)
    config = cmdc.Config(
        provider_opts=base,
        providers=[cmdc.ProviderConfig(models=[MODEL], api_key=OTHER)],
    )
    ways = (
        {"api_key": "sk-a", "config": config},
        {"api_key": {"openai": "sk-b"}, "config": config},
        {"provider_opts": {"api_key": "sk-c"}, "config": config},
        {"config": config},
        {"provider_opts": base},
    )
    with own_daemon.client() as client:
        for way in ways:
            with client.create_agent(model=MODEL, **way) as session:
                session.run("1", timeout=TURN_S)

    used = [key for _model, key in server.asked]
    assert used == [f"Bearer {key}" for key in ("sk-a", "sk-b", "sk-c", OTHER, OURS)]


def test_a_subagent_is_given_what_its_parent_was(own_daemon, server, base):
    """For its own model, too."""
    helper = cmdc.SubAgent(name="helper", description="Helps.", model="groq:m", provider_opts=base)
    keys = {"openai": OURS, "groq": OTHER}
    with (
        own_daemon.client() as client,
        client.create_agent(
            model=MODEL, provider_opts=base, subagents=[helper], api_key=keys
        ) as session,
    ):
        session.run("1", timeout=TURN_S)
        written = texts_below(own_daemon.place / "state")

    assert server.asked == [
        ("scripted", f"Bearer {OURS}"),
        ("m", f"Bearer {OTHER}"),
        ("scripted", f"Bearer {OURS}"),
    ]
    assert [path for path, text in written.items() if OTHER.encode() in text] == []


def test_a_variable_that_can_be_no_key_is_reported_at_once(own_daemon, monkeypatch):
    """By its name, before anything is sent; no part of it is shown."""
    monkeypatch.setenv("OPENAI_API_KEY", f"{OURS}\n")
    with own_daemon.client() as client, pytest.raises(cmdc.InvalidOptions) as caught:
        client.create_agent(model=MODEL)

    assert str(caught.value).startswith("OPENAI_API_KEY in the environment of this process: it beg")
    assert OURS not in str(caught.value)
