"""What a call is given: a session of either kind or its id, names, numbers; checked here."""

from typing import Protocol, TypeVar

from cmdc_runtime.checkpoints import CHECKPOINT_ID
from cmdc_runtime.errors import InvalidSession, UsageError
from cmdc_runtime.foreign import told
from cmdc_runtime.ids import SUPERVISOR, MonitorRef, SessionId, is_monitor_ref, is_session_id
from cmdc_runtime.plain import is_a, number_problem, own, short, text_problem, whole_problem
from cmdc_runtime.ranges import INDEX_MAX, NAME_CHARS_MAX, SECONDS_MAX

C = TypeVar("C")


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
    try:
        found = own(session if is_a(session, str) else getattr(session, "id", None))
    except Exception as error:
        raise InvalidSession(f"a session's id: {short(session)} failed: {told(error)}") from error
    if not isinstance(found, str):
        raise InvalidSession(f"expected a session or a session id, got {short(session)}")
    return SessionId(found)


def checked_id(session: SessionLike) -> SessionId:
    """Return the id of a session object or a str, also that of the supervision tree itself.

    Raises:
        InvalidSession: it is neither, or no id can look like this.

    """
    found = id_of(session)
    if not is_session_id(found) and found != SUPERVISOR:
        raise InvalidSession(f"not a session id: {short(found)}")
    return found


def checked_group(group_id: object) -> str:
    """Return the name of a group.

    Raises:
        UsageError: no session can have it.

    """
    if not isinstance(group_id, str) or not group_id:
        raise UsageError(f"group_id: a group is named by a non-empty str, got {short(group_id)}")
    return checked_name(group_id, "group_id")


def checked_name(name: object, what: str) -> str:
    """Return what names a thing, such as an approval's id: one line of text.

    Raises:
        UsageError: nothing can be called so.

    """
    problem = text_problem(name, chars_max=NAME_CHARS_MAX, one_line=True)
    if problem is not None or not isinstance(name, str):
        raise UsageError(f"{what}: {problem}")
    if not name:
        raise UsageError(f"{what}: expected a non-empty str")
    return name


def checked_ref(ref: object) -> MonitorRef:
    """Return the reference of a monitor.

    Raises:
        UsageError: no monitor can have it.

    """
    if not isinstance(ref, str) or not is_monitor_ref(ref):
        raise UsageError(
            f"ref: expected a monitor or its ``ref``, as monitor() returns it, got {short(ref)}"
        )
    return MonitorRef(ref)


def checked_callback(callback: object) -> None:
    """Take what a monitor may call, or None.

    Raises:
        UsageError: nobody can call it.

    """
    if callback is not None and not callable(callback):
        raise UsageError(
            f"callback: expected a function of one argument, or None, got {short(callback)}"
        )


def checked_flag(flag: object, what: str) -> None:
    """Take True or False.

    Raises:
        UsageError: it is neither, which would count as one of them.

    """
    if not isinstance(flag, bool):
        raise UsageError(f"{what}: expected True or False, got {short(flag)}")


def checked_kind(given: C, kind: type[object], what: str) -> C:
    """Return an object of ours that a caller hands in, such as a session's client.

    Raises:
        UsageError: it is another thing.

    """
    try:
        is_ours = isinstance(given, kind)
    except Exception:  # noqa: BLE001 - it has code of its own, which ours has not
        is_ours = False
    if not is_ours:
        raise UsageError(f"{what}: expected one of cmdc_runtime's own, got {short(given)}")
    return given


def checked_checkpoint(checkpoint_id: object) -> str | None:
    """Return the id of a checkpoint, or None, which is the newest or all.

    Raises:
        UsageError: no checkpoint can be called so.

    """
    if checkpoint_id is None:
        return None
    if not isinstance(checkpoint_id, str) or not CHECKPOINT_ID.fullmatch(checkpoint_id):
        shown = short(checkpoint_id)
        raise UsageError(f"checkpoint_id: expected 1 to 128 of A-Z a-z 0-9 _ . : -, got {shown}")
    return checkpoint_id


def checked_timeout(timeout: object) -> float | None:
    """Return a time to wait in seconds, or None: as long as it takes.

    Raises:
        UsageError: nobody can wait so long.

    """
    if timeout is None:
        return None
    problem = number_problem(timeout, 0, SECONDS_MAX)
    if problem is not None or not isinstance(timeout, int | float):
        raise UsageError(
            f"timeout: {problem}; it is in seconds, and None waits as long as it takes"
        )
    return timeout


def checked_since(since: object) -> int | None:
    """Return the index of an event, or None: from now on.

    Raises:
        UsageError: no event can have it.

    """
    if since is None:
        return None
    problem = whole_problem(since, 0, INDEX_MAX)
    if problem is not None or not isinstance(since, int):
        raise UsageError(
            f"since: expected the index of the last event seen, or 0 for all, got {short(since)}"
        )
    return since
