"""An internet of a test's own, in namespaces: names, addresses that are public, hosts that listen.

``python -m tests.internet KIND FOLDER`` plays the attempts of ``[hosts]`` there in one sandbox, and
prints which have escaped, as JSON; with the kind "fetch", what ``fetch_url`` says of each URL. A
host that is allowed is one that relays whatever it is asked for; every other one says a secret.
What is looked up and dialled goes through the kernel and the C library as ever, since resolv.conf
is one of the namespace's own.
"""

import asyncio
import contextlib
import ctypes
import fcntl
import ipaddress
import json
import os
import socket
import struct
import sys
import threading
from collections import Counter
from pathlib import Path

from cmdc_runtime.confinement import namespaces
from cmdc_runtime.extensions import ToolError
from tests.escaping import played_hosts
from workers.builtin.sandboxes import bubblewrap, landlock, local
from workers.builtin.tools import fetch_url

SECRET = b"4711"
ALLOWED = ["allowed.test", "*.allowed.test", "paypal.test"]
PUBLIC, EVIL, EVIL_SIX = "93.184.216.34", "93.184.216.35", "2606:4700::35"
METADATA, PRIVATE = "169.254.169.254", "10.0.0.5"
RESOLVER = "127.0.0.53"
WELCOME = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 7\r\n\r\nwelcome"
PORT = 8471
"""Where this machine listens, to itself."""
MS_BIND = 4096

# fmt: off
NAMES = {
    # name                      its addresses, an answer after the other
    "allowed.test":             [[PUBLIC]],
    "a.allowed.test":           [[PUBLIC]],
    "paypal.test":              [[PUBLIC]],
    "evil.test":                [[EVIL, EVIL_SIX]],
    "xn--llowed-3we.test":      [[EVIL]],
    "xn--pypal-4ve.test":       [[EVIL]],
    "local.allowed.test":       [["127.0.0.1"]],
    "zero.allowed.test":        [["0.0.0.0"]],
    "metadata.allowed.test":    [[METADATA]],
    "private.allowed.test":     [[PRIVATE]],
    "six.allowed.test":         [["::1"]],
    "mapped.allowed.test":      [["::ffff:127.0.0.1"]],
    "mixed.allowed.test":       [["93.184.216.36", "127.0.0.1"]],
    "rebind.allowed.test":      [[PUBLIC], ["127.0.0.1"]],
}
# fmt: on
FETCHED = (
    *("http://allowed.test/", "http://a.allowed.test/", "http://evil.test/", "http://localhost/"),
    *(f"http://{name}.allowed.test/" for name in ("local", "zero", "metadata", "private", "six")),
    *(f"http://{name}.allowed.test/" for name in ("mapped", "mixed", "rebind", "absent")),
    *(
        f"http://{host}/"
        for host in (EVIL, METADATA, PRIVATE, "127.0.0.1", "[::1]", f"[{EVIL_SIX}]")
    ),
    *("http://xn--pypal-4ve.test/", "http://p\u0430ypal.test/", "http://allowed.test:22/"),
    "http://allowed.test@evil.test/",
    *("http://allowed.test/to?http://evil.test/", "http://allowed.test/to?//evil.test/"),
    "http://allowed.test/to?http://local.allowed.test/",
    "http://allowed.test/to?http://allowed.test/to?http://169.254.169.254/",
    "http://rebind.allowed.test/#again",
)
"""By ``fetch_url``, in this order."""


def enter():
    """Give this process an empty network, and names of its own; it must have one thread."""
    namespaces.enter(has_network=False)
    addresses = [PUBLIC, EVIL, METADATA, PRIVATE]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as four:
        for number, address in enumerate(addresses):
            name = f"lo:{number}".encode()
            request = struct.pack("16sHH4s8x", name, socket.AF_INET, 0, socket.inet_aton(address))
            fcntl.ioctl(four, 0x8916, request)  # SIOCSIFADDR
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as six:
        packed = ipaddress.ip_address(EVIL_SIX).packed
        fcntl.ioctl(six, 0x8916, struct.pack("=16sIi", packed, 128, socket.if_nametoindex("lo")))


def name_hosts(folder):
    """Have the C library ask the resolver of ``serve_names``."""
    texts = {
        "resolv.conf": f"nameserver {RESOLVER}\noptions timeout:2 attempts:2\n",
        "hosts": "127.0.0.1 localhost\n::1 localhost\n",
        "nsswitch.conf": "hosts: files dns\n",
    }
    for name, text in texts.items():
        Path(folder, name).write_text(text)
        there = os.path.realpath(f"/etc/{name}")
        if ctypes.CDLL(None).mount(
            f"{folder}/{name}".encode(), there.encode(), None, MS_BIND, None
        ):
            raise OSError(f"{there} can't be mounted over")


def serve_names():
    """Answer questions for the addresses of names."""
    resolver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    resolver.bind((RESOLVER, 53))
    asked = Counter()

    def answer():
        while True:
            question, client = resolver.recvfrom(4096)
            resolver.sendto(_answered(question, asked), client)

    threading.Thread(target=answer, daemon=True).start()


def _answered(question, asked):
    at, labels = 12, []
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode("ascii", "replace"))
        at += 1 + question[at]
    name, kind = ".".join(labels).lower(), struct.unpack(">H", question[at + 1 : at + 3])[0]
    answers = NAMES.get(name, [[]])
    asked[name, kind] += 1
    found = [ipaddress.ip_address(one) for one in answers[min(asked[name, kind], len(answers)) - 1]]
    packed = [one.packed for one in found if (kind, one.version) in {(1, 4), (28, 6)}]
    head = question[:2] + struct.pack(
        ">HHHHH", 0x8180 if name in NAMES else 0x8183, 1, len(packed), 0, 0
    )
    rows = [struct.pack(">HHHIH", 0xC00C, kind, 1, 0, len(one)) + one for one in packed]
    return head + question[12 : at + 5] + b"".join(rows)


def serve_hosts():
    """Listen at every address: secrets, and one host that relays what it is asked for."""
    for address in (EVIL, METADATA, PRIVATE, EVIL_SIX):
        for port in (80, 443, 22):
            with contextlib.suppress(OSError):  # there is no IPv6 here
                _listen(address, port, _send_secret)
    for address in ("127.0.0.1", "::1"):
        for port in (80, 443, PORT):
            with contextlib.suppress(OSError):
                _listen(address, port, _send_secret)
    _listen(PUBLIC, 22, _send_secret)
    for port in (80, 443):
        _listen(PUBLIC, port, _relay)


def _listen(address, port, serve):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, port), family=family)

    def take():
        while True:
            one, _ = listener.accept()
            threading.Thread(target=_served, args=(serve, one), daemon=True).start()

    threading.Thread(target=take, daemon=True).start()


def _served(serve, one):
    with one, contextlib.suppress(OSError):
        one.settimeout(5)
        serve(one)


def _send_secret(one):
    body = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n" + SECRET + b"\n"
    one.sendall(body)
    with contextlib.suppress(OSError):
        one.recv(4096)


def _relay(one):
    """Answer as a proxy that anybody may use does, for every request that comes."""
    while chunk := one.recv(65536):
        asked = chunk.partition(b" HTTP/")[0]
        if asked.startswith(b"GET /to?"):
            goal = asked.removeprefix(b"GET /to?")
            one.sendall(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: %s\r\n\r\n" % goal)
            continue
        for asked in (b"evil.test", EVIL.encode()):
            if asked in chunk:
                _send_secret(one)
                return
        one.sendall(WELCOME)


def fetched(url):
    """Return what ``fetch_url`` says of a page."""
    tool = fetch_url.create(ALLOWED, timeout=10.0)
    try:
        return asyncio.run(tool.execute(tool.check({"url": url}), None))
    except ToolError as error:
        return f"refused: {error}"


def main():
    """Play the attempts in one sandbox; see the module."""
    kind, folder = sys.argv[1:]
    enter()
    name_hosts(folder)
    serve_names()
    serve_hosts()
    if kind == "fetch":
        sys.stdout.write(json.dumps({url: fetched(url) for url in FETCHED}))
        return
    create = {"local": local, "landlock": landlock, "bubblewrap": bubblewrap}[kind].create
    sandbox = create() if kind == "local" else create(network="proxy", allow_hosts=ALLOWED)
    sys.stdout.write(json.dumps(sorted(played_hosts(sandbox, Path(folder, "work")))))


if __name__ == "__main__":
    main()
