"""The requests that wait for an answer: when to send them again, and when to give them up.

Pure: the time is an argument, and what is due is returned, for the shell to do.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from cmdc_runtime.client.limits import REQUESTS_OPEN_MAX, RESEND_S
from cmdc_runtime.errors import Overloaded
from cmdc_runtime.ids import CommandId


@dataclass(slots=True)
class _Open:
    frame: bytes
    opened_s: float
    deadline_s: float
    absence_s: float
    """How long it waits for a daemon while none is there."""
    resend_s: float
    is_repeated: bool = False
    copies: int = 1
    """How often the frame was sent as it is now."""
    earlier: int = 0
    """How often one was sent that it was changed from, and no refusal has come for."""

    def is_over(self, now_s: float, absent_s: float | None) -> bool:
        """Say whether its time is up, or no daemon has been there for too long."""
        if self.deadline_s <= now_s:
            return True
        return absent_s is not None and now_s - max(absent_s, self.opened_s) >= self.absence_s


@dataclass(frozen=True, slots=True)
class Due:
    """What there is to do now: frames to be sent again, and requests whose time is up."""

    frames: tuple[bytes, ...]
    expired: tuple[CommandId, ...]


class OpenRequests:
    """Remembers each open request under its id."""

    def __init__(
        self, *, open_max: int = REQUESTS_OPEN_MAX, resend_every_s: float = RESEND_S
    ) -> None:
        """Start with no request."""
        self._open_max = open_max
        self._every_s = resend_every_s
        self._open: dict[CommandId, _Open] = {}

    def __len__(self) -> int:
        """Return how many requests are open."""
        return len(self._open)

    def open(
        self,
        id_: CommandId,
        frame: bytes,
        now_s: float,
        timeout_s: float | None,
        absence_s: float = math.inf,
    ) -> float:
        """Remember a request that is sent now and return when it is due; None: no deadline.

        Where no daemon is there for ``absence_s``, its time is up before its deadline.

        Raises:
            Overloaded: too many requests are open.

        """
        if len(self._open) >= self._open_max:
            raise Overloaded(
                f"{self._open_max} requests of this client wait for an answer: "
                "wait for some of them, or use a second client"
            )
        deadline_s = math.inf if timeout_s is None else now_s + timeout_s
        resend_s = now_s + self._every_s
        one = self._open[id_] = _Open(frame, now_s, deadline_s, absence_s, resend_s)
        return min(one.deadline_s, one.resend_s)

    def close(self, id_: CommandId) -> bool:
        """Forget a request, answered or given up; say whether it was sent more than once."""
        one = self._open.pop(id_, None)
        return one is not None and one.is_repeated

    def change(self, id_: CommandId, change: Callable[[bytes], bytes | None]) -> bytes | None:
        """Return what ``change`` makes of an open request's frame, which is its frame from now on.

        It is changed because a copy of it was refused; the caller sends what is returned. None
        where the request is not open, or ``change`` returns that: all stays as it was.
        """
        one = self._open.get(id_)
        changed = None if one is None else change(one.frame)
        if one is not None and changed is not None:
            one.earlier += one.copies - 1
            one.frame, one.copies = changed, 1
        return changed

    def is_of_earlier(self, id_: CommandId) -> bool:
        """Say of a refusal whether it may be of a copy from before a change; each counts once."""
        one = self._open.get(id_)
        if one is None or not one.earlier:
            return False
        one.earlier -= 1
        return True

    def due(self, now_s: float, absent_s: float | None = None) -> Due:
        """Return what is due, and count the frames in it as sent again.

        ``absent_s`` is since when no daemon is there, None where one is.
        """
        expired = tuple(id_ for id_, one in self._open.items() if one.is_over(now_s, absent_s))
        for id_ in expired:
            del self._open[id_]
        again = [one for one in self._open.values() if one.resend_s <= now_s]
        return Due(frames=self._sent(again, now_s), expired=expired)

    def all_frames(self, now_s: float) -> tuple[bytes, ...]:
        """Return the frame of every open request, and count each as sent again."""
        return self._sent(list(self._open.values()), now_s)

    def next_s(self) -> float | None:
        """Return when something is due next, or None."""
        return min((min(one.deadline_s, one.resend_s) for one in self._open.values()), default=None)

    def _sent(self, requests: list[_Open], now_s: float) -> tuple[bytes, ...]:
        for one in requests:
            one.resend_s, one.is_repeated = now_s + self._every_s, True
            one.copies += 1
        return tuple(one.frame for one in requests)
