"""Which hosts may be reached: what an allow-list means, and what an address is. Pure.

An entry of the list is a name (``pypi.org``), the names below one (``*.example.org``), an address
or a network (``10.1.2.3``, ``10.0.0.0/8``), or ``*``, all names; each with a port behind it
(``:8443``), or else 443 and 80. Two questions are asked of each destination: ``refusal``, of what
it is called, before anything is looked up; and ``address_refusal``, of every address that it has.
An address that is not one of the public internet is refused unless the list names it, or a network
that it is in: a name that is allowed leads nobody to this machine or to its neighbours.

Names are compared in the form that DNS has (A-labels), addresses as numbers; what only some
programs read as an address (``127.1``, ``0x7f.1``, ``2130706433``, a zone) is no host.
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

PORTS: Final = frozenset({443, 80})
"""Of an entry that names none."""
NAME_CHARS_MAX: Final = 253
HOST_CHARS_MAX: Final = 300
"""Of an entry."""
ENTRIES_MAX: Final = 256
"""Of one list."""

_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"(?:0[xX][0-9a-fA-F]*|[0-9]+)")
"""A name whose last part is one is read as an address by many, each in a way of its own."""
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_PORT_MAX: Final = 65535

# fmt: off
NOT_PUBLIC: Final[dict[str, str]] = {
    # network            what it is
    "0.0.0.0/8":         "this machine",
    "10.0.0.0/8":        "a private network",
    "100.64.0.0/10":     "a provider's own network",
    "127.0.0.0/8":       "this machine",
    "169.254.0.0/16":    "link-local",
    "172.16.0.0/12":     "a private network",
    "192.0.0.0/24":      "kept for protocols",
    "192.0.2.0/24":      "kept for documents",
    "192.88.99.0/24":    "a relay",
    "192.168.0.0/16":    "a private network",
    "198.18.0.0/15":     "kept for measurements",
    "198.51.100.0/24":   "kept for documents",
    "203.0.113.0/24":    "kept for documents",
    "224.0.0.0/4":       "multicast",
    "240.0.0.0/4":       "kept, or broadcast",
    "::/128":            "this machine",
    "::1/128":           "this machine",
    "100::/64":          "nowhere",
    "2001::/23":         "a tunnel, or kept for protocols",
    "2001:db8::/32":     "kept for documents",
    "3fff::/20":         "kept for documents",
    "5f00::/16":         "kept for routing",
    "64:ff9b:1::/48":    "a translation into a private network",
    "fc00::/7":          "a private network",
    "fe80::/10":         "link-local",
    "fec0::/10":         "a private network",
    "ff00::/8":          "multicast",
}
"""IANA's registries of special addresses. What holds another address is looked at as that one."""

_HOLDS: Final[dict[str, int]] = {
    # network            bits behind the address of version 4 in it
    "64:ff9b::/96":      0,
    "2002::/16":         80,
}
# fmt: on
_GLOBAL: Final = ipaddress.ip_network("2000::/3")
_SPECIAL: Final = tuple((ipaddress.ip_network(net), why) for net, why in NOT_PUBLIC.items())
_HOLDERS: Final = tuple((ipaddress.IPv6Network(net), shift) for net, shift in _HOLDS.items())


@dataclass(frozen=True, slots=True)
class Destination:
    """A host, by its name in A-labels and small letters or by its address, and a port."""

    host: str | Address
    port: int

    def __str__(self) -> str:
        """As it is written before a path."""
        is_six = isinstance(self.host, ipaddress.IPv6Address)
        return f"[{self.host}]:{self.port}" if is_six else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class HostRule:
    """One entry of an allow-list."""

    text: str
    name: str = ""
    """A name; with a dot in front those below it; "*" all."""
    network: Network | None = None
    port: int | None = None

    def takes(self, destination: Destination) -> bool:
        """Say whether the entry names a destination."""
        host, port = destination.host, destination.port
        if port != self.port if self.port is not None else port not in PORTS:
            return False
        if not isinstance(host, str):
            return (self.network is not None and host in self.network) or self.name == "*"
        if self.name.startswith("."):
            return host.endswith(self.name) and host != self.name
        return self.name in {"*", host}


@dataclass(frozen=True, slots=True)
class HostRules:
    """An allow-list."""

    rules: tuple[HostRule, ...]

    def refusal(self, destination: Destination) -> str | None:
        """Return why nobody goes there, and what would let them; None: they may."""
        if any(rule.takes(destination) for rule in self.rules):
            return None
        host, port = destination.host, destination.port
        there = any(rule.takes(Destination(host, other)) for rule in self.rules for other in PORTS)
        entry = str(destination) if there or port not in PORTS else str(host)
        return f'{destination} is not in the list of allowed hosts; "{entry}" there would allow it'

    def address_refusal(self, address: Address) -> str | None:
        """Return why nobody goes to an address that a name has, or that was given; None: they may.

        The port is for ``refusal`` to say.
        """
        found = plain(address)
        networks = (rule.network for rule in self.rules)
        if any(network is not None and found in network for network in networks):
            return None
        kind = kind_of(found)
        if kind is None:
            return None
        return f'{found} is {kind}, and no name leads there; "{found}" as an allowed host would'

    def names(self, host: str | Address) -> bool:
        """Say whether an entry is about this host in particular, on whatever port."""
        if isinstance(host, str):
            return any(rule.name == host for rule in self.rules)
        return any(rule.network is not None and host in rule.network for rule in self.rules)

    def any_protocol(self, destination: Destination) -> bool:
        """Say whether more than TLS may be spoken to a port: an entry names it, and it is not 443.

        What a tunnel carries then is the application's to answer for.
        """
        port = destination.port
        named = (rule for rule in self.rules if rule.port == port)
        return port not in PORTS and any(rule.takes(destination) for rule in named)


def rules_of(entries: Iterable[str]) -> HostRules:
    """Return what a list means.

    Raises:
        ValueError: an entry is none, or there are too many; it is named.
    """
    given = tuple(entries)
    if len(given) > ENTRIES_MAX:
        raise ValueError(f"there may be {ENTRIES_MAX} allowed hosts, got {len(given)}")
    return HostRules(tuple(_rule(entry) for entry in given))


def destination_of(authority: str, port: int | None = None) -> Destination:
    """Return where ``host:port`` is, as a request has it; ``port`` counts where there is none.

    Raises:
        ValueError: it is no host that everybody reads alike, or has no port.
    """
    host, found = _split(authority)
    number = port if found is None else found
    if number is None:
        raise ValueError(f"{authority!r} has no port")
    address = _address(host, is_bracketed=authority.startswith("["))
    return Destination(_name(host) if address is None else plain(address), number)


def kind_of(address: Address) -> str | None:
    """Return what an address is that is not of the public internet; None: it is."""
    found = plain(address)
    for network, kind in _SPECIAL:
        if found in network:
            return kind
    held = _held(found)
    if held is not None:
        return kind_of(held)
    is_global = isinstance(found, ipaddress.IPv4Address) or found in _GLOBAL
    return None if is_global else "not of the public internet"


def plain(address: Address) -> Address:
    """Return an address of version 4 that was written as one of version 6 as what it is."""
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or address
    return address


def _held(address: Address) -> ipaddress.IPv4Address | None:
    for network, shift in _HOLDERS:
        if address in network:
            return ipaddress.IPv4Address(int(address) >> shift & 0xFFFFFFFF)
    return None


def _rule(entry: str) -> HostRule:
    if entry == "*":
        return HostRule(entry, name="*")
    try:
        network = _network(entry)
        if network is not None:
            return HostRule(entry, network=network)
        host, port = _split(entry)
        network = _network(host) or _host_network(host, is_bracketed=entry.startswith("["))
        if network is not None:
            return HostRule(entry, network=network, port=port)
        if host == "*":
            return HostRule(entry, name="*", port=port)
        below = host.startswith("*.")
        name = _name(host.removeprefix("*."))
    except ValueError as error:
        example = '"pypi.org", "*.example.org", "example.org:8443", "10.0.0.0/8" are some'
        raise ValueError(f"{entry!r} is no host to allow: {error}; {example}") from error
    return HostRule(entry, name=f".{name}" if below else name, port=port)


def _network(text: str) -> Network | None:
    """Return a network, or an address of version 6 without brackets; None: it is neither."""
    is_network = "/" in text and not re.search(r":\d+\Z", text.rpartition("/")[2])
    if not is_network and (text.startswith("[") or text.count(":") < 2):  # noqa: PLR2004 - host:port
        return None
    network = ipaddress.ip_network(text.strip("[]"))
    return _plain_network(network)


def _host_network(host: str, *, is_bracketed: bool) -> Network | None:
    address = _address(host, is_bracketed=is_bracketed)
    return None if address is None else ipaddress.ip_network(plain(address))


def _plain_network(network: Network) -> Network:
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen == network.max_prefixlen:
        return ipaddress.ip_network(plain(network.network_address))
    return network


def _split(authority: str) -> tuple[str, int | None]:
    """Return host, without brackets, and port."""
    if not authority.isprintable() or any(char.isspace() or char in "@\\%" for char in authority):
        raise ValueError(f"{authority[:NAME_CHARS_MAX]!r} has characters that no host has")
    if authority.startswith("["):
        host, closed, rest = authority[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise ValueError(f"{authority!r} has brackets that are none")
        text = rest[1:] if rest else None
    else:
        host, colon, after = authority.partition(":")
        text = after if colon else None
    if text is None:
        return host, None
    if not _PORT.fullmatch(text) or int(text) > _PORT_MAX:
        raise ValueError(f"{text[:10]!r} is no port from 1 to {_PORT_MAX}")
    return host, int(text)


def _address(host: str, *, is_bracketed: bool) -> Address | None:
    """Return an address in the one form that everybody reads alike; None: it is a name."""
    if is_bracketed:
        return ipaddress.IPv6Address(host)
    if not _NUMBER.fullmatch(_ascii(host).removesuffix(".").rpartition(".")[2]):
        return None
    return ipaddress.IPv4Address(host)


def _name(host: str) -> str:
    """Return a name in A-labels and small letters, without the dot of the root."""
    name = _ascii(host).removesuffix(".")
    if not name or len(name) > NAME_CHARS_MAX:
        raise ValueError(
            f"a name has 1 to {NAME_CHARS_MAX} characters, {host[:80]!r} has {len(name)}"
        )
    for label in name.split("."):
        if not _LABEL.fullmatch(label):
            raise ValueError(f"{label[:80]!r} is no part of a name")
    if _NUMBER.fullmatch(name.rpartition(".")[2]):
        raise ValueError(f"{host[:80]!r} looks like an address, and is none")
    return name


def _ascii(host: str) -> str:
    if host.isascii():
        return host.lower()
    try:
        return host.encode("idna").decode("ascii").lower()
    except UnicodeError as error:
        raise ValueError(f"{host[:80]!r} is no international name: {error}") from error
