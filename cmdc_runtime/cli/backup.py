"""``cmdc backup``, ``restore``: the daemon's journal as a file, and back.

The daemon makes the backup, since nobody else may read its journal. To restore one it must not run:
that is done by a module of the daemon's package, which this process turns into.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cmdc_runtime.cli.choices import address_option, json_option, running_engine
from cmdc_runtime.cli.terminal import Terminal, json_line, moment
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.plain import short, text_problem

if TYPE_CHECKING:
    from cmdc_runtime.requests import BackupFacts

_PATH_CHARS_MAX: Final = 4096
"""What the kernel takes."""
_RESTORER: Final = "supervisor.restore"
_MIB: Final = 2**20


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--force", is_flag=True, help="Replace a FILE that is no backup, too.")
@json_option
@address_option
def backup(file: str, *, force: bool, as_json: bool, address: str | None) -> None:
    """Copy the daemon's journal to FILE, and return when it is durable there; sessions go on.

    All that was acknowledged before is in it: every session, live or ended, with what `cmdc export`
    writes of one, keys included. A former backup at FILE is replaced as a whole. A journal in
    PostgreSQL is backed up by pg_dump.
    """
    made = _made(_absolute(file), force=force, address=address)
    size = f"{made.size_bytes / _MIB:.1f} MiB"
    count = "1 session" if made.sessions == 1 else f"{made.sessions} sessions"
    said = f"{made.file}: {count}, {size}, as of {moment(made.made_ms)}"
    Terminal().line(json_line(made) if as_json else said)


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--force", is_flag=True, help="Replace a journal that has what FILE has not, too.")
@click.option("--check", is_flag=True, help="Say what FILE is and whether it is whole, no more.")
@click.option("--state-dir", metavar="DIR", help="Where the journal is.  [default: the daemon's]")
@click.option("--runtime-dir", metavar="DIR", help="Where its daemon's sockets are.")
@click.option("--config", metavar="FILE", help="The daemon's TOML file, which may name both.")
@json_option
def restore(file: str, *, force: bool, check: bool, as_json: bool, **places: str | None) -> None:
    """Put FILE, which `cmdc backup` wrote, in the place of the journal; no daemon may run there.

    The next daemon goes on with the sessions of FILE. The journal that was there is kept beside,
    under a name that is printed. A FILE that has changed since it was written is refused, and so is
    one that has less than the journal that is there.

    Exit status: 0 done, 1 FILE or the journal is not as it must be, 2 wrong usage, 3 a daemon runs.
    """
    flags = [f"--{name}" for name, is_set in {"force": force, "check": check}.items() if is_set]
    for name, place in places.items():
        if place is not None:
            flags.append(f"--{name.replace('_', '-')}={place}")
    words = [*flags, *(["--json"] if as_json else []), "--", _absolute(file)]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", _RESTORER, *words])  # noqa: S606 - our own module, no shell


def _made(file: str, *, force: bool, address: str | None) -> "BackupFacts":
    from cmdc_runtime.requests import BackUp  # noqa: PLC0415 - with the client

    with running_engine(address) as engine:
        return engine.call(engine.exchange.back_up(BackUp(file=file, force=force)))


def _absolute(file: str) -> str:
    """Return the path of a file, which the daemon can take."""
    problem = text_problem(file, chars_max=_PATH_CHARS_MAX, one_line=True)
    if problem is not None or not file:
        raise InvalidOptions([f"FILE: {problem or 'expected a path'}, got {short(file)}"])
    found = os.path.abspath(Path(file).expanduser())  # noqa: PTH100 - resolves no link
    return f"{found}/" if file.endswith("/") else found
