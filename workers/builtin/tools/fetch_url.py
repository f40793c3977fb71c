"""``fetch_url``: one page of a host that the application has named, as text.

It is asked for by the agent's own process, so a session whose commands have no network may have it;
where it goes is decided as for the proxy of a sandbox (``cmdc_runtime.confinement.hosts``), anew at
each redirect: a name is looked up once, its addresses are checked, and one of these is dialled. No
cookie, key or proxy of the environment goes along.
"""

import asyncio
import ipaddress
import re
import socket
import zlib
from collections.abc import Sequence
from typing import Annotated, Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec import Meta
from yarl import URL

from cmdc_runtime.confinement.hosts import Address, Destination, HostRules, destination_of, rules_of
from cmdc_runtime.extensions import Tool, ToolError, tool
from cmdc_runtime.tools import FETCH_BYTES, FETCH_TIMEOUT_S
from workers.builtin.tools._pages import text_of
from workers.builtin.tools._session import META_CHARS_MAX, TIMEOUT_MARGIN_S, within
from workers.builtin.wires.http import tls_context

REDIRECTS_MAX: Final = 5
ADDRESSES_MAX: Final = 16
"""Of one name; the name of more is refused, since each is checked."""
RESULT_CHARS: Final = 50 * 1024
"""Of the text that the model gets at once."""
HEADER_BYTES_MAX: Final = 16 * 1024
URL_CHARS_MAX: Final = 8000
HOSTS_NAMED_MAX: Final = 40
"""That the model reads of."""

_URL: Final = re.compile(r"(https?)://([^/?#]*)([/?][^#]*)?(?:#.*)?", re.IGNORECASE)
_PORTS: Final = {"http": 80, "https": 443}
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_ASKED: Final = {
    "accept": "text/html, text/plain, application/json, text/*;q=0.9, */*;q=0.1",
    "accept-encoding": "gzip",
    "user-agent": "cmdc-runtime fetch_url",
}
_GZIP: Final = 16 + zlib.MAX_WBITS
_GZIP_MAGIC: Final = b"\x1f\x8b"
_CHUNK_BYTES: Final = 64 * 1024

Url = Annotated[str, Meta(min_length=1, max_length=URL_CHARS_MAX)]
Offset = Annotated[int, Meta(ge=0)]


def create(
    allow: Sequence[str], timeout: float = FETCH_TIMEOUT_S, max_bytes: int = FETCH_BYTES
) -> Tool:
    """Return the tool; see ``cmdc_runtime.tools.FetchUrl``."""
    rules = rules_of(allow)

    async def fetch_url(url: Url, offset: Offset = 0) -> str:
        """Fetch a page.

        Args:
            url: The address, with `https://` or `http://` in front.
            offset: The character to begin at, to go on with a text that was cut.
        """
        page = _Fetch(rules, max_bytes).page(url)
        text = await within(timeout, page, f"Cannot fetch {url}: not done within {timeout:g} s")
        return _part(text, offset)

    bound_s = timeout + TIMEOUT_MARGIN_S
    about = _described(allow)
    return tool(effects="read", description=about, meta=_meta, timeout=bound_s)(fetch_url)


def _described(allow: Sequence[str]) -> str:
    named = ", ".join(allow[:HOSTS_NAMED_MAX])
    more = f" and {len(allow) - HOSTS_NAMED_MAX} more" if len(allow) > HOSTS_NAMED_MAX else ""
    return (
        "Fetch a page or a text file by http or https and return its text, HTML without markup;"
        f" a long one comes in parts. Hosts that can be reached: {named}{more}."
    )


def _meta(args: dict[str, Any]) -> str:
    return f"Fetch {args.get('url')}"[:META_CHARS_MAX]


def _part(text: str, offset: int) -> str:
    part = text[offset : offset + RESULT_CHARS]
    if not part:
        return "(nothing is there)" if not text else f"(the text has {len(text)} characters)"
    left = len(text) - offset - len(part)
    return f"{part}\n[{left} characters more: offset={offset + len(part)}]" if left else part


class _Fetch:
    """One call: a request, and those that it is redirected to."""

    def __init__(self, rules: HostRules, bytes_max: int) -> None:
        """Go where the rules allow."""
        self._rules = rules
        self._bytes_max = bytes_max

    async def page(self, url: str) -> str:
        """Return the text of a page.

        Raises:
            ToolError: it can't be had.
        """
        at = url
        for _ in range(REDIRECTS_MAX + 1):
            found = await self._asked(at)
            if not isinstance(found, URL):
                return found
            if at.lower().startswith("https:") and found.scheme != "https":
                raise ToolError(f"Cannot fetch {at}: it leads to {found}, which is not encrypted")
            at = str(found)
        raise ToolError(f"Cannot fetch {url}: it leads elsewhere more than {REDIRECTS_MAX} times")

    async def _asked(self, url: str) -> str | URL:
        """Return the text at a URL, or where it leads to."""
        scheme, destination, path = _taken_apart(url)
        try:
            addresses = await self._addresses(destination)
        except ValueError as error:
            raise ToolError(f"Cannot fetch {url}: {error}") from error
        connector = aiohttp.TCPConnector(
            resolver=_Known(addresses), use_dns_cache=False, limit=1, force_close=True
        )
        address = URL(f"{scheme}://{destination}{path}")
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    auto_decompress=False,
                    trust_env=False,
                    max_line_size=HEADER_BYTES_MAX,
                    max_field_size=HEADER_BYTES_MAX,
                ) as session,
                session.get(
                    address,
                    headers=_ASKED,
                    allow_redirects=False,
                    ssl=tls_context() if scheme == "https" else True,
                ) as response,
            ):
                return await self._heard(response, address)
        except (aiohttp.ClientError, OSError, zlib.error, UnicodeError, ValueError) as error:
            raise ToolError(f"Cannot fetch {url}: {str(error) or type(error).__name__}") from error

    async def _addresses(self, destination: Destination) -> Sequence[Address]:
        """Return the checked addresses of a host; it is looked up here and nowhere else.

        Raises:
            ValueError: it is not allowed, has none, or one that nobody goes to.
        """
        if why := self._rules.refusal(destination):
            raise ValueError(why)
        host = destination.host
        found = [host] if not isinstance(host, str) else await _resolved(host, destination.port)
        if len(found) > ADDRESSES_MAX:
            raise ValueError(f"{host} has more than {ADDRESSES_MAX} addresses")
        for address in found:
            if why := self._rules.address_refusal(address):
                raise ValueError(f"{host} is allowed, but {why}")
        return found

    async def _heard(self, response: aiohttp.ClientResponse, address: URL) -> str | URL:
        where = response.headers.get("location")
        if response.status in _REDIRECTS and where is not None:
            return address.join(URL(where))
        body = await self._body(response)
        kind, charset = response.content_type, response.charset or ""
        text = await asyncio.to_thread(text_of, body, kind, charset)
        if response.status != 200:  # noqa: PLR2004 - what is not this is no page
            said = f": {text[:RESULT_CHARS]}" if text else ""
            raise ToolError(f"Cannot fetch {address}: status {response.status}{said}")
        if text is None:
            raise ToolError(f"Cannot fetch {address}: {kind} is no text ({len(body)} bytes)")
        return text

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        """Return the body, unpacked; one that is larger than it may be is not read to its end."""
        packed = response.headers.get("content-encoding", "identity").strip().lower()
        if packed not in {"gzip", "x-gzip", "identity"}:
            raise ToolError(f"Cannot fetch {response.url}: it is packed by {packed[:50]!r}")
        unpacker = _Gunzip() if packed != "identity" else None
        body = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            room = self._bytes_max + 1 - len(body)
            body += chunk[:room] if unpacker is None else unpacker.unpacked(chunk, room)
            if len(body) > self._bytes_max:
                raise ToolError(
                    f"Cannot fetch {response.url}: it has more than {self._bytes_max} bytes"
                )
        if unpacker is not None and unpacker.is_cut:
            raise ToolError(f"Cannot fetch {response.url}: it was cut: its gzip has no end")
        return bytes(body)


class _Gunzip:
    """Unpacks gzip that comes in parts, member after member; what is behind them is nothing."""

    def __init__(self) -> None:
        """Have unpacked nothing."""
        self._member: Any = None  # Any: zlib names no type
        self._is_over = False

    @property
    def is_cut(self) -> bool:
        """Whether more has to come."""
        return self._member is not None and not self._member.eof

    def unpacked(self, part: bytes, room: int) -> bytes:
        """Return what a part has, at most ``room`` bytes; with as many the rest is given up.

        Raises:
            zlib.error: it is no gzip.
        """
        found = bytearray()
        while part and len(found) < room and not self._is_over:
            member = self._member
            if member is None or member.eof:
                if member is not None and not _GZIP_MAGIC.startswith(part[: len(_GZIP_MAGIC)]):
                    self._is_over = True
                    break
                member = self._member = zlib.decompressobj(_GZIP)
            found += member.decompress(part, room - len(found))
            part = member.unused_data
        return bytes(found)


def _taken_apart(url: str) -> tuple[str, Destination, str]:
    """Return the scheme, host with port, and path of a URL.

    Raises:
        ToolError: it is none, or one that can be read in two ways.
    """
    found = _URL.fullmatch(url)
    if found is None or not url.isprintable() or " " in url or "\\" in url:
        raise ToolError(f"Cannot fetch {url}: it is no http or https URL")
    scheme, path = found[1].lower(), found[3] or "/"
    try:
        destination = destination_of(found[2], _PORTS[scheme])
    except ValueError as error:
        raise ToolError(f"Cannot fetch {url}: {error}") from error
    return scheme, destination, path if path[0] == "/" else f"/{path}"


async def _resolved(host: str, port: int) -> list[Address]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ValueError(f"{host} has no address: {error}") from error
    texts = dict.fromkeys(str(one[4][0]).partition("%")[0] for one in found)
    return [ipaddress.ip_address(text) for text in texts]


class _Known(AbstractResolver):
    """Answers with addresses that were looked up before."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses = addresses

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,  # noqa: ARG002 - the contract's
    ) -> list[ResolveResult]:
        """Return them, whoever is asked for."""
        return [
            ResolveResult(
                hostname=host,
                host=str(one),
                port=port,
                family=socket.AF_INET if one.version == 4 else socket.AF_INET6,  # noqa: PLR2004
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for one in self._addresses
        ]

    async def close(self) -> None:
        """Keep nothing."""
