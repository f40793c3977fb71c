"""``cmdc mcp``: log in at MCP servers, for sessions whose ``McpServer`` names the login.

The person's browser goes to the authorization server and comes back to an address of this machine,
where this process listens for as long as it takes. The login is kept in the daemon's state, so who
runs this is the daemon's user. No token is shown.
"""

import asyncio
import os
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

import click

from cmdc_runtime.cli.terminal import Terminal
from cmdc_runtime.errors import UsageError
from cmdc_runtime.mcp_logins import LoginFile
from cmdc_runtime.mcp_servers import McpServer, server_problems
from cmdc_runtime.plain import short
from cmdc_runtime.runtime_dir import default_state_dir

if TYPE_CHECKING:
    from mcp.shared.auth import AuthorizationCodeResult

PERSON_S: Final = 600.0
"""For a person to log in."""
REQUEST_BYTES_MAX: Final = 32 * 1024
"""Of what a browser comes back with."""
REQUEST_S: Final = 10.0
_PATH: Final = "/callback"
_PAGE: Final = b"<!doctype html><title>cmdc</title><p>%s You can close this window."


@click.group()
def mcp() -> None:
    """Log in at MCP servers, whose tools sessions have then."""


def _named(command: Callable[..., Any]) -> Callable[..., Any]:  # Any: of click's decorators
    user = click.option(
        "--user", default="default", help="The name of the login: McpServer(oauth=NAME)."
    )
    state = click.option(
        "--state-dir", metavar="DIR", help="The daemon's state.  [default: as the daemon's]"
    )
    return click.argument("url")(user(state(command)))


@mcp.command()
@_named
@click.option("--client-id", metavar="ID", help="Instead of registering at the server.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="To come back to; 0: any.")
@click.option("--no-browser", is_flag=True, help="Only print the address to go to.")
def login(**given: Any) -> None:  # Any: as click reads them
    """Log in at the server at URL, by a browser."""
    file = _file(given)
    try:
        from cmdc_runtime import mcp_oauth  # noqa: PLC0415 - a second, and an extra
    except ModuleNotFoundError as error:
        raise UsageError("the package mcp is not installed: pip install 'cmdc-runtime[mcp]'") from (
            error
        )
    terminal = Terminal()
    person = _Person(terminal, opens_browser=not given["no_browser"])

    async def work() -> bool:
        async with await asyncio.start_server(
            person.come_back, "127.0.0.1", given["port"], limit=REQUEST_BYTES_MAX
        ) as server:
            port = server.sockets[0].getsockname()[1]
            address = f"http://127.0.0.1:{port}{_PATH}"
            login = mcp_oauth.LoggingIn(file, address, person.ask, given["client_id"])
            return await mcp_oauth.log_in(login)

    try:
        was_wanted = asyncio.run(work())
    except mcp_oauth.LoginFailed as error:
        raise click.ClickException(f"nobody is logged in: {error}") from error
    if was_wanted:
        terminal.line(f"logged in at {file.url} as {file.user}")
    else:
        terminal.line(f"{file.url} wants no login")


@mcp.command()
@_named
def logout(**given: Any) -> None:  # Any: as click reads them
    """Forget the login at the server at URL; the server is not asked."""
    file = _file(given)
    if not file.remove():
        raise UsageError(f"there is no login of {file.user!r} at {file.url}")
    Terminal().line(f"forgotten: {file.user} at {file.url}")


def _file(given: dict[str, Any]) -> LoginFile:  # Any: as click reads them
    url, user = given["url"], given["user"]
    problems = [*server_problems(McpServer("server", url=url, oauth=user))]
    if problems:
        raise click.UsageError(f"{short(url)}: {problems[0].lstrip('.: ')}")
    chosen = given["state_dir"]
    state = Path(chosen) if chosen else default_state_dir(os.environ, home=Path.home())
    return LoginFile(state, url, user)


class _Person:
    """Who logs in, by a browser of theirs."""

    def __init__(self, terminal: Terminal, *, opens_browser: bool) -> None:
        self._terminal = terminal
        self._opens_browser = opens_browser
        self._answer: asyncio.Future[AuthorizationCodeResult] | None = None

    async def ask(self, url: str) -> "AuthorizationCodeResult":
        """Send the person to an address, and return what they come back with."""
        from cmdc_runtime.mcp_oauth import LoginFailed  # noqa: PLC0415 - loaded by then

        self._answer = asyncio.get_running_loop().create_future()
        self._terminal.line(f"log in at {url}")
        if self._opens_browser:
            await asyncio.to_thread(webbrowser.open, url)
        try:
            async with asyncio.timeout(PERSON_S):
                return await self._answer
        except TimeoutError:
            raise LoginFailed(f"nobody came back within {PERSON_S:g} s") from None

    async def come_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a browser, which may be anybody's: the SDK compares the state that it brings."""
        try:
            async with asyncio.timeout(REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                words = self._take(head.split(b"\r\n", 1)[0].decode(errors="replace"))
                status = b"200 OK" if words == _LOGGED_IN else b"400 Bad Request"
                page = _PAGE % words
                writer.write(
                    b"HTTP/1.1 %s\r\ncontent-type: text/html\r\ncontent-length: %d\r\n"
                    b"connection: close\r\n\r\n%s" % (status, len(page), page)
                )
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    def _take(self, line: str) -> bytes:
        from cmdc_runtime.mcp_oauth import LoginFailed, came_back  # noqa: PLC0415 - loaded by then

        target = urlsplit([*line.split(" "), "", ""][1])
        if target.path != _PATH or self._answer is None or self._answer.done():
            return b"There is nothing here."
        fields = {name: values[0] for name, values in parse_qs(target.query).items()}
        if "code" not in fields:
            why = fields.get("error_description") or fields.get("error") or "it gave no code"
            self._answer.set_exception(
                LoginFailed(f"the authorization server refuses: {short(why)}")
            )
            return b"The login was refused."
        self._answer.set_result(came_back(fields))
        return _LOGGED_IN


_LOGGED_IN: Final = b"You are back."
