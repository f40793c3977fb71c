"""The two clients of the module-level functions, which the whole process shares.

That for coroutines has a connection for each event loop that uses it. A connection ends with its
loop; ``close`` ends it earlier, and with the last one the private daemon, which otherwise stays
until the program ends.

A test may lead both to a daemon of its own for a while: ``redirected``.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar, cast

from cmdc_runtime.client.address import VARIABLE, Address, checked_address
from cmdc_runtime.client.engine import ClientEngine
from cmdc_runtime.client.link import LoopLinks
from cmdc_runtime.client.session import AsyncClient, AsyncSession
from cmdc_runtime.client.sync.session import Client, Session
from cmdc_runtime.plain import is_a

C = TypeVar("C", bound=Callable[..., Any])  # Any: a call of the client


class SharedClient(Client):
    """A client that every thread uses: always open, made anew in every fork.

    When an embedded daemon has died, the next call finds or starts another one.
    """

    _is_shared = True

    @contextlib.contextmanager
    def redirected(self, address: Address) -> Iterator[None]:
        """Speak with the daemon at ``address`` meanwhile; what it spoke with before waits."""
        before = self._exchanged(checked_address(address), None)
        try:
            yield
        finally:
            _, engine = self._exchanged(*before)
            if engine is not None:
                engine.close()

    def _exchanged(
        self, address: Address | None, engine: ClientEngine | None
    ) -> tuple[Address | None, ClientEngine | None]:
        """Speak with ``address`` by ``engine`` from now on; return those of before."""
        with self._lock:
            before = self._address, self._engine
            self._address, self._engine = address, engine
        return before


client: Final = SharedClient()
_links: Final = LoopLinks()
async_client: Final = AsyncClient(connector=_links)


@contextlib.contextmanager
def redirected(address: Address) -> Iterator[None]:
    """Have the module-level functions, both kinds, speak with the daemon at ``address`` meanwhile.

    Clients without an address that are made meanwhile, and programs that are started, find it by
    ``CMDC_ADDRESS``. It is for the whole process, so only one may be open at a time, or one within
    another.

    Raises:
        InvalidOptions: the address cannot be used.

    """
    variable = os.environ.get(VARIABLE)
    with client.redirected(address), _links.redirected(address):
        os.environ[VARIABLE] = os.fspath(address)
        try:
            yield
        finally:
            if variable is None:
                os.environ.pop(VARIABLE, None)
            else:
                os.environ[VARIABLE] = variable


def of_owner(default: C) -> C:
    """Return ``default``, a shared client's method, for which a session's own client stands in.

    A session id says nothing about its client, so it is the shared client's business.
    """
    method: Any = default  # Any: a method of any signature, which type checkers see as it is
    name: str = method.__name__

    @functools.wraps(method)
    def call(target: object, /, *args: Any, **kwargs: Any) -> Any:  # Any: as the method says
        if is_a(target, (Session, AsyncSession)):
            owner: Any = target  # Any: a session of either kind
            return getattr(owner.client, name)(target, *args, **kwargs)
        return method(target, *args, **kwargs)

    return cast(C, call)
