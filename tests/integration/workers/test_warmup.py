"""The zygote's first model call, which goes to a server of its own."""

import os
import sys

import pytest

from tests.e2e.mcp_servers import free_port
from workers import warmup

pytestmark = pytest.mark.process


@pytest.mark.parametrize("excepted", [None, "example.org"])
def test_no_proxy_is_asked(monkeypatch, excepted):
    """Whatever the environment names; it is as before when the call is over."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://user:word@127.0.0.1:{free_port()}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    if excepted is not None:
        monkeypatch.setenv("NO_PROXY", excepted)
    monkeypatch.delitem(sys.modules, "litellm", raising=False)  # of another test
    before = dict(os.environ)

    warmup.warm()

    assert dict(os.environ) == before
