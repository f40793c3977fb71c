"""Which redirects are followed: those that leave a request what it is, to the same server.

Of any other redirect than 307 and 308 clients make a GET without a body, and a key that went to
another server would be known there. So all else is a refusal, in the words of ``told``.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from workers.builtin.providers._addresses import address_problem, shown_address

FOLLOWED_MAX: Final = 5
"""Of one request; servers need one or two, and more are a circle."""
_KEEPING: Final = frozenset({HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT})
_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}


def goal_of(address: str, status: int, location: str | None) -> str | None:
    """Return where a request to ``address`` is sent again; None where it is not.

    The user in an address stays the one that was given.
    """
    if status not in _KEEPING or not location:
        return None
    goal = _joined(address, location)
    if address_problem(goal) is not None:
        return None
    old, new = urlsplit(address), urlsplit(goal)
    if not _is_same_server(old, new):
        return None
    user, at, _ = old.netloc.rpartition("@")
    return new._replace(netloc=f"{user}{at}{new.netloc.rpartition('@')[2]}").geturl()


def told(address: str, status: int, location: str | None) -> str | None:
    """Return what is said of a redirect that is not followed; None of an answer that is none."""
    if not location or status // 100 != HTTPStatus.MULTIPLE_CHOICES // 100:
        return None
    goal = shown_address(_joined(address, location))
    return f"it is redirected to {goal!r}, which is not followed; give api_base as it is there"


def _joined(address: str, location: str) -> str:
    try:
        return urljoin(address, location)
    except ValueError:  # of brackets that are no IPv6 address
        return location


def _is_same_server(old: SplitResult, new: SplitResult) -> bool:
    """Say whether both are one server: the same port of a host, or the same host by TLS."""
    was, goes = _server_of(old), _server_of(new)
    is_upgrade = was == ("http", old.hostname, 80) and goes == ("https", old.hostname, 443)
    return goes == was or is_upgrade


def _server_of(parts: SplitResult) -> tuple[str, str | None, int]:
    scheme = parts.scheme.lower()
    return scheme, parts.hostname, parts.port or _PORTS[scheme]
