"""``cmdc serve`` runs a daemon, here or in the background; ``cmdc shutdown`` ends one.

The options of ``serve`` are the daemon's own flags, which it checks itself: to add one, add it here
and in ``supervisor.entry``; a test compares the two.
"""

import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import click

from cmdc_runtime.cli.choices import address_option, json_option, running_address
from cmdc_runtime.cli.terminal import Terminal, json_line
from cmdc_runtime.errors import DaemonUnavailable
from cmdc_runtime.runtime_dir import RunningDaemon, running_daemon

# --- serve ----------------------------------------------------------------------------------------

MODULE: Final = "supervisor"
FLAGS: Final = (
    ("--runtime-dir", "DIR", "Where the sockets are."),
    ("--state-dir", "DIR", "Where the journal is."),
    ("--config", "FILE", "A TOML file with the same names."),
    ("--spares", "N", "Idle workers forked ahead.  [default: 2]"),
    ("--max-sessions", "N", "Live sessions at most.  [default: 4000]"),
    ("--durability", "WORD", "process or power.  [default: process]"),
    ("--journal", "URL", "memory, or postgresql://... without a password."),
    ("--journal-schema", "NAME", "Where in PostgreSQL its tables are."),
    ("--retain-days", "N", "How long ended sessions are kept, 0 for ever.  [default: 30]"),
    ("--allow-code-by-value", "WORD", "same-uid, always or never.  [default: same-uid]"),
    ("--log-level", "WORD", "debug, info, warning or error.  [default: info]"),
    ("--log-format", "WORD", "console or json.  [default: console]"),
)
_INNER_FLAGS: Final = ("--owner-pid", "--ready-fd")
"""For programs that start a daemon and see to its end; no help shows them."""
F = TypeVar("F", bound=Callable[..., Any])  # Any: a command's own parameters


def _daemon_flags(command: F) -> F:
    for flag in reversed(_INNER_FLAGS):
        command = click.option(flag, hidden=True)(command)
    for flag, metavar, line in reversed(FLAGS):
        command = click.option(flag, metavar=metavar, help=line)(command)
    return command


@click.command()
@_daemon_flags
@click.option("--detach", is_flag=True, help="In the background; return when it takes calls.")
@click.option(
    "--log-file",
    metavar="FILE",
    help="With --detach: its log.  [default: daemon.log in its state directory]",
)
@json_option
def serve(*, detach: bool, log_file: str | None, as_json: bool, **flags: str | None) -> int:
    """Run the daemon: in the foreground, or with --detach in the background.

    Flags go before CMDC_* variables, these before the TOML file. What keeps a detached daemon from
    its start is printed here, with the exit status that the daemon in the foreground has.

    Exit status: 0 stopped as asked or detached, 1 failed, 2 wrong options, 3 another one is there.
    """
    if not detach and (log_file is not None or as_json):
        raise click.UsageError("--log-file and --json go with --detach")
    given = {f"--{name.replace('_', '-')}": value for name, value in flags.items()}
    words = [word for flag, value in given.items() if value is not None for word in (flag, value)]
    if not detach:
        _become(words)
    # These load what only this needs.
    from cmdc_runtime.client import detached  # noqa: PLC0415

    terminal = Terminal()
    state_dir = flags["state_dir"]
    log = detached.default_log(os.environ, home=Path.home(), state_dir=state_dir)
    if log_file is not None:
        log = Path(log_file).absolute()
    try:
        with terminal.waiting("starting the daemon"):
            daemon, outcome = detached.start(words, log)
    except OSError as error:
        raise click.ClickException(f"no daemon could be started, log {log}: {error}") from error
    if daemon is None:
        terminal.note(f"cmdc: the daemon {outcome.problem}", "plain")
        return outcome.status or 1
    said = {"pid": daemon.pid, "address": daemon.directory, "log": str(log)}
    text = f"daemon {daemon.pid} serves at {daemon.directory}; log: {log}"
    terminal.line(json_line(said) if as_json else text)
    return 0


def _become(words: list[str]) -> NoReturn:
    """Turn this process into the daemon.

    multiprocess would import a main module anew in every agent, and the daemon's own has nothing in
    it. -P keeps a folder named like the daemon from being it.
    """
    os.execv(sys.executable, [sys.executable, "-P", "-m", MODULE, *words])  # noqa: S606 - our own module, no shell


# --- shutdown -------------------------------------------------------------------------------------

SHUTDOWN_S: Final = 60.0
"""How long a daemon is waited for: it ends its agents first."""
SHUTDOWN_S_MAX: Final = 3600.0


@click.command()
@click.option(
    "--timeout",
    type=click.FloatRange(0, SHUTDOWN_S_MAX),
    default=SHUTDOWN_S,
    show_default=True,
    help="Seconds to wait for its end.",
)
@json_option
@address_option
def shutdown(*, timeout: float, as_json: bool, address: str | None) -> int:
    """End the daemon, and return when it is gone.

    Its agents end with it; what they were doing is in the journal, and the next daemon goes on with
    their sessions. One that has not ended in time goes on stopping, and the exit status is 1.
    """
    terminal = Terminal()
    directory = _directory(address)
    holder = _holder(directory)
    try:
        process = os.pidfd_open(holder)
    except ProcessLookupError:
        raise DaemonUnavailable(f"the daemon at {directory} has just ended") from None
    try:
        if _holder(directory) != holder:  # its pid may be another process's by now
            raise DaemonUnavailable(f"the daemon at {directory} has just ended")
        signal.pidfd_send_signal(process, signal.SIGTERM)
        with terminal.waiting(f"waiting for the end of daemon {holder}"):
            is_gone = bool(select.select([process], [], [], timeout)[0])
    except PermissionError:
        raise click.ClickException(f"daemon {holder} is another user's") from None
    finally:
        os.close(process)
    outcome = {"pid": holder, "address": str(directory), "stopped": is_gone}
    if as_json:
        terminal.line(json_line(outcome))
    elif is_gone:
        terminal.line(f"daemon {holder} at {directory} has ended")
    else:
        terminal.note(f"daemon {holder} has not ended within {timeout:g} s; it goes on stopping")
    return 0 if is_gone else 1


def _directory(address: str | None) -> Path:
    from cmdc_runtime.client.address import directory_of  # noqa: PLC0415 - loads asyncio

    return directory_of(running_address(address))


def _holder(directory: Path) -> int:
    """Return the pid of the daemon that holds a runtime directory.

    Raises:
        DaemonUnavailable: none does, or it has not said who it is.

    """
    found: RunningDaemon | None = running_daemon(directory)
    if found is None:
        raise DaemonUnavailable(f"no daemon runs at {directory}")
    if found.holder is None:
        raise DaemonUnavailable(f"the daemon at {directory} is only starting: try again")
    return found.holder.pid
