"""When an idle session may give up its process: it tells the daemon, which decides."""

import asyncio
from collections.abc import Callable


class Rest:
    """Calls ``doze`` when the session was idle for ``after_s`` seconds, and again while it is."""

    def __init__(
        self, after_s: float | None, is_quiet: Callable[[], bool], doze: Callable[[], None]
    ) -> None:
        """``after_s`` None never lets it sleep; nor does work that ``is_quiet`` knows to go on."""
        self._after_s = after_s
        self._is_quiet = is_quiet
        self._doze = doze
        self._timer: asyncio.TimerHandle | None = None

    def look(self, *, is_idle: bool, is_activity: bool = True) -> None:
        """Begin to count anew, or stop counting: something has just happened.

        What is no activity leaves the count of an idle session as it is.
        """
        if is_idle and not is_activity and self._timer is not None:
            return
        self.stop()
        if is_idle and self._after_s is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._after_s, self._due)

    def stop(self) -> None:
        """Count no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        # The daemon may know of a command that is on its way: then it says nothing, and the
        # command starts the count again; else we ask again later.
        if self._is_quiet():
            self._doze()
        self.look(is_idle=True)
