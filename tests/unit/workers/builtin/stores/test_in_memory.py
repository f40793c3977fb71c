"""What the in-memory store promises beyond the contract of all stores."""

import pytest

from cmdc_runtime.extensions.memory import MemoryStoreError
from workers.builtin.stores import in_memory
from workers.builtin.stores.in_memory import InMemoryStore, named


@pytest.fixture
def store():
    return InMemoryStore()


def ids(memories):
    return [memory.id for memory in memories]


def test_parts_of_words_are_found(store):
    """The shortest text that has them is the best."""
    store.store("long", {"content": "a parser of dates"}, namespace="n")
    store.store("short", {"content": "parsers"}, namespace="n")

    assert ids(store.search("arse", namespace="n")) == ["short", "long"]


def test_rare_words_count_more(store):
    """Of texts of one length; among equals the newest is first."""
    for number in range(5):
        store.store(f"m{number}", {"content": f"the number {number}"}, namespace="n")

    assert ids(store.similarity_search("the 3", namespace="n")) == ["m3", "m4", "m2", "m1", "m0"]


def test_a_full_store_says_so(store, monkeypatch):
    """Nothing is dropped to make room, and what is there can be stored anew."""
    monkeypatch.setattr(in_memory, "IN_MEMORY_MAX", 2)
    for id_, namespace in (("a", "n"), ("b", "other")):
        store.store(id_, {"content": ""}, namespace=namespace)
    with pytest.raises(MemoryStoreError, match="holds 2 memories; delete some, or use a Sqlite"):
        store.store("c", {"content": ""}, namespace="n")
    store.store("a", {"content": "again"}, namespace="n")
    store.delete("b", namespace="other")
    store.store("c", {"content": ""}, namespace="n")

    assert ids(store.list(namespace="n")) == ["c", "a"]


def test_a_name_is_one_store(monkeypatch):
    """However often it is asked for, within a process."""
    monkeypatch.setattr(in_memory, "_STORES", {})

    assert named("a") is named("a")
    assert named("a") is not named("b")
