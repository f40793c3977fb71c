"""``cmdc service``: have systemd run the daemon.

Rules: nothing is overwritten or removed that ``install`` did not write, or that was changed since,
unless ``--force`` says so; a unit file is there as a whole or not at all; where systemd does not
run, the file is written all the same, the rest is printed. The units are those of deploy/systemd,
which a wheel has inside this package.

What ``install`` writes begins with two lines of its own, the second of which holds the hash of all
that follows. So a file that was changed since is known, without a record elsewhere. A unit file as
text touches no file, process or clock.
"""

import hashlib
import os
import pwd
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from cmdc_runtime.cli.terminal import Terminal
from cmdc_runtime.errors import UsageError

# --- unit files as text ---------------------------------------------------------------------------

_WRITTEN: Final = "# Written by `cmdc service install`; changes belong into a drop-in, see below."
_SIGNATURE: Final = re.compile(r"# sha256 of what follows: ([0-9a-f]{64})")


class UnitOrigin(Enum):
    """Who wrote a unit file."""

    INSTALLED = auto()  # ``cmdc service install``, and nobody has touched it
    CHANGED = auto()  # the same, and somebody has changed it since
    FOREIGN = auto()  # somebody else


def filled_in(template: str, settings: Mapping[str, str]) -> str:
    """Return the unit with each of the ``settings`` in place of the one that the template has."""
    lines = template.splitlines()
    for name, value in settings.items():
        (at,) = (number for number, line in enumerate(lines) if line.startswith(f"{name}="))
        lines[at] = f"{name}={value}"
    return "\n".join(lines) + "\n"


def signed(unit: str) -> str:
    """Return the unit below the lines that say who wrote it."""
    return f"{_WRITTEN}\n# sha256 of what follows: {_hash(unit)}\n{unit}"


def origin_of(text: str) -> UnitOrigin:
    """Say who wrote the text of a unit file."""
    first, _, rest = text.partition("\n")
    second, _, unit = rest.partition("\n")
    signature = _SIGNATURE.fullmatch(second)
    if first != _WRITTEN or signature is None:
        return UnitOrigin.FOREIGN
    return UnitOrigin.INSTALLED if signature[1] == _hash(unit) else UnitOrigin.CHANGED


def command_line(words: Sequence[str]) -> str:
    """Return the words as a value of ``ExecStart=``, which reads quotes, % and $ in its own way.

    Raises:
        UsageError: a word that cannot be written in a unit file, or a program that cannot be named.

    """
    program = words[0]
    if not program.startswith("/") or "$" in program:
        raise UsageError(
            f"{program!r} cannot be the program of a unit: systemd wants an absolute path without $"
        )
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    if any(ord(character) < ord(" ") for character in word):
        raise UsageError(f"{word!r} cannot stand in a unit file: it has control characters")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if re.fullmatch(r"[\w./:=@%+,-]+", escaped) else f'"{escaped}"'


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# --- commands -------------------------------------------------------------------------------------

UNIT: Final = "cmdc.service"
ACCOUNT: Final = "cmdc"
SYSTEM_UNITS: Final = Path("/etc/systemd/system")
BOOTED: Final = Path("/run/systemd/system")
"""Is there where systemd runs (sd_booted(3))."""
SYSTEMCTL_S: Final = 100.0
"""For one call; stopping the service may take its TimeoutStopSec= of 60 s and a little more."""
UNIT_MODE: Final = 0o644
UNIT_BYTES_MAX: Final = 2**20

_PACKAGE: Final = Path(__file__).resolve().parents[1]
_TEMPLATES: Final = (_PACKAGE / "deploy/systemd", _PACKAGE.parent / "deploy/systemd")
"""In a wheel, and in a checkout."""

F = TypeVar("F", bound=Callable[..., Any])  # Any: a command's own parameters


@dataclass(frozen=True, slots=True)
class Place:
    """Whose systemd it is, and where its unit files are."""

    is_user: bool
    directory: Path

    @property
    def unit(self) -> Path:
        """The unit file."""
        return self.directory / UNIT

    @property
    def words(self) -> str:
        """How a person calls this systemd."""
        return "systemctl --user" if self.is_user else "systemctl"

    def is_up(self) -> bool:
        """Say whether this systemd runs."""
        if not self.is_user:
            return BOOTED.is_dir()
        return Path(os.environ.get("XDG_RUNTIME_DIR") or "/nowhere", "systemd/private").exists()

    def ask(self, *words: str) -> str:
        """Return what ``systemctl`` answers.

        Raises:
            click.ClickException: it failed, took too long, or is not there.

        """
        command = [*self.words.split(), "--no-ask-password", *words]
        try:
            done = subprocess.run(  # noqa: S603 - no shell, and words of our own
                command, capture_output=True, text=True, timeout=SYSTEMCTL_S, check=False
            )
        except FileNotFoundError:
            raise click.ClickException("systemctl is not there; is this a systemd?") from None
        except subprocess.TimeoutExpired:
            shown = " ".join(command)
            raise click.ClickException(f"{shown}: no end within {SYSTEMCTL_S:g} s") from None
        if done.returncode != 0:
            raise click.ClickException(f"{' '.join(command)}: {' '.join(done.stderr.split())}")
        return done.stdout.strip()

    def reads_unit(self) -> bool:
        """Say whether this systemd takes the unit from this file."""
        found = self.ask("show", "--property=FragmentPath", "--value", UNIT)
        return bool(found) and self.unit.exists() and Path(found).samefile(self.unit)


def _place_options(function: F) -> F:
    options = (
        click.option(
            "--user/--system",
            "is_user",
            default=None,
            help="Of this user or of the machine.  [default: of the machine for root]",
        ),
        click.option(
            "--unit-dir",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="DIR",
            help="Where the unit file is, if not in systemd's own place.",
        ),
        click.option("--force", is_flag=True, help="Even if the file was changed by hand."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.group()
def service() -> None:
    """Have systemd run the daemon; see docs/howto/systemd.md."""


@service.command()
@_place_options
@click.option("--enable/--no-enable", default=True, help="Start it at every boot, or login.")
@click.option("--run-as", metavar="NAME", help=f"Account of the machine's service.  [{ACCOUNT}]")
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="TOML file for the daemon.",
)
@click.option("--dry-run", is_flag=True, help="Print the unit file, and write nothing.")
def install(  # noqa: PLR0913 - click hands over each option
    *,
    is_user: bool | None,
    unit_dir: Path | None,
    force: bool,
    enable: bool,
    run_as: str | None,
    config: Path | None,
    dry_run: bool,
) -> None:
    """Write the unit file, and have systemd start the daemon at boot; does not start it now."""
    place, terminal = _place(is_user=is_user, unit_dir=unit_dir), Terminal()
    unit = signed(_unit(place, run_as, config))
    if dry_run:
        terminal.line(unit.rstrip("\n"))
        terminal.note(f"would be written to {place.unit}")
        return
    _check_ours(place, force=force)
    _write(place.unit, unit)
    terminal.line(f"written: {place.unit}")
    if not place.is_up():
        steps = f"{place.words} daemon-reload && {place.words} enable {UNIT}"
        terminal.note(
            f"systemd does not run here, so nothing else was done; where it does: {steps}"
        )
        return
    place.ask("daemon-reload")
    if enable:
        _enable(place)
        terminal.line(f"enabled: {UNIT}")
    logs = "journalctl --user -u cmdc" if place.is_user else "journalctl -u cmdc"
    terminal.note(f"start it: {place.words} start {UNIT}; read its log: {logs}")
    if place.is_user:
        terminal.note("to have it run while you are not logged in: loginctl enable-linger")


@service.command()
@_place_options
def uninstall(*, is_user: bool | None, unit_dir: Path | None, force: bool) -> None:
    """Stop and disable the service, and remove its unit file; journal and settings stay."""
    place, terminal = _place(is_user=is_user, unit_dir=unit_dir), Terminal()
    if not place.unit.exists():
        terminal.note(f"nothing to uninstall: there is no {place.unit}")
        return
    _check_ours(place, force=force)
    is_up = place.is_up()
    if is_up and place.reads_unit():
        place.ask("disable", "--now", UNIT)
        terminal.line(f"stopped and disabled: {UNIT}")
    _remove(place)
    terminal.line(f"removed: {place.unit}")
    if is_up:
        place.ask("daemon-reload")
    for left in sorted(place.directory.glob(f"{UNIT}.d/*")):
        terminal.note(f"left as it is: {left}")


def _place(*, is_user: bool | None, unit_dir: Path | None) -> Place:
    if is_user is None:
        is_user = os.geteuid() != 0
    if unit_dir is not None:
        return Place(is_user, unit_dir.absolute())
    config = os.environ.get("XDG_CONFIG_HOME")
    home = Path(config) if config else Path.home() / ".config"
    return Place(is_user, home / "systemd/user" if is_user else SYSTEM_UNITS)


def _unit(place: Place, run_as: str | None, config: Path | None) -> str:
    """Return the unit for this installation of the daemon.

    Raises:
        click.UsageError: there is no such account, or it is asked for where there is no choice.
        UsageError: the path of the interpreter cannot stand in a unit file.

    """
    words = [sys.executable, "-P", "-m", "supervisor"]
    if config is not None:
        words += ["--config", str(config.absolute())]
    stopping = command_line([sys.executable, "-P", "-m", "supervisor.stopping"])
    settings = {
        "ExecStart": command_line(words),
        "ExecStop": f"-{stopping}",
        "ExecStopPost": f"-{stopping} after",
    }
    if place.is_user and run_as is not None:
        raise click.UsageError("--run-as is for --system: a user's service runs as that user")
    if not place.is_user:
        settings["User"] = _account(run_as or ACCOUNT)
    name = Path("user", UNIT) if place.is_user else Path(UNIT)
    template = next(path for folder in _TEMPLATES if (path := folder / name).exists())
    return filled_in(template.read_text(encoding="utf-8"), settings)


def _account(name: str) -> str:
    """Return the name of an account that is there; print where it may not go and would have to."""
    try:
        account = pwd.getpwnam(name)
    except KeyError:
        raise click.UsageError(
            f"there is no account {name!r}; make it, or name another one with --run-as: useradd "
            f"--system --home-dir /var/lib/{name} --shell /usr/sbin/nologin {name}"
        ) from None
    closed = next(_closed_to(account, Path(sys.executable)), None)
    if closed is not None:
        Terminal().note(
            f"{closed} is closed to {name}, and {sys.executable} is in there: the service will not "
            "start unless that is opened, or cmdc-runtime installed elsewhere",
            "warning",
        )
    return name


def _closed_to(account: pwd.struct_passwd, program: Path) -> Iterator[Path]:
    """Yield the folders on the way to a program that an account may not enter."""
    groups = set(os.getgrouplist(account.pw_name, account.pw_gid))
    for folder in {*program.parents, *program.resolve().parents}:
        status = folder.stat()
        bit = 0o100 if status.st_uid == account.pw_uid else 0o010
        if status.st_uid != account.pw_uid and status.st_gid not in groups:
            bit = 0o001
        if account.pw_uid != 0 and not status.st_mode & bit:
            yield folder


def _check_ours(place: Place, *, force: bool) -> None:
    """Return where the file is not there, or is as ``install`` wrote it.

    Raises:
        click.ClickException: somebody would lose what he wrote.

    """
    if force or not place.unit.exists():
        return
    with place.unit.open(encoding="utf-8", errors="replace") as file:
        origin = origin_of(file.read(UNIT_BYTES_MAX))
    if origin is UnitOrigin.INSTALLED:
        return
    problem = "was changed by hand" if origin is UnitOrigin.CHANGED else "is not from this command"
    raise click.ClickException(
        f"{place.unit} {problem} and is left as it is; move your changes into a drop-in "
        f"({place.words} edit {UNIT}), or say --force"
    )


def _write(path: Path, text: str) -> None:
    """Put a file in place as a whole.

    Raises:
        click.ClickException: it cannot be written.

    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # systemd takes no file that begins with a dot.
        fd, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(text)
                os.fchmod(file.fileno(), UNIT_MODE)
                os.fsync(file.fileno())
            Path(draft).replace(path)
        except BaseException:
            Path(draft).unlink()
            raise
    except OSError as error:
        raise click.ClickException(_unwritable(path, error)) from error


def _remove(place: Place) -> None:
    """Remove the unit file, and the links that enabling has made where systemd is not there."""
    try:
        place.unit.unlink()
        for link in place.directory.glob(f"*.wants/{UNIT}"):
            if link.is_symlink() and not link.exists():
                link.unlink()
    except OSError as error:
        raise click.ClickException(_unwritable(place.unit, error)) from error


def _unwritable(path: Path, error: OSError) -> str:
    way_out = "" if os.geteuid() == 0 else "; run this as root, or with --user for yourself"
    return f"{path}: {error.strerror}{way_out}"


def _enable(place: Place) -> None:
    if not place.reads_unit():
        raise click.ClickException(
            f"systemd does not read {place.unit}, so it cannot be enabled; choose a --unit-dir of "
            "those that `systemd-analyze unit-paths` lists, or say --no-enable"
        )
    place.ask("enable", UNIT)
