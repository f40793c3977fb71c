"""MCP servers whose tools a session has: what an application declares, and its checks.

A server is declared in the options of a session. Its process belongs to the session's agent: it is
started at the first request, and ends with the agent, unless it is shared. To add a field, add it
with its problem.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from cmdc_runtime.checked_struct import Checked, Moment
from cmdc_runtime.plain import short, text_problem
from cmdc_runtime.redaction import printed, printed_fields

SERVERS_MAX: Final = 64
"""Of one session; each is a process of its own."""
ALLOWED_MAX: Final = 512
"""Names in ``allow``: a session has no more tools."""
ARGUMENTS_MAX: Final = 256
"""Parts of a command."""
VARIABLES_MAX: Final = 256
TEXT_CHARS_MAX: Final = 100_000
"""Of one part of a command or one variable; the kernel takes 128 KiB."""
USER_CHARS_MAX: Final = 256
"""Of the name that a login is under."""
SERVER_TIMEOUT_S: Final = 30.0
"""To be ready, by default: npx may download the server first."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
_ADDRESS: Final = re.compile(r"https?://[^\s/@]+(/[^\s]*)?")
_SAFE_ADDRESS: Final = re.compile(r"https://|http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?(/|$)")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e]{0,8192}")
_VARIABLE: Final = re.compile(r"(?!CMDC_)[A-Za-z_][A-Za-z0-9_]{0,127}")


class McpServer(msgspec.Struct, frozen=True, metaclass=Checked):
    """A server of the Model Context Protocol, whose tools the session's model may call.

    Either ``command`` starts a program that speaks the protocol on stdin and stdout, in the
    session's working directory and sandbox, with the environment of tools and ``env``; or ``url``
    is where a server speaks it by HTTP, which every request asks with ``headers``. Its tool
    ``read`` is called ``mcp__<name>__read``.
    """

    __repr__ = printed
    __rich_repr__ = printed_fields

    name: str
    """1 to 32 of ``A-Z a-z 0-9 _ -``, unique in a session."""
    command: list[str] = []
    url: str | None = None
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    timeout: float = SERVER_TIMEOUT_S
    """Seconds for it to be ready, its tools listed: a request waits no longer for it."""
    allow: list[str] | None = None
    """The tools that the model may have, by the server's own names; None: all of them."""
    network: bool = False
    """Its program needs the network: it has it also where the session's sandbox gives tools
    none."""
    oauth: str | None = None
    """Whose login the url is asked with: the name that ``cmdc mcp login`` has made it under, which
    is "default" where it was given none. None: no login, but what ``headers`` say."""
    share: Literal["session", "daemon"] = "session"
    """"session": its program runs once for each session. "daemon": once for all sessions of the
    daemon that declare the same command, env and working directory. That is for a server that keeps
    nothing of one call for the next, and for a sandbox that confines nothing."""


class _Typed(msgspec.Struct, frozen=True):
    """The types of the fields, as msgspec checks them."""

    name: str
    command: Annotated[list[str], Meta(max_length=ARGUMENTS_MAX)]
    url: str | None
    env: Annotated[dict[str, str], Meta(max_length=VARIABLES_MAX)]
    headers: Annotated[dict[str, str], Meta(max_length=VARIABLES_MAX)]
    timeout: Moment
    allow: Annotated[list[str], Meta(max_length=ALLOWED_MAX)] | None
    oauth: Annotated[str, Meta(min_length=1, max_length=USER_CHARS_MAX)] | None
    network: bool
    share: Literal["session", "daemon"]


def server_problems(server: McpServer) -> Iterator[str]:
    """Yield what is wrong with a declaration, each with the place in it."""
    given: dict[str, Any] = {  # Any: whatever the application wrote
        name: getattr(server, name) for name in McpServer.__struct_fields__
    }
    for field in msgspec.structs.fields(_Typed):
        try:
            msgspec.convert(given[field.name], field.type)
        except (msgspec.ValidationError, RecursionError) as error:
            is_secret = field.name in {"env", "headers"}
            value = "" if is_secret else f", got {short(given[field.name])}"
            yield f".{field.name}: {error}{value}"
            return
    if not _NAME.fullmatch(server.name):
        yield f".name: expected 1 to 32 of A-Z a-z 0-9 _ -, got {short(server.name)}"
    if server.url is None:
        yield from _program_problems(server)
    else:
        yield from _address_problems(server, server.url)


def unshared(sandbox: str) -> str:
    """Return why a server is not shared where this sandbox confines what runs in it."""
    return (
        f'share="daemon": the sandbox {sandbox} confines its program to what is this session\'s;'
        " leave share out, take a sandbox that does not confine, or declare a server at a url"
    )


def _program_problems(server: McpServer) -> Iterator[str]:
    if not server.command:
        yield ': expected a command, as ["npx", "-y", "a-server"], or a url'
    if server.headers:
        yield ".headers: a program has none; they are for a url"
    if server.oauth is not None:
        yield ".oauth: a program logs in by itself; it is for a url"
    for at, part in enumerate(server.command):
        if (problem := _text_problem(part)) is not None:
            yield f".command[{at}]: {problem}"
    for name, value in server.env.items():
        if not _VARIABLE.fullmatch(name):
            yield f".env: {short(name)} is no name of a variable for it"
        elif (problem := _text_problem(value)) is not None:
            yield f".env[{name!r}]: {problem}"


def _address_problems(server: McpServer, url: str) -> Iterator[str]:
    if server.command or server.env:
        yield ": a server has a url, or a command with its env, and not both"
    if server.network:
        yield ".network: it is for a command; a url is asked by the session itself"
    if server.share != "session":
        yield ".share: it is for a command; any number of sessions ask the server at a url"
    if not _ADDRESS.fullmatch(url):
        yield ".url: expected http:// or https:// with a host, without blanks"
    if server.oauth is not None:
        yield from _login_problems(server, url)
    for name, value in server.headers.items():
        if not _HEADER.fullmatch(name):
            yield f".headers: {short(name)} is no name of a header"
        elif not _HEADER_VALUE.fullmatch(value):
            yield f".headers[{name!r}]: it has characters that no header can have"


def _login_problems(server: McpServer, url: str) -> Iterator[str]:
    if not _SAFE_ADDRESS.match(url):
        yield ".oauth: tokens are shown to https:// alone, or to this machine itself"
    if any(name.lower() == "authorization" for name in server.headers):
        yield ".oauth: headers have an authorization already"


def servers_of(value: object) -> list[McpServer]:
    """Return the servers of a list.

    Raises:
        TypeError: it is none; each argument is a problem with its place, after the option's name.
    """
    if not isinstance(value, list | tuple):
        raise TypeError(f": expected a list of cmdc.McpServer, got {short(value)}")
    if len(value) > SERVERS_MAX:
        raise TypeError(f": expected at most {SERVERS_MAX} servers, got {len(value)}")
    problems: list[str] = []
    places: dict[str, int] = {}
    for at, one in enumerate(value):
        if not isinstance(one, McpServer):
            problems.append(f"[{at}]: expected a cmdc.McpServer, got {short(one)}")
            continue
        wrong = [f"[{at}]{problem}" for problem in server_problems(one)]
        problems += wrong
        if not wrong and places.setdefault(one.name, at) != at:
            problems.append(f"[{at}].name: {one.name!r} is taken by [{places[one.name]}]")
    if problems:
        raise TypeError(*problems)
    return list(value)


def _text_problem(text: str) -> str | None:
    if "\0" in text:
        return "it has a NUL, which no program can be given"
    return text_problem(text, chars_max=TEXT_CHARS_MAX)
