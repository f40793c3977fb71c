"""Logins at MCP servers by the official SDK's OAuth client: made by a person, renewed by sessions.

``log_in`` is for a person: the SDK finds the authorization server, registers, and sends the person
there by ``AskPerson``. ``Renewing`` is for a session: it shows what is kept, renews it where it has
expired, and ends with ``LoginNeeded`` where that takes a person. Only ``cmdc mcp`` and an agent
that has servers load this module, since the SDK takes a second.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, BinaryIO, Final

import httpx2
import pydantic
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)

from cmdc_runtime.mcp_logins import Login, LoginFile

EARLY_S: Final = 30.0
"""Before its end a token is renewed: a request takes its time, and clocks differ."""
LOCK_S: Final = 10.0
"""To wait for another process that renews the same login; it takes a request."""
LOCK_POLL_S: Final = 0.05
REQUEST_S: Final = 30.0
"""Of one request while a person logs in; for the person itself ``AskPerson`` has a bound."""

AskPerson = Callable[[str], Awaitable[AuthorizationCodeResult]]
"""Sends a person to an address, and returns what the authorization server says to that."""

# What fails there is raised as well, and what it logs may show what a server has answered.
logging.getLogger("mcp.client.auth").addHandler(logging.NullHandler())
logging.getLogger("mcp.client.auth").propagate = False


class LoginNeeded(Exception):
    """A person has to log in."""

    def __init__(self, file: LoginFile, why: str) -> None:
        """Say how."""
        user = "" if file.user == "default" else f" --user {file.user}"
        super().__init__(f"{why}: run `cmdc mcp login {file.url}{user}`")


class LoginFailed(Exception):
    """Nobody is logged in; the message says why."""


class Renewing(OAuthClientProvider):
    """Shows a server the tokens that are kept, which other processes use and renew as well."""

    def __init__(self, file: LoginFile, redirect_uri: str = "http://127.0.0.1/callback") -> None:
        """Show those of ``file``."""
        self.file = file
        self.problem: LoginNeeded | None = None
        """Why nobody is let in any more."""
        self._stamp: tuple[int, int] | None = None
        super().__init__(
            file.url,
            OAuthClientMetadata(
                client_name="cmdc-runtime",
                redirect_uris=[pydantic.AnyUrl(redirect_uri)],
                grant_types=["authorization_code", "refresh_token"],
                token_endpoint_auth_method="none",  # noqa: S106 - the name of a method
            ),
            storage=_Storage(self),
            redirect_handler=self.send,
            callback_handler=self.answer,
        )

    async def send(self, _url: str) -> None:
        """Send a person to an address; there is none here."""
        self.problem = LoginNeeded(self.file, "the login has ended")
        raise self.problem

    async def answer(self) -> AuthorizationCodeResult:
        """Return what the person comes back with."""
        raise LoginNeeded(self.file, "the login has ended")

    def take(self, login: Login | None, stamp: tuple[int, int] | None) -> None:
        """Show this login from now on."""
        context = self.context
        self._stamp = stamp
        self._initialized = True
        if login is None:
            context.clear_tokens()
            return
        context.current_tokens = OAuthToken.model_validate(login.tokens)
        context.token_expiry_time = login.expires_at_s
        if login.client is not None:
            context.client_info = OAuthClientInformationFull.model_validate(login.client)
        if login.server is not None:
            context.oauth_metadata = OAuthMetadata.model_validate(login.server)

    def keep(self, tokens: OAuthToken) -> None:
        """Keep what the SDK has got; other processes take it from there."""
        context = self.context
        expires_in = tokens.expires_in
        context.token_expiry_time = (
            None if expires_in is None else time.time() + max(0.0, expires_in - EARLY_S)
        )
        self.file.write(
            Login(
                url=self.file.url,
                user=self.file.user,
                tokens=tokens.model_dump(mode="json", exclude_none=True),
                expires_at_s=context.token_expiry_time,
                client=_plain(context.client_info),
                server=_plain(context.oauth_metadata),
            )
        )
        self._stamp = self.file.stamp()

    async def _auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Go the SDK's way; what others have renewed is taken, and one at a time renews."""
        await self._look_again()
        held = await self._lock() if self._is_to_be_renewed else None
        flow = super()._auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is request and held is not None:
                    held.close()  # it is renewed, or can't be
                response = yield outgoing
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            if held is not None:
                held.close()
            await flow.aclose()

    @property
    def _is_to_be_renewed(self) -> bool:
        return not self.context.is_token_valid() and self.context.can_refresh_token()

    async def _lock(self) -> BinaryIO | None:
        """Wait until nobody else renews, but not for one who takes too long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOCK_S):
                while (held := self.file.lock()) is None:  # noqa: ASYNC110 - another process has it
                    await asyncio.sleep(LOCK_POLL_S)
                await self._look_again()
                return held
        return None

    async def _look_again(self) -> None:
        """Take what is kept, if that is not what was taken last."""
        stamp = self.file.stamp()
        if stamp != self._stamp or not self._initialized:
            self.take(await asyncio.to_thread(self.file.read), stamp)


class LoggingIn(Renewing):
    """Logs a person in, whatever was kept before."""

    def __init__(
        self, file: LoginFile, redirect_uri: str, ask: AskPerson, client_id: str | None
    ) -> None:
        """Send the person by ``ask``, who comes back to ``redirect_uri``.

        Without ``client_id`` we register at the authorization server.
        """
        super().__init__(file, redirect_uri)
        self._ask = ask
        self._came_back: AuthorizationCodeResult | None = None
        self._initialized = True
        if client_id is not None:
            metadata = self.context.client_metadata.model_dump(exclude_none=True)
            self.context.client_info = OAuthClientInformationFull(client_id=client_id, **metadata)

    async def send(self, url: str) -> None:
        """Send the person there."""
        self._came_back = await self._ask(url)

    async def answer(self) -> AuthorizationCodeResult:
        """Return what the person comes back with."""
        assert self._came_back is not None  # noqa: S101 - asked for after ``send``
        return self._came_back

    async def _look_again(self) -> None:
        """Look at nothing."""


async def log_in(login: LoggingIn) -> bool:
    """Ask the server until it lets us in; say whether it has wanted a login for that.

    Raises:
        LoginFailed: it can't be reached, or somebody on the way refuses.
    """
    before = login.file.stamp()
    try:
        async with (
            httpx2.AsyncClient(auth=login, timeout=REQUEST_S) as http,
            http.stream("GET", login.file.url, headers={"accept": "text/event-stream"}) as answer,
        ):
            status = answer.status_code
    except (OAuthFlowError, httpx2.HTTPError, OSError, pydantic.ValidationError) as error:
        raise LoginFailed(str(error) or type(error).__name__) from error
    if status in {401, 403}:
        raise LoginFailed(f"{login.file.url} refuses what it has asked for, with status {status}")
    return login.file.stamp() != before


class _Storage:
    """Where the SDK keeps what it has got."""

    def __init__(self, owner: Renewing) -> None:
        self._owner = owner

    async def get_tokens(self) -> OAuthToken | None:
        return self._owner.context.current_tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        await asyncio.to_thread(self._owner.keep, tokens)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._owner.context.client_info

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep nothing: without tokens it is of no use, and with them it is kept."""


def _plain(model: pydantic.BaseModel | None) -> dict[str, Any] | None:  # Any: plain data
    return None if model is None else model.model_dump(mode="json", exclude_none=True)


def came_back(fields: Mapping[str, str]) -> AuthorizationCodeResult:
    """Return what a person has come back with, by the query of the address."""
    return AuthorizationCodeResult(
        code=fields["code"], state=fields.get("state"), iss=fields.get("iss")
    )
