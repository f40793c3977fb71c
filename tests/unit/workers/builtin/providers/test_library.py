"""litellm asks nobody on the network and reads no file of settings."""

import importlib
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


@pytest.mark.slow
@pytest.mark.process
def test_a_call_that_was_cancelled_early_says_nothing_on_stderr():
    """The coroutine that litellm leaves behind is one that nobody here can do anything about."""
    done = subprocess.run(
        [sys.executable, "-c", CANCELLED], capture_output=True, text=True, check=True
    )

    assert "async_streaming" not in done.stderr
    assert "coroutine 'our_own' was never awaited" in done.stderr
