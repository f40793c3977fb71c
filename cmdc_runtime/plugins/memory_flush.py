"""The options of the memory flush."""

from typing import Annotated, Any, ClassVar

from msgspec import Meta, field

from cmdc_runtime.model_names import check_models
from cmdc_runtime.packing import BuiltInPlugin


class MemoryFlush(BuiltInPlugin, frozen=True, kw_only=True):
    """Saves key facts to a memory file before the conversation is compacted.

    A model reads what is about to be compacted, which costs one request, and the compaction waits
    for it. Whatever fails, the conversation is compacted.
    """

    short_name: ClassVar[str] = "memory_flush"
    file: Annotated[str, Meta(min_length=1, max_length=4096)] = "AGENTS.md"
    """Relative to the session's working folder or absolute, "~" for the user's home. It is made
    where it is missing."""
    max_facts: Annotated[int, Meta(ge=1, le=100)] = 10
    """Of one compaction."""
    model: Annotated[str, Meta(min_length=1)] | None = None
    """Who extracts the facts; None is the session's own model."""
    provider_opts: dict[str, Any] = field(default_factory=dict)  # Any: litellm's own arguments
    """For that request; with a ``model`` of its own these are all that the provider gets."""

    def __post_init__(self) -> None:
        """Refuse what no system call takes, and a model that there can't be."""
        check_models(model=self.model)
        if "\0" in self.file:
            raise ValueError(f"file: {self.file!r} has a NUL, and no path has one")
