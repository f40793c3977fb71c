"""Module-level calls about a session object go to the client that the session is of."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from cmdc_runtime.client.session import AsyncSession, Session
from cmdc_runtime.plain import is_a

P = ParamSpec("P")
T = TypeVar("T")
Subject = TypeVar("Subject")


def of_owner(
    default: Callable[Concatenate[Subject, P], T],
) -> Callable[Concatenate[Subject, P], T]:
    """Return ``default``, a client's method, that a session object's own client may stand in for.

    A session id says nothing about its client, so it is the default client's business.
    """
    name = default.__name__

    @functools.wraps(default)
    def call(subject: Subject, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if is_a(subject, (Session, AsyncSession)):
            owner: Any = subject  # Any: a session of either kind
            method: Any = getattr(owner.client, name)  # Any: the same method, of another client
            answer: T = method(subject, *args, **kwargs)
            return answer
        return default(subject, *args, **kwargs)

    return call
