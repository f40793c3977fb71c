"""The two clients of the module-level functions, which the whole process shares.

That for coroutines has a connection for each event loop that uses it. A connection ends with its
loop; ``close`` ends it earlier, and with the last one the private daemon, which otherwise stays
until the program ends.
"""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from cmdc_runtime.client.link import LoopLinks
from cmdc_runtime.client.session import AsyncClient, AsyncSession
from cmdc_runtime.client.sync.session import Client, Session
from cmdc_runtime.plain import is_a

P = ParamSpec("P")
T = TypeVar("T")
Target = TypeVar("Target")


class SharedClient(Client):
    """A client that every thread uses: always open, made anew in every fork.

    When an embedded daemon has died, the next call finds or starts another one.
    """

    _is_shared = True


client: Final = SharedClient()
async_client: Final = AsyncClient(connector=LoopLinks())


def of_owner(
    default: Callable[Concatenate[Target, P], T],
) -> Callable[Concatenate[Target, P], T]:
    """Return ``default``, a shared client's method, for which a session's own client stands in.

    A session id says nothing about its client, so it is the shared client's business.
    """
    name = default.__name__

    @functools.wraps(default)
    def call(target: Target, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if is_a(target, (Session, AsyncSession)):
            owner: Any = target  # Any: a session of either kind
            method: Any = getattr(owner.client, name)  # Any: the same method, of another client
            answer: T = method(target, *args, **kwargs)
            return answer
        return default(target, *args, **kwargs)

    return call
