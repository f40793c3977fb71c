"""Memories in the process's own memory, gone with it.

Searching reads every memory of a namespace, which is fine up to the bound of the store.
"""

import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cmdc_runtime.clock import now_ms
from cmdc_runtime.extensions.memory import (
    LIMIT_DEFAULT,
    WORDS_MAX,
    Filters,
    Memory,
    MemoryStore,
    MemoryStoreError,
    Order,
    check_limit,
    check_name,
    check_order,
    check_text,
    matches,
    packed_data,
    unpacked_data,
)
from cmdc_runtime.stores import IN_MEMORY_MAX
from workers.builtin.stores._words import Phrase, features_of, phrases_of, spaced


@dataclass(frozen=True, slots=True)
class _Entry:
    """One memory as it is kept."""

    body: bytes
    inserted_at_ms: int
    words: str
    features: frozenset[Phrase]


class InMemoryStore(MemoryStore):
    """See ``cmdc_runtime.stores.InMemory``."""

    def __init__(self) -> None:
        """Start empty."""
        self._lock = threading.Lock()
        self._spaces: dict[str, dict[str, _Entry]] = {}

    def store(self, id: str, data: Mapping[str, Any], *, namespace: str) -> Memory:  # noqa: A002 - its name by contract
        """Keep a memory; see ``MemoryStore``."""
        check_name("id", id)
        check_name("namespace", namespace)
        body, content = packed_data(data), data["content"]
        entry = _Entry(body, now_ms(), spaced(content), frozenset(features_of(content)))
        with self._lock:
            space = self._spaces.setdefault(namespace, {})
            space.pop(id, None)
            if sum(map(len, self._spaces.values())) >= IN_MEMORY_MAX:
                raise MemoryStoreError(
                    f"the in-memory store is full: it holds {IN_MEMORY_MAX} memories; delete some,"
                    " or use a Sqlite store"
                )
            space[id] = entry
        return _memory(id, entry)

    def search(
        self,
        text: str,
        *,
        namespace: str,
        limit: int = LIMIT_DEFAULT,
        filters: Filters | None = None,
    ) -> tuple[Memory, ...]:
        """Return memories that have every word, the shortest texts first; see ``MemoryStore``."""
        check_text(text)
        wanted = [" ".join(phrase) for phrase in phrases_of(text)]
        scored = [
            (id_, entry, 1.0 / (1.0 + len(entry.words)))
            for id_, entry in self._newest_first(namespace)
            if wanted and all(phrase in entry.words for phrase in wanted)
        ]
        return _best(scored, limit, filters)

    def similarity_search(
        self,
        text: str,
        *,
        namespace: str,
        limit: int = LIMIT_DEFAULT,
        filters: Filters | None = None,
    ) -> tuple[Memory, ...]:
        """Return memories by their words in common; see ``MemoryStore``."""
        check_text(text)
        entries = self._newest_first(namespace)
        weights = {
            feature: math.log(1.0 + len(entries) / sharing)
            for feature in list(features_of(text))[:WORDS_MAX]
            if (sharing := sum(feature in entry.features for _, entry in entries))
        }
        scored = []
        for id_, entry in entries:
            shared = sum(weights[feature] for feature in weights.keys() & entry.features)
            if shared:
                scored.append((id_, entry, shared / math.sqrt(len(entry.features))))
        return _best(scored, limit, filters)

    def list(
        self,
        *,
        namespace: str,
        limit: int = LIMIT_DEFAULT,
        order: Order = "desc",
        filters: Filters | None = None,
    ) -> tuple[Memory, ...]:
        """Return memories by age; see ``MemoryStore``."""
        check_order(order)
        entries = self._newest_first(namespace)
        aged = entries if order == "desc" else entries[::-1]
        return _first(((id_, entry, None) for id_, entry in aged), limit, filters)

    def delete(self, id: str, *, namespace: str) -> None:  # noqa: A002 - its name by contract
        """Forget a memory; see ``MemoryStore``."""
        check_name("id", id)
        check_name("namespace", namespace)
        with self._lock:
            self._spaces.get(namespace, {}).pop(id, None)

    def _newest_first(self, namespace: str) -> tuple[tuple[str, _Entry], ...]:
        check_name("namespace", namespace)
        with self._lock:
            return tuple(self._spaces.get(namespace, {}).items())[::-1]


_Scored = tuple[str, _Entry, float]


def _best(scored: Iterable[_Scored], limit: int, filters: Filters | None) -> tuple[Memory, ...]:
    # Of equal scores the newer one stays before the older.
    ranked: list[_Scored] = sorted(scored, key=lambda one: one[2], reverse=True)
    return _first(ranked, limit, filters)


def _first(
    entries: Iterable[tuple[str, _Entry, float | None]], limit: int, filters: Filters | None
) -> tuple[Memory, ...]:
    check_limit(limit)
    found: list[Memory] = []
    for id_, entry, score in entries:
        memory = _memory(id_, entry, score)
        if matches(memory.data, filters):
            found.append(memory)
        if len(found) == limit:
            break
    return tuple(found)


def _memory(id_: str, entry: _Entry, score: float | None = None) -> Memory:
    data = unpacked_data(entry.body)
    return Memory(id=id_, data=data, inserted_at_ms=entry.inserted_at_ms, score=score)


_STORES: Final[dict[str, InMemoryStore]] = {}
"""The stores of this process by name; as many as its options name."""


def named(name: str) -> InMemoryStore:
    """Return the process's store of this name, the same one each time."""
    return _STORES.setdefault(name, InMemoryStore())
