"""What a program asks of the proxy: one request, read strictly, and what is answered. Pure.

See RFC 9110 and 9112. A request is for a tunnel (``CONNECT host:port``), or for a page by plain
http (``GET http://host/path``). There is one on a connection: its body is as long as it says, and
nothing behind it goes anywhere. What anybody could read in two ways is refused.
"""

import re
from dataclasses import dataclass
from typing import Final

from cmdc_runtime.confinement.hosts import Destination, HostRules, destination_of

HEAD_BYTES_MAX: Final = 16 * 1024
HEADERS_MAX: Final = 100
END: Final = b"\r\n\r\n"

_LINE: Final = re.compile(rb"([A-Z]{1,20}) ([\x21-\x7e\x80-\xff]{1,8000}) HTTP/1\.[01]")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}):[ \t]*([\x20-\x7e\t\x80-\xff]*)")
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
_URL: Final = re.compile(r"http://([^/?#]*)([/?][^#]*)?(?:#.*)?", re.IGNORECASE)
_ABOUT_THIS_HOP: Final = frozenset(
    b"connection proxy-connection keep-alive proxy-authorization proxy-authenticate te trailer"
    b" upgrade host content-length".split()
)
_HANDSHAKE: Final = b"\x16\x03"
_RELAYED: Final = b"CONNECT "


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request that can be read; whether it is carried out is another question."""

    destination: Destination
    is_tunnel: bool
    head: bytes = b""
    """What goes to the host of a page in place of what was said here."""
    body_bytes: int = 0
    """That follow it."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A request that is not carried out, by its status of HTTP, and why."""

    status: int
    why: str

    @property
    def answer(self) -> bytes:
        """What the program gets; the reason is in the body, for people and models."""
        reason = {400: "Bad Request", 403: "Forbidden", 431: "Too Large", 501: "Not Implemented"}
        body = f"{self.why}\n".encode()
        head = (
            f"HTTP/1.1 {self.status} {reason.get(self.status, 'Bad Gateway')}\r\n"
            f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        return head.encode() + body


ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"


def request_of(head: bytes) -> Wanted | Rejection:
    """Return what the head of a request asks for; ``head`` ends with an empty line."""
    first, *lines = head.removesuffix(END).split(b"\r\n")
    matched = _LINE.fullmatch(first)
    if matched is None:
        return Rejection(
            400, "the first line is none of HTTP/1.1: CONNECT host:port, or a whole URL"
        )
    headers = [_HEADER.fullmatch(line) for line in lines]
    if None in headers or len(headers) > HEADERS_MAX:
        return Rejection(400, f"a header is none, or there are more than {HEADERS_MAX}")
    fields = [(found[1], found[2].strip()) for found in headers if found is not None]
    try:
        target = matched[2].decode("utf-8")
        if matched[1] == b"CONNECT":
            return Wanted(destination_of(target), is_tunnel=True)
        return _page(matched[1], target, fields)
    except ValueError as error:  # UnicodeDecodeError among them
        return Rejection(400, f"the destination can't be read: {error}")


def _page(method: bytes, target: str, fields: list[tuple[bytes, bytes]]) -> Wanted | Rejection:
    url = _URL.fullmatch(target)
    if url is None:
        return Rejection(400, "the target is no http URL; what is not plain http goes by CONNECT")
    destination = destination_of(url[1], 80)
    names = [name.lower() for name, _ in fields]
    if b"transfer-encoding" in names:
        return Rejection(
            501, "a body by plain http has to say how long it is: no Transfer-Encoding"
        )
    lengths = [text for name, text in fields if name.lower() == b"content-length"]
    if len(lengths) > 1 or not all(_LENGTH.fullmatch(text) for text in lengths):
        return Rejection(400, "Content-Length is no number, or there are several")
    path = url[2] or "/"
    head = [b"%s %s HTTP/1.1" % (method, (path if path[0] == "/" else f"/{path}").encode())]
    host = str(destination).removesuffix(":80")
    head += [f"Host: {host}".encode(), b"Connection: close"]
    head += [b"Content-Length: " + text for text in lengths]
    head += [b": ".join(field) for field in fields if field[0].lower() not in _ABOUT_THIS_HOP]
    length = int(lengths[0]) if lengths else 0
    return Wanted(destination, is_tunnel=False, head=b"\r\n".join(head) + END, body_bytes=length)


def refusal_of(wanted: Wanted, rules: HostRules) -> Rejection | None:
    """Return why a request is not carried out, by where it goes to; None: it may be."""
    why = rules.refusal(wanted.destination)
    if why is None and not isinstance(wanted.destination.host, str):
        why = rules.address_refusal(wanted.destination.host)
    return None if why is None else Rejection(403, why)


def is_undecided(first: bytes, *, any_protocol: bool) -> bool:
    """Say whether ``tunnel_refusal`` needs to see more of what a tunnel begins with."""
    known = _RELAYED if any_protocol else _HANDSHAKE
    return len(first) < len(known) and known.startswith(first.upper())


def tunnel_refusal(first: bytes, *, any_protocol: bool) -> str | None:
    """Return why a tunnel ends that begins with these bytes; None: it goes on.

    A tunnel carries TLS, so that nobody asks the host to pass it on to another one; where it may
    carry anything, that is refused at least.
    """
    if not any_protocol and not first.startswith(_HANDSHAKE):
        return "it does not begin with TLS; a port that the list names may carry anything"
    if first[: len(_RELAYED)].upper() == _RELAYED:
        return "it asks the host to connect it to another one"
    return None
