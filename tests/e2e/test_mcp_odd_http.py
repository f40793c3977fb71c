"""MCP servers at an address that answer too much, or with a status that is none of success."""

import gzip
import itertools
import json
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from tests.e2e.mcp_servers import TURN_S, call, result_of, states, status_of
from tests.mcp.odd import line_for

pytest.importorskip("mcp", reason="the extra mcp is not installed")
pytestmark = pytest.mark.process

JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream"}
PACKED = {"content-encoding": "gzip"}
FINE = {"name": "fine", "inputSchema": {"type": "object"}}
HEAD = b'{"jsonrpc": "2.0", "id": "@id", "result": {"content": [{"type": "text", "text": "'
TAIL = b'"}]}}'
CHUNK = b"x" * 2**20
MEMORY_KB_MAX = 600_000
"""Of an agent that has read 16 MiB at most; with 200 MB it takes 1,500,000."""


def endless(begin=HEAD, chunk=CHUNK):
    return itertools.chain([begin], itertools.repeat(chunk))


def bomb():
    """Yield a packed body that has 256 MiB of text, and no more than 300 KB itself."""
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    for part in (b"data: " + HEAD, *[CHUNK] * 256):
        yield packer.compress(part)
    yield packer.flush()


class Handler(BaseHTTPRequestHandler):
    """Answers what ``server.answers`` has for a method, or for ``tools/call NAME``."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        """Answer one message."""
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method = message["method"]
        key = f"{method} {message['params']['name']}" if method == "tools/call" else method
        answer = self.server.answers.get(key, self.server.answers.get("*"))
        if answer is None and "id" not in message:
            self.answer(202, {}, [])
        elif answer is None:
            fine = {"tools/list": {"tools": [FINE]}}
            self.answer(200, JSON, [line_for(message, fine).encode()])
        else:
            status, headers, parts = answer
            own = self.server.own = json.dumps(message.get("id")).encode()
            self.answer(status, headers, (one.replace(b'"@id"', own) for one in parts()))

    def do_GET(self):
        """Say that there is nothing to listen to, but in the older way."""
        answer = self.server.answers.get("GET", (405, {}, list))
        self.answer(answer[0], answer[1], answer[2]())

    def do_DELETE(self):
        """Take it."""
        self.answer(200, {}, [])

    def answer(self, status, headers, parts):
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            for part in parts:
                self.wfile.write(part)
        except OSError:
            self.server.broken_off.set()

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture(name="odd")
def _odd():
    """Return a server that answers what its ``answers`` have, and its declaration."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as one:
        one.daemon_threads, one.answers, one.broken_off = True, {}, threading.Event()
        thread = threading.Thread(target=one.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{one.server_address[1]}/mcp"
        yield one, cmdc.McpServer("tests", url=url, timeout=TURN_S)
        one.shutdown()
        thread.join(TURN_S)


def memory_kb(session):
    """Return how much memory the agent has had at most."""
    lines = Path(f"/proc/{session.agent_pid()}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


@pytest.mark.parametrize(
    "answer",
    [
        (200, JSON, endless),
        (200, JSON | PACKED, lambda: endless(gzip.compress(HEAD))),
        (200, JSON | PACKED, bomb),
        (200, EVENTS, lambda: endless(b"data: " + HEAD)),
        (200, EVENTS, lambda: endless(b"data: " + HEAD, b"data: x\n" * 100_000)),
        (200, EVENTS | PACKED, bomb),
    ],
    ids=["json", "behind gzip", "gzip", "event", "event of lines", "event in gzip"],
)
def test_an_answer_without_an_end_fails_its_call(agent, scripted, odd, answer):
    """In whatever form; no more of it is read, and the server goes on."""
    server, declared = odd
    server.answers["tools/call fine"] = answer
    session = agent(scripted(call("fine"), "Done."), mcp_servers=[declared])
    session.run("go", timeout=TURN_S)

    assert result_of(session).content == (
        "the MCP server 'tests' answered what can't be read:"
        " it says more than 16777216 bytes at once"
    )
    assert status_of(session).state == "ready"
    assert memory_kb(session) < MEMORY_KB_MAX


def test_events_are_counted_each_for_itself(agent, scripted, odd):
    """A stream may be as long as it takes."""
    server, declared = odd
    note = {"method": "notifications/message", "params": {"level": "info", "data": "x" * 2**20}}
    event = b"data: " + json.dumps({"jsonrpc": "2.0", **note}).encode() + b"\r\n\r\n"
    end = b"data: " + HEAD + b"yes" + TAIL + b"\n\n"
    server.answers["tools/call fine"] = (200, EVENTS, lambda: [event] * 20 + [end])
    session = agent(scripted(call("fine"), "Done."), mcp_servers=[declared])
    session.run("go", timeout=TURN_S)

    assert result_of(session).content == "yes"


@pytest.mark.parametrize("packed", [False, True])
def test_an_answer_of_many_bytes_is_one(agent, scripted, odd, packed):
    """Below the bound, packed or not."""
    server, declared = odd
    body = HEAD + b"x" * 15 * 2**20 + TAIL

    def parts():
        own = body.replace(b'"@id"', server.own)
        return [gzip.compress(own) if packed else own]

    server.answers["tools/call fine"] = (200, JSON | PACKED if packed else JSON, parts)
    session = agent(scripted(call("fine"), "Done."), mcp_servers=[declared])
    session.run("go", timeout=TURN_S)

    assert not result_of(session).is_error


@pytest.mark.parametrize(
    ("method", "problem"),
    [
        ("initialize", "it answers what can't be read: it says more than 16777216 bytes at once"),
        (
            "tools/list",
            "it lists tools that can't be read: it says more than 16777216 bytes at once",
        ),
    ],
)
def test_a_server_that_says_too_much_at_first_has_failed(agent, scripted, odd, method, problem):
    """Its request goes on without it."""
    server, declared = odd
    server.answers[method] = (200, JSON, endless)
    session = agent(scripted("Alone."), mcp_servers=[declared])
    with session.subscribe() as stream:
        session.run("go", timeout=TURN_S)
        found = states(stream, "failed")

    assert found == ["connecting", "failed"]
    assert status_of(session).problem == problem


def test_an_event_without_an_end_is_why_a_server_of_the_older_way_is_lost(agent, scripted, odd):
    """There the answers to all requests come in one stream."""
    server, declared = odd
    server.answers["*"] = (405, {}, list)
    server.answers["GET"] = (200, EVENTS, lambda: endless(b"event: endpoint\ndata: /mcp\n\ndata: "))
    session = agent(scripted("Alone."), mcp_servers=[declared])
    with session.subscribe() as stream:
        session.run("go", timeout=TURN_S)
        states(stream, "failed")

    assert status_of(session).problem == "it says more than 1048576 bytes at once"


@pytest.mark.parametrize(
    ("status", "phrase"),
    [(401, "Unauthorized"), (403, "Forbidden"), (404, "Not Found"), (503, "Service Unavailable")],
)
def test_a_status_is_named_and_what_stays_so_is_not_tried_again(
    agent, scripted, odd, status, phrase
):
    """With the way out where there is one."""
    server, declared = odd
    server.answers["*"] = server.answers["GET"] = (status, {}, list)
    session = agent(scripted("Alone."), mcp_servers=[declared])
    last = "restarting" if status == 503 else "failed"
    with session.subscribe() as stream:
        session.run("go", timeout=TURN_S)
        heard = states(stream, last)

    said = status_of(session).problem
    is_login = status in {401, 403}
    assert heard == ["connecting", last]
    assert said.startswith(f"{declared.url} answers with status {status} {phrase}")
    assert (f"`cmdc mcp login {declared.url}`" in said) == is_login
    assert ("`headers=" in said) == is_login


OWN_ERROR = b'{"jsonrpc": "2.0", "id": "@id", "error": {"code": 1, "message": "mine"}}'


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((500, {}, list), "refuses the call: status 500 Internal Server Error"),
        ((200, JSON | PACKED, lambda: [b"no gzip"]), "can't be read: it can't be unpacked: "),
        ((200, JSON, lambda: [HEAD]), "can't be read: 1 validation error"),
        ((200, EVENTS, lambda: [b"data: " + HEAD + b"\n\n"]), "can't be read: 1 validation error"),
        ((400, JSON, lambda: [OWN_ERROR]), "refuses the call: mine"),
    ],
)
def test_a_call_says_what_is_wrong_with_its_answer(agent, scripted, odd, answer, problem):
    """In one line, and at once; what the server says itself stays as it is."""
    server, declared = odd
    server.answers["tools/call fine"] = answer
    session = agent(scripted(call("fine"), "Done."), mcp_servers=[declared])
    session.run("go", timeout=TURN_S)

    assert problem in result_of(session).content
    assert "https://" not in result_of(session).content
    assert "\n" not in result_of(session).content.strip()
    assert status_of(session).state == "ready"
