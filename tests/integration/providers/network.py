"""What stands between an agent and a model: servers with TLS, proxies, an authority of its own.

Everything is real and on the loopback, and runs in threads: a test's loop is the client's.
"""

import asyncio
import contextlib
import json
import shutil
import ssl
import subprocess
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

HOST = "127.0.0.1"
SSE = {"content-type": "text/event-stream"}
READ_BYTES = 2**16
MADE_S = 30.0
"""A key is made in a tenth of a second on a machine that is idle."""


def reply(wire, text="fine"):
    """Return a whole answer on a wire."""
    if wire == "openai":
        first = {"index": 0, "delta": {"role": "assistant", "content": text}}
        last = {"index": 0, "delta": {}, "finish_reason": "stop"}
        return events({"choices": [first]}, {"choices": [last]})
    return events(
        {"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    )


def events(*sent):
    return b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in sent)


# --- servers --------------------------------------------------------------------------------------


@dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: dict
    body: bytes


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        """Say nothing."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append(Asked(self.command, self.path, headers, body))
        status, headers, answer = self.server.answers.get(self.path, self.server.answer)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_GET(self):
        self.do_POST()


class Site(ThreadingHTTPServer):
    """Answers a path by ``answers`` and any other by ``answer``: status, headers and body."""

    def __init__(self, answer, context=None):
        super().__init__((HOST, 0), _Handler)
        self.scheme = "http" if context is None else "https"
        self.answer, self.answers, self.asked = answer, {}, []
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)

    @property
    def url(self):
        return f"{self.scheme}://{HOST}:{self.server_port}"

    def handle_error(self, request, client_address):
        """Say nothing: clients that do not trust a certificate leave."""


@contextlib.contextmanager
def site(answer, context=None):
    """Serve while the block runs."""
    with Site(answer, context) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


# --- proxies --------------------------------------------------------------------------------------


class Proxy:
    """An HTTP proxy: passes on requests for plain http, and tunnels for all else.

    ``heads`` are the requests that it got, each as its lines; ``refusal`` is what it answers
    instead of passing anything on.
    """

    def __init__(self):
        self.heads, self.port = [], 0
        self.refusal = None
        self._tasks = set()

    @property
    def lines(self):
        """The first line of each request."""
        return [head[0] for head in self.heads]

    def value(self, name):
        """Return a header of the only request, None where it has none."""
        (head,) = self.heads
        fields = (line.partition(": ") for line in head[1:])
        return next((value for key, _, value in fields if key.lower() == name), None)

    async def serve(self, is_up, is_over):
        server = await asyncio.start_server(self._pass, HOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        is_up.set()
        async with server:
            await is_over.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _pass(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._passed(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _passed(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.rstrip("\r\n").split("\r\n")
        self.heads.append(lines)
        method, goal, _ = lines[0].split(" ")
        if self.refusal is not None:
            writer.write(self.refusal)
            await writer.drain()
            return
        host, _, port = goal.removeprefix("http://").partition("/")[0].rpartition(":")
        from_server, to_server = await asyncio.open_connection(host, int(port))
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                path = "/" + goal.removeprefix("http://").partition("/")[2]
                to_server.write(head.replace(goal, path, 1).encode())
            await asyncio.gather(_pump(reader, to_server), _pump(from_server, writer))
        finally:
            to_server.close()


async def _pump(reader, writer):
    while piece := await reader.read(READ_BYTES):
        writer.write(piece)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


@contextlib.contextmanager
def proxy():
    """Run a proxy while the block runs."""
    found, is_up, held = Proxy(), threading.Event(), []

    async def main():
        is_over = asyncio.Event()
        held.append((asyncio.get_running_loop(), is_over))
        await found.serve(is_up, is_over)

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    try:
        assert is_up.wait(MADE_S)
        yield found
    finally:
        loop, is_over = held[0]
        loop.call_soon_threadsafe(is_over.set)
        thread.join()


# --- certificates ---------------------------------------------------------------------------------


class Authority:
    """Signs a certificate for the loopback; nobody trusts it who is not asked to."""

    def __init__(self, folder):
        self._folder = folder
        self.file = folder / "authority.pem"
        self.folder = folder / "trusted"
        self._made("authority", "/CN=authority")
        self._made(
            "server",
            "/CN=server",
            *("-addext", f"subjectAltName=IP:{HOST}"),
            *("-addext", "basicConstraints=critical,CA:FALSE"),
            *("-CA", str(self.file), "-CAkey", str(folder / "authority.key")),
        )
        self.folder.mkdir()
        shutil.copy(self.file, self.folder)
        openssl("rehash", str(self.folder))

    def _made(self, name, subject, *words):
        key, certificate = (str(self._folder / f"{name}{end}") for end in (".key", ".pem"))
        made = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", subject)
        openssl(*made, *words, "-keyout", key, "-out", certificate)

    def context(self):
        """Return what a server with the signed certificate serves by."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._folder / "server.pem", self._folder / "server.key")
        return context


def openssl(*words):
    """Run the program; a test is skipped where it is not installed."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed")
    done = subprocess.run(
        [program, *words], capture_output=True, text=True, timeout=MADE_S, check=False
    )
    assert done.returncode == 0, done.stderr
