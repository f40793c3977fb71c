"""Where a request may go: one rule for the address of a model, wherever it was given.

``address_problem`` is asked for the options before anything is sent, and by the transport for each
request, so that an address from the environment has the same rule. What is said of an address never
has the user or the query of it, which may be credentials.
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

ADDRESS_CHARS_MAX: Final = 2_048
"""Of an address; servers take no longer ones."""
SHOWN_CHARS_MAX: Final = 200
"""Of an address in the text of a problem."""
OPTIONS: Final = ("api_base", "base_url")
"""The options that are addresses."""
SCHEMES: Final = frozenset({"http", "https"})

_USER: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)?.*@", re.DOTALL)
"""All before the last @: a password may have the signs that end a host."""
_QUERY: Final = re.compile(r"[?#].*", re.DOTALL)
_HOST: Final = re.compile(r"[^\x00-\x20\x7f/?#@<>\"^`{|}\\]+")


class BadAddressError(Exception):
    """No request can be sent to an address; the text shows it without credentials and says why."""


def check_addresses(options: Mapping[str, object]) -> None:
    """Check the addresses among the options of a request; one that is not given has no problem.

    Raises:
        BadAddressError: no request can be sent there.
    """
    for name in OPTIONS:
        given = options.get(name)
        if given is not None:
            problem = address_problem(given)
            if problem is not None:
                raise BadAddressError(f"{name}: {problem}")


def address_problem(address: object) -> str | None:
    """Return why no request can be sent to ``address``, or None where one can."""
    if not isinstance(address, str):
        return f"expected a str, got {type(address).__name__}"
    if len(address) > ADDRESS_CHARS_MAX:
        return f"it has {len(address):,} characters, at most {ADDRESS_CHARS_MAX:,} are taken"
    try:
        why = _problem(urlsplit(address))
    except ValueError:  # of a port or of the brackets of an IPv6 address
        why = "its host or port cannot be read; a port is a number from 1 to 65535"
    return None if why is None else f"{shown_address(address)!r}: {why}"


def shown_address(address: str) -> str:
    """Return an address as it may be shown: without its user, its query, and cut."""
    bare = _USER.sub(r"\1", address[:ADDRESS_CHARS_MAX])
    return _QUERY.sub("", bare)[:SHOWN_CHARS_MAX]


def _problem(parts: SplitResult) -> str | None:
    if parts.scheme.lower() not in SCHEMES:
        return "its scheme is neither http nor https"
    if not parts.hostname or _HOST.fullmatch(parts.hostname) is None:
        return "it names no host"
    if parts.port == 0:
        return "port 0 is none to connect to; a port is a number from 1 to 65535"
    return None
