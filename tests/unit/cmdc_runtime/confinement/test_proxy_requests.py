"""What a request to the proxy says, and what is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.confinement.hosts import Destination, rules_of
from cmdc_runtime.confinement.proxy_requests import (
    END,
    HEADERS_MAX,
    Rejection,
    Wanted,
    is_undecided,
    refusal_of,
    request_of,
    tunnel_refusal,
)


def head(first, *headers):
    """Return a head, with its empty line."""
    lines = [one if isinstance(one, bytes) else one.encode() for one in (first, *headers)]
    return b"\r\n".join(lines) + END


# fmt: off
NO_REQUESTS = {
    "nothing":                 (b"", 400),
    "another protocol":        (b"\x16\x03\x01\x02\x00" + END, 400),
    "SOCKS":                   (b"\x05\x01\x00" + END, 400),
    "a page of its own":       (head("GET / HTTP/1.1", "Host: a.org"), 400),
    "everything":              (head("OPTIONS * HTTP/1.1"), 400),
    "https as a page":         (head("GET https://a.org/ HTTP/1.1"), 400),
    "a file":                  (head("GET file:///etc/passwd HTTP/1.1"), 400),
    "HTTP/2":                  (head("PRI * HTTP/2.0"), 400),
    "HTTP/0.9":                (head("GET http://a.org/"), 400),
    "small letters":           (head("connect a.org:443 HTTP/1.1"), 400),
    "two blanks":              (head("CONNECT  a.org:443 HTTP/1.1"), 400),
    "a tab":                   (head("CONNECT\ta.org:443 HTTP/1.1"), 400),
    "more behind it":          (head("CONNECT a.org:443 HTTP/1.1 x"), 400),
    "a bare line feed":        (head("CONNECT a.org:443 HTTP/1.1\nX: y"), 400),
    "a bare return":           (head("CONNECT a.org:443 HTTP/1.1\rX: y"), 400),
    "a NUL in the host":       (head(b"CONNECT a.org\0.evil.org:443 HTTP/1.1"), 400),
    "a NUL in a header":       (head("CONNECT a.org:443 HTTP/1.1", b"X: a\0b"), 400),
    "no UTF-8":                (head(b"CONNECT a\xff.org:443 HTTP/1.1"), 400),
    "no port":                 (head("CONNECT a.org HTTP/1.1"), 400),
    "a URL in a tunnel":       (head("CONNECT http://a.org:443 HTTP/1.1"), 400),
    "a path in a tunnel":      (head("CONNECT a.org:443/x HTTP/1.1"), 400),
    "a name of a user":        (head("GET http://b.org@a.org/ HTTP/1.1"), 400),
    "a backslash":             (head("GET http://a.org\\@b.org/ HTTP/1.1"), 400),
    "a folded header":         (head("GET http://a.org/ HTTP/1.1", "X: a", " b"), 400),
    "a header with a blank":   (head("GET http://a.org/ HTTP/1.1", "Content-Length : 3"), 400),
    "a header without a name": (head("GET http://a.org/ HTTP/1.1", ": x"), 400),
    "many headers":            (head("GET http://a.org/ HTTP/1.1", *["X: y"] * 101), 400),
    "two lengths":             (head("PUT http://a.org/ HTTP/1.1",
                                     *["Content-Length: 3"] * 2), 400),
    "a length that is none":   (head("PUT http://a.org/ HTTP/1.1", "Content-Length: +3"), 400),
    "a list of lengths":       (head("PUT http://a.org/ HTTP/1.1", "Content-Length: 3, 3"), 400),
    "a chunked body":          (head("PUT http://a.org/ HTTP/1.1",
                                     "Transfer-Encoding: chunked"), 501),
    "a body in two ways":      (head("PUT http://a.org/ HTTP/1.1", "Content-Length: 3",
                                     "transfer-encoding: chunked"), 501),
}
TUNNELS = {
    # what it begins with                          TLS alone   any protocol
    b"\x16\x03\x01\x02\x00\x01":                   (True,       True),
    b"\x16\x02":                                   (False,      True),
    b"CONNECT evil.org:443 HTTP/1.1\r\n":          (False,      False),
    b"connect evil.org:443 HTTP/1.1\r\n":          (False,      False),
    b"CONNECT\tevil.org:443":                      (False,      True),
    b"GET http://evil.org/ HTTP/1.1\r\n":          (False,      True),
    b"SSH-2.0-OpenSSH_9.2\r\n":                    (False,      True),
}
# fmt: on


@pytest.mark.parametrize("what", NO_REQUESTS)
def test_what_is_no_request_is_refused(what):
    """With a status, and a reason that can be read."""
    given_head, status = NO_REQUESTS[what]
    found = request_of(given_head)

    assert isinstance(found, Rejection)
    assert found.status == status
    assert found.answer.startswith(b"HTTP/1.1 %d " % status)
    assert found.answer.endswith(found.why.encode() + b"\n")


def test_a_tunnel_is_asked_for():
    """Its headers say nothing."""
    found = request_of(head("CONNECT A.org:443 HTTP/1.1", "Host: b.org:22", "Proxy-Connection: x"))

    assert found == Wanted(Destination("a.org", 443), is_tunnel=True)


def test_a_page_is_asked_for_at_its_host():
    """As a server wants it: the host is that of the URL, and what is about the proxy stays here."""
    found = request_of(
        head(
            "POST HTTP://A.org:8080?q=1#top HTTP/1.0",
            "Host: evil.org",
            "host: evil.org",
            "Proxy-Authorization: Basic eDp5",
            "Connection: keep-alive, X-Secret",
            "Content-Length: 3",
            "Accept: */*",
        )
    )

    assert found.destination == Destination("a.org", 8080)
    assert (found.is_tunnel, found.body_bytes) == (False, 3)
    assert found.head.split(b"\r\n") == [
        *(b"POST /?q=1 HTTP/1.1", b"Host: a.org:8080", b"Connection: close", b"Content-Length: 3"),
        *(b"Accept: */*", b"", b""),
    ]


def test_port_80_is_that_of_a_page():
    """And stands nowhere."""
    found = request_of(head("GET http://[2606:4700::1]/x HTTP/1.1"))

    assert found.destination.port == 80
    assert found.head.startswith(b"GET /x HTTP/1.1\r\nHost: [2606:4700::1]\r\n")


def test_as_many_headers_as_there_may_be():
    """One more is refused, see above."""
    assert isinstance(
        request_of(head("GET http://a.org/ HTTP/1.1", *["X: y"] * HEADERS_MAX)), Wanted
    )


@given(st.binary(max_size=200))
def test_nothing_else_is_ever_raised(body):
    """Whatever a program sends as its head."""
    for given_head in (
        body,
        b"CONNECT " + body + b" HTTP/1.1",
        b"GET http://" + body + b" HTTP/1.1",
    ):
        assert isinstance(request_of(given_head + END), Wanted | Rejection)


def test_a_host_is_refused_before_it_is_looked_up():
    """By its name, or by its address where that is what was asked for."""
    rules = rules_of(["a.org", "*", "10.0.0.0/8"])
    for target, is_allowed in {
        "a.org:443": True,
        "8.8.8.8:443": True,
        "10.1.1.1:443": True,
        "a.org:22": False,
        "127.0.0.1:443": False,
        "[::ffff:169.254.169.254]:80": False,
        "[64:ff9b::7f00:1]:80": False,
    }.items():
        found = refusal_of(request_of(head(f"CONNECT {target} HTTP/1.1")), rules)

        assert (found is None) == is_allowed, target
        assert found is None or found.status == 403


@pytest.mark.parametrize("first", TUNNELS, ids=ascii)
def test_what_a_tunnel_may_begin_with(first):
    """TLS; what the host would pass on to another one never."""
    for any_protocol, is_allowed in zip((False, True), TUNNELS[first], strict=True):
        assert not is_undecided(first[:9], any_protocol=any_protocol)
        assert (tunnel_refusal(first, any_protocol=any_protocol) is None) == is_allowed


@pytest.mark.parametrize("any_protocol", [False, True])
def test_a_tunnel_is_decided_by_all_that_matters(any_protocol):
    """However it is cut; nothing goes on before."""
    for first, (tls, other) in TUNNELS.items():
        is_allowed = other if any_protocol else tls
        seen = next(n for n in range(20) if not is_undecided(first[:n], any_protocol=any_protocol))

        assert (tunnel_refusal(first[:seen], any_protocol=any_protocol) is None) == is_allowed
