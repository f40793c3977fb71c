"""Who may connect to the socket of events: libzmq asks here before it takes a connection (ZAP).

See RFC 27 of ZeroMQ. A socket cannot refuse a subscription, so who is not to have the events of
sessions is not let in at all. Only sockets with a ``ZAP_DOMAIN`` in the table of options are asked
about. It must be open before they are bound. Rules: every request is answered at once, since a
handshake waits for it; what can't be read is refused.
"""

import time
from collections.abc import Callable
from typing import Final

import structlog
import zmq

from cmdc_runtime.sockets import Pump, Role, open_socket, pid_of_address
from supervisor.core.refusals import Refusals

log = structlog.get_logger()

ADDRESS: Final = "inproc://zeromq.zap.01"
"""Where libzmq looks for who answers, in the sockets' own context."""
_VERSION: Final = b"1.0"
_ENVELOPE: Final = 2  # who asks, and an empty part
_REQUEST_PARTS_MIN: Final = 6  # version, id, domain, address, identity, mechanism


class Admission:
    """Answers libzmq's questions; who is asked gets the pid of a peer, None over other wires."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        may_enter: Callable[[int | None], bool],
        must_wait: Callable[[int | None], bool],
    ) -> None:
        """Make the socket; ``open`` begins to answer. Who must wait may enter, but later."""
        self._socket = open_socket(context, Role.ADMISSION)
        self._may_enter = may_enter
        self._must_wait = must_wait
        self._pump = Pump(self._socket, self._answer)
        self._refusals = Refusals()

    @property
    def refused(self) -> int:
        """How many connections were refused."""
        return self._refusals.total

    def open(self) -> None:
        """Begin to answer, in the running loop."""
        self._socket.bind(ADDRESS)
        self._pump.start()

    def close(self) -> None:
        """Stop and close."""
        self._pump.stop()

    def _answer(self, parts: list[bytes]) -> None:
        envelope, request = parts[:_ENVELOPE], parts[_ENVELOPE:]
        if len(request) < _REQUEST_PARTS_MIN:
            return
        pid = pid_of_address(request[3].decode(errors="replace"))
        problem = self._problem(pid)
        if problem:
            self._tell(pid, problem)
        status = b"400" if problem else b"200"
        reply = [_VERSION, request[1], status, problem.encode(), b"", b""]
        self._pump.send([*envelope[1:], *reply], peer=envelope[0])

    def _problem(self, pid: int | None) -> str:
        """Return why a process is not let in, nothing for one that is."""
        if self._must_wait(pid):
            return "it was cut off since it followed too much, and may try again later"
        return "" if self._may_enter(pid) else "not for a process of a session"

    def _tell(self, pid: int | None, problem: str) -> None:
        count = self._refusals.count(str(pid).encode(), time.monotonic())
        if count is not None:
            log.warning(
                "connection.refused", socket="events", pid=pid, problem=problem, of_peer=count
            )
