"""The options of the offload of large results."""

from typing import Annotated, ClassVar

from msgspec import Meta

from cmdc_runtime.backends import AnyBackend, Filesystem
from cmdc_runtime.packing import BuiltInPlugin


class LargeResultOffload(BuiltInPlugin, frozen=True, kw_only=True):
    """Keeps tool results that are too long in a backend; the model sees a preview and where it is.

    The model reads the rest in parts, with ``read_file`` and ``grep``. What is kept stays when the
    session ends.
    """

    short_name: ClassVar[str] = "large_result_offload"
    backend: AnyBackend = Filesystem(root_dir=".cmdc/offload")
    """Where results are kept, below ``/large_tool_results/``; by default in the session's working
    folder. One of ``cmdc_runtime.backends``."""
    tool_token_limit_before_evict: Annotated[int, Meta(ge=1000)] = 20_000
    """Tokens, at 4 characters each, that a result may have and still be shown as a whole."""
    excluded_tools: tuple[str, ...] = (
        "list_dir",
        "ls",
        "glob",
        "grep",
        "read_file",
        "edit_file",
        "write_file",
    )
    """Tools whose results are always shown as a whole: these bound them by themselves."""
