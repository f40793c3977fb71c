"""The proxy over real sockets: what it carries, what it refuses, and where it ends."""

import contextlib
import ipaddress
import os
import socket
import threading
from dataclasses import dataclass, field

import pytest

from cmdc_runtime.confinement import proxy
from cmdc_runtime.confinement.hosts import rules_of
from cmdc_runtime.confinement.proxy import Proxy

pytestmark = pytest.mark.process

WAIT_S = 20.0
TLS = b"\x16\x03\x01\x00\x05hello"
HERE = ipaddress.ip_address("127.0.0.1")
OTHER = ipaddress.ip_address("127.0.0.2")


class Server:
    """Echoes what it hears, at one address; ``heard`` is all of it, ``taken`` how many came."""

    def __init__(self, address="127.0.0.1", port=0, says=b"", echoes=True):
        self.socket = socket.create_server((address, port))
        self.port = self.socket.getsockname()[1]
        self.heard, self.taken, self.ended = bytearray(), 0, threading.Event()
        self._says, self._echoes = says, echoes
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        while True:
            try:
                one, _ = self.socket.accept()
            except OSError:
                return
            self.taken += 1
            with one, contextlib.suppress(OSError):
                one.sendall(self._says)
                while chunk := one.recv(65536):
                    self.heard += chunk
                    if self._echoes:
                        one.sendall(chunk)
            self.ended.set()

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self._thread.join(WAIT_S)


@dataclass
class Running:
    """A proxy that runs in a thread, with names that a test makes up."""

    listener: socket.socket
    answers: dict
    asked: list = field(default_factory=list)
    reported: list = field(default_factory=list)

    def resolve(self, host, _port):
        self.asked.append(host)
        found = self.answers.get(host)
        if not found:
            raise OSError("there is none")
        return found.pop(0) if len(found) > 1 else found[0]

    def ask(self, *parts):
        """Return all that is answered to what is said; the last part is followed by an end."""
        with socket.create_connection(self.listener.getsockname(), timeout=WAIT_S) as one:
            for part in parts:
                one.sendall(part)
            one.shutdown(socket.SHUT_WR)
            answer = b""
            with contextlib.suppress(ConnectionResetError):  # it was cut while more was said
                while chunk := one.recv(65536):
                    answer += chunk
            return answer

    def connect(self, target):
        """Return a tunnel, or the answer that there is in its place."""
        one = socket.create_connection(self.listener.getsockname(), timeout=WAIT_S)
        one.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += one.recv(1)
        if answer.startswith(b"HTTP/1.1 200 "):
            return one
        with one:
            return answer + one.recv(65536)


@pytest.fixture
def running():
    """Return what starts a proxy with an allow-list; all end with the test."""
    with contextlib.ExitStack() as stack:

        def start(*allowed, answers=None, **bounds):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            until, end = os.pipe()
            given = Running(listener, answers or {})
            one = Proxy(rules_of(allowed), given.resolve, given.reported.append, **bounds)
            thread = threading.Thread(target=one.serve, args=(listener, until))
            thread.start()
            stack.callback(os.close, until)
            stack.callback(thread.join, WAIT_S)
            stack.callback(os.close, end)
            return given

        yield start


@pytest.fixture
def server():
    with contextlib.closing(Server()) as one:
        yield one


def test_a_tunnel_carries_what_is_said_both_ways(running, server):
    """To a host that the list names, by its address; ends are passed on."""
    given = running(f"a.org:{server.port}", "127.0.0.1", answers={"a.org": [[HERE]]})
    with given.connect(f"A.org.:{server.port}") as tunnel:
        tunnel.sendall(TLS)
        echoed = tunnel.recv(100)
        tunnel.shutdown(socket.SHUT_WR)

        assert echoed == TLS
        assert tunnel.recv(100) == b""
    assert server.ended.wait(WAIT_S)
    assert (given.asked, given.reported) == (["a.org"], [])


def test_a_server_that_speaks_first_is_heard(running):
    """On a port that the list names, where a tunnel may carry anything."""
    with contextlib.closing(Server(says=b"SSH-2.0-x\r\n")) as server:
        given = running(f"127.0.0.1:{server.port}")
        with given.connect(f"127.0.0.1:{server.port}") as tunnel:
            assert tunnel.recv(100) == b"SSH-2.0-x\r\n"
            tunnel.sendall(b"SSH-2.0-y\r\n")
            assert tunnel.recv(100) == b"SSH-2.0-y\r\n"


def test_a_host_that_is_not_named_is_refused_by_name(running, server):
    """Nobody looks it up or connects; it is reported once, and how it would be allowed."""
    given = running("a.org", answers={"b.org": [[HERE]]})
    answers = [given.connect(f"b.org:{server.port}") for _ in range(2)]

    assert all(one.startswith(b"HTTP/1.1 403 Forbidden\r\n") for one in answers)
    assert f'"b.org:{server.port}" there would allow it'.encode() in answers[0]
    assert [line.split()[0] for line in given.reported] == [f"b.org:{server.port}"]
    assert (given.asked, server.taken) == ([], 0)


def test_a_name_that_leads_to_this_machine_is_refused(running, server):
    """Though it is allowed; one such address among others is enough."""
    public = ipaddress.ip_address("93.184.216.34")
    mapped = ipaddress.ip_address("::ffff:127.0.0.1")
    for found in ([HERE], [public, HERE], [mapped], [ipaddress.ip_address("169.254.169.254")]):
        given = running(f"a.org:{server.port}", answers={"a.org": [found]})
        answer = given.connect(f"a.org:{server.port}")

        assert b"a.org is allowed, but " in answer
    assert server.taken == 0


def test_a_name_is_looked_up_once_and_that_address_is_dialled(running, server):
    """An answer that is another one the second time is never asked for."""
    with contextlib.closing(Server("127.0.0.2", server.port)) as wrong:
        rebinding = {"a.org": [[HERE], [OTHER]]}
        given = running(f"a.org:{server.port}", "127.0.0.1", answers=rebinding)
        given.connect(f"a.org:{server.port}").close()
        assert server.ended.wait(WAIT_S)
        second = given.connect(f"a.org:{server.port}")

        assert given.asked == ["a.org", "a.org"]
        assert b"127.0.0.2 is this machine" in second
        assert (server.taken, wrong.taken) == (1, 0)


def test_a_tunnel_is_not_passed_on_to_another_host(running, server):
    """Neither by a host of the web, where TLS has to come, nor on a port of its own."""
    given = running(f"127.0.0.1:{server.port}")
    target = f"127.0.0.1:{server.port}"
    for parts in ([b"CONNECT evil.org:443 HTTP/1.1\r\n\r\n"], [b"CON", b"NECT evil.org:443 HTTP/"]):
        answer = given.ask(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode(), *parts)

        assert answer == b"HTTP/1.1 200 Connection established\r\n\r\n"
    assert server.heard == b""
    assert given.reported == [
        f"the connection to {target} ends: it asks the host to connect it to another one"
    ]


def test_the_proxy_connects_to_no_proxy(running):
    """To itself neither."""
    given = running("a.org", answers={"a.org": [[HERE]]})
    port = given.listener.getsockname()[1]

    assert b"403 Forbidden" in given.connect(f"127.0.0.1:{port}")
    assert b"403 Forbidden" in given.connect(f"a.org:{port}")


def test_a_page_goes_to_its_host_with_its_body_and_nothing_else(running):
    """What follows the body is another request, which nobody has checked."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    with contextlib.closing(Server(says=answer, echoes=False)) as server:
        given = running(f"a.org:{server.port}", "127.0.0.1", answers={"a.org": [[HERE]]})
        with socket.create_connection(given.listener.getsockname(), timeout=WAIT_S) as one:
            head = f"PUT http://a.org:{server.port}/x HTTP/1.1\r\nHost: b.org\r\n"
            one.sendall(
                f"{head}Content-Length: 4\r\n\r\nbodyGET http://a.org/ HTTP/1.1\r\n".encode()
            )
            heard = b""
            while len(heard) < len(answer):
                heard += one.recv(100)
        assert server.ended.wait(WAIT_S)

    assert heard == answer
    assert (
        bytes(server.heard)
        == (
            f"PUT /x HTTP/1.1\r\nHost: a.org:{server.port}\r\n"
            "Connection: close\r\nContent-Length: 4\r\n\r\nbody"
        ).encode()
    )


def test_what_is_no_request_is_answered(running):
    """With what is wrong; a head without an end is not waited for beyond its bound."""
    given = running("a.org")

    assert given.ask(b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert given.ask(b"GET http://a.org/" + b"x" * 20_000).startswith(b"HTTP/1.1 431 ")
    assert given.ask(b"GET http://a.org/") == b""
    assert b"has no address" in given.connect("a.org:443")


def test_what_passes_is_bounded(running, server):
    """In all connections of a proxy together; then they end, and it is reported."""
    given = running(f"127.0.0.1:{server.port}", bytes_max=100_000)
    answer = given.ask(
        f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n\r\n".encode(), TLS, b"x" * 99_000
    )

    assert len(answer) < 200_000
    assert "100000 bytes are all" in given.reported[0]


def test_more_connections_wait_for_their_turn(running, server, monkeypatch):
    """And are served when one of those before has ended."""
    monkeypatch.setattr(proxy, "CONNECTIONS_MAX", 2)
    given = running(f"127.0.0.1:{server.port}")
    held = [socket.create_connection(given.listener.getsockname()) for _ in range(2)]
    asked = threading.Thread(target=given.ask, args=(b"x\r\n\r\n",))
    asked.start()
    asked.join(0.3)

    assert asked.is_alive()
    held[0].close()
    asked.join(WAIT_S)
    assert not asked.is_alive()
    held[1].close()


def test_it_ends_with_its_process_and_every_connection(box, server):
    """What was confined reaches it by the one address that it is given; nobody is left behind."""
    program = f"""
import os, socket, urllib.request
at = os.environ["https_proxy"]
one = socket.create_connection(("127.0.0.1", int(at.rpartition(":")[2])))
one.sendall(b"CONNECT 127.0.0.1:{server.port} HTTP/1.1\\r\\n\\r\\n")
assert one.recv(100).startswith(b"HTTP/1.1 200 "), "no tunnel"
one.sendall(b"hello")
assert one.recv(100) == b"hello"
print(os.environ["NO_PROXY"], flush=True)
if os.fork() == 0:
    os.setsid()
    one.recv(1)
"""
    done = box.python(program, network="proxy", allow_hosts=(f"127.0.0.1:{server.port}",))

    assert (done.returncode, done.stdout) == (0, "localhost,::1\n"), done.stderr
    assert server.ended.wait(WAIT_S)


def test_nothing_else_is_reached(box, server):
    """Not this machine, by any family; no name is looked up by the program itself."""
    program = f"""
import socket
def attempt(what):
    try:
        what()
    except OSError as error:
        return type(error).__name__
print(
    attempt(lambda: socket.create_connection(("127.0.0.1", {server.port}), 2)),
    attempt(lambda: socket.create_connection(("93.184.216.34", 443), 2)),
    attempt(lambda: socket.getaddrinfo("example.org", 443)),
    attempt(lambda: socket.socket(socket.AF_UNIX)),
    attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)),
)
"""
    done = box.python(program, network="proxy", allow_hosts=("example.org",))
    refused = ["ConnectionRefusedError", "OSError", "gaierror"]

    assert done.stdout.split() == [*refused, "PermissionError", "PermissionError"], done.stderr
    assert server.taken == 0


def test_who_reads_its_errors_knows_what_was_refused(box):
    """Also where a program shows nothing of the answer."""
    program = """
import urllib.request
try:
    urllib.request.urlopen("https://example.org/", timeout=10)
except OSError as error:
    print(error)
"""
    done = box.python(program, network="proxy", allow_hosts=("pypi.org",))

    assert "403" in done.stdout
    assert done.stderr.startswith("cmdc network: example.org:443 is not in the list of allowed")
