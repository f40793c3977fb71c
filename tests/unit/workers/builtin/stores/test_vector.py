"""What the vector store promises beyond the contract of all stores, about its vectors."""

import sys

import pytest

from cmdc_runtime import stores
from cmdc_runtime.extensions.memory import MemoryStoreError
from workers.builtin.stores.opening import opened

MEANINGS = {"car": [1.0, 0.1], "automobile": [2.0, 0.0], "tea": [0.0, 3.0], "nothing": [0, 0]}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "memory.db")


def embed(text):
    """A model of two dimensions that knows what words mean."""
    return MEANINGS[text]


def vector_store(path, embed=embed, dimensions=2):
    return opened(stores.Vector(path=path, embed=embed, dimensions=dimensions))


def fill(store, *texts):
    for text in texts:
        store.store(text, {"content": text}, namespace="n")


def test_what_means_the_same_is_near(path):
    """By the cosine of the user's own vectors, whatever their lengths and words."""
    store = vector_store(path)
    fill(store, "tea", "automobile")
    found = store.similarity_search("car", namespace="n")

    assert [one.id for one in found] == ["automobile", "tea"]
    assert found[0].score == pytest.approx(0.995, abs=0.001)
    assert found[1].score == pytest.approx(0.0995, abs=0.001)


def test_a_vector_without_direction_is_near_to_nothing(path):
    """Its text is found by its words."""
    store = vector_store(path)
    fill(store, "nothing", "tea")

    assert [one.id for one in store.similarity_search("tea", namespace="n")] == ["tea"]
    assert store.similarity_search("nothing", namespace="n") == ()
    assert [one.id for one in store.search("nothing", namespace="n")] == ["nothing"]


def test_words_are_searched_without_the_model(path):
    """Only what is stored, and what something is compared with, is embedded."""
    store = vector_store(path)
    fill(store, "car")

    assert store.search("unknown to the model", namespace="n") == ()


@pytest.mark.parametrize(
    ("vector", "problem"),
    [
        ([1.0], "embed must return 2 finite numbers.* returned 1"),
        ([1.0, 2.0, 3.0], "returned 3"),
        ([float("nan"), 1.0], "finite"),
        ([float("inf"), 1.0], "finite"),
        (["a", "b"], "embed failed: ValueError: could not convert"),
        (None, "embed failed: TypeError"),
    ],
)
def test_a_vector_that_is_none_is_an_error(path, vector, problem):
    """It says what was wanted, and nothing is stored."""
    store = vector_store(path, embed=lambda _: vector)
    with pytest.raises(MemoryStoreError, match=problem):
        fill(store, "car")

    assert store.list(namespace="n") == ()


def test_a_model_that_fails_is_an_error(path):
    """With its own words."""
    with pytest.raises(MemoryStoreError, match="embed failed: KeyError: 'unknown'"):
        fill(vector_store(path), "unknown")


def test_the_size_of_vectors_is_that_of_the_file(path):
    """The first to come decides it."""
    fill(vector_store(path), "car")
    with pytest.raises(MemoryStoreError, match="its vectors have 2 dimensions, not 3"):
        vector_store(path, dimensions=3).list(namespace="n")


@pytest.mark.parametrize("library", ["apsw", "sqlite_vec"])
def test_a_missing_library_is_named_with_the_way_out(path, monkeypatch, library):
    """Before anything is done."""
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MemoryStoreError, match=rf"{library}.*pip install 'cmdc-runtime\[vec\]'"):
        vector_store(path)
