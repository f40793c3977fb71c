"""The provider adapter over HTTP, against model servers that other people wrote.

``aimock`` answers in the wire formats of OpenAI, Anthropic and Google from fixtures; ``llmock``
breaks streams and refuses requests on purpose. Each runs once per session, on a port of its own,
and is reset for every test. ``raw`` answers with bytes that neither of them can be brought to send.
"""

import asyncio
import contextlib
import ctypes
import importlib
import json
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cmdc_runtime.extensions.provider import ModelRequest, ProviderError
from cmdc_runtime.messages import Message
from workers.builtin.providers import default
from workers.builtin.wires import http

ROOT = Path(__file__).parents[3]
MOCKS = ROOT / ".mocks"
READY_S = 20.0
"""Both are ready after 2 to 4 s on a busy machine."""
READY_POLL_S = 0.05
END_S = 5.0
CONTROL_S = 5.0
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)

# Each wire with a model that litellm's table knows.
MODELS = {
    "openai": "openai:gpt-4o",
    "anthropic": "anthropic:claude-sonnet-4-5",
    "gemini": "gemini:gemini-2.5-flash",
}
LEAN = ("openai", "anthropic")
"""Wires that are spoken without litellm."""
AIMOCK_BASES = {"openai": "/v1", "anthropic": "", "gemini": "/v1beta"}
LLMOCK_BASES = {"openai": "/v1", "anthropic": "/anthropic", "gemini": "/gemini/v1beta"}
LLMOCK_WINDOW_TOKENS = 2_000
"""Longer prompts are refused in each vendor's words."""


def pytest_collection_modifyitems(items):
    """Mark every test of this folder, and leave out wires that litellm alone speaks, by default."""
    items[:] = [item for item in items if not is_spoken_by_litellm_alone(item)]
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)
            # litellm and pydantic disagree about each other's newest versions; both work.
            for warning in (
                "ignore:Items? .* `ReadOnly` qualifier:UserWarning",
                "ignore:Accessing the 'model_:DeprecationWarning",
                "ignore:Pydantic serializer warnings:UserWarning",
            ):
                item.add_marker(pytest.mark.filterwarnings(warning))


def is_spoken_by_litellm_alone(item):
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return params.get("way") == "lean" and params.get("wire", LEAN[0]) not in LEAN


@pytest.fixture(scope="session")
def adapter():
    """Import litellm's adapter, which takes seconds."""
    return importlib.import_module("workers.builtin.providers.litellm")


@pytest.fixture(scope="session")
def runner(adapter):
    """One loop for all tests, as in an agent: connections are kept per loop."""
    with asyncio.Runner() as runner:
        yield runner
        runner.run(http.close())
        runner.run(adapter.litellm.close_litellm_async_clients())


@pytest.fixture(params=["lean", "litellm"])
def way(request):
    """How a model is asked: as its vendor is by default, or by litellm."""
    return request.param


@pytest.fixture
def ask(runner, way):
    """Ask a server once on a wire; return the chunks and the failure, if it failed."""

    def ask_(server, wire, **changes):
        options = server.options(wire) | changes.pop("provider_opts", {})
        options |= {"via": "litellm"} if way == "litellm" else {}
        fields = {"model": MODELS[wire], "messages": (Message.user("hi"),)}
        request = ModelRequest(**fields | changes, provider_opts=options)
        return runner.run(collect(default.create(), request))

    return ask_


async def collect(provider, request):
    chunks = []
    try:
        async with contextlib.aclosing(provider.stream(request)) as stream:
            async for chunk in stream:
                chunks.append(chunk)  # noqa: PERF401 - what came before a failure counts
    except ProviderError as error:
        return chunks, error
    return chunks, None


class Server:
    """A mock server in a process of its own."""

    def __init__(self, name, command, folder, bases):
        self.name = name
        self.bases = bases
        self._log = folder / f"{name}.log"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--port", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - one call of libc, no lock
            )

    def wait_ready(self):
        """Wait until it answers; its own words are in the error if it does not."""
        deadline = time.monotonic() + READY_S
        while not self._is_healthy():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(READY_POLL_S)
            is_over = self._process.returncode is not None or time.monotonic() > deadline
            assert not is_over, f"{self.name} did not start:\n{self._log.read_text()}"

    def stop(self):
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(END_S)

    def control(self, method, path, body=None):
        """Call the server's own interface; return what it answers."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, method=method)
        request.add_header("content-type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=CONTROL_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {error.read().decode()}") from error

    def options(self, wire):
        """Return what leads the adapter here."""
        base = f"http://127.0.0.1:{self.port}{self.bases[wire]}"
        return {"api_base": base, "api_key": "no-key-at-all"}

    def _is_healthy(self):
        try:
            return self.control("GET", "/health")["status"] == "ok"
        except OSError:
            return False


class Aimock(Server):
    """Answers from fixtures; see its README for what a fixture may hold."""

    def serve(self, response, **changes):
        """Answer every request with ``response`` from now on."""
        fixture = {"match": {}, "response": response} | changes
        self.control("POST", "/__aimock/fixtures", {"fixtures": [fixture]})

    def seen(self):
        """Return the requests since the test began, in the shape of OpenAI whatever the wire."""
        return [entry["body"] for entry in self.control("GET", "/__aimock/journal")]

    def reset(self):
        self.control("POST", "/__aimock/reset")


class Llmock(Server):
    """Answers what it likes, and fails as it is asked to."""

    def plan(self, *behaviors):
        """Queue what happens to the next requests."""
        self.control("POST", "/_llmock/scenario", {"behaviors": behaviors})

    def seen(self):
        """Return the requests since the test began, as they came over the wire."""
        return [entry["body"] for entry in self.control("GET", "/_llmock/requests")["requests"]]

    def reset(self):
        self.control("POST", "/_llmock/reset")


def end_with_parent():
    """Let the kernel end this process when the test run dies without a word."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@pytest.fixture(scope="session")
def started(tmp_path_factory):
    """Start what is installed, both at once, and end it after the last test."""
    folder = tmp_path_factory.mktemp("mocks")
    (folder / "none.json").write_text('{"fixtures": []}')
    script, program = MOCKS / "node_modules/.bin/llmock", MOCKS / "venv/bin/llmock"
    node = shutil.which("node")
    servers = {}
    try:
        if node and script.exists():
            command = [node, script, "--fixtures", "none.json", "--chunk-size", "8"]
            servers["aimock"] = Aimock("aimock", command, folder, AIMOCK_BASES)
        if program.exists():
            window = ["--context-window", str(LLMOCK_WINDOW_TOKENS)]
            command = [program, "serve", "--log-level", "error", *window]
            servers["llmock"] = Llmock("llmock", command, folder, LLMOCK_BASES)
        yield servers
    finally:
        for server in servers.values():
            server.stop()


def ready(started, name, need):
    if name not in started:
        pytest.skip(f"{name} is not installed: run `make setup-mocks`{need}")
    started[name].wait_ready()
    return started[name]


@pytest.fixture(scope="session")
def running_aimock(started):
    return ready(started, "aimock", ", which needs Node.js 20 or newer and npm")


@pytest.fixture(scope="session")
def running_llmock(started):
    return ready(started, "llmock", "")


@pytest.fixture
def aimock(running_aimock):
    """Aimock without fixtures and with an empty journal."""
    running_aimock.reset()
    return running_aimock


@pytest.fixture
def llmock(running_llmock):
    """Llmock with nothing planned and nothing seen."""
    running_llmock.reset()
    return running_llmock


class RawHandler(BaseHTTPRequestHandler):
    """Answers every POST with what the server holds."""

    def log_message(self, *args):
        """Say nothing."""

    def do_POST(self):
        self.server.seen.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.server.body)
        self.wfile.flush()
        if self.server.is_held:
            self.rfile.read()  # until the client goes


class RawServer(ThreadingHTTPServer):
    """``status``, ``headers`` and ``body`` are the answer; ``seen`` is what came.

    ``is_held``: the server never ends its answer by itself.
    """

    def __init__(self):
        super().__init__(("127.0.0.1", 0), RawHandler)
        self.status = 200
        self.headers = {"content-type": "text/event-stream"}
        self.body = b""
        self.is_held = False
        self.seen = []

    def stream(self, *events):
        """Answer with server-sent events; one with a ``type`` is named by it, as Anthropic does."""
        self.body = b"".join(
            (f"event: {event['type']}\n" if "type" in event else "").encode()
            + f"data: {json.dumps(event)}\n\n".encode()
            for event in events
        )

    def options(self, wire):
        """Return what leads the adapter here."""
        return {"api_base": f"http://127.0.0.1:{self.server_port}", "api_key": "no-key-at-all"}


@pytest.fixture
def raw():
    """Serve bytes that a test gives."""
    with RawServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()
