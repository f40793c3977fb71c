"""The backends by name: ``LargeResultOffload(backend=cmdc.backends.Filesystem(root_dir="out"))``.

These are light references: an application imports no worker code. A reference is an option of a
plugin, and becomes a ``cmdc_runtime.extensions.backend.Backend`` in the session's process, by the
module of its name in ``workers.builtin.backends``.
"""

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.extensions.backend import InvalidPathError, path_parts
from cmdc_runtime.plain import short
from cmdc_runtime.reasons import snake

STATE_BYTES_MAX: Final = 2**30
STATE_FILES_MAX: Final = 100_000
ROUTES_MAX: Final = 32
"""Of one composite."""


class _Reference(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag=snake,
    metaclass=Checked,
):
    """Base of all references; ``kind`` says which one travels."""


class State(_Reference, frozen=True, kw_only=True):
    """Keeps files in the memory of the session's process, and as long as that lives.

    A crash, a restart or a hibernation loses them. Each plugin that is given one has its own.
    """

    max_bytes: Annotated[int, Meta(gt=0, le=STATE_BYTES_MAX)] = 64 * 2**20
    """Of all files together, their paths included."""
    max_files: Annotated[int, Meta(gt=0, le=STATE_FILES_MAX)] = 1000


class Filesystem(_Reference, frozen=True, kw_only=True):
    """Keeps files in a folder of the machine."""

    root_dir: Annotated[str, Meta(min_length=1)]
    """The folder, relative to the session's working folder or absolute, "~" for the user's home. It
    is made at the first write."""
    virtual_mode: bool = True
    """``root_dir`` is "/", and nothing outside of it can be named or reached: neither by ".." or
    "~" nor by a symbolic link, whoever put it there and when. False: paths are those of the
    machine, relative ones begin at ``root_dir``, and they reach whatever the process may reach."""

    def __post_init__(self) -> None:
        """Refuse what no system call takes."""
        if "\0" in self.root_dir:
            raise ValueError(f"root_dir must be a path without NUL, got {short(self.root_dir)}")


class Composite(_Reference, frozen=True, kw_only=True):
    """Keeps files below some folders in backends of their own, all others in ``default``."""

    default: "AnyBackend"
    routes: Annotated[dict[str, "AnyBackend"], Meta(max_length=ROUTES_MAX)] = {}
    """A backend by its folder, such as "/memories/"; the longest that fits counts, and the backend
    sees paths without it."""

    def __post_init__(self) -> None:
        """Refuse prefixes that no path could have."""
        for prefix in self.routes:
            if problem := _prefix_problem(prefix):
                raise ValueError(f"routes: {short(prefix)} {problem}")


def _prefix_problem(prefix: str) -> str | None:
    if not (prefix.startswith("/") and prefix.endswith("/")):
        return 'must begin and end with "/", as "/memories/" does'
    try:
        parts = path_parts(prefix)
    except InvalidPathError as error:
        return f"can be no folder: {error}"
    plain = "/".join(["", *parts, ""])
    if not parts:
        return "is the top, which is what default is for"
    return None if plain == prefix else f"must be written {short(plain)}"


AnyBackend: TypeAlias = State | Filesystem | Composite
"""A backend as an option of a plugin."""

__all__ = [
    "ROUTES_MAX",
    "STATE_BYTES_MAX",
    "STATE_FILES_MAX",
    "AnyBackend",
    "Composite",
    "Filesystem",
    "State",
]
