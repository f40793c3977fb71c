"""One HTTP request with a reply that streams in: connections, proxies, TLS, bounds, failures.

What comes out of ``answer_to`` is the plain bytes of a success. All else is raised: a refusal as
``AnsweredError``, an address without a server as ``NoServerError``, a connection that breaks as
``ConnectionError``, silence as ``TimeoutError``.

Proxies are those of the environment (``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY``, ``NO_PROXY``),
in upper or lower case; the lower case counts where there are both. Certificates are trusted that
the system trusts, and those of certifi; ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` stand in for both.

Of redirects those are followed that leave a request what it is (307 and 308), to the same server.
Of any other clients make a GET without a body, and a key that went to another server would be known
there. So all else is a refusal, in the words of ``redirect_problem``.
"""

import asyncio
import base64
import contextlib
import functools
import os
import ssl
import urllib.request
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final
from urllib.parse import SplitResult, unquote, urljoin, urlsplit
from weakref import WeakKeyDictionary

import aiohttp
import certifi
import msgspec

from cmdc_runtime.extensions.provider import FailureKind, ProviderError
from workers.builtin.providers._facts import BadAddressError, address_problem, shown_address
from workers.builtin.providers._failures import (
    ERROR_BYTES_MAX,
    Heard,
    NoServerError,
    words_of,
)
from workers.builtin.providers._metering import (
    ENCODING,
    GZIP,
    absence,
    check_kind,
    is_packed,
    pieces,
)

# --- redirects ------------------------------------------------------------------------------------

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


def redirect_problem(address: str, status: int, location: str | None) -> str | None:
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


# --- requests -------------------------------------------------------------------------------------

CONNECT_TIMEOUT_S: Final = 30.0
"""For the connection, TLS included; the ``timeout`` option counts where it is less."""
KEEP_S: Final = 30.0
"""How long a connection waits for the next request; servers close theirs after a minute or so."""
READ_BYTES: Final = 64 * 2**10
"""Of the buffer of a connection: a server that is faster than its reader waits."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request: ``silence_s`` is the longest silence, None leaves that to others."""

    address: str
    headers: Mapping[str, str]
    body: bytes
    silence_s: float | None = None


class AnsweredError(Exception):
    """A server has refused a request; the text is its words."""

    def __init__(self, words: str, status: int, headers: Mapping[str, str]) -> None:
        """Keep what is known; ``headers`` are those of the answer, by names in lower case."""
        super().__init__(words)
        self.status_code = status
        self.response_headers = headers


# --- the names of refusals ------------------------------------------------------------------------

_NAMES: Final[Mapping[int, str]] = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    408: "Timeout",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
    503: "ServiceUnavailableError",
}
_OF_SERVER: Final = "InternalServerError"
_OF_OTHERS: Final = "APIError"


@functools.cache
def _named(name: str) -> type[AnsweredError]:
    return type(name, (AnsweredError,), {})


def refusal(status: int, words: str, headers: Mapping[str, str]) -> AnsweredError:
    """Return the error of a status, under the name that vendors' libraries have for it."""
    is_server = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    name = _NAMES.get(status, _OF_SERVER if is_server else _OF_OTHERS)
    return _named(name)(words, status, headers)


# --- connections ----------------------------------------------------------------------------------

CERT_FILE: Final = "SSL_CERT_FILE"
CERT_DIR: Final = "SSL_CERT_DIR"

_SESSIONS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession]] = (
    WeakKeyDictionary()
)


def _session() -> aiohttp.ClientSession:
    """Return the session of the running loop; its connections are kept between requests."""
    loop = asyncio.get_running_loop()
    session = _SESSIONS.get(loop)
    if session is None or session.closed:
        session = _SESSIONS[loop] = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=READ_BYTES,
        )
    return session


async def close() -> None:
    """Close the connections of the running loop; the next request makes new ones."""
    session = _SESSIONS.pop(asyncio.get_running_loop(), None)
    if session is not None:
        await session.close()


def tls_context() -> ssl.SSLContext:
    """Return what certificates are checked by.

    Raises:
        ProviderError: the variables name nothing that holds certificates.
    """
    file, folder = os.environ.get(CERT_FILE) or None, os.environ.get(CERT_DIR) or None
    try:
        return _tls(file, folder)
    except OSError as error:  # of a file alone: a folder is looked into when a server is asked
        why = f"nothing was sent: {CERT_FILE} in the environment, {file!r}: {error.strerror}"
        raise ProviderError(FailureKind.PERMANENT, why) from error


@functools.lru_cache(4)
def _tls(file: str | None, folder: str | None) -> ssl.SSLContext:
    if file or folder:
        return ssl.create_default_context(cafile=file, capath=folder)
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


def proxy_of(address: str) -> str | None:
    """Return the proxy that the environment has for an address, None where it has none.

    Raises:
        BadAddressError: it is none that can be asked.
    """
    parts = urlsplit(address)
    proxies = urllib.request.getproxies_environment()
    proxy = proxies.get(parts.scheme.lower()) or proxies.get("all")
    if not proxy or _is_excepted(parts, proxies):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if (problem := address_problem(proxy)) is not None:
        raise BadAddressError(f"the proxy of the environment: {problem}")
    return proxy


def _is_excepted(parts: SplitResult, proxies: dict[str, str]) -> bool:
    """Say whether ``NO_PROXY`` names a server; an IPv6 address may stand there without brackets."""
    if "*" in (one.strip() for one in proxies.get("no", "").split(",")):
        return True
    hosts = (parts.netloc.rpartition("@")[2], parts.hostname or "")
    return any(urllib.request.proxy_bypass(one, proxies) for one in hosts)


# --- one request ----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def answer_to(call: Call, heard: Heard) -> AsyncGenerator[AsyncIterator[bytes], None]:
    """Send a request and yield the pieces of its answer; leaving early ends it at the server.

    ``heard`` notes that a server is asked, and what it says where it refuses.

    Raises:
        AnsweredError: the server has refused.
        BadAddressError: no request can be sent to the address.
        ConnectionError: the connection broke.
        NoServerError: there is nobody at the address.
        RefusedAnswerError: the answer is a web page, too much, or can't be unpacked.
        TimeoutError: nothing came for ``call.silence_s``, or no connection in time.
    """
    if (problem := address_problem(call.address)) is not None:
        raise BadAddressError(problem)
    with _failures(call):
        response = await _asked(call, heard)
    try:
        if response.status // 100 != HTTPStatus.OK // 100:
            with _failures(call):
                raise await _refused(response, heard)
        check_kind(response.content_type, call.address)
        async with contextlib.aclosing(_pieces_of(response, call)) as pieces:
            yield pieces
    finally:
        # A connection whose answer was not read to its end can't be used again.
        response.close()


async def _asked(call: Call, heard: Heard) -> aiohttp.ClientResponse:
    """Send a request, and send it again where its server says that it belongs elsewhere there."""
    for _ in range(FOLLOWED_MAX):
        response = await _ask(call, heard)
        goal = goal_of(call.address, response.status, response.headers.get("location"))
        if goal is None:
            return response
        response.close()
        call = replace(call, address=goal)
    return await _ask(call, heard)


async def _ask(call: Call, heard: Heard) -> aiohttp.ClientResponse:
    silence_s = call.silence_s
    connect_s = CONNECT_TIMEOUT_S if silence_s is None else min(silence_s, CONNECT_TIMEOUT_S)
    address, headers = _without_user(call.address, {**call.headers, "accept-encoding": ENCODING})
    proxy = proxy_of(address)
    timeout = aiohttp.ClientTimeout(
        total=None, connect=None, sock_connect=connect_s, sock_read=silence_s
    )
    heard.ask()
    return await _session().post(
        address,
        data=call.body,
        headers=headers,
        proxy=proxy,
        ssl=tls_context() if address.lower().startswith("https:") else True,
        timeout=timeout,
        allow_redirects=False,  # it would make another request of some
    )


def _without_user(address: str, headers: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return an address whose user, if it has one, is a header of the request."""
    parts = urlsplit(address)
    if "@" not in parts.netloc:
        return address, headers
    user = unquote(f"{parts.username or ''}:{parts.password or ''}").encode()
    kept = {name: one for name, one in headers.items() if name.lower() != "authorization"}
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return bare, {**kept, "authorization": f"Basic {base64.b64encode(user).decode()}"}


async def _pieces_of(response: aiohttp.ClientResponse, call: Call) -> AsyncGenerator[bytes, None]:
    with _failures(call):
        async for piece in _unpacked(response):
            yield piece


async def _unpacked(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    packed = is_packed(response.headers.get("content-encoding", ""))
    unpacker = zlib.decompressobj(GZIP) if packed else None
    async for raw in response.content.iter_any():
        for piece in pieces(raw, unpacker):
            yield piece
            if packed:  # few bytes may be many: they are no reason to stand still
                await asyncio.sleep(0)


async def _refused(response: aiohttp.ClientResponse, heard: Heard) -> AnsweredError:
    """Return what a refusal says; only the beginning of its body is read."""
    heard.refuse(response.status)
    body = bytearray()
    async with contextlib.aclosing(_unpacked(response)) as unpacked:
        async for piece in unpacked:
            body += piece[: ERROR_BYTES_MAX - len(body)]
            if len(body) >= ERROR_BYTES_MAX:
                break
    heard.note(bytes(body))
    location = response.headers.get("location")
    redirected = redirect_problem(str(response.url), response.status, location)
    words = redirected or _said(bytes(body)) or _wordless(response)
    return refusal(response.status, words, _lowered(response.headers))


def _wordless(response: aiohttp.ClientResponse) -> str:
    return f"status {response.status} and not a word from {shown_address(str(response.url))}"


def _lowered(headers: Mapping[str, str] | None) -> dict[str, str]:
    return {name.lower(): value for name, value in (headers or {}).items()}


def _said(body: bytes) -> str:
    try:
        answer: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        answer = None
    return words_of(answer) or body.decode(errors="replace")


@contextlib.contextmanager
def _failures(call: Call) -> Iterator[None]:
    """Turn what the client raises into what ``answer_to`` raises."""
    try:
        yield
    except aiohttp.ClientHttpProxyError as error:
        problem = f"the proxy says: {error.message or f'status {error.status}'}"
        raise refusal(error.status, problem, _lowered(error.headers)) from error
    except aiohttp.InvalidURL as error:
        raise BadAddressError(f"{shown_address(call.address)!r}: it can't be read") from error
    except aiohttp.ClientConnectorError as error:
        why = _why(error)
        if why is None:
            raise ConnectionError(_words(error)) from error
        host = f"[{error.host}]" if ":" in error.host else error.host
        scheme = urlsplit(call.address).scheme
        where = f"no server at {scheme}://{host}:{error.port}"
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            where = f"no proxy at {host}:{error.port}, which the environment names"
        raise NoServerError(f"{where}: {why}") from error
    except TimeoutError as error:
        raise TimeoutError(_late(call)) from error
    except (aiohttp.ClientError, OSError) as error:
        raise ConnectionError(_words(error)) from error


def _why(error: aiohttp.ClientConnectorError) -> str | None:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return f"it does not speak TLS; is its address http://? {error.os_error}"
    return absence(error)


def _words(error: Exception) -> str:
    return str(error) or "the connection broke"


def _late(call: Call) -> str:
    if call.silence_s is None:
        return f"no connection for {CONNECT_TIMEOUT_S:g} s"
    return f"nothing came for {call.silence_s} s, the timeout option"
