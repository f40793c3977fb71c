"""States kept and moved: sessions, their checkpoints, and the daemon's whole journal.

``cmdc export``, ``import``, ``checkpoints``, ``resume``, ``backup``, ``restore``.

A file that a command makes is drafted as a whole, then put where it belongs: see ``Draft``.

The daemon makes a backup, since nobody else may read its journal. To restore one it must not run:
that is done by a module of the daemon's package, which this process turns into.
"""

import contextlib
import errno
import os
import shutil
import stat
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Final

import click

from cmdc_runtime.cli.choices import address_option, json_option, running_client, running_engine
from cmdc_runtime.cli.terminal import OutputLost, Terminal, json_line, moment, show_table
from cmdc_runtime.errors import CmdcError, InvalidOptions, UsageError
from cmdc_runtime.lines import one_line
from cmdc_runtime.plain import short, text_problem

if TYPE_CHECKING:
    from cmdc_runtime.checkpoints import Snapshot
    from cmdc_runtime.client.engine import ClientEngine
    from cmdc_runtime.ids import SessionId
    from cmdc_runtime.requests import BackupFacts
    from cmdc_runtime.transfer import Header

# --- the file that is made ------------------------------------------------------------------------

IN_MEMORY_BYTES_MAX: Final = 16 * 2**20
"""Of a draft for a stream; a larger one waits on the disk."""
RESERVED_BYTES: Final = 2**20
"""Of the disk, for what a draft that is written anew has more than before."""
_COPY_BYTES: Final = 2**20
_WITHOUT_ROOM: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL})
"""What a file system says that can't reserve any."""


class Draft(ABC):
    """A file in the making; ``name`` is how the person called it.

    Nothing is seen of a draft before ``deliver``, and it may be written anew until then. A regular
    file is replaced by a rename, where links lead, and is for its owner only: it is there as a
    whole or not at all. What is no regular file (a FIFO, a device, standard output) is written
    into. What can't be a file at all, whatever the disk is like, is wrong usage.
    """

    _is_kept: ClassVar[bool] = False
    """Whether the draft itself becomes the file, and has to outlive a loss of power."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        """Begin with nothing."""
        self._file = file
        self._name = name

    @contextlib.contextmanager
    def whole(self) -> Iterator[Callable[[bytes], None]]:
        """Lend what writes the draft from its beginning; all of it is safe at the end.

        Raises:
            UsageError: it cannot be written.
        """
        with self._errors_reported():
            self._file.seek(0)
        yield self._write
        with self._errors_reported():
            self._file.truncate()
            self._file.flush()
            if self._is_kept:
                os.fsync(self._file.fileno())

    @abstractmethod
    def prepare(self) -> None:
        """Let fail now what would fail at the delivery.

        Raises:
            UsageError: nothing can be delivered.
        """

    @abstractmethod
    def deliver(self) -> None:
        """Put the file where it belongs.

        Raises:
            UsageError: it cannot be written there; of a regular file nothing is there then.
        """

    def _write(self, some: bytes) -> None:
        with self._errors_reported():
            self._file.write(some)

    @contextlib.contextmanager
    def _errors_reported(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UsageError(f"{self._name} cannot be written: {error.strerror}") from error


class _NewFile(Draft):
    """A regular file beside its place, which it takes at the end."""

    _is_kept = True

    def __init__(self, file: BinaryIO, name: str, place: Path) -> None:
        """Begin with nothing; ``file`` is in the same folder as ``place``."""
        super().__init__(file, name)
        self._place = place

    def prepare(self) -> None:
        """Reserve room."""
        with self._errors_reported():
            try:
                os.posix_fallocate(self._file.fileno(), self._file.tell(), RESERVED_BYTES)
            except OSError as error:
                if error.errno not in _WITHOUT_ROOM:
                    raise

    def deliver(self) -> None:
        """Rename it, without the room that was reserved."""
        with self._errors_reported():
            self._file.truncate()
            Path(self._file.name).replace(self._place)


class _IntoFile(Draft):
    """What is written into a FIFO or a device at the end."""

    _target: BinaryIO | None = None

    def prepare(self) -> None:
        """Open it; a FIFO waits for its reader."""
        if self._target is None:
            with self._errors_reported():
                descriptor = os.open(self._name, os.O_WRONLY | os.O_NOCTTY)
                self._target = open(descriptor, "wb", buffering=0)  # noqa: SIM115, PTH123

    def close(self) -> None:
        """Close what was opened."""
        if self._target is not None:
            self._target.close()

    def deliver(self) -> None:
        """Write all of it."""
        self.prepare()
        assert self._target is not None  # noqa: S101 - it was opened
        with self._errors_reported():
            target = self._target
            self._file.seek(0)
            while some := memoryview(self._file.read(_COPY_BYTES)):
                while some:
                    some = some[target.write(some) :]


class _IntoOutput(Draft):
    """What is written to standard output at the end."""

    def prepare(self) -> None:
        """Do nothing: it is open."""

    def deliver(self) -> None:
        """Write all of it; what keeps it from that is reported by ``terminal``."""
        self._file.seek(0)
        target = sys.stdout.buffer
        shutil.copyfileobj(self._file, target, _COPY_BYTES)
        target.flush()
        if stat.S_ISREG(os.fstat(target.fileno()).st_mode):
            try:
                os.fsync(target.fileno())
            except OSError as error:
                raise OutputLost(error) from error


@contextlib.contextmanager
def drafted(output: str | None) -> Iterator[Draft]:
    """Lend a draft of what is to be the file ``output``; None is standard output.

    Raises:
        InvalidOptions: this can be no file.
        click.UsageError: standard output is a terminal.
        UsageError: it cannot be written.
    """
    if output is None:
        if sys.stdout.isatty():
            raise click.UsageError("the file is no text: send it into one with > or -o")
        with tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES_MAX) as spooled:
            yield _IntoOutput(spooled, "standard output")  # type: ignore[arg-type]  # as good as
        return
    if _is_written_into(output):
        with tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES_MAX) as spooled:
            draft = _IntoFile(spooled, output)  # type: ignore[arg-type]  # as above
            with contextlib.closing(draft):
                yield draft
        return
    place = Path(os.path.realpath(output))
    try:
        descriptor, name = tempfile.mkstemp(dir=place.parent, prefix=".cmdc-")
        file = open(name, "wb", opener=lambda _name, _flags: descriptor)  # noqa: SIM115 - below
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from error
    try:
        yield _NewFile(file, output, place)
    finally:
        with contextlib.suppress(OSError):  # where it could not be written, this can't be either
            file.close()
        Path(name).unlink(missing_ok=True)


def _is_written_into(output: str) -> bool:
    """Say whether there is something that no file may take the place of."""
    try:
        mode = os.stat(output).st_mode  # noqa: PTH116 - a Path has lost a slash at the end
    except FileNotFoundError:
        mode = stat.S_IFREG
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from error
    if stat.S_ISDIR(mode) or not Path(output).name or output.endswith("/"):
        raise InvalidOptions([f"-o takes the name of a file, and {output!r} is a directory"])
    if stat.S_ISSOCK(mode):
        raise InvalidOptions([f"-o takes the name of a file, and {output!r} is a socket"])
    if stat.S_ISREG(mode):
        return False
    try:
        if not stat.S_ISFIFO(mode) and _is_terminal(output):
            raise InvalidOptions([f"the file is no text, and {output!r} is a terminal"])
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from error
    return True


def _is_terminal(output: str) -> bool:
    descriptor = os.open(output, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        return os.isatty(descriptor)
    finally:
        os.close(descriptor)


# --- commands -------------------------------------------------------------------------------------

STDIN_IN_MEMORY_BYTES_MAX: Final = 16 * 2**20
"""Of a file from standard input; a larger one waits on the disk."""

_COLUMNS: Final[Mapping[str, Callable[["Snapshot"], str]]] = {
    "CHECKPOINT": lambda one: one.checkpoint_id,
    "SAVED": lambda one: moment(one.saved_at_ms),
    "LABEL": lambda one: one_line(one.label or "-"),
    "METADATA": lambda one: one_line(
        one.problem or (json_line(one.metadata) if one.metadata else "-")
    ),
}


@click.command()
@click.argument("session")
@click.option("--move", is_flag=True, help="End the session here, so that it goes on elsewhere.")
@click.option("-o", "--output", metavar="FILE", help="Write there.  [default: standard output]")
@address_option
def export(session: str, *, move: bool, output: str | None, address: str | None) -> None:
    """Write SESSION as a file that `cmdc import` takes, on this machine or another one.

    It has the conversation, what waits, tools by value, plugin states, checkpoints and durable
    events, and so all that was said, and the keys of the session's options: keep it as you would
    keep those. Without --move it is a copy, and goes on elsewhere only under another id.
    """
    from cmdc_runtime.client.arguments import checked_id  # noqa: PLC0415 - loads zmq

    session_id = checked_id(session)
    with drafted(output) as draft, running_engine(address) as engine:
        header = _write_whole(engine, session_id, draft)
        if move and not header.is_over:
            draft.prepare()
            header = _end_and_deliver(engine, session_id, draft)
        else:
            draft.deliver()
    how = "moved" if move else "copied"
    if not header.is_over:
        how = "copied; it goes on here"
    Terminal().note(f"{session_id} {how}, up to event {header.last_index}")


@click.command("import")
@click.argument("file", metavar="FILE")
@click.option("--as", "as_id", metavar="ID", help="Name of the session.  [default: its own]")
@json_option
@address_option
def import_(file: str, *, as_id: str | None, as_json: bool, address: str | None) -> None:
    """Start the session that `cmdc export` wrote to FILE; ``-`` is standard input.

    It goes on where it was: a running cycle too, except for calls that may not run twice. The file
    may hold code, which runs as yours: import what you trust.
    """
    from cmdc_runtime.client.arguments import checked_id  # noqa: PLC0415 - loads zmq
    from cmdc_runtime.transfer import (  # noqa: PLC0415 - with it
        Assembly,
        check_whole,
        read_frames,
    )

    new_id = None if as_id is None else checked_id(as_id)
    with _read(file) as source, running_engine(address) as engine:
        assembly = Assembly()  # all of it is looked at before the daemon is asked for anything
        for frame in read_frames(source):
            assembly.add(frame)
        whole = assembly.whole()
        check_whole(whole)
        source.seek(0)
        info = engine.call(engine.exchange.bring(read_frames(source), new_id))
    outcome = {"session_id": info.session_id, "from": whole.header.session_id, "pid": info.pid}
    Terminal().line(json_line(outcome) if as_json else f"{info.session_id} goes on here")


@click.command()
@click.argument("session")
@click.option("--save", "label", metavar="LABEL", help="Save the session's state first.")
@click.option("--delete", "gone", metavar="ID", help="Delete this one first.")
@json_option
@address_option
def checkpoints(
    session: str, *, label: str | None, gone: str | None, as_json: bool, address: str | None
) -> None:
    """List the checkpoints of SESSION, newest first; with --json as one array."""
    _check_label(label)
    with running_client(address) as client:
        if label is not None:
            client.checkpoint(session, label=label)
        if gone is not None:
            client.delete_checkpoint(session, gone)
        found = client.list_checkpoints(session)
    if as_json:
        Terminal().line(json_line(found))
        return
    if not found:
        Terminal().note("no checkpoints")
        return
    show_table(_COLUMNS, found)


@click.command()
@click.argument("session")
@click.option("--checkpoint", "checkpoint_id", metavar="ID", help="Go on from this one.")
@click.option("--as", "new_id", metavar="ID", help="Fork it: a new session of this name.")
@click.option(
    "--code",
    type=click.Choice(["pinned", "latest"]),
    help="latest: with the code of its tools and plugins that is there now.  [default: as before]",
)
@json_option
@address_option
def resume(
    session: str,
    *,
    new_id: str | None,
    as_json: bool,
    address: str | None,
    **chosen: Any,  # Any: options of the session, each as click has checked it
) -> None:
    """Let SESSION go on after its end, or with --as make a session that begins with its state."""
    given = {name: value for name, value in chosen.items() if value is not None}
    with running_client(address) as client:
        found = client.resume_session(session, new_id=new_id, **given)
        outcome = {"session_id": found.id, "from": session}
    Terminal().line(json_line(outcome) if as_json else f"{found.id} goes on")


def _write_whole(engine: "ClientEngine", session_id: "SessionId", draft: Draft) -> "Header":
    from cmdc_runtime.transfer import MAGIC  # noqa: PLC0415 - with the client

    with draft.whole() as write:
        write(MAGIC)
        return engine.call(engine.exchange.export(session_id, write))


def _end_and_deliver(engine: "ClientEngine", session_id: "SessionId", draft: Draft) -> "Header":
    """End a session of which a draft is whole, and deliver what it has come to.

    Where no file comes of it, the session goes on here. All of it is in the journal all the time,
    so that nothing is lost where this process is killed in between.
    """
    is_ours = True
    try:
        is_ours = engine.call(engine.exchange.end_to_move(session_id))
        header = _write_whole(engine, session_id, draft)
        draft.deliver()
    except BaseException:
        if is_ours:
            _bring_back(engine, session_id)
        raise
    return header


def _bring_back(engine: "ClientEngine", session_id: "SessionId") -> None:
    """Let a session go on that was ended for a file that did not come into being; say so."""
    from cmdc_runtime.requests import Origin  # noqa: PLC0415 - with the client

    try:
        engine.call(engine.exchange.end_to_move(session_id))  # its end may still be under way
        engine.call(engine.exchange.resume(Origin(session_id=session_id), None, {}))
    except (CmdcError, KeyboardInterrupt) as error:
        why = f" ({error})" if str(error) else ""
        Terminal().note(
            f"nothing of {session_id} is lost, but it has ended{why}: `cmdc resume {session_id}` "
            "lets it go on here",
            "warning",
        )
    else:
        Terminal().note(f"{session_id} was not moved, and goes on here")


def _check_label(label: str | None) -> None:
    from cmdc_runtime.checkpoints import checkpoint_facts  # noqa: PLC0415 - with the client

    try:
        checkpoint_facts(label, None)
    except UsageError as error:
        raise InvalidOptions([f"--save: {str(error).removeprefix('label: ')}"]) from error


@contextlib.contextmanager
def _read(file: str) -> Iterator[BinaryIO]:
    if file != "-":
        try:
            source = Path(file).open("rb")  # noqa: SIM115 - closed below
        except OSError as error:
            raise UsageError(f"{file} cannot be read: {error}") from error
        with source:
            yield source
        return
    with tempfile.SpooledTemporaryFile(STDIN_IN_MEMORY_BYTES_MAX) as spooled:
        while some := sys.stdin.buffer.read(_COPY_BYTES):
            spooled.write(some)
        spooled.seek(0)
        yield spooled  # type: ignore[misc]  # it is a BinaryIO in all but name


# --- the journal ----------------------------------------------------------------------------------

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
