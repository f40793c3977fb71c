"""The proxy of a process that has no other network, in a process of its own beside it.

``start`` forks it before anything is confined; ``WayOut.open`` listens in the empty network
namespace and sends that socket to it. So what is confined reaches one port, and what dials has no
other tie to it: it has the network of the machine, looks each name up once, and connects to an
address that it has checked. Which hosts there are ``hosts`` says, and what a request may be
``proxy_requests``; here are sockets, threads and bounds.

The proxy ends with the process that it was started for. It writes what it refuses into the errors
of that process, so that whoever reads them knows why, also where a program shows the status alone.
"""

from __future__ import annotations

import ipaddress
import os
import select
import signal
import socket
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial

from cmdc_runtime.confinement.hosts import HostRules, destination_of, rules_of
from cmdc_runtime.confinement.layer import LayerMissing
from cmdc_runtime.confinement.proxy_requests import (
    END,
    ESTABLISHED,
    HEAD_BYTES_MAX,
    Rejection,
    Wanted,
    is_undecided,
    refusal_of,
    request_of,
    tunnel_refusal,
)

TYPE_CHECKING = False  # typing's own costs each command 6 ms
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Final, NoReturn

    from cmdc_runtime.confinement.hosts import Address, Destination

CONNECTIONS_MAX: Final = 64
"""At a time; more wait to be taken."""
BYTES_MAX: Final = 4 * 2**30
"""That pass in both directions, in the life of one proxy."""
REQUEST_S: Final = 20.0
"""For the head of a request to arrive, and what a tunnel begins with."""
DIAL_S: Final = 15.0
"""For one address."""
ADDRESSES_MAX: Final = 16
"""Of one name; the name of more is refused, since each is checked."""
IDLE_S: Final = 300.0
"""Without a byte in either direction."""
UNREAD_S: Final = 1.0
UNREAD_CHUNKS: Final = 64
"""Of a request that is refused, so that the answer arrives."""
ERROR_LINES_MAX: Final = 20
"""Lines in the errors of the process; what is refused beyond is answered all the same."""
VARIABLES: Final = tuple(
    name
    for scheme in ("http", "https", "all")
    for name in (f"{scheme}_proxy", f"{scheme}_proxy".upper())
)
OWN: Final = ("localhost", "127.0.0.1", "::1")
"""A program's own, in its namespace; one that the list names is the machine's."""

_CHUNK_BYTES: Final = 64 * 1024
_BACKLOG: Final = 128
_STACK_BYTES: Final = 256 * 1024
_FULL_MS: Final = 50
_GATED_BYTES: Final = 16
_GONE: Final = select.POLLERR | select.POLLHUP
_TOO_LONG: Final = Rejection(431, f"the head of a request has {HEAD_BYTES_MAX} bytes at most")


# --- beside what is confined ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WayOut:
    """A proxy that has not got its socket yet."""

    control: socket.socket
    direct: str
    """Hosts that programs are to ask for themselves."""

    def open(self) -> None:
        """Listen in the network namespace of this process, and have programs ask there.

        Raises:
            OSError: there is no loopback, or the proxy is gone.
        """
        with closing(self.control), socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG) as one:
            socket.send_fds(self.control, [b"x"], [one.fileno()])
            address = f"http://127.0.0.1:{one.getsockname()[1]}"
        os.environ.update(
            dict.fromkeys(VARIABLES, address), NO_PROXY=self.direct, no_proxy=self.direct
        )


def start(allow_hosts: Iterable[str]) -> WayOut:
    """Fork the proxy of this process, which must have one thread.

    It is nobody's child whom the program that this process becomes could wait for.

    Raises:
        LayerMissing: the kernel gives it no process.
    """
    rules = rules_of(allow_hosts)
    try:
        served = os.pidfd_open(os.getpid())
        control, handed = socket.socketpair()
        pid = os.fork()
    except OSError as error:
        raise LayerMissing("proxy", str(error)) from error
    if pid == 0:
        _become(rules, handed.detach(), served)
    handed.close()
    os.close(served)
    os.waitpid(pid, 0)
    own = (host for host in OWN if not rules.names(_plain_host(host)))
    return WayOut(control, ",".join(own))


def _plain_host(host: str) -> str | Address:
    return destination_of(f"[{host}]" if ":" in host else host, 80).host


def _become(rules: HostRules, control: int, served: int) -> NoReturn:
    """Be the proxy, in a fork; never returns."""
    try:
        if os.fork() == 0:
            _keep_nothing(control, served)
            with socket.socket(fileno=control) as channel:
                _, given, _, _ = socket.recv_fds(channel, 1, 1)
            if given:
                with socket.socket(fileno=given[0]) as listener:
                    Proxy(rules).serve(listener, served)
    finally:
        os._exit(0)


def _keep_nothing(control: int, served: int) -> None:
    """Keep nothing of the process that was forked but its errors, and the two descriptors."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    kept = sorted((2, control, served))
    for first, last in zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(first + 1, last)


# --- the proxy ------------------------------------------------------------------------------------


def _resolved(host: str, port: int) -> list[Address]:
    """Return the addresses of a name, each once; raises OSError where there are none."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    texts = dict.fromkeys(str(one[4][0]).partition("%")[0] for one in found)
    return [ipaddress.ip_address(text) for text in texts]


def _write_error(line: str) -> None:
    with suppress(OSError):
        os.write(2, f"cmdc network: {line}\n".encode(errors="replace"))


@dataclass(slots=True)
class Proxy:
    """Carries out what ``rules`` allow, for whoever connects to one socket."""

    rules: HostRules
    resolve: Callable[[str, int], Sequence[Address]] = _resolved
    report: Callable[[str], None] = _write_error
    bytes_max: int = BYTES_MAX
    _lines: set[str] = field(default_factory=set)
    _passed: int = 0
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def serve(self, listener: socket.socket, until: int) -> None:
        """Take connections until a descriptor can be read, that of a process when it has ended."""
        threading.stack_size(_STACK_BYTES)
        listener.settimeout(0)
        look = select.poll()
        look.register(until, select.POLLIN)
        threads: set[threading.Thread] = set()
        while True:
            threads = {one for one in threads if one.is_alive()}
            is_full = len(threads) >= CONNECTIONS_MAX
            look.register(listener, 0 if is_full else select.POLLIN)
            ready = [number for number, _ in look.poll(_FULL_MS if is_full else None)]
            if until in ready:
                return
            if not ready:
                continue
            with suppress(OSError):  # it has gone away, or no descriptor is left
                taken, _ = listener.accept()
                thread = threading.Thread(target=self._serve_one, args=(taken,), daemon=True)
                thread.start()
                threads.add(thread)

    def _serve_one(self, program: socket.socket) -> None:
        with program, suppress(OSError):
            head, rest = _head(program)
            if not head:
                return
            wanted = request_of(head) if head.endswith(END) else _TOO_LONG
            if isinstance(wanted, Wanted):
                answer = self._carry_out(wanted, program, rest)
            else:
                answer = wanted
            if answer is not None:
                self._say(answer.why)
                _answer(program, answer)

    def _carry_out(self, wanted: Wanted, program: socket.socket, rest: bytes) -> Rejection | None:
        refused = refusal_of(wanted, self.rules)
        if refused is not None:
            return refused
        addresses = self._addresses(wanted.destination)
        if isinstance(addresses, Rejection):
            return addresses
        host = _dialled(addresses, wanted.destination)
        if isinstance(host, Rejection):
            return host
        with host:
            is_any = self.rules.any_protocol(wanted.destination)
            if wanted.is_tunnel:
                program.sendall(ESTABLISHED)
                up = Flow(program, host, gate=partial(_gate, any_protocol=is_any))
            else:
                host.sendall(wanted.head)
                up = Flow(program, host, left=wanted.body_bytes)
            up.take(rest)
            why = self._pass(up, Flow(host, program))
            if why is not None:
                self._say(f"the connection to {wanted.destination} ends: {why}")
        return None

    def _addresses(self, destination: Destination) -> Sequence[Address] | Rejection:
        """Return the checked addresses of a destination; it is looked up here and nowhere else."""
        host = destination.host
        if not isinstance(host, str):
            return [host]
        try:
            found = self.resolve(host, destination.port)
        except (OSError, UnicodeError) as error:
            return Rejection(502, f"{host} has no address: {error}")
        if len(found) > ADDRESSES_MAX:
            return Rejection(502, f"{host} has more than {ADDRESSES_MAX} addresses")
        for address in found:
            why = self.rules.address_refusal(address)
            if why is not None:
                return Rejection(403, f"{host} is allowed, but {why}")
        return found

    def _pass(self, up: Flow, down: Flow) -> str | None:
        """Pass bytes both ways until both are at their end; return what was not to go on."""
        for one in (up.source, down.source):
            one.settimeout(0)
        while not (up.is_done and down.is_done):
            look = select.poll()
            look.register(up.source, up.reads | down.writes)
            look.register(down.source, down.reads | up.writes)
            ready = dict(look.poll(IDLE_S * 1000))
            if not ready:
                return f"nothing was said for {IDLE_S:.0f} s"
            for flow in (up, down):
                if not flow.reads and ready.get(flow.source.fileno(), 0) & _GONE:
                    return None
                flow.read(ready)
                if flow.refusal is not None:
                    return flow.refusal
                flow.write()
            if not self._is_within(up.taken_bytes() + down.taken_bytes()):
                return f"{self.bytes_max} bytes are all that one command or call may have"
            if up.left is not None and down.is_done:  # of a page there is nothing more
                return None
        return None

    def _is_within(self, bytes_more: int) -> bool:
        with self._turn:
            self._passed += bytes_more
            return self._passed <= self.bytes_max

    def _say(self, line: str) -> None:
        with self._turn:
            is_new = line not in self._lines and len(self._lines) < ERROR_LINES_MAX
            if is_new:
                self._lines.add(line)
        if is_new:
            self.report(line)


@dataclass(slots=True)
class Flow:
    """One direction of a connection: what came from a socket and has not gone to the other."""

    source: socket.socket
    sink: socket.socket
    left: int | None = None
    """Bytes that go on; what comes behind them is dropped. None: as many as there are."""
    gate: Callable[[bytes], bool | str] | None = None
    """Whether what it begins with may go on, or has to wait for more; a text refuses it."""
    refusal: str | None = None
    _pending: bytearray = field(default_factory=bytearray)
    _taken: int = 0
    _is_ended: bool = False
    is_done: bool = False
    """It has come to its end, and the other side knows."""

    @property
    def reads(self) -> int:
        """The events to look for at the source."""
        is_open = not self._is_ended and len(self._pending) < _CHUNK_BYTES
        return select.POLLIN if is_open else 0

    @property
    def writes(self) -> int:
        """And at the sink."""
        return select.POLLOUT if self._pending and self.gate is None else 0

    def taken_bytes(self) -> int:
        """Return how many bytes have come since this was asked last."""
        taken, self._taken = self._taken, 0
        return taken

    def take(self, chunk: bytes) -> None:
        """Have bytes that came; those beyond ``left`` go nowhere."""
        self._taken += len(chunk)
        if self.left is not None:
            chunk = chunk[: self.left]
            self.left -= len(chunk)
        self._pending += chunk
        verdict = self.gate(bytes(self._pending[:_GATED_BYTES])) if self.gate and chunk else False
        if isinstance(verdict, str):
            self.refusal = verdict
        elif verdict:
            self.gate = None

    def read(self, ready: dict[int, int]) -> None:
        """Take what has come, where something has."""
        if not self.reads or not ready.get(self.source.fileno()):
            return
        with suppress(BlockingIOError):
            chunk = self.source.recv(_CHUNK_BYTES)
            self._is_ended = not chunk
            self.take(chunk)

    def write(self) -> None:
        """Send what the sink takes, and its end behind the last byte."""
        if self._pending and self.gate is None:
            with suppress(BlockingIOError):
                del self._pending[: self.sink.send(self._pending)]
        if self._is_ended and not self.is_done and (self.gate is not None or not self._pending):
            self.sink.shutdown(socket.SHUT_WR)
            self.is_done = True


def _gate(first: bytes, *, any_protocol: bool) -> bool | str:
    if is_undecided(first, any_protocol=any_protocol):
        return False
    return tunnel_refusal(first, any_protocol=any_protocol) or True


def _head(program: socket.socket) -> tuple[bytes, bytes]:
    """Return the head of a request, and what came behind it; without an end it is none."""
    head, deadline = b"", time.monotonic() + REQUEST_S
    while END not in head and len(head) < HEAD_BYTES_MAX:
        program.settimeout(max(deadline - time.monotonic(), 0.001))
        chunk = program.recv(HEAD_BYTES_MAX)
        if not chunk:
            return b"", b""
        head += chunk
    first, end, rest = head.partition(END)
    program.settimeout(IDLE_S)
    return first + end, rest


def _answer(program: socket.socket, rejection: Rejection) -> None:
    """Send an answer; it is lost where what was said before it is not read."""
    program.settimeout(UNREAD_S)
    program.sendall(rejection.answer)
    program.shutdown(socket.SHUT_WR)
    for _ in range(UNREAD_CHUNKS):
        if not program.recv(_CHUNK_BYTES):
            return


def _dialled(addresses: Sequence[Address], destination: Destination) -> socket.socket | Rejection:
    """Return a connection to one of the addresses, which are numbers: nothing is looked up."""
    problem = "it has none"
    for address in addresses:
        try:
            return socket.create_connection((str(address), destination.port), timeout=DIAL_S)
        except OSError as error:
            problem = f"{address}: {error}"
    return Rejection(502, f"{destination} can't be reached: {problem}")
