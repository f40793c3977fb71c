"""The built-in tools by name: ``tools=[cmdc.tools.ReadFile, cmdc.tools.Shell(timeout=20)]``.

These are light references: an application imports no worker code. A field is an argument of
``create`` in ``workers.builtin.tools.<short_name>``, which takes its default from here.
"""

from typing import Annotated, ClassVar, Final

from msgspec import Meta, field

from cmdc_runtime.packing import BuiltIn

SHELL_TIMEOUT_S: Final = 120.0
SHELL_TIMEOUT_S_MAX: Final = 3600.0


class ReadFile(BuiltIn, frozen=True, kw_only=True):
    """Reads a text file, in parts if it is long."""

    short_name: ClassVar[str] = "read_file"


class ListDir(BuiltIn, frozen=True, kw_only=True):
    """Lists a folder."""

    short_name: ClassVar[str] = "list_dir"


class Shell(BuiltIn, frozen=True, kw_only=True):
    """Runs shell commands in the session's working folder.

    A command sees a short list of the agent's environment variables, no keys, and ``env``.
    """

    short_name: ClassVar[str] = "shell"
    timeout: Annotated[float, Meta(gt=0, le=SHELL_TIMEOUT_S_MAX)] = SHELL_TIMEOUT_S
    """Seconds; no command takes longer, and the model may ask for less."""
    env: dict[str, str] = field(default_factory=dict)


__all__ = ["SHELL_TIMEOUT_S", "SHELL_TIMEOUT_S_MAX", "ListDir", "ReadFile", "Shell"]
