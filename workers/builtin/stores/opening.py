"""References to stores, opened: the one place that knows which class a reference means."""

from typing import Any, assert_never

from cmdc_runtime import stores
from cmdc_runtime.beneath import NamedPath, named_path
from cmdc_runtime.extensions.memory import MemoryStore, MemoryStoreError
from cmdc_runtime.extensions.tool import resolve
from cmdc_runtime.plain import short
from workers.builtin.stores._sql import SqliteStore
from workers.builtin.stores.in_memory import named
from workers.builtin.stores.vector import VectorStore, libraries


def opened(reference: stores.AnyStore, working_dir: str = ".") -> MemoryStore:
    """Return the store that ``reference`` means; relative paths begin at ``working_dir``.

    No file is opened yet.

    Raises:
        MemoryStoreError: a library is missing, or a function of the user's is no such thing.
    """
    match reference:
        case stores.InMemory():
            return named(reference.name)
        case stores.Sqlite():
            return SqliteStore(_place(reference.path, working_dir))
        case stores.Vector():
            embed = None if reference.embed is None else _function(reference.embed, "embed")
            return VectorStore(_place(reference.path, working_dir), reference.dimensions, embed)
        case stores.Custom():
            return _custom(_function(reference.create, "create"))
        case _:
            assert_never(reference)


def check(reference: stores.AnyStore) -> None:
    """Check that what a store needs is installed here, before a session counts on it.

    Raises:
        MemoryStoreError: it is not.
    """
    if isinstance(reference, stores.Vector):
        libraries()


def _place(path: str, working_dir: str) -> NamedPath:
    return named_path(path, working_dir, folder_mode=0o700)


# Any, here and below: whatever a user gave as a function.
def _function(given: Any, option: str) -> Any:
    try:
        found = resolve(given) if isinstance(given, str) else given
    except (ImportError, AttributeError, ValueError) as error:
        raise MemoryStoreError(f"{option} {short(given)} of a memory store: {error}") from error
    if not callable(found):
        raise MemoryStoreError(f"{option} of a memory store must be a function, got {short(found)}")
    return found


def _custom(create: Any) -> MemoryStore:
    made = create()
    if not isinstance(made, MemoryStore):
        raise MemoryStoreError(f"create must return a MemoryStore, got {type(made).__name__}")
    return made
