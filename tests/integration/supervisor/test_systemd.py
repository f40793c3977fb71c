"""What a service manager hears, on a real datagram socket."""

import asyncio
import contextlib
import socket

import pytest

from supervisor.adapters.systemd import Notifier
from supervisor.core.limits import STATUS_CHARS_MAX

PID = 77
DATAGRAM_BYTES_MAX = 4096


@pytest.fixture
def manager(tmp_path):
    """Yield the socket on which the service manager listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.setblocking(False)
        yield listening


def notifier(manager, **environ):
    """Return the notifier of a service that this manager started."""
    return Notifier.from_environment({"NOTIFY_SOCKET": manager.getsockname(), **environ}, pid=PID)


def heard(manager):
    """Return the next message; it is there when the sender returned."""
    return manager.recv(DATAGRAM_BYTES_MAX).decode()


def test_the_life_of_a_service_is_reported(manager):
    """Its status, that it is ready, reloads and stops; one line each."""
    with notifier(manager) as service:
        service.status("12 sessions\nREADY=0")
        service.ready()
        service.reloading(5)
        service.reloaded()
        service.stopping()

    assert [heard(manager) for _ in range(5)] == [
        "STATUS=12 sessions READY=0",
        "READY=1",
        "RELOADING=1\nMONOTONIC_USEC=5",
        "READY=1",
        "STOPPING=1",
    ]


def test_a_reload_does_not_end_the_start(manager):
    """What is sent after a reload would otherwise mean that the service is ready."""
    with notifier(manager) as service:
        service.reloading(5)
        service.reloaded()

    with pytest.raises(BlockingIOError):
        heard(manager)


def test_a_status_is_sent_when_it_has_changed(manager, monkeypatch):
    """The same line is not sent twice, and a long one is cut."""
    monkeypatch.setattr("supervisor.adapters.systemd.STATUS_INTERVAL_S", 0.001)
    lines = iter(["a", "a", "b" * 1000])

    async def work():
        with notifier(manager) as service, contextlib.suppress(RuntimeError):  # no line is left
            await service.keep_status(lambda: next(lines))

    asyncio.run(work())

    assert [heard(manager), heard(manager)] == ["STATUS=a", f"STATUS={'b' * STATUS_CHARS_MAX}"]
    with pytest.raises(BlockingIOError):
        heard(manager)


def test_an_abstract_address_is_understood():
    """The leading NUL of an abstract socket is written as ``@``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("")  # the kernel chooses an abstract name
        address = listening.getsockname().decode().replace("\0", "@")
        with Notifier(address) as service:
            service.stopping()

        assert heard(listening) == "STOPPING=1"


def test_the_watchdog_is_fed(manager):
    """Where one is asked for, and with the time that it allows."""
    with notifier(manager, WATCHDOG_USEC="40000", WATCHDOG_PID=str(PID)) as service:
        service.alive()

        assert service.watchdog_s == 0.04
    assert heard(manager) == "WATCHDOG=1"


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "x"},
        {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"},
    ],
    ids=["unset", "zero", "no number", "another process"],
)
def test_nobody_watches_unless_asked(manager, environ):
    """Without a watchdog for this process there is nothing to do."""
    with notifier(manager, **environ) as service:
        service.alive()

        assert service.watchdog_s is None
    with pytest.raises(BlockingIOError):
        heard(manager)


def test_without_a_service_manager_nothing_is_sent():
    """The same calls do nothing in a terminal, and after the end."""
    with Notifier.from_environment({"WATCHDOG_USEC": "1000"}, pid=PID) as service:
        service.ready()
        asyncio.run(service.keep_status(lambda: "never asked for"))
    service.stopping()


def test_a_deaf_service_manager_stops_nobody(tmp_path):
    """A message that cannot be sent is lost, and the service goes on."""
    with Notifier(str(tmp_path / "missing")) as service:
        service.ready()
        service.stopping()
