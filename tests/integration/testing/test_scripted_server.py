"""The server behind ``ScriptedModel``: its start, its end and the requests that it refuses."""

import gc
import http.client
import socket
import threading
import urllib.parse

import pytest

from cmdc_runtime.testing import Hold, ScriptedModel, Stall

TIMEOUT_S = 20.0
PATH = "/v1/chat/completions"


def connect(model):
    """Return a connection to the model's server, not opened yet."""
    return http.client.HTTPConnection(urllib.parse.urlsplit(model.url).netloc, timeout=TIMEOUT_S)


def ask(model):
    """Send one streaming request and return the connection with its response, the body unread."""
    connection = connect(model)
    connection.request("POST", PATH, '{"stream": true}')
    return connection, connection.getresponse()


def server_threads():
    """Return the threads of scripted models."""
    return [thread.name for thread in threading.enumerate() if thread.name == "scripted-model"]


def test_close_ends_everything():
    """Streams that stall or are held end at once, the port is free, the thread gone."""
    model = ScriptedModel([("a", Stall()), ("a", Hold())])
    first, second = ask(model), ask(model)
    model.wait_held(TIMEOUT_S)
    address = urllib.parse.urlsplit(model.url)
    model.close()
    model.close()
    for connection, response in (first, second):
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            response.read()
        connection.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.hostname, address.port), timeout=TIMEOUT_S)
    with pytest.raises(RuntimeError, match="closed"):
        model.model_source()

    assert server_threads() == []


def test_an_unused_model_starts_nothing():
    """The server starts with the first use, so a model that nobody asks costs nothing."""
    with ScriptedModel(["a"]):
        found = server_threads()

    assert found == []


def test_model_source_leads_to_the_server():
    """The pair is what a provider needs to reach this server and nothing else."""
    with ScriptedModel([]) as model:
        name, options = model.model_source()

    assert name == "openai/scripted"
    assert options["api_base"].startswith("http://127.0.0.1:")
    assert options["api_base"].endswith("/v1")
    assert set(options) == {"api_base", "api_key"}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/health", None, 200),
        ("GET", "/v1/models?limit=1", None, 200),
        ("GET", "/nope", None, 404),
        ("POST", PATH, "{", 400),
        ("POST", PATH, "[]", 400),
    ],
    ids=["health", "models", "unknown", "torn json", "no object"],
)
def test_other_requests_take_no_step(method, path, body, status):
    """Pages, unknown paths and malformed bodies are answered without the script."""
    with ScriptedModel(["a"]) as model:
        connection = connect(model)
        connection.request(method, path, body)
        found = connection.getresponse().status
        connection.close()
        taken = model.requests

    assert found == status
    assert taken == []


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("nonsense", 400),
        ("POST / HTTP/1.1\r\nContent-Length: many", 400),
        ("POST / HTTP/1.1\r\nContent-Length: 99999999999", 413),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked", 411),
        (f"GET / HTTP/1.1\r\nX: {'x' * 70_000}", 431),
    ],
    ids=["nonsense", "length", "too long", "chunked", "head"],
)
def test_malformed_http_is_refused(head, status):
    """What breaks the bounds of the server gets a status, and the next request is served."""
    with ScriptedModel(["fine"]) as model:
        address = urllib.parse.urlsplit(model.url)
        with socket.create_connection((address.hostname, address.port), TIMEOUT_S) as raw:
            raw.sendall(f"{head}\r\n\r\n".encode())
            first = raw.makefile("rb").readline()
        connection, response = ask(model)
        body = response.read()
        connection.close()

    assert first.split()[1] == str(status).encode()
    assert b'"fine"' in body


def test_a_connection_of_the_last_moment_is_closed_too():
    """Whoever connects while the server closes leaves no socket behind: a warning is an error."""
    for _ in range(30):
        raw = [socket.socket() for _ in range(6)]
        with ScriptedModel(["fine"]) as model:
            address = urllib.parse.urlsplit(model.url)
            for one in raw:
                one.setblocking(False)
                one.connect_ex((address.hostname, address.port))
        for one in raw:
            one.close()
    gc.collect()

    assert server_threads() == []
