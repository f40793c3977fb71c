"""Proxies, certificates and redirects between an agent and its model, by the environment.

A user of httpx or aiohttp finds here what he knows: the variables, in upper and lower case. A
request stays what it is on every way, and a key gets to the server that it was given for alone.
"""

import json

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.extensions.provider import FailureKind, FinishChunk, ModelRequest, TextChunk
from cmdc_runtime.messages import Message
from cmdc_runtime.testing.daemon import DaemonProcess
from tests.integration.providers import conftest
from tests.integration.providers.network import SSE, Authority, proxy, reply, site
from workers.builtin.providers import default
from workers.builtin.wires import http

WIRES = conftest.LEAN
KEY = "no-key-at-all"
BASES = {"openai": "/v1", "anthropic": ""}
PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
TURN_S = 60.0


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    """Have none of the variables but those that a test sets."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Sign a certificate for the servers of these tests."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def plain():
    """Serve a whole answer in plain http."""
    with site((200, SSE, reply("openai"))) as server:
        yield server


@pytest.fixture
def secure(authority):
    """Serve a whole answer by TLS."""
    with site((200, SSE, reply("openai")), authority.context()) as server:
        yield server


@pytest.fixture
def trusted(secure, authority, monkeypatch):
    """The same server, trusted."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    return secure


@pytest.fixture
def gate():
    """Run a proxy."""
    with proxy() as found:
        yield found


@pytest.fixture
def through(gate, monkeypatch):
    """Have a variable name the proxy, in an address with ``before`` in front of its host."""

    def through_(variable, before="http://"):
        monkeypatch.setenv(variable, f"{before}127.0.0.1:{gate.port}")
        return gate

    return through_


@pytest.fixture
def send(runner):
    """Ask an address once; return the chunks and the failure."""

    def send_(url, wire="openai", **options):
        options = {"api_key": KEY, "api_base": f"{url}{BASES[wire]}", "timeout": 20} | options
        request = ModelRequest(
            model=conftest.MODELS[wire], messages=(Message.user("hi"),), provider_opts=options
        )
        return runner.run(conftest.collect(default.create(), request))

    return send_


def has_answered(found):
    chunks, failure = found
    return failure is None and chunks == [TextChunk(text="fine"), FinishChunk(reason="stop")]


def sent_keys(server):
    """Return the keys that a server was shown."""
    names = ("authorization", "x-api-key")
    return [one.headers[name] for one in server.asked for name in names if name in one.headers]


# --- proxies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])
def test_tls_goes_through_a_tunnel(send, trusted, through, variable):
    """The proxy sees whom the agent asks, and neither what nor with which key."""
    gate = through(variable)
    found = send(trusted.url)

    assert has_answered(found)
    assert gate.lines == [f"CONNECT 127.0.0.1:{trusted.server_port} HTTP/1.1"]
    assert KEY not in str(gate.heads)
    assert sent_keys(trusted) == [f"Bearer {KEY}"]


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("scheme", ["http://", ""], ids=["address", "host"])
def test_plain_http_is_passed_on(send, plain, through, variable, scheme):
    """A proxy without a scheme is one of http."""
    gate = through(variable, scheme)
    found = send(plain.url)

    assert has_answered(found)
    assert gate.lines == [f"POST {plain.url}/v1/chat/completions HTTP/1.1"]


def test_a_proxy_of_the_other_scheme_is_none(send, plain, through):
    """``HTTPS_PROXY`` says nothing of http."""
    gate = through("HTTPS_PROXY")
    found = send(plain.url)

    assert has_answered(found)
    assert gate.lines == []


def test_the_lower_case_counts(send, plain, through, monkeypatch):
    """Where a variable has both forms."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    gate = through("http_proxy")
    found = send(plain.url)

    assert has_answered(found)
    assert len(gate.lines) == 1


EXCEPTED = (
    "NO_PROXY=127.0.0.1",
    "no_proxy=127.0.0.1",
    "NO_PROXY=example.org, 127.0.0.1",
    "NO_PROXY=127.0.0.1:PORT",
    "NO_PROXY=*",
    "NO_PROXY=a.b,*",
)


@pytest.mark.parametrize("excepted", EXCEPTED)
def test_what_is_excepted_is_asked_itself(send, plain, through, monkeypatch, excepted):
    """By host, by host and port, or all."""
    gate = through("HTTP_PROXY")
    name, _, value = excepted.partition("=")
    monkeypatch.setenv(name, value.replace("PORT", str(plain.server_port)))
    found = send(plain.url)

    assert has_answered(found)
    assert gate.lines == []


@pytest.mark.parametrize("excepted", ["127.0.0.2", "7.0.0.1", "127.0.0.1:9", ""])
def test_what_is_not_excepted_goes_by_the_proxy(send, plain, through, monkeypatch, excepted):
    """A part of a name is no name, and another port is another server."""
    gate = through("HTTP_PROXY")
    monkeypatch.setenv("NO_PROXY", excepted)
    found = send(plain.url)

    assert has_answered(found)
    assert len(gate.lines) == 1


def test_the_user_of_a_proxy_is_shown_to_it_alone(send, trusted, through):
    """What is escaped in the address is sent as it is."""
    gate = through("HTTPS_PROXY", "http://someone:pa%20ss@")
    found = send(trusted.url)

    assert has_answered(found)
    assert gate.value("proxy-authorization") == "Basic c29tZW9uZTpwYSBzcw=="
    assert "proxy-authorization" not in trusted.asked[0].headers
    assert sent_keys(trusted) == [f"Bearer {KEY}"]


REFUSALS = {
    "407": (b"HTTP/1.1 407 Who are you\r\n", FailureKind.PERMANENT, None),
    "502": (b"HTTP/1.1 502 Nobody there\r\n", FailureKind.TRANSIENT, None),
    "503": (b"HTTP/1.1 503 Later\r\nRetry-After: 7\r\n", FailureKind.TRANSIENT, 7.0),
}


@pytest.mark.parametrize("status", REFUSALS)
def test_a_proxy_that_refuses_is_named(send, secure, through, status):
    """It is the proxy that says so, and no server; its password is in no text."""
    head, kind, wait_s = REFUSALS[status]
    gate = through("HTTPS_PROXY", "http://someone:hush-hush@")
    gate.refusal = head + b"Content-Length: 0\r\n\r\n"
    _, failure = send(secure.url)

    assert (failure.kind, failure.status) == (kind, int(status))
    assert "the proxy says: " in failure.reason
    assert "hush" not in failure.reason
    assert failure.retry_after_s == wait_s
    assert secure.asked == []


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_is_not_there_is_named(send, scheme, monkeypatch):
    """Else somebody would look for the server."""
    monkeypatch.setenv("ALL_PROXY", "http://someone:hush-hush@127.0.0.1:9")
    _, failure = send(f"{scheme}://127.0.0.1:1")

    assert failure.kind is FailureKind.UNREACHABLE
    expected = "no proxy at 127.0.0.1:9, which the environment names: connection refused"
    assert failure.reason == expected


def test_a_proxy_that_cannot_be_asked_is_reported(send, plain, monkeypatch):
    """One of another protocol is neither used nor passed by."""
    monkeypatch.setenv("ALL_PROXY", "socks5://someone:hush-hush@127.0.0.1:1080")
    _, failure = send(plain.url)

    assert failure.kind is FailureKind.PERMANENT
    assert "the proxy of the environment: 'socks5://127.0.0.1:1080'" in failure.reason
    assert plain.asked == []


def test_a_certificate_is_looked_at_through_a_tunnel(send, secure, through):
    """A proxy is no reason to trust anybody."""
    gate = through("HTTPS_PROXY")
    _, failure = send(secure.url)

    assert failure.kind is FailureKind.UNREACHABLE
    assert "its certificate is not trusted" in failure.reason
    assert len(gate.lines) == 1
    assert secure.asked == []


# --- certificates ---------------------------------------------------------------------------------


def test_an_unknown_authority_is_not_trusted(send, secure):
    """The key stays here; the reason names the server, and what is wrong."""
    _, failure = send(secure.url)

    assert failure.kind is FailureKind.UNREACHABLE
    assert failure.reason.startswith(f"no server at {secure.url}: its certificate is not trusted")
    assert secure.asked == []


@pytest.mark.parametrize("wire", WIRES)
def test_an_authority_of_the_environment_is_trusted(send, trusted, wire):
    """As a file."""
    trusted.answer = (200, SSE, reply(wire))
    chunks, failure = send(trusted.url, wire)

    assert failure is None
    assert chunks[0] == TextChunk(text="fine")
    assert [one.path for one in trusted.asked] == [PATHS[wire]]


def test_a_folder_of_authorities_is_trusted(send, secure, authority, monkeypatch):
    """Files by the hashes of their names, and folders as a list."""
    monkeypatch.setenv("SSL_CERT_DIR", f"/nowhere:{authority.folder}")

    assert has_answered(send(secure.url))


def test_a_name_that_a_certificate_does_not_have_is_not_trusted(send, trusted):
    """Whoever has signed it."""
    _, failure = send(f"https://localhost:{trusted.server_port}")

    assert failure.kind is FailureKind.UNREACHABLE
    assert "its certificate is not trusted" in failure.reason
    assert trusted.asked == []


@pytest.mark.parametrize("is_there", [True, False], ids=["other", "missing"])
def test_a_file_without_certificates_is_reported(send, secure, monkeypatch, tmp_path, is_there):
    """The same would fail the next time; the variable is named."""
    path = tmp_path / "certificates.pem"
    if is_there:
        path.write_text("none")
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    _, failure = send(secure.url)

    assert failure.kind is FailureKind.PERMANENT
    assert failure.reason.startswith(
        f"nothing was sent: SSL_CERT_FILE in the environment, '{path}'"
    )


# --- redirects ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("is_full", [True, False], ids=["address", "path"])
def test_a_redirect_on_a_server_is_followed(send, plain, wire, status, is_full):
    """The request is the same there: method, body and key."""
    goal = f"{plain.url if is_full else ''}/new/messages?a=1"
    plain.answers[PATHS[wire]] = (status, {"location": goal}, b"elsewhere")
    plain.answer = (200, SSE, reply(wire))
    chunks, failure = send(plain.url, wire)
    first, second = plain.asked

    assert failure is None
    assert chunks[0] == TextChunk(text="fine")
    assert (second.method, second.path) == ("POST", "/new/messages?a=1")
    assert second.body == first.body
    assert json.loads(second.body)["model"] in conftest.MODELS[wire]
    assert second.headers == first.headers


@pytest.mark.parametrize("status", [300, 301, 302, 303])
def test_a_redirect_to_another_request_is_not_followed(send, plain, status):
    """No request becomes one without a body; where it leads is reported."""
    goal = f"{plain.url}/v2/chat/completions"
    plain.answers[PATHS["openai"]] = (status, {"location": goal + "?key=hush"}, b"")
    _, failure = send(plain.url)

    assert (failure.kind, failure.status) == (FailureKind.PERMANENT, status)
    assert f"it is redirected to {goal!r}, which is not followed" in failure.reason
    assert [one.method for one in plain.asked] == ["POST"]


@pytest.mark.parametrize("status", [302, 307, 308])
@pytest.mark.parametrize("wire", WIRES)
def test_a_redirect_to_another_server_is_not_followed(send, plain, wire, status):
    """Nobody there sees the key, or that there was a request."""
    with site((200, SSE, reply(wire))) as other:
        plain.answer = (status, {"location": f"{other.url}/v1/chat/completions"}, b"")
        _, failure = send(plain.url, wire)

        assert other.asked == []
    assert (failure.kind, failure.status) == (FailureKind.PERMANENT, status)
    assert repr(f"{other.url}/v1/chat/completions") in failure.reason
    assert len(sent_keys(plain)) == 1


def test_redirects_in_a_circle_end(send, plain):
    """They are reported as what they are."""
    plain.answer = (307, {"location": "/again"}, b"")
    _, failure = send(plain.url)

    assert (failure.kind, failure.status) == (FailureKind.PERMANENT, 307)
    assert "it is redirected to" in failure.reason
    assert len(plain.asked) == http.FOLLOWED_MAX + 1


def test_a_user_in_an_address_goes_along(send, plain):
    """He belongs to the server, and not to one of its paths."""
    plain.answers[PATHS["openai"]] = (308, {"location": f"{plain.url}/new"}, b"")
    found = send(plain.url.replace("//", "//someone:hush@"))

    assert has_answered(found)
    assert len(sent_keys(plain)) == 2
    assert {*sent_keys(plain)} == {"Basic c29tZW9uZTpodXNo"}


# --- a session ------------------------------------------------------------------------------------


def test_a_session_asks_by_the_daemons_environment(trusted, through):
    """Agents have the environment that their daemon was started with."""
    gate = through("HTTPS_PROXY")
    daemon = DaemonProcess()
    try:
        options = {"api_key": KEY, "api_base": f"{trusted.url}/v1"}
        with (
            cmdc.Client(daemon.address) as client,
            client.create_agent(model=conftest.MODELS["openai"], provider_opts=options) as session,
        ):
            text = session.run("Hi.", timeout=TURN_S).text
    finally:
        daemon.close()

    assert text == "fine"
    assert gate.lines == [f"CONNECT 127.0.0.1:{trusted.server_port} HTTP/1.1"]
    assert len(trusted.asked) == 1
