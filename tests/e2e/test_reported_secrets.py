"""What a session leaves and reports of the secrets in its options: nothing, but for the journal.

A session has a key, a header of an unusual name and an address with a user. Its provider echoes all
that it is sent, options are wrong in ways that quote them, its agent dies twice. Then whatever was
written or reported is searched for the markers in them. Every collection is known to have something
in it: what is empty would show nothing.
"""

import base64
import contextlib
import http.server
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import traceback
from pathlib import Path

import msgspec
import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ScriptedModel, Text, ToolCalls, ToolUse
from cmdc_runtime.testing.daemon import DaemonProcess
from supervisor.adapters.journal.sqlite import JOURNAL_FILE

pytestmark = [pytest.mark.process, pytest.mark.slow]

TURN_S = 40.0
CMDC = Path(sys.executable).with_name("cmdc")
SESSION = "with-secrets"
USER = "user-of-m4rk:pass-of-m4rk"
MARKS = {
    "key": "sk-key-of-m4rk",
    "header": "team-of-m4rk",
    "query": "tenant-of-m4rk",
    "body": "part-of-m4rk",
    "collector": "collector-of-m4rk",
    "later": "later-key-of-m4rk",
    "wrong": "wrong-of-m4rk",
    "user": "user-of-m4rk",
    "password": "pass-of-m4rk",
    "Basic": base64.b64encode(USER.encode()).decode().rstrip("="),
}
"""What no reader of logs may learn, by what it is."""
KEPT = {
    ("sessions", "spec"): "an agent that died is started again from it, with the same options",
    ("commands", "body"): "a switch of the model is carried out again where its agent dies",
    ("records", "body"): "the memory is made of them, with the options in force",
    ("snapshots", "body"): "so it is, without the records before",
    ("checkpoints", "body"): "a state has its options, unless ``redact`` takes them out",
}
"""Where the journal may have options. docs/howto/checkpoints.md: it needs the real state."""
WHILE_IT_LIVES = (
    *(("ps",), ("ps", "--json"), ("tree",), ("doctor",), ("doctor", "--json")),
    *(("replay", SESSION), ("replay", SESSION, "--json"), ("checkpoints", SESSION)),
    ("model", SESSION, "no model of any"),
    ("run", "hi", "--provider-opt", MARKS["wrong"], "--model", "a:b"),
)
WHEN_IT_HAS_ENDED = (
    *(("tail", SESSION, "--since", "0"), ("tail", SESSION, "--since", "0", "--json")),
    *(("monitor", SESSION), ("ps",)),
)
"""Commands of the shell; ``export`` is none of them: what it writes is the journal's own."""
MODELS = ("openai/echo", "anthropic/claude-sonnet-4-5")
PLAIN_HEADERS = {"host", "accept", "accept-encoding", "connection", "user-agent", "content-type"}
QUICK = {"retry_base_delay": 0.01, "retry_max_delay": 0.02, "max_retries": 1}


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers with what it was sent: a provider's errors, and a collector's thanks."""

    def log_message(self, *_):
        """Keep quiet."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.bodies.setdefault(self.path.partition("?")[0], []).append(body)
        is_model = not self.path.startswith(("/v1/traces", "/v1/metrics"))
        # The secret ones first: a reason is cut, and the end of the body is what options add to it.
        heads = sorted(self.headers.items(), key=lambda one: one[0].lower() in PLAIN_HEADERS)
        received = f"{body[-120:]!r} {self.path} {dict(heads)}"
        self.server.echoed += received if is_model else ""
        answer = json.dumps({"error": {"message": received, "type": "echo"}}).encode()
        self.send_response(self.server.status if is_model else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer) if is_model else 0))
        self.end_headers()
        self.wfile.write(answer if is_model else b"")


class Talkative(DaemonProcess):
    """A daemon that logs all it can."""

    def _environment(self):
        return super()._environment() | {"CMDC_LOG_LEVEL": "debug"}


class Found:
    """What was written or reported, by where; ``leaks`` is where a marker is in it."""

    def __init__(self):
        self._texts = {}

    def add(self, where, text):
        """Keep ``text``, which must not be empty."""
        assert text, f"nothing of {where}"
        self._texts[where] = self._texts.get(where, "") + f"\n{text}"

    def error(self, where, call, *args, **given):
        """Make a call that fails, and keep what its traceback shows."""
        try:
            call(*args, **given)
        except Exception as error:  # noqa: BLE001 - whichever it is
            self.add(where, "".join(traceback.format_exception(error)) + repr(error))
        else:
            pytest.fail(f"{where}: nothing was raised")

    def cli(self, daemon, *words):
        """Run a command and keep what it prints."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("CMDC_")}
        done = subprocess.run(
            [CMDC, *words],
            env=ours | {"CMDC_ADDRESS": str(daemon.address)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TURN_S,
            check=False,
        )
        self.add(f"cmdc {' '.join(words[:2])}", done.stdout + done.stderr)

    def holding(self, *words):
        """Return where all these words are."""
        return {where for where, text in self._texts.items() if all(word in text for word in words)}

    def leaks(self):
        """Return where a marker is, with the text before it."""
        return {
            (where, name): text[max(0, text.index(mark) - 200) : text.index(mark) + len(mark)]
            for where, text in self._texts.items()
            for name, mark in MARKS.items()
            if mark in text
        }


@pytest.fixture
def echo():
    """A server that echoes; ``bodies`` is what came by path, ``status`` its answer to a model."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.bodies, server.status, server.echoed = {}, 401, ""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(TURN_S)


@pytest.fixture
def daemon():
    """A daemon of this test's own, whose log has every line."""
    found = Talkative()
    yield found
    found.close()


@pytest.fixture
def found(caplog):
    """Collect; what the client has logged is in it at the end."""
    caplog.set_level("DEBUG")
    return Found()


def secrets(echo, **more):
    """Return options of a provider, with a marker wherever a secret can be."""
    return {
        "api_base": f"http://{USER}@127.0.0.1:{echo.server_port}",
        "api_key": MARKS["key"],
        "extra_headers": {"X-Our-Odd-Name": MARKS["header"]},
        "extra_query": {"tenant": MARKS["query"]},
        "extra_body": {"session": {"parts": [MARKS["body"]]}},
        **more,
    }


@cmdc.tool(effects="read", isolation="task")
async def look() -> str:
    """Look."""
    return "seen"


def options(echo, tmp_path):
    """Return the options of the session; its plugins write and publish all they can."""
    telemetry = cmdc.plugins.Telemetry(
        endpoint=f"http://127.0.0.1:{echo.server_port}",
        headers={"X-Collector": MARKS["collector"]},
        export_interval=0.05,
        capture_content=True,
    )
    logger = cmdc.plugins.EventLogger(level="debug", log_dir=str(tmp_path / "logs"))
    return {
        "model": "openai/echo",
        "provider_opts": secrets(echo),
        "tools": [look],
        "plugins": [telemetry, logger],
        **QUICK,
    }


def go_wrong(session, client, echo, found, given):
    """Fail in all ways there are with the secrets of the session at hand."""
    for status in (400, 401, 429, 500):
        echo.status = status
        found.error(f"status {status}", session.run, "Go.", timeout=TURN_S)
    # A user of the address takes the key's place in the request: without one the key is sent.
    bare = {"api_base": f"http://127.0.0.1:{echo.server_port}"}
    for model in MODELS:
        found.error(f"{model}, its key", turned, session, model, secrets(echo, **bare))
    wrong = {
        "a number": {"temperature": MARKS["wrong"]},
        "a time": {"timeout": MARKS["wrong"]},
        "a header's value": {"extra_headers": {"X-Odd": f"a\n{MARKS['wrong']}"}},
        "a header's name": {"extra_headers": {f"X Odd {MARKS['wrong']}": "a"}},
        "headers": {"extra_headers": MARKS["wrong"]},
        "an address": {"api_base": f"htp://{USER}@127.0.0.1:1/"},
        "a port": {"api_base": f"http://{USER}@127.0.0.1:99999/"},
        "nobody there": {"api_base": f"http://{USER}@127.0.0.1:1/"},
    }
    for model in MODELS:
        for name, opts in wrong.items():
            session.switch_model("openai/other")
            later = secrets(echo, api_key=MARKS["later"]) | bare | opts
            found.error(f"{model}, {name}", turned, session, model, later)
    refused = {"max_turns": f"http://{USER}@h/", "api_key": MARKS["key"], "user_data": object()}
    for name, value in refused.items():
        made = given | {name: value}
        found.error(f"option {name}", client.create_agent, session_id="no", **made)
    found.error("an option's type", client.create_agent, **given | {"provider_opts": [secrets]})


def turned(session, model, opts):
    """Ask another model with other options, which fails."""
    session.switch_model(model, provider_opts=opts)
    session.run("Again.", timeout=TURN_S)


def die(session, client, found, number):
    """End the agent by a signal, and keep what is reported of its end."""
    monitor = client.monitor(session)
    os.kill(session.agent_pid(), number)
    found.add("Down", repr(monitor.wait(TURN_S)))


def read_journal(daemon, folder):
    """Return each column of the journal that has a marker in it, and how many rows there are.

    What is read is a copy in ``folder``: nobody may come between a daemon and its journal.
    """
    folder.mkdir()
    for path in daemon.state_dir.glob(f"{JOURNAL_FILE}*"):
        shutil.copy(path, folder)
    hit, rows = set(), 0
    with contextlib.closing(sqlite3.connect(folder / JOURNAL_FILE)) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall():
            cursor = db.execute(f'SELECT * FROM "{table}"')
            names = [one[0] for one in cursor.description]
            for row in cursor:
                rows += 1
                for name, value in zip(names, row, strict=True):
                    raw = value if isinstance(value, bytes) else str(value).encode()
                    hit |= {(table, name) for mark in MARKS.values() if mark.encode() in raw}
    return hit, rows


def files_of(folder):
    """Return each regular file below a folder that has a marker in it, and all there are."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    marks = [mark.encode() for mark in MARKS.values()]
    return {one for one in files if any(mark in one.read_bytes() for mark in marks)}, files


def processes_of(daemon):
    """Return the commands and environments of the daemon and of all below it."""
    top = psutil.Process(daemon.pid)
    shown = []
    for process in (top, *top.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            shown.append(f"{process.cmdline()} {process.environ()}")
    return "\n".join(shown)


@cmdc.tool(effects="write")
def apart() -> str:
    """Fail in a process of its own."""
    raise ValueError(f"apart: {MARKS['key']}")


@cmdc.tool(effects="read", isolation="thread", max_retries=0)
def beside() -> str:
    """Fail in a thread of the agent."""
    raise ValueError(f"beside: {MARKS['key']}")


@cmdc.tool(effects="read", isolation="task", max_retries=0)
async def within() -> str:
    """Fail in the agent's loop, behind another failure."""
    raise ValueError(f"within: {MARKS['header']}") from OSError(f"cause: {MARKS['key']}")


@cmdc.tool(effects="read")
def refusing() -> str:
    """Fail as one has to expect."""
    raise cmdc.ToolError(f"refusing: {MARKS['key']}")


class Open(cmdc.Plugin):
    """Fails wherever it is asked, and where it only hears."""

    fail = "open"

    def before_tool(self, *_):
        raise RuntimeError(f"open: {MARKS['key']} {MARKS['header']}")

    def observe(self, event, _context):
        if event.kind == "agent_start":
            raise RuntimeError(f"heard: {MARKS['key']}")


class Closed(cmdc.Plugin):
    """Ends the cycle by its failure, which has the credentials of both models."""

    fail = "closed"

    def before_tool(self, *_):
        raise RuntimeError(f"closed: {MARKS['key']} {MARKS['later']}")


FAILING = (apart, beside, within, refusing)
FAILURES = ("apart:", "beside:", "within:", "refusing:", "open:", "heard:", "closed:")
"""How the texts of all of them begin."""


def fail_everywhere(client, model):
    """Return a session in which all that is the application's own has failed."""
    address = {"api_base": model.url}
    headers = {"X-Our-Odd-Name": MARKS["header"]}
    session = client.create_agent(
        model="openai/scripted",
        provider_opts={**address, "api_key": MARKS["key"], "extra_headers": headers},
        tools=FAILING,
        plugins=[Open()],
        **QUICK,
    )
    session.run("Go.", timeout=TURN_S)
    session.switch_model("openai/other", provider_opts={**address, "api_key": MARKS["later"]})
    session.attach_plugin(Closed())
    with pytest.raises(cmdc.AgentAborted) as caught:
        session.run("Again.", timeout=TURN_S)
    return session, caught.value


def test_failures_of_tools_and_plugins_show_no_secret(daemon, found, tmp_path):
    """Wherever their code ran: the model, events, the journal and the log read the rest of it."""
    client = daemon.client()
    calls = ToolCalls(*(ToolUse(one.name, {}) for one in FAILING))
    with ScriptedModel([calls, Text("done"), calls], default=Text("done")) as model:
        session, error = fail_everywhere(client, model)
        found.add("error", f"{error!r}")
        found.add("status", f"{session.status()!r} {client.tree()!r}")
        found.add("messages", repr(session.messages()))
        found.add("requests", repr(model.requests))
    hit, rows = read_journal(daemon, tmp_path / "journal")
    session.stop()
    events = list(client.subscribe(session, since=0))
    found.add("events", f"{events!r} {msgspec.json.encode(events).decode()}")
    found.add("log", daemon.log_text())

    assert found.leaks() == {}
    assert [one for one in FAILURES if "events" not in found.holding(f"{one} [hidden]")] == []
    assert found.holding("apart: [hidden]", "cause: [hidden]", "heard: [hidden]") == {"log"}
    assert "error" in found.holding("closed: [hidden]")
    assert found.holding("apart: [hidden]", "refusing: [hidden]") >= {"messages", "requests"}
    assert rows
    assert hit <= KEPT.keys()


def test_a_sessions_secrets_are_in_the_journal_alone(daemon, echo, found, tmp_path, caplog):
    """Neither a log, an event, a span, a command of the shell nor a file shows one of them."""
    client, given = daemon.client(), options(echo, tmp_path)
    stream = client.subscribe_all()
    session = client.create_agent(session_id=SESSION, **given)
    found.add("session", f"{session!r} {cmdc.Options(**given)!r}")
    go_wrong(session, client, echo, found, given)
    die(session, client, found, signal.SIGABRT)
    found.error("after a crash", session.run, "Once more.", timeout=TURN_S)
    die(session, client, found, signal.SIGKILL)
    found.error("after a kill", session.run, "And again.", timeout=TURN_S)
    found.add("status", f"{session.status()!r} {client.tree()!r} {client.list_sessions()!r}")
    found.add("messages", repr(session.messages()))
    found.add("processes", processes_of(daemon))
    session.checkpoint(label="kept")
    for words in WHILE_IT_LIVES:
        found.cli(daemon, *words)
    hit, rows = read_journal(daemon, tmp_path / "journal")
    session.stop()
    for words in WHEN_IT_HAS_ENDED:
        found.cli(daemon, *words)
    events = list(client.subscribe(SESSION, since=0))
    found.add("events", f"{events!r} {msgspec.json.encode(events).decode()}")
    heard = read_all(stream)
    found.add("events as they came", f"{heard!r} {msgspec.json.encode(heard).decode()}")
    spans = echo.bodies["/v1/traces"]
    found.add("spans", b"".join(spans).decode("latin-1"))
    found.add("metrics", b"".join(echo.bodies["/v1/metrics"]).decode("latin-1"))
    found.add("log", daemon.log_text())
    found.add("log of the client", caplog.text or "-")
    written, files = files_of(daemon.state_dir.parent)
    logged, logs = files_of(tmp_path / "logs")

    echoed = {name for name, mark in MARKS.items() if mark in echo.echoed}
    assert echoed >= {"key", "later", "header", "query", "Basic"}  # or nothing was tried
    assert "agent_error" in {one.event.kind for one in events}
    assert found.leaks() == {}
    assert found.holding("x-our-odd-name", "[hidden]") >= {"events", "spans", "status 400"}
    assert all((rows, logs, files))
    assert ("sessions", "spec") in hit <= KEPT.keys()
    assert all(path.parent == daemon.state_dir for path in written), written
    assert all(path.name.startswith(JOURNAL_FILE) for path in written), written
    assert logged == set()


def read_all(stream):
    """Return what a stream has by now."""
    heard = []
    with contextlib.suppress(TimeoutError):
        while True:
            heard.append(stream.get(0.5))
    stream.close()
    return heard
