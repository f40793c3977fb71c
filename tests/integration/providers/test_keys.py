"""A key that can't be sent is named before anything is sent, wherever it came from."""

import pytest

from cmdc_runtime.extensions.provider import FailureKind

SECRET = "sk-secretsecret"
VARIABLES = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "gemini": "GEMINI_API_KEY",
}
BAD = [SECRET + "\n", "\t" + SECRET, "sk-secret\nsecret", SECRET + "ä"]


def assert_refused(raw, chunks, failure, place):
    assert chunks == []
    assert failure.kind == FailureKind.PERMANENT
    assert failure.reason.startswith(f"nothing was sent: {place}")
    assert "secret" not in failure.reason
    assert raw.seen == []


@pytest.mark.parametrize("wire", VARIABLES)
@pytest.mark.parametrize("key", [*BAD, 5], ids=repr)
def test_a_key_of_the_options_is_named(ask, raw, wire, key):
    """As it may come from an older session, or from a plugin."""
    chunks, failure = ask(raw, wire, provider_opts={"api_key": key})

    assert_refused(raw, chunks, failure, "provider_opts['api_key']: ")


@pytest.mark.parametrize("wire", VARIABLES)
def test_a_header_of_the_options_is_named(ask, raw, wire):
    """Its value is none that is shown."""
    chunks, failure = ask(raw, wire, provider_opts={"extra_headers": {"x-key": BAD[0]}})

    assert_refused(raw, chunks, failure, "provider_opts['extra_headers']['x-key']: ")


@pytest.mark.parametrize("wire", VARIABLES)
def test_an_option_that_can_never_work_is_named(ask, raw, wire):
    """As a plugin may bring it, whose options nobody checks before."""
    chunks, failure = ask(raw, wire, provider_opts={"n": 2})

    assert_refused(raw, chunks, failure, "provider_opts['n']: a request has one answer")


@pytest.mark.parametrize("wire", VARIABLES)
@pytest.mark.parametrize("key", BAD, ids=repr)
def test_a_key_of_the_environment_is_named_by_its_variable(ask, raw, monkeypatch, wire, key):
    """Where the options have none."""
    monkeypatch.setenv(VARIABLES[wire], key)
    chunks, failure = ask(raw, wire, provider_opts={"api_key": None})

    assert_refused(raw, chunks, failure, f"{VARIABLES[wire]} in the environment: ")


@pytest.mark.parametrize("wire", VARIABLES)
def test_a_key_of_the_options_stands_for_that_of_the_environment(ask, raw, monkeypatch, wire):
    """What is not used is not judged."""
    monkeypatch.setenv(VARIABLES[wire], BAD[0])
    ask(raw, wire)

    assert raw.seen
