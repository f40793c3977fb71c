"""Which redirects are followed, and what is said of the others."""

import pytest

from workers.builtin.wires.http import goal_of, redirect_problem

AT = "http://host:81/v1/chat"
FOLLOWED = {
    "address": (AT, "http://host:81/v2?a=1", "http://host:81/v2?a=1"),
    "path": (AT, "/v2", "http://host:81/v2"),
    "name": (AT, "other", "http://host:81/v1/other"),
    "no scheme": (AT, "//host:81/v2", "http://host:81/v2"),
    "default port": ("http://host/v1", "http://host:80/v2", "http://host:80/v2"),
    "default port of TLS": ("https://host:443/v1", "https://host/v2", "https://host/v2"),
    "case": ("HTTP://Host/v1", "http://hOST/v2", "http://hOST/v2"),
    "TLS": ("http://host/v1", "https://host/v1", "https://host/v1"),
    "TLS with ports": ("http://host:80/v1", "https://host:443/v1", "https://host:443/v1"),
    "user": ("http://a:b@host/v1", "http://host/v2", "http://a:b@host/v2"),
    "user and path": ("http://a:b@host/v1", "/v2", "http://a:b@host/v2"),
    "other user": ("http://a:b@host/v1", "http://c@host/v2", "http://a:b@host/v2"),
    "a user of the server's": (AT, "http://c@host:81/v2", "http://host:81/v2"),
    "IPv6": ("http://[::1]:81/v1", "/v2", "http://[::1]:81/v2"),
}
REFUSED = {
    "other host": (AT, "http://elsewhere:81/v1/chat"),
    "part of the host": ("http://host.org/v1", "http://host.org.evil/v1"),
    "host below": ("http://host.org/v1", "http://a.host.org/v1"),
    "other port": (AT, "http://host:82/v1/chat"),
    "no more TLS": ("https://host/v1", "http://host/v1"),
    "TLS at another port": ("http://host/v1", "https://host:444/v1"),
    "TLS from another port": (AT, "https://host/v1"),
    "TLS of another host": ("http://host/v1", "https://other/v1"),
    "other scheme": (AT, "ftp://host:81/v1"),
    "no address": (AT, "http://[host"),
    "no port": (AT, "http://host:x/v1"),
    "a host in the user": ("http://host/v1", "http://host@other/v1"),
    "nothing": (AT, ""),
    "none": (AT, None),
}


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("case", FOLLOWED)
def test_a_redirect_on_a_server_is_followed(case, status):
    """With the user that was given, and no other."""
    address, location, goal = FOLLOWED[case]

    assert goal_of(address, status, location) == goal


@pytest.mark.parametrize("case", REFUSED)
def test_a_redirect_elsewhere_is_not_followed(case):
    """A key would be known there."""
    address, location = REFUSED[case]

    assert goal_of(address, 307, location) is None


@pytest.mark.parametrize("status", [200, 201, 300, 301, 302, 303, 304, 305, 306, 309, 400])
def test_a_redirect_to_another_request_is_not_followed(status):
    """Nor an answer that only says where something is."""
    assert goal_of(AT, status, "/v2") is None


@pytest.mark.parametrize(
    ("location", "goal"),
    [
        ("/v2", "http://host:81/v2"),
        ("http://a:b@other/x?key=k#y", "http://other/x"),
        ("http://[host", "http://[host"),
    ],
)
def test_where_a_redirect_leads_is_reported(location, goal):
    """Without what may be a credential."""
    words = f"it is redirected to {goal!r}, which is not followed; give api_base as it is there"

    assert [redirect_problem(AT, status, location) for status in (300, 302, 307, 399)] == [
        words
    ] * 4


@pytest.mark.parametrize(("status", "location"), [(302, None), (302, ""), (201, "/x"), (400, "/x")])
def test_any_other_answer_is_no_redirect(status, location):
    """It has words of its own."""
    assert redirect_problem(AT, status, location) is None
