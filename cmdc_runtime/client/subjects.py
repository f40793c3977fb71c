"""Whom a call is about: a session object of either kind or its id, or a group's name."""

from typing import Protocol

from cmdc_runtime.errors import InvalidSession, UsageError
from cmdc_runtime.ids import SUPERVISOR, SessionId, is_session_id


class HasId(Protocol):
    """A session object of either kind."""

    @property
    def id(self) -> SessionId:
        """The session's id."""


SessionLike = str | HasId


def id_of(session: SessionLike) -> SessionId:
    """Return the id of a session object, or the str as it is.

    Raises:
        InvalidSession: it is neither.

    """
    found = session if isinstance(session, str) else getattr(session, "id", None)
    if not isinstance(found, str):
        raise InvalidSession(f"expected a session or a session id, got {session!r}")
    return SessionId(found)


def checked_id(session: SessionLike) -> SessionId:
    """Return the id of a session object or a str, also that of the supervision tree itself.

    Raises:
        InvalidSession: it is neither, or no id can look like this.

    """
    found = id_of(session)
    if not is_session_id(found) and found != SUPERVISOR:
        raise InvalidSession(f"not a session id: {found!r}")
    return found


def checked_group(group_id: object) -> str:
    """Return the name of a group.

    Raises:
        UsageError: no session can have it.

    """
    if not isinstance(group_id, str) or not group_id:
        raise UsageError(f"a group is named by a non-empty str, got {group_id!r}")
    return group_id
