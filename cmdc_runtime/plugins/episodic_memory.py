"""The options of the episodic memory."""

from typing import Annotated, ClassVar, Final

import msgspec
from msgspec import Meta

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.packing import BuiltInPlugin, Function
from cmdc_runtime.stores import AnyStore

TOP_K_MAX: Final = 20
EPISODES_MAX: Final = 5_000


class Episode(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """What is remembered of one session; long texts are cut."""

    query: str
    """The first message of the user."""
    plan: str = ""
    """The session's todos, or what the model said when it first called tools."""
    tool_trajectory: tuple[str, ...] = ()
    """The tool calls in their order, each with its arguments and whether it failed."""
    final_answer: str = ""
    """The last answer of the model."""
    aborted_cycles: int = 0
    """Cycles that were aborted or failed; not kept, since ``judge_fn`` is who wants to know."""


class EpisodicMemory(BuiltInPlugin, frozen=True, kw_only=True):
    """Remembers sessions that went well, and shows the model the ones most like the new one.

    A session is remembered when it ends normally: its first question, the plan, the tools it
    called, with their arguments, and the final answer. A new session's first question finds the
    nearest of its user's, which become a section of the system prompt. Nobody sees another user's;
    sessions without a user share theirs.
    """

    short_name: ClassVar[str] = "episodic_memory"
    memory_store: AnyStore
    """Where episodes are kept; one that outlives sessions and is shared by them, such as
    ``cmdc.stores.Sqlite(path=...)``. Each user's are in a namespace of their own, so that other
    things may be in the same store."""
    judge_fn: Function | None = None
    """A function from an ``Episode`` and the ``PluginContext`` that says whether the session went
    well, called at its end. None: it took two requests to the model or more, and no cycle was
    aborted or failed."""
    top_k: Annotated[int, Meta(ge=1, le=TOP_K_MAX)] = 3
    """Episodes shown at most."""
    max_episodes_per_user: Annotated[int, Meta(ge=1, le=EPISODES_MAX)] = 100
    """One more, and the oldest is forgotten."""
    require_user_id: bool = False
    """Refuse a session whose ``user_data`` has no ``user_id``."""
