"""References to stores: what travels, and what is refused before it does."""

import msgspec
import pytest

from cmdc_runtime import plugins, stores
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.packing import pack_plugin


def travelled(reference):
    """Return a reference after its way through MessagePack."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(reference), type=stores.AnyStore)


@pytest.mark.parametrize(
    ("reference", "written"),
    [
        (stores.InMemory(), {"kind": "in_memory"}),
        (stores.InMemory(name="a"), {"kind": "in_memory", "name": "a"}),
        (stores.Sqlite(path="a.db"), {"kind": "sqlite", "path": "a.db"}),
        (
            stores.Vector(path="a.db", embed="module:name", dimensions=3),
            {"kind": "vector", "path": "a.db", "embed": "module:name", "dimensions": 3},
        ),
        (stores.Custom(create="module:name"), {"kind": "custom", "create": "module:name"}),
    ],
)
def test_a_reference_is_its_kind_and_options(reference, written):
    """It comes back as what it was."""
    assert msgspec.to_builtins(reference) == written
    assert travelled(reference) == reference


@pytest.mark.parametrize("kind", [stores.Sqlite, stores.Vector])
@pytest.mark.parametrize("path", ["a\0b", "folder/"])
def test_a_path_is_that_of_a_file(kind, path):
    """It is refused where it is written."""
    with pytest.raises(ValueError, match="path must be that of a file"):
        kind(path=path)


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        (stores.Sqlite(path=""), "length >= 1"),
        (stores.Vector(path="a", dimensions=0), "Expected `int` >= 1"),
        (stores.Vector(path="a", dimensions=10_000), "Expected `int` <= 8192"),
        (stores.InMemory(name=""), "length >= 1"),
    ],
)
def test_bounds_are_checked_when_it_is_packed(reference, problem):
    """Before a session is asked for."""
    with pytest.raises(InvalidOptions, match=problem):
        pack_plugin(plugins.EpisodicMemory(memory_store=reference), "plugins[0]")


def test_every_reference_is_public():
    """What a plugin may be given can be named."""
    kinds = {kind.__name__ for kind in stores.AnyStore.__args__}

    assert kinds <= set(stores.__all__)
    assert all(kind.__doc__ for kind in stores.AnyStore.__args__)
