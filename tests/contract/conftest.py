"""The backends that the contract is held to, alone and as parts of a composite.

A backend of your own is held to it by a row in ``PLACES``.
"""

from dataclasses import dataclass

import pytest

from cmdc_runtime import backends as references
from cmdc_runtime.extensions.backend import Backend
from workers.builtin.backends.composite import opened

STATE = references.State(max_files=5000)
FILES = references.Filesystem(root_dir="files")
PLACES = {
    # what            the backend, and the folder of it that stands for the top
    "state": (STATE, ""),
    "filesystem": (FILES, ""),
    "filesystem, real paths": (
        references.Filesystem(root_dir="files", virtual_mode=False),
        "{here}/files",
    ),
    "default, state": (references.Composite(default=STATE, routes={"/r/": FILES}), ""),
    "default, filesystem": (references.Composite(default=FILES, routes={"/r/": STATE}), ""),
    "route, state": (references.Composite(default=FILES, routes={"/r/": STATE}), "/r"),
    "route, filesystem": (references.Composite(default=STATE, routes={"/r/s/": FILES}), "/r/s"),
    "composite in a composite": (
        references.Composite(
            default=STATE,
            routes={"/r/": references.Composite(default=STATE, routes={"/s/": FILES})},
        ),
        "/r/s",
    ),
}


@dataclass(frozen=True)
class Place:
    """A backend, and what turns a path below its top into one of it; taken apart as the two."""

    backend: Backend
    top: str

    def __iter__(self):
        return iter((self.backend, self.at))

    def at(self, path):
        """Return a path of the backend."""
        return self.top + path

    def fill(self, **files):
        """Write files, named by letters for "/": ``a_b`` is "/a/b"."""
        for name, content in files.items():
            path = self.at("/" + name.replace("_", "/"))
            assert self.backend.write(path, content).error is None
        return self

    def names(self, entries):
        """Return the paths of entries, below the top."""
        return [entry.path.removeprefix(self.top) for entry in entries]


@pytest.fixture(params=PLACES)
def place(request, tmp_path):
    """A backend, and where in it a test may write."""
    reference, top = PLACES[request.param]
    top = top.format(here=tmp_path)
    if top.startswith(str(tmp_path)):  # a real folder that is not there is none
        (tmp_path / "files").mkdir()
    return Place(opened(reference, str(tmp_path)), top)
