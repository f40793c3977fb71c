"""``fetch_url`` over real sockets: what it brings, where it ends, and where it does not go."""

import asyncio
import gzip
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cmdc_runtime.confinement import namespaces
from cmdc_runtime.extensions import ToolError
from tests.escaping import LIBRARY
from workers.builtin.tools import fetch_url
from workers.builtin.tools.fetch_url import REDIRECTS_MAX, RESULT_CHARS

pytestmark = pytest.mark.process

BYTES_MAX = 300_000
WAIT_S = 60.0
HTML = {"content-type": "text/html; charset=latin-1"}
MEMBERS = gzip.compress(b"<p>one" + b"x" * 100_000) + gzip.compress(b"") + gzip.compress(b"two")
PAGES = {
    # path        status  headers                                        body
    "/":          (200, HTML, b"<h1>Hello</h1><p>caf\xe9"),
    "/json":      (200, {"content-type": "application/json"}, b'{"a": "<b>"}'),
    "/packed":    (200, {**HTML, "content-encoding": "gzip"}, gzip.compress(b"<p>packed")),
    "/long":      (200, {"content-type": "text/plain"}, b"x" * (RESULT_CHARS + 5)),
    "/large":     (200, HTML, b"x" * (BYTES_MAX + 1)),
    "/bomb":      (200, {**HTML, "content-encoding": "gzip"}, gzip.compress(bytes(50_000_000))),
    "/brotli":    (200, {**HTML, "content-encoding": "br"}, b"x"),
    "/members":   (200, {**HTML, "content-encoding": "gzip"}, MEMBERS + bytes(700)),
    "/garbage":   (200, {**HTML, "content-encoding": "gzip"}, MEMBERS + b"<!-- cached -->"),
    "/empty":     (200, {**HTML, "content-encoding": "gzip"}, b""),
    "/cut":       (200, {**HTML, "content-encoding": "gzip"}, gzip.compress(b"<p>cut")[:-9]),
    "/cut2":      (200, {**HTML, "content-encoding": "gzip"}, MEMBERS + b"\x1f\x8b\x08"),
    "/meta":      (200, {"content-type": "text/html"}, b"<meta charset=windows-1252>\x80"),
    "/broken":    (200, {**HTML, "content-encoding": "gzip"}, b"no gzip"),
    "/picture":   (200, {"content-type": "image/png"}, b"\x89PNG"),
    "/gone":      (404, HTML, b"<p>not here"),
    "/away":      (302, {"location": "http://127.0.0.2:1/"}, b""),
    "/machine":   (302, {"location": "http://localhost:1/"}, b""),
    "/file":      (302, {"location": "file:///etc/passwd"}, b""),
    "/moved":     (301, {"location": "json"}, b""),
    "/round":     (302, {"location": "/round"}, b""),
    "/nowhere":   (302, {}, b""),
    "/bad":       (302, {"location": "http://[/"}, b""),
}  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    """Serves ``PAGES``; "/slow" waits until the client has gone."""

    def do_GET(self):
        """Answer."""
        self.server.asked.append((self.path, dict(self.headers)))
        if self.path == "/slow":
            self.rfile.read(1)
            return
        status, headers, body = PAGES[self.path]
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def server():
    """Return a server; ``asked`` is what it was asked for."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as one:
        one.daemon_threads, one.asked = True, []
        thread = threading.Thread(target=one.serve_forever)
        thread.start()
        yield one
        one.shutdown()
        thread.join(WAIT_S)


def fetched(server, path, *, timeout=WAIT_S, **arguments):
    """Return what the tool says of a page."""
    port = server.server_address[1]
    tool = fetch_url.create([f"127.0.0.1:{port}"], timeout=timeout, max_bytes=BYTES_MAX)
    given = {"url": f"http://127.0.0.1:{port}{path}", **arguments}
    return asyncio.run(tool.execute(tool.check(given), None))


def refused(server, path, **more):
    """Return why the tool did not bring a page."""
    with pytest.raises(ToolError) as caught:
        fetched(server, path, **more)
    return str(caught.value)


def test_a_page_comes_as_text(server, monkeypatch):
    """Without markup, packed or not, in its own letters; nothing of the environment goes along."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    assert fetched(server, "/") == "Hello\n\ncaf\u00e9"
    assert fetched(server, "/json") == '{"a": "<b>"}'
    assert fetched(server, "/packed") == "packed"
    assert fetched(server, "/meta") == "\u20ac"
    assert fetched(server, "/moved") == '{"a": "<b>"}'
    assert {name.lower() for name in server.asked[0][1]} == {
        *("host", "accept", "accept-encoding", "user-agent", "connection"),
    }


def test_a_packed_page_may_have_several_members(server):
    """What stands behind them is none; one that ends within a member is reported."""
    for path in ("/members", "/garbage"):
        assert fetched(server, path, offset=100_000) == "xxxtwo"
    assert fetched(server, "/empty") == "(nothing is there)"


def test_a_long_text_comes_in_parts(server):
    """The first says where the next begins."""
    first = fetched(server, "/long")

    assert first == "x" * RESULT_CHARS + f"\n[5 characters more: offset={RESULT_CHARS}]"
    assert fetched(server, "/long", offset=RESULT_CHARS) == "x" * 5
    assert fetched(server, "/long", offset=10**9) == f"(the text has {RESULT_CHARS + 5} characters)"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/large", f"more than {BYTES_MAX} bytes"),
        ("/bomb", f"more than {BYTES_MAX} bytes"),
        ("/brotli", "packed by 'br'"),
        ("/broken", "incorrect header"),
        ("/cut", "it was cut: its gzip has no end"),
        ("/cut2", "it was cut: its gzip has no end"),
        ("/picture", "image/png is no text (4 bytes)"),
        ("/gone", "status 404: not here"),
        ("/away", "127.0.0.2:1 is not in the list of allowed hosts"),
        ("/machine", "localhost:1 is not in the list of allowed hosts"),
        ("/file", "it is no http or https URL"),
        ("/bad", "Cannot fetch"),
        ("/round", f"it leads elsewhere more than {REDIRECTS_MAX} times"),
        ("/nowhere", "status 302"),
    ],
)
def test_what_is_no_page_is_reported(server, path, why):
    """Too large, in whatever form, no text, not there, or at a host that is not named."""
    assert why in refused(server, path)


def test_it_ends_in_its_time(server):
    """Whatever the server does."""
    assert "not done within 0.3 s" in refused(server, "/slow", timeout=0.3)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://127.0.0.1/", "127.0.0.1", "http:///", "http://a b/", "http://127.0.0.1\\@evil.org/",
        "http://user@127.0.0.1/", "http://127.1/", "http://2130706433/", "http://[::1%lo]/",
        "http://127.0.0.1:0/", "https://127.0.0.1\r\nx/", "file:///etc/passwd",
    ],
    ids=ascii,
)  # fmt: skip
def test_what_is_no_url_is_refused(server, url):
    """Or one that can be read in two ways."""
    assert refused(server, "", url=url).startswith("Cannot fetch ")
    assert server.asked == []


def test_it_goes_nowhere_else(tmp_path):
    """In an internet of the test's own: by no name, address or redirect."""
    if why := namespaces.refusal():
        pytest.skip(why)
    (tmp_path / "work").mkdir()
    line = [sys.executable, "-m", "tests.internet", "fetch", str(tmp_path)]
    done = subprocess.run(
        line, cwd=LIBRARY, env=dict(os.environ), capture_output=True, timeout=WAIT_S, check=True
    )
    found = json.loads(done.stdout)

    assert {url for url, said in found.items() if said == "welcome"} == {
        *("http://allowed.test/", "http://a.allowed.test/", "http://rebind.allowed.test/"),
    }
    assert {url for url, said in found.items() if "4711" in said} == set()
    assert len(found) > 20
