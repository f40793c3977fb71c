"""The light references to backends: how they travel, and what they refuse."""

import msgspec
import pytest

from cmdc_runtime import backends

STATE = backends.State(max_files=5)
FILES = backends.Filesystem(root_dir="files", virtual_mode=False)
REFERENCES = [
    STATE,
    FILES,
    backends.Composite(default=STATE),
    backends.Composite(
        default=FILES,
        routes={"/a/": STATE, "/b/c/": backends.Composite(default=STATE, routes={"/d/": FILES})},
    ),
]


@pytest.mark.parametrize("reference", REFERENCES)
def test_a_reference_travels(reference):
    """As plain values, whatever it is made of."""
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(reference))

    assert msgspec.convert(plain, backends.AnyBackend) == reference


@pytest.mark.parametrize(
    ("prefix", "problem"),
    [
        ("memories", "must begin and end"),
        ("/memories", "must begin and end"),
        ("memories/", "must begin and end"),
        ("/", "is the top"),
        ("//", "is the top"),
        ("/a//b/", "must be written '/a/b/'"),
        ("/./a/", "must be written '/a/'"),
        ("/../a/", 'has no ".."'),
        ("/a\0/", "NUL"),
    ],
)
def test_a_bad_prefix_is_refused(prefix, problem):
    """With its name, before anything is made."""
    with pytest.raises(ValueError, match="routes: ") as caught:
        backends.Composite(default=STATE, routes={prefix: STATE})
    assert problem in str(caught.value)
    assert repr(prefix) in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "plain"),
    [
        (backends.State, {"max_bytes": 0}),
        (backends.State, {"max_files": 0}),
        (backends.State, {"max_bytes": backends.STATE_BYTES_MAX + 1}),
        (backends.Filesystem, {}),
        (backends.Filesystem, {"root_dir": ""}),
        (backends.Filesystem, {"root_dir": "a\0b"}),
        (backends.Filesystem, {"root_dir": "a", "mode": 1}),
        (backends.Composite, {"default": {"kind": "tape"}}),
    ],
)
def test_bad_options_are_refused(reference, plain):
    """Where they arrive."""
    kind = reference.__struct_config__.tag
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"kind": kind, **plain}, backends.AnyBackend)


def test_a_reference_says_what_it_is():
    """A person reads it in the reference pages."""
    assert all(getattr(backends, name).__doc__ for name in ("State", "Filesystem", "Composite"))
