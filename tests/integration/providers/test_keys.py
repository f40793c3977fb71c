"""A key that can't be sent is named before anything is sent, wherever it came from."""

import os

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


NO_KEYS = {
    "openai": ("openai:gpt-4o", "OPENAI_API_KEY"),
    "snowflake": ("snowflake:mistral-7b", "SNOWFLAKE_JWT"),
    "cohere": ("cohere:command-r", "COHERE_API_KEY"),
    "cohere's chat": ("cohere_chat:command-r", "COHERE_API_KEY"),
    "sagemaker": ("sagemaker:endpoint", "AWS_ACCESS_KEY_ID or AWS_SECRET_ACCESS_KEY"),
    "groq": ("groq:m", "GROQ_API_KEY"),
    "github": ("github:m", "GITHUB_API_KEY"),
}


@pytest.fixture
def keyless(monkeypatch):
    """No variable of the environment is a key, and no cloud is asked for one."""
    for name in os.environ:
        if name.endswith(("_KEY", "_TOKEN", "_JWT", "_KEY_ID")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION_NAME", "eu-west-1")


@pytest.mark.parametrize(("model", "variables"), NO_KEYS.values(), ids=NO_KEYS)
def test_a_key_that_is_nowhere_is_named(ask, raw, keyless, model, variables):
    """By us, or as a server refuses; it is never asked again."""
    raw.status, raw.body = 401, b'{"message": "no"}'
    _, failure = ask(raw, "openai", model=model, provider_opts={"api_key": None})

    assert failure.kind == FailureKind.PERMANENT
    assert failure.reason.startswith(
        f"there is no key for {model}: set {variables} where create_agent is called, or in the "
        "daemon's environment, or give create_agent(api_key=…)."
    )
    assert len(raw.seen) < 2


def test_what_is_missing_before_anybody_is_asked_is_not_asked_again(ask, raw, keyless):
    """It misses the next time as well."""
    options = {"api_key": "some-key", "api_base": None}
    _, failure = ask(raw, "openai", model="predibase:m", provider_opts=options)

    assert failure.kind == FailureKind.PERMANENT
    assert "PREDIBASE_TENANT_ID" in failure.reason
