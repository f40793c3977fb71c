"""A file that a command makes: drafted as a whole, then put where it belongs.

Nothing is seen of a draft before ``deliver``, and it may be written anew until then. A regular file
is replaced by a rename, where links lead, and is for its owner only: it is there as a whole or not
at all. What is no regular file (a FIFO, a device, standard output) is written into. What can't be
a file at all, whatever the disk is like, is wrong usage.
"""

import contextlib
import errno
import os
import shutil
import stat
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, ClassVar, Final

import click

from cmdc_runtime.cli.streams import OutputLost
from cmdc_runtime.errors import InvalidOptions, UsageError

IN_MEMORY_BYTES_MAX: Final = 16 * 2**20
"""Of a draft for a stream; a larger one waits on the disk."""
RESERVED_BYTES: Final = 2**20
"""Of the disk, for what a draft that is written anew has more than before."""
_COPY_BYTES: Final = 2**20
_WITHOUT_ROOM: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL})
"""What a file system says that can't reserve any."""


class Draft(ABC):
    """A file in the making; ``name`` is how the person called it."""

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
        with self._told():
            self._file.seek(0)
        yield self._write
        with self._told():
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
        with self._told():
            self._file.write(some)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
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
        with self._told():
            try:
                os.posix_fallocate(self._file.fileno(), self._file.tell(), RESERVED_BYTES)
            except OSError as error:
                if error.errno not in _WITHOUT_ROOM:
                    raise

    def deliver(self) -> None:
        """Rename it, without the room that was reserved."""
        with self._told():
            self._file.truncate()
            Path(self._file.name).replace(self._place)


class _IntoFile(Draft):
    """What is written into a FIFO or a device at the end."""

    _target: BinaryIO | None = None

    def prepare(self) -> None:
        """Open it; a FIFO waits for its reader."""
        if self._target is None:
            with self._told():
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
        with self._told():
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
        """Write all of it; what keeps it from that is told by ``streams``."""
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
