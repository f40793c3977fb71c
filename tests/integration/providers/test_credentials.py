"""Servers that echo what they were sent: whatever was given with a request stays with us."""

import json

import pytest

from cmdc_runtime.extensions.provider import FailureKind

WIRES = ["openai", "anthropic", "gemini"]
KEY = "q7w!-first"
OPTIONS = {
    "api_key": "k-77-of-us",
    "organization": "org-of-us",
    "extra_headers": {"X-Team": "team-of-us"},
    "extra_query": {"tenant": "tenant-of-us"},
    "extra_body": {"session": {"parts": ["part-of-us", {"pin": "z9z9"}]}},
    "user": "user-of-us",
}
SENT = ("of-us", "z9z9")


@pytest.fixture
def echo(raw, monkeypatch):
    """A server whose errors are what came: the path, the headers and the body."""
    handler = raw.RequestHandlerClass

    def do_post(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        self.server.seen.append(f"{self.path}\n{self.headers}\n{body}")
        # The end comes first: the reason is cut, and the body's end is what was given.
        echoed = f"{body[-400:]} {self.path} {dict(self.headers.items())}"
        answer = json.dumps({"error": {"message": echoed, "type": "echo"}}).encode()
        self.send_response(self.server.status)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(answer)

    monkeypatch.setattr(handler, "do_POST", do_post)
    return raw


@pytest.mark.parametrize("status", [400, 401, 429, 500])
@pytest.mark.parametrize("wire", WIRES)
def test_no_option_is_shown(ask, echo, wire, status):
    """Neither in the reason nor by a cause that a traceback would print."""
    echo.status = status
    _, failure = ask(echo, wire, provider_opts=OPTIONS)

    assert any("of-us" in one for one in echo.seen)
    assert not [text for text in SENT if text in failure.reason], failure.reason
    assert "[hidden]" in failure.reason
    assert failure.__cause__ is None


def test_a_key_of_before_is_not_shown(ask, echo):
    """The server has it from a request before."""
    echo.status = 401
    _, failure = ask(
        echo,
        "openai",
        former_opts=({"api_key": KEY},),
        provider_opts={"extra_body": {"note": f"you had {KEY}"}, "api_key": "new-one-of-us"},
    )

    assert KEY in echo.seen[0]
    assert KEY not in failure.reason


@pytest.mark.parametrize("wire", WIRES)
def test_an_address_may_have_a_user(ask, echo, wire):
    """It is a header of the request then, and no part of what is reported."""
    echo.status = 400
    base = f"http://me:hunter2@127.0.0.1:{echo.server_port}"
    _, failure = ask(echo, wire, provider_opts={"api_base": base})

    assert "hunter2" not in failure.reason
    assert "bWU6aHVudGVyMg" not in failure.reason  # me:hunter2
    assert failure.status == 400


@pytest.mark.parametrize("wire", WIRES)
def test_an_address_from_the_environment_is_checked(ask, raw, wire, monkeypatch):
    """The transport has the same rule for it as there is for the options."""
    names = {
        "openai": "OPENAI_BASE_URL",
        "anthropic": "ANTHROPIC_API_BASE",
        "gemini": "GEMINI_API_BASE",
    }
    monkeypatch.setenv(names[wire], "htp://me:hunter2@127.0.0.1:1/v1")
    chunks, failure = ask(raw, wire, provider_opts={"api_base": None})

    assert (chunks, failure.kind) == ([], FailureKind.PERMANENT)
    assert "its scheme is neither http nor https" in failure.reason
    assert "hunter2" not in failure.reason
