"""The options of plugins that keep a conversation: checkpoints, memories, results, repair."""

from typing import Annotated, Any, ClassVar, Final

import msgspec
from msgspec import Meta, field

from cmdc_runtime.backends import AnyBackend, Filesystem
from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.checkpoints import CHECKPOINTS_MAX
from cmdc_runtime.option_checks import MEMORY_FILES_MAX, SkillsDirs
from cmdc_runtime.packing import BuiltInPlugin, Function
from cmdc_runtime.provider_options import check_models
from cmdc_runtime.skills import SNIPPET_TOKENS
from cmdc_runtime.stores import AnyStore
from cmdc_runtime.subagent import MEMORY_FILES

# --- auto checkpoint ------------------------------------------------------------------------------

EVERY_N_TURNS: Final = 10
"""Requests to the model between two checkpoints, unless the options say otherwise."""
SESSION_END: Final = "session_end"
"""Among ``on_events``: the session ends."""
ON_EVENTS: Final = ("approval_required", SESSION_END)
"""The events that are worth a checkpoint, unless the options name others."""

_Name = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,128}$")]
_Names = Annotated[tuple[_Name, ...], Meta(max_length=512)]


class AutoCheckpoint(BuiltInPlugin, frozen=True, kw_only=True):
    """Saves the session's state by itself: every so many turns, after some tools, at some events.

    Each trigger saves for itself. After a save the oldest of its own checkpoints and those that
    are too old are deleted; checkpoints that others made stay. A save that fails is reported by a
    warning in the log and by nothing else.
    """

    short_name: ClassVar[str] = "auto_checkpoint"
    every_n_turns: Annotated[int, Meta(ge=0, le=100_000)] = EVERY_N_TURNS
    """Turns, which are requests to the model, since the last such checkpoint; they are counted
    when a cycle ends. 0 is never."""
    by_turn: Annotated[int, Meta(ge=0, le=100_000)] | None = None
    """Another name of ``every_n_turns``; give one of them."""
    on_tools: _Names = ()
    """Names of tools, exact: a call of one has ended, and its result is part of the state."""
    on_events: _Names = ON_EVENTS
    """Kinds of events, and ``"session_end"``: the session ends normally."""
    max_checkpoints: Annotated[int, Meta(ge=1, le=CHECKPOINTS_MAX)] = 50
    """Of its own in this session."""
    ttl_seconds: Annotated[float, Meta(gt=0, le=1_000_000_000)] = 2_592_000
    """Older ones of its own are deleted at the next save; the default is 30 days."""

    def __post_init__(self) -> None:
        """Settle the other name.

        Raises:
            ValueError: both names are given, and contradict each other.
        """
        if self.by_turn is None:
            return
        if self.every_n_turns not in (EVERY_N_TURNS, self.by_turn):
            raise ValueError(
                f"every_n_turns is {self.every_n_turns} and by_turn, another name of it, is"
                f" {self.by_turn}: give one of them"
            )
        msgspec.structs.force_setattr(self, "every_n_turns", self.by_turn)


# --- episodic memory ------------------------------------------------------------------------------

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


# --- large result offload -------------------------------------------------------------------------


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


# --- memory flush ---------------------------------------------------------------------------------


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


# --- memory loader --------------------------------------------------------------------------------


class MemoryLoader(BuiltInPlugin, frozen=True, kw_only=True):
    """Shows memory files in the system prompt, such as ``AGENTS.md``.

    A file that is not there is left out. Of a file the first 64 KiB are shown, and where it is cut
    the model reads that it is.
    """

    short_name: ClassVar[str] = "memory_loader"
    memory_files: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=4096)], ...],
        Meta(max_length=MEMORY_FILES_MAX),
    ] = MEMORY_FILES
    """Relative to the session's working folder or absolute, "~" for the user's home."""
    auto_reload: bool = True
    """Look at the files again after each ``write_file``, ``edit_file`` and ``apply_patch``."""
    nested: bool = False
    """Show besides, of the working folder and of each folder in it that a tool for files works in,
    the ``AGENTS.md``, or the ``CLAUDE.md`` where there is none; one behind a link out of the
    working folder is left out. With those that are named they are 12 at the most; the folders that
    were worked in last count."""

    def __post_init__(self) -> None:
        """Refuse what no system call takes, and what would be shown twice."""
        for name in self.memory_files:
            if "\0" in name:
                raise ValueError(f"memory_files: {name!r} has a NUL, and no path has one")
            if self.memory_files.count(name) > 1:
                raise ValueError(f"memory_files: {name!r} is there more than once: name it once")


# --- skills -------------------------------------------------------------------------------------


class Skills(BuiltInPlugin, frozen=True, kw_only=True):
    """Says in the system prompt which skills there are; ``skills_dirs`` brings it.

    It looks at the folders again before each request, and says at the end of the conversation
    what has changed. A skill of the project, whose folder lies in the working folder, is listed
    without its description, and loaded when a person has agreed to its text.
    """

    short_name: ClassVar[str] = "skills"
    dirs: SkillsDirs = ()
    """As the option ``skills_dirs``."""
    tokens: Annotated[int, Meta(ge=100, le=100_000)] = SNIPPET_TOKENS
    """What the list takes of the system prompt at the most."""


# --- patch tool calls -----------------------------------------------------------------------------

CONTENT_CHARS_MAX: Final = 4_000


class PatchToolCalls(BuiltInPlugin, frozen=True, kw_only=True):
    """Gives every tool call of the conversation that has no result one, for good.

    An abort, a crash or an imported conversation leaves such calls. Without this plugin each
    request is repaired as it is sent, and the conversation stays as it is.
    """

    short_name: ClassVar[str] = "patch_tool_calls"
    synthetic_content: Annotated[str, Meta(min_length=1, max_length=CONTENT_CHARS_MAX)] = (
        "Error: Tool call was interrupted or not executed."
    )
    """What the model reads as the result."""
    is_error: bool = True
    """Mark the result as an error."""


# --- prompt cache ---------------------------------------------------------------------------------

CACHE_POINTS_MAX: Final = 4
"""What Anthropic takes in one request."""


class PromptCache(BuiltInPlugin, frozen=True, kw_only=True):
    """Has Claude's provider cache the part of the conversation that comes again.

    It marks, in this order of importance, the system prompt, the last user message, the result
    that closes the earliest round of tool calls, and the latest tool result. What stands before a
    mark, the tools included, is read from the cache in the next request, for a tenth of its price.
    For other models it does nothing.
    """

    short_name: ClassVar[str] = "prompt_cache"
    max_cache_points: Annotated[int, Meta(ge=1, le=CACHE_POINTS_MAX)] = 3
    """Marks in one request: as many of the above, from the first on."""
    min_tokens: Annotated[int, Meta(ge=0)] = 100
    """A message is marked only if the conversation up to its end is this long, 4 characters
    counted as a token. The system prompt is always marked. Anthropic caches nothing shorter than
    1024 tokens for most models, all that comes before a mark counted."""


# --- recovery -------------------------------------------------------------------------------------


class Recovery(BuiltInPlugin, frozen=True, kw_only=True):
    """Takes care of tools that fail again and again, one measure after the other.

    It waits longer and longer between the attempts; then it asks another model to find another way;
    then observers are notified; then the cycle ends with a report. Each measure but the waiting is
    given one turn of the model to help. A success of the tool, or a new prompt, ends the affair.
    """

    short_name: ClassVar[str] = "recovery"
    max_retries: Annotated[int, Meta(ge=0, le=10)] = 3
    """Attempts after the first failure of a tool before the other measures begin; those of the
    session itself and those of the model count alike."""
    backoff_base_ms: Annotated[int, Meta(ge=0, le=60_000)] = 1000
    """The wait before the first of these; it doubles from one to the next, up to a minute."""
    fallback_model: Annotated[str, Meta(min_length=1)] | None = None
    """The model that is to find another way, and stays in use; None leaves this measure out."""
    escalation_event: bool = True
    """Whether observers are notified, by ``recovery_escalated``, before the cycle is given up."""

    def __post_init__(self) -> None:
        """Refuse a model that there can't be."""
        check_models(fallback_model=self.fallback_model)
