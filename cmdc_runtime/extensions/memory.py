"""Memory stores: what outlives a session, found again by its words or by what it is like.

A memory is text with facts beside it, under an id, in a namespace. Namespaces know nothing of each
other, so a namespace per user keeps users apart. What a caller passes as text is never a query
language: it is words to look for.

To write a store: subclass ``MemoryStore``, check what comes in with ``packed_data`` and the
``check_`` functions, and hold it to the tests in ``tests/contract/test_stores.py``.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.errors import ExtensionError

NAME_CHARS_MAX: Final = 256
"""Of an id, and of a namespace."""
CONTENT_CHARS_MAX: Final = 100_000
"""Of one memory's text."""
DATA_BYTES_MAX: Final = 2**20
"""Of one memory with all that stands beside its text, as JSON."""
TEXT_CHARS_MAX: Final = 100_000
"""Of a text to look for."""
WORDS_MAX: Final = 64
"""Different words of a text to look for; those behind are not looked at."""
LIMIT_DEFAULT: Final = 10
LIMIT_MAX: Final = 10_000
"""Memories in one answer."""

Order: TypeAlias = Literal["desc", "asc"]
Filters: TypeAlias = Mapping[str, str | int | float | bool | None]
"""Keys of the data with the values that they must have."""


class MemoryStoreError(ExtensionError):
    """A store cannot be used or did not do what it was asked; the text says which and why."""


class Memory(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """One memory as it comes back."""

    id: str
    data: dict[str, Any]  # Any: whatever JSON takes
    """What was stored, ``content`` included."""
    inserted_at_ms: int
    """When it was stored, in milliseconds since 1970."""
    score: float | None = None
    """How near it is to what was looked for: larger is nearer, and only scores of one answer can be
    compared. None where nothing was looked for."""

    @property
    def content(self) -> str:
        """The text."""
        return str(self.data["content"])


class MemoryStore(ABC):
    """Keeps memories.

    Methods are plain functions that may wait for a disk or a network: call them from a thread of
    their own. Several threads may use one store, and several processes what it stands for. What a
    method returns is the caller's to change. All of them raise ``ValueError`` for arguments that no
    store takes, and ``MemoryStoreError`` where the store fails.
    """

    @abstractmethod
    def store(self, id: str, data: Mapping[str, Any], *, namespace: str) -> Memory:  # noqa: A002 - its name by contract
        """Keep ``data`` under ``id``, in place of what was there; ``data["content"]`` is its text.

        What is stored again is as new as what is stored for the first time.
        """

    @abstractmethod
    def search(
        self,
        text: str,
        *,
        namespace: str,
        limit: int = LIMIT_DEFAULT,
        filters: Filters | None = None,
    ) -> tuple[Memory, ...]:
        """Return memories that have every word of ``text``, in any case, best first.

        A store may also find words within words. A text without words finds nothing.
        """

    @abstractmethod
    def similarity_search(
        self,
        text: str,
        *,
        namespace: str,
        limit: int = LIMIT_DEFAULT,
        filters: Filters | None = None,
    ) -> tuple[Memory, ...]:
        """Return the memories that are most like ``text``, by the store's own measure, best first.

        A text without words finds nothing.
        """

    @abstractmethod
    def list(
        self,
        *,
        namespace: str,
        limit: int = LIMIT_DEFAULT,
        order: Order = "desc",
        filters: Filters | None = None,
    ) -> tuple[Memory, ...]:
        """Return memories in the order they were stored: "desc" is newest first."""

    @abstractmethod
    def delete(self, id: str, *, namespace: str) -> None:  # noqa: A002 - its name by contract
        """Forget what is under ``id``; it is fine if nothing is."""


def packed_data(data: Mapping[str, Any]) -> bytes:  # Any: whatever JSON takes
    """Return a memory's data as JSON, with nothing in common with what the caller has.

    Raises:
        ValueError: it has no text as ``content``, is too large, or is nothing that JSON takes.
    """
    content = data.get("content")
    if not isinstance(content, str) or len(content) > CONTENT_CHARS_MAX:
        raise ValueError(
            f"data needs a text of at most {CONTENT_CHARS_MAX} characters as 'content',"
            f" got {_text(content)}"
        )
    try:
        body = msgspec.json.encode(dict(data))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"data must be what JSON takes: {error}") from error
    if len(body) > DATA_BYTES_MAX:
        raise ValueError(f"data takes {len(body)} bytes as JSON, more than {DATA_BYTES_MAX}")
    return body


def unpacked_data(body: bytes | str) -> dict[str, Any]:  # Any: whatever JSON takes
    """Return data as ``packed_data`` packed it, a new dict each time."""
    return msgspec.json.decode(body, type=dict[str, Any])


def matches(data: Mapping[str, Any], filters: Filters | None) -> bool:  # Any: JSON
    """Say whether ``data`` has each key of ``filters`` with the very value; 1 is not True."""
    if not filters:
        return True
    return all(
        key in data
        and data[key] == value
        and isinstance(data[key], bool) is isinstance(value, bool)
        for key, value in filters.items()
    )


def check_name(what: str, name: object) -> None:
    """Check an id or a namespace; ``what`` says which.

    Raises:
        ValueError: it can be none.
    """
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX or not _is_utf8(name):
        raise ValueError(
            f"{what} must be a text of 1 to {NAME_CHARS_MAX} characters, got {_text(name)}"
        )


def check_limit(limit: object) -> None:
    """Check how many memories are wanted.

    Raises:
        ValueError: it is no such number.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or not 0 < limit <= LIMIT_MAX:
        raise ValueError(f"limit must be 1 to {LIMIT_MAX}, got {_text(limit)}")


def check_text(text: object) -> None:
    """Check a text to look for.

    Raises:
        ValueError: it is none, or too long.
    """
    if not isinstance(text, str) or len(text) > TEXT_CHARS_MAX:
        raise ValueError(
            f"the text to look for must have at most {TEXT_CHARS_MAX} characters, got {_text(text)}"
        )


def check_order(order: object) -> None:
    """Check an order.

    Raises:
        ValueError: it is none.
    """
    if order not in {"desc", "asc"}:
        raise ValueError(f'order must be "desc" or "asc", got {_text(order)}')


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a character
        return False
    return True


def _text(value: object) -> str:
    return f"one of {len(value)}" if isinstance(value, str) and len(value) > 40 else repr(value)  # noqa: PLR2004 - a short text says more than its length
