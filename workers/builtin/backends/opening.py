"""Makes a backend from its light reference.

To add a backend: a reference in ``cmdc_runtime.backends``, in ``AnyBackend`` too, a module of its
name here, and a case below.
"""

from pathlib import Path
from typing import assert_never

from cmdc_runtime import backends
from cmdc_runtime.extensions.backend import Backend
from workers.builtin.backends.composite import Composite
from workers.builtin.backends.filesystem import Filesystem
from workers.builtin.backends.state import State


def opened(reference: backends.AnyBackend, working_dir: str = ".") -> Backend:
    """Return a new backend; relative folders begin at ``working_dir``."""
    match reference:
        case backends.State(max_bytes=bytes_max, max_files=files_max):
            return State(bytes_max=bytes_max, files_max=files_max)
        case backends.Filesystem(root_dir=root_dir, virtual_mode=virtual_mode):
            root = Path(working_dir).absolute() / Path(root_dir).expanduser()
            return Filesystem(str(root), virtual_mode=virtual_mode)
        case backends.Composite(default=default, routes=routes):
            return Composite(
                opened(default, working_dir),
                {prefix: opened(route, working_dir) for prefix, route in routes.items()},
            )
        case _:
            assert_never(reference)
