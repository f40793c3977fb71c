"""litellm asks nobody on the network and reads no file of settings."""

import importlib
import logging
import os
import subprocess
import sys

import httpx
import pytest

CANCELLED = """
import workers.builtin.providers._library

class OpenAIChatCompletion:
    async def async_streaming(self):
        pass

async def our_own():
    pass

OpenAIChatCompletion().async_streaming()
our_own()
"""


@pytest.fixture(scope="module")
def litellm():
    """Import litellm, which takes seconds."""
    return importlib.import_module("workers.builtin.providers._library").litellm


def test_headers_for_claude_come_with_the_package(litellm, monkeypatch):
    """Else the first request with a schema would block the loop of its agent for up to 5 s."""

    def ask(*args, **options):
        raise AssertionError("asked the network")

    monkeypatch.setattr(httpx, "get", ask)
    manager = importlib.import_module("litellm.anthropic_beta_headers_manager")

    assert "anthropic" in manager.get_beta_headers_config("http://127.0.0.1:1/headers.json")


def test_prices_come_with_the_package_and_settings_from_nowhere(litellm):
    """What decides is read at the import."""
    assert os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"
    assert os.environ["LITELLM_MODE"] == "PRODUCTION"
    assert litellm.suppress_debug_info is True


def test_what_servers_say_is_not_written_to_stderr(litellm):
    """A key that one echoes would be there, and a model's words."""
    levels = [one.level for one in logging.getLogger("LiteLLM").handlers]

    assert litellm.suppress_debug_info
    assert levels
    assert min(levels) >= logging.CRITICAL


@pytest.mark.parametrize("setting", ["False", "True"])
def test_every_transport_bounds_what_comes(litellm, monkeypatch, setting):
    """Its own, and the one in its place where somebody switches that off."""
    monkeypatch.setenv("DISABLE_AIOHTTP_TRANSPORT", setting)
    handler = importlib.import_module("litellm.llms.custom_httpx.http_handler").AsyncHTTPHandler
    responses = importlib.import_module("workers.builtin.providers._responses")
    made = handler.create_async_transport(ssl_verify=False)

    assert isinstance(made, responses.BoundedTransport)
    assert isinstance(made, httpx.AsyncHTTPTransport) == (setting == "True")


@pytest.mark.slow
@pytest.mark.process
def test_a_call_that_was_cancelled_early_says_nothing_on_stderr():
    """The coroutine that litellm leaves behind is one that nobody here can do anything about."""
    done = subprocess.run(
        [sys.executable, "-c", CANCELLED], capture_output=True, text=True, check=True
    )

    assert "async_streaming" not in done.stderr
    assert "coroutine 'our_own' was never awaited" in done.stderr
