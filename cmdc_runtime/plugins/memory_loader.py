"""The options of the memory loader."""

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from cmdc_runtime.packing import BuiltInPlugin

MEMORY_FILES_MAX: Final = 12
"""Together they fit into one action of a plugin."""


class MemoryLoader(BuiltInPlugin, frozen=True, kw_only=True):
    """Shows memory files in the system prompt, such as ``AGENTS.md``.

    A file that is not there is left out. Of a file the first 64 KiB are shown, and where it is cut
    the model reads that it is.
    """

    short_name: ClassVar[str] = "memory_loader"
    memory_files: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=4096)], ...],
        Meta(max_length=MEMORY_FILES_MAX),
    ] = ("AGENTS.md",)
    """Relative to the session's working folder or absolute, "~" for the user's home."""
    auto_reload: bool = True
    """Look at the files again after each ``write_file`` and ``edit_file``."""

    def __post_init__(self) -> None:
        """Refuse what no system call takes, and what would be shown twice."""
        for name in self.memory_files:
            if "\0" in name:
                raise ValueError(f"memory_files: {name!r} has a NUL, and no path has one")
            if self.memory_files.count(name) > 1:
                raise ValueError(f"memory_files: {name!r} is there more than once: name it once")
