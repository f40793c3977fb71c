"""References become stores: each its own class, functions however they are given."""

from pathlib import Path

import pytest

from cmdc_runtime import stores
from cmdc_runtime.extensions.memory import MemoryStoreError
from workers.builtin.stores._sql import SqliteStore
from workers.builtin.stores.in_memory import InMemoryStore
from workers.builtin.stores.opening import opened
from workers.builtin.stores.vector import VectorStore


@pytest.mark.parametrize(
    ("reference", "kind"),
    [
        (stores.InMemory(), InMemoryStore),
        (stores.Sqlite(path="a.db"), SqliteStore),
        (stores.Vector(path="a.db"), VectorStore),
        (stores.Vector(path="a.db", embed="builtins:list"), VectorStore),
        (stores.Custom(create=InMemoryStore), InMemoryStore),
        (
            stores.Custom(create="workers.builtin.stores.in_memory:InMemoryStore"),
            InMemoryStore,
        ),
    ],
)
def test_each_reference_is_a_store(reference, kind, tmp_path):
    """Nothing is written before the first operation."""
    assert type(opened(reference, str(tmp_path))) is kind
    assert list(tmp_path.iterdir()) == []


def test_names_share_within_a_process():
    """Plugins that name the same store see the same memories."""
    one, same, other = (opened(stores.InMemory(name=name)) for name in ("one", "one", "other"))

    assert one is same
    assert one is not other


@pytest.mark.parametrize(
    ("path", "place"),
    [("a.db", "{work}/a.db"), ("x/a.db", "{work}/x/a.db"), ("/t/a.db", "/t/a.db"),
     ("~/a.db", "{home}/a.db")],
)  # fmt: skip
@pytest.mark.parametrize("reference", [stores.Sqlite, stores.Vector])
def test_paths_begin_at_the_working_folder(reference, path, place, tmp_path, monkeypatch):
    """Absolute ones stand for themselves, and "~" for the home."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    found = opened(reference(path=path), str(tmp_path / "work")).path

    assert found == Path(place.format(work=tmp_path / "work", home=tmp_path / "home"))


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        (stores.Vector(path="a", embed=5), "embed of a memory store must be a function, got 5"),
        (stores.Vector(path="a", embed="no_such_module:x"), "No module named 'no_such_module'"),
        (stores.Custom(create="math:no"), "create 'math:no' of a memory store: .* no attribute"),
        (stores.Custom(create=dict), "create must return a MemoryStore, got dict"),
    ],
)
def test_functions_that_are_none_are_named(reference, problem):
    """With the option they came in."""
    with pytest.raises(MemoryStoreError, match=problem):
        opened(reference)
