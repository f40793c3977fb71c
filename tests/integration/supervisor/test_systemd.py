"""What a service manager hears, on a real datagram socket."""

import asyncio
import socket

import pytest

from supervisor.adapters.systemd import Notifier

PID = 77
PATIENCE_S = 10.0
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


def test_the_life_of_a_service_is_told(manager):
    """Ready with a status, a new status, and stopping; one line each."""
    with notifier(manager) as service:
        service.ready("listening")
        service.status("12 sessions\nREADY=0")
        service.stopping()

    assert heard(manager) == "READY=1\nSTATUS=listening"
    assert heard(manager) == "STATUS=12 sessions READY=0"
    assert heard(manager) == "STOPPING=1"


def test_an_abstract_address_is_understood():
    """The leading NUL of an abstract socket is written as ``@``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("")  # the kernel chooses an abstract name
        address = listening.getsockname().decode().replace("\0", "@")
        with Notifier(address) as service:
            service.stopping()

        assert heard(listening) == "STOPPING=1"


def test_the_watchdog_hears_that_the_loop_turns(manager):
    """One beat at once and then two per interval, until it is cancelled."""

    async def work():
        loop = asyncio.get_running_loop()
        with notifier(manager, WATCHDOG_USEC="40000", WATCHDOG_PID=str(PID)) as service:
            beats = asyncio.create_task(service.keep_alive())
            async with asyncio.timeout(PATIENCE_S):
                found = [await loop.sock_recv(manager, DATAGRAM_BYTES_MAX) for _ in range(3)]
            beats.cancel()
            await asyncio.wait([beats])
            return service.watchdog_s, found, beats.cancelled()

    assert asyncio.run(work()) == (0.04, [b"WATCHDOG=1"] * 3, True)


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
        asyncio.run(service.keep_alive())

        assert service.watchdog_s is None
    with pytest.raises(BlockingIOError):
        heard(manager)


def test_without_a_service_manager_nothing_is_sent():
    """The same calls do nothing in a terminal, and after the end."""
    with Notifier.from_environment({"WATCHDOG_USEC": "1000"}, pid=PID) as service:
        service.ready("listening")
        asyncio.run(service.keep_alive())
    service.stopping()


def test_a_deaf_service_manager_stops_nobody(tmp_path):
    """A message that cannot be sent is lost, and the service goes on."""
    with Notifier(str(tmp_path / "missing")) as service:
        service.ready("listening")
        service.stopping()
