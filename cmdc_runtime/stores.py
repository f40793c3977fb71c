"""The memory stores by name: ``EpisodicMemory(memory_store=cmdc.stores.Sqlite(path="m.db"))``.

These are light references: an application imports no worker code. A reference is an option of a
plugin, and becomes a ``cmdc_runtime.extensions.memory.MemoryStore`` in the session's process, by
``workers.builtin.stores``; or in the application's, by ``open``.
"""

import importlib
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.packing import Function
from cmdc_runtime.plain import short
from cmdc_runtime.reasons import snake

DIMENSIONS_DEFAULT: Final = 512
DIMENSIONS_MAX: Final = 8192
"""What sqlite-vec takes."""
IN_MEMORY_MAX: Final = 10_000
"""Memories that one ``InMemory`` store holds, all namespaces together."""

if TYPE_CHECKING:
    from cmdc_runtime.extensions.memory import MemoryStore

_OPENING: Final = "workers.builtin.stores.opening"
"""Loaded by its name where a store is opened, so that who only names one has no worker code."""
_Path = Annotated[str, Meta(min_length=1, max_length=4096)]


class _Reference(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag=snake,
    metaclass=Checked,
):
    """Base of all references; ``kind`` says which one travels."""

    def open(self, working_dir: str = ".") -> "MemoryStore":
        """Return the store itself, for an application that keeps or looks up memories.

        Relative paths begin at ``working_dir``. Its methods wait for a disk; give each user a
        ``namespace`` of its own, as ``EpisodicMemory`` does by ``user_id``.

        Raises:
            MemoryStoreError: a library is missing, or a function of yours is no such thing.
        """
        opening: Any = importlib.import_module(_OPENING)  # Any: a module
        opening.check(self)
        store: MemoryStore = opening.opened(self, working_dir)
        return store


class InMemory(_Reference, frozen=True, kw_only=True):
    """Keeps memories in the session's process, and as long as that lives.

    A crash, a restart or a hibernation loses them, and no other session sees them. It searches for
    parts of words, and finds what is similar by the words in common, rare ones counting more. It
    holds ``IN_MEMORY_MAX`` memories; one more is an error.
    """

    name: Annotated[str, Meta(min_length=1, max_length=128)] = "default"
    """Plugins that name the same store share it."""


class Sqlite(_Reference, frozen=True, kw_only=True):
    """Keeps memories in a SQLite file, which any number of sessions may share.

    It searches by whole words, and finds what is similar by the words in common (BM25). Languages
    that put no space between words are searched character by character.
    """

    path: _Path
    """Relative to the session's working folder or absolute, "~" for the user's home. File and
    folder are made at the first use; the disk must be a local one."""

    def __post_init__(self) -> None:
        """Refuse what no system call takes."""
        _check_path(self.path)


class Vector(_Reference, frozen=True, kw_only=True):
    """Keeps memories in a SQLite file with a vector each, which any number of sessions may share.

    It searches by whole words, and finds what is similar by the cosine of the vectors. Needs the
    extra ``vec`` where the daemon runs: ``pip install 'cmdc-runtime[vec]'``.
    """

    path: _Path
    """As for ``Sqlite``; it cannot be the same file."""
    embed: Function | None = None
    """A function from a text to a list of ``dimensions`` numbers, or its "module:name". A file
    belongs to one such function: vectors of two cannot be compared. None is a local one that needs
    no model: it hashes words and parts of words, so it finds texts that share them, but knows
    nothing of what they mean."""
    dimensions: Annotated[int, Meta(ge=1, le=DIMENSIONS_MAX)] = DIMENSIONS_DEFAULT
    """Numbers in a vector, the same for the life of the file."""

    def __post_init__(self) -> None:
        """Refuse what no system call takes."""
        _check_path(self.path)


class Custom(_Reference, frozen=True, kw_only=True):
    """A store of your own."""

    create: Function
    """A function without arguments that returns a ``MemoryStore``, or its "module:name"; it is
    called once per process and plugin."""


AnyStore: TypeAlias = InMemory | Sqlite | Vector | Custom
"""A store as an option of a plugin."""


def _check_path(path: str) -> None:
    if "\0" in path or path.endswith("/"):
        raise ValueError(f"path must be that of a file, without NUL, got {short(path)}")


__all__ = [
    "DIMENSIONS_DEFAULT",
    "DIMENSIONS_MAX",
    "IN_MEMORY_MAX",
    "AnyStore",
    "Custom",
    "InMemory",
    "Sqlite",
    "Vector",
]
