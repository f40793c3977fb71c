"""SIGHUP: the daemon reads its configuration again, or ends with the terminal that it runs in.

What may change while it runs takes effect at once, what else has changed is logged to need a
restart, and a configuration with a mistake in it changes nothing. ``config.changes`` decides; to
let one more option change, name it in ``config.RELOADABLE`` and hand in the function that applies
it.
"""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import structlog

from cmdc_runtime.errors import InvalidOptions
from supervisor.adapters.systemd import Notifier
from supervisor.config import DaemonConfig, changes
from supervisor.core.limits import RELOAD_S

log = structlog.get_logger(__name__)


class Reload:
    """Applies a new configuration to a running daemon."""

    def __init__(
        self,
        config: DaemonConfig,
        read: Callable[[], DaemonConfig],
        apply: Mapping[str, Callable[[Any], None]],  # Any: each takes the type of its option
        notifier: Notifier,
    ) -> None:
        """Begin with ``config``; ``read`` may block and ``apply`` may not."""
        self.config = config
        self._read = read
        self._apply = apply
        self._notifier = notifier
        self._wanted = asyncio.Event()

    def request(self) -> None:
        """Have the configuration read soon; requests that come while it is read are one more."""
        self._wanted.set()

    async def keep(self) -> None:
        """Serve the requests. Cancel it to end."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self._notifier.reloading(time.monotonic_ns() // 1000)
            try:
                await self._reload()
            except Exception:
                log.exception("reload.failed")
            finally:
                self._notifier.reloaded()

    async def _reload(self) -> None:
        try:
            async with asyncio.timeout(RELOAD_S):
                fresh = await _beside(self._read)
        except InvalidOptions as error:
            log.error("config.refused", problems=list(error.problems))
            return
        except TimeoutError:
            log.error("config.refused", problems=[f"it could not be read within {RELOAD_S:g} s"])
            return
        found = changes(self.config, fresh)
        self.config = found.config
        # First, so that no level can hide what has become of the request.
        log.info("config.reloaded", applied=found.applied, needs_restart=found.needs_restart)
        if found.needs_restart:
            log.warning("config.not_applied", needs_restart=found.needs_restart)
        for name, value in found.applied.items():
            self._apply[name](value)


class Hangup:
    """What SIGHUP means here: read the configuration again, or the terminal is gone."""

    def __init__(self, on_reload: Callable[[], None], on_gone: Callable[[], None]) -> None:
        """Look whether this process runs in a terminal, and shall end with it (not so: nohup)."""
        self._on_reload = on_reload
        self._on_gone = on_gone
        is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._ends_with_terminal = _has_terminal() and not is_ignored

    def hear(self) -> None:
        """Take the signal."""
        if self._ends_with_terminal and not _has_terminal():
            self._on_gone()
        else:
            self._on_reload()


def _has_terminal() -> bool:
    """Say whether the process has a controlling terminal; one that is closed is taken from it."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True


async def _beside(read: Callable[[], DaemonConfig]) -> DaemonConfig:
    """Return what ``read`` returns, from a thread that nobody waits for if it never does.

    The loop's own threads are waited for at the daemon's end.
    """
    outcome: Future[DaemonConfig] = Future()

    def work() -> None:
        outcome.set_running_or_notify_cancel()
        try:
            outcome.set_result(read())
        except Exception as error:  # noqa: BLE001 - handed on to whoever waits
            outcome.set_exception(error)

    threading.Thread(target=work, name="reload", daemon=True).start()
    return await asyncio.wrap_future(outcome)
