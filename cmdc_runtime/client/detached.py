"""A daemon that outlives who started it: for ``cmdc serve --detach`` and ``CMDC_AUTOSTART``.

It has no terminal and nobody's process as its parent, and what it prints goes to a log. Two
programs that start one at once get the same one: the lock of the runtime directory has one holder,
and who comes second gets ``STATUS_RUNNING`` and takes that one. Nothing ends it but a signal, which
is what ``cmdc shutdown`` sends.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cmdc_runtime.client.daemon_start import DaemonStart, StartOutcome, announced_if_long
from cmdc_runtime.errors import DaemonUnavailable, InvalidOptions
from cmdc_runtime.plain import short
from cmdc_runtime.runtime_dir import PRIVATE_MODE, default_state_dir, find_daemon

VARIABLE: Final = "CMDC_AUTOSTART"
LOG_NAME: Final = "daemon.log"
LOG_BYTES_KEPT: Final = 16 * 2**20
"""A longer log is put aside when a daemon starts, as ``daemon.log.1``; that before it goes."""
STATUS_RUNNING: Final = 3
"""Of a daemon that found another one in its place."""
TRIES_MAX: Final = 3
"""Starts, where the daemon that was there first is gone when it is looked for."""
_LOG_MODE: Final = 0o600
_WORDS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("", "0", "false", "no", "off"), False),
}


@dataclass(frozen=True, slots=True)
class DetachedDaemon:
    """One that takes calls."""

    pid: int
    directory: str
    log: Path


def is_autostart(environ: Mapping[str, str]) -> bool:
    """Say whether a program that finds no daemon is to start one that it shares with others.

    Raises:
        InvalidOptions: the variable says neither yes nor no.

    """
    said = environ.get(VARIABLE, "")
    if (found := _WORDS.get(said.strip().lower())) is None:
        raise InvalidOptions([f"{VARIABLE}: expected 1 or 0, got {short(said)}"])
    return found


def default_log(environ: Mapping[str, str], *, home: Path, state_dir: str | None = None) -> Path:
    """Return where a detached daemon's log is: in its state directory, as flag or variable say."""
    folder = Path(state_dir) if state_dir else default_state_dir(environ, home=home)
    return folder.absolute() / LOG_NAME


def start(arguments: Sequence[str], log: Path) -> tuple[DetachedDaemon | None, StartOutcome]:
    """Start a daemon with these arguments of its own and wait until it is ready; or say why not.

    Raises:
        OSError: the log can't be written, or no process be started.

    """
    _make_log(log)
    starting = DaemonStart(["--detached", *arguments], log, mode="ab")
    outcome = starting.outcome()
    if outcome.problem:
        starting.process.poll()  # where it is late it goes on
        return None, outcome
    starting.process.wait()  # the process that has detached the daemon from us
    return DetachedDaemon(outcome.pid, outcome.directory, log), outcome


def autostarted(environ: Mapping[str, str]) -> Path:
    """Return the runtime directory of the daemon that all programs of this user share.

    Blocks for its start. Of two that start it at once the second one gets the first one's.

    Raises:
        DaemonUnavailable: it could not be started.

    """
    home, problem = Path.home(), ""
    log = default_log(environ, home=home)
    with announced_if_long("starting the daemon that programs share; `cmdc shutdown` ends it"):
        for _ in range(TRIES_MAX):
            try:
                daemon, outcome = start([], log)
            except OSError as error:
                raise DaemonUnavailable(
                    f"{VARIABLE}: no daemon could be started: {error}"
                ) from error
            if daemon is not None:
                return Path(daemon.directory)
            problem = outcome.problem
            if outcome.status != STATUS_RUNNING:
                break
            if found := find_daemon(environ, uid=os.getuid(), home=home):
                return found.directory
    raise DaemonUnavailable(f"{VARIABLE}: the daemon {problem}; its log is {log}")


def _make_log(log: Path) -> None:
    """Make the log, private, where it is missing; put one aside that is too long to be added to."""
    log.parent.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        if log.stat().st_size > LOG_BYTES_KEPT:
            log.replace(log.with_name(f"{log.name}.1"))
    os.close(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _LOG_MODE))
