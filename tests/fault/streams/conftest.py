"""Daemons behind a wire that may do what it likes, and the count of the cases that were shown."""

import contextlib
import functools
from pathlib import Path

import pytest

from cmdc_runtime.client import connection
from cmdc_runtime.client.open_requests import OpenRequests
from tests.fault.streams.station import Station
from tests.fault.streams.wire import Wire
from tests.fault.tally import Tally

RESEND_S = 0.1


@pytest.fixture
def wire_of(monkeypatch, tmp_path_factory):
    """Make wires to daemons; what is lost on them is asked for again sooner than by default."""
    monkeypatch.setattr(
        connection, "OpenRequests", functools.partial(OpenRequests, resend_every_s=RESEND_S)
    )
    with contextlib.ExitStack() as stack:

        def create(daemon, **faults):
            directory = tmp_path_factory.mktemp("w") / "run"
            return stack.enter_context(contextlib.closing(Wire(directory, daemon, **faults)))

        yield create


@pytest.fixture
def station(tmp_path_factory):
    """A request router, a hub and a journal, whose sessions the test plays."""
    with contextlib.closing(Station(tmp_path_factory.mktemp("st"))) as found:
        yield found


def pytest_configure(config):
    """Begin to count."""
    tally = Tally("stream", "stream_case", Path(__file__).with_name("cases.toml"))
    config.pluginmanager.register(tally, "stream-tally")
