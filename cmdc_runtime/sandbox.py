"""The sandboxes by name: ``create_agent(…, sandbox=cmdc.sandbox.Local(root="project"))``.

These are light references: an application imports no worker code. A reference is the option
``sandbox``, and becomes a ``cmdc_runtime.extensions.sandbox.Sandbox`` in the session's process by
``create`` in ``workers.builtin.sandboxes.<short_name>``, which takes its defaults from here.
"""

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from cmdc_runtime.extensions.sandbox import EXECUTE_TIMEOUT_S
from cmdc_runtime.packing import BuiltInSandbox
from cmdc_runtime.plain import short

TIMEOUT_S_MAX: Final = 86_400.0
ROOT_CHARS_MAX: Final = 4096


class Local(BuiltInSandbox, frozen=True, kw_only=True):
    """Files of the machine below one folder, and commands as the session's process runs them.

    Tools for files can't leave the folder. Commands can: they are processes of the same user.
    """

    short_name: ClassVar[str] = "local"
    root: Annotated[str, Meta(min_length=1, max_length=ROOT_CHARS_MAX)] | None = None
    """The folder, relative to the working folder or absolute; None: the working folder."""
    virtual_mode: bool = True
    """Nothing outside of ``root`` can be named or reached: neither by "..", "~" or an absolute path
    that does not lie in it, nor by a symbolic link, whoever put it there and when. False: paths are
    those of the machine, and reach whatever the process may reach."""
    timeout: Annotated[float, Meta(gt=0, le=TIMEOUT_S_MAX)] = EXECUTE_TIMEOUT_S
    """Seconds that a command may run which says nothing of it."""

    def __post_init__(self) -> None:
        """Refuse what no system call takes."""
        if self.root is not None and "\0" in self.root:
            raise ValueError(f"root must be a path without NUL, got {short(self.root)}")


__all__ = ["ROOT_CHARS_MAX", "TIMEOUT_S_MAX", "Local"]
