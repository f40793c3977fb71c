"""The built-in tools by name: ``tools=[cmdc.tools.ReadFile, cmdc.tools.Shell(timeout=20)]``.

These are light references: an application imports no worker code. A field is an argument of
``create`` in ``workers.builtin.tools.<short_name>``, which takes its default from here.
"""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta, field

from cmdc_runtime.confinement.hosts import ENTRIES_MAX, HOST_CHARS_MAX, rules_of
from cmdc_runtime.errors import InvalidTool, ToolNotFound
from cmdc_runtime.extensions.context import ToolContext
from cmdc_runtime.extensions.sandbox import ShellKind
from cmdc_runtime.extensions.tool import Tool, as_tool, resolve
from cmdc_runtime.option_checks import SkillsDirs
from cmdc_runtime.packing import BuiltIn, built_ins, pack
from cmdc_runtime.plain import short
from cmdc_runtime.reasoning.limits import Reason

SHELL_TIMEOUT_S: Final = 120.0
SHELL_TIMEOUT_S_MAX: Final = 3600.0
TASK_TIMEOUT_S: Final = 120.0
TASK_TIMEOUT_S_MAX: Final = 86_400.0
FETCH_TIMEOUT_S: Final = 30.0
FETCH_TIMEOUT_S_MAX: Final = 600.0
FETCH_BYTES: Final = 2**20
FETCH_BYTES_MAX: Final = 16 * 2**20
ASK_USER_TIMEOUT_S: Final = 300.0
ASK_USER_TIMEOUT_S_MAX: Final = 7 * 86_400.0

AllowedHosts = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=HOST_CHARS_MAX)]],
    Meta(min_length=1, max_length=ENTRIES_MAX),
]


class ReadFile(BuiltIn, frozen=True, kw_only=True):
    """Reads a text file, in parts if it is long."""

    short_name: ClassVar[str] = "read_file"


class ListDir(BuiltIn, frozen=True, kw_only=True):
    """Lists a folder."""

    short_name: ClassVar[str] = "list_dir"


class WriteFile(BuiltIn, frozen=True, kw_only=True):
    """Writes a text file as a whole, in one piece, with the folders it needs."""

    short_name: ClassVar[str] = "write_file"


class EditFile(BuiltIn, frozen=True, kw_only=True):
    """Replaces a passage that occurs exactly once in a text file."""

    short_name: ClassVar[str] = "edit_file"


class ApplyPatch(BuiltIn, frozen=True, kw_only=True):
    """Changes, adds, deletes and moves text files by a patch, all of them or none.

    It takes unified diffs, and patches from "*** Begin Patch" to "*** End Patch".
    """

    short_name: ClassVar[str] = "apply_patch"


class Grep(BuiltIn, frozen=True, kw_only=True):
    """Searches text files for a regular expression."""

    short_name: ClassVar[str] = "grep"


class Glob(BuiltIn, frozen=True, kw_only=True):
    """Finds files by a pattern of their path."""

    short_name: ClassVar[str] = "glob"


class Shell(BuiltIn, frozen=True, kw_only=True):
    """Runs shell commands in the session's working folder.

    A command sees a short list of the agent's environment variables, no keys, and ``env``; not
    what ``tool_env`` names. What it leaves in the background ends with it; what it has set free
    with ``setsid`` runs until the session's process ends, or the call is timed out or aborted, or
    a signal ends its shell.
    """

    short_name: ClassVar[str] = "shell"
    timeout: Annotated[float, Meta(gt=0, le=SHELL_TIMEOUT_S_MAX)] = SHELL_TIMEOUT_S
    """Seconds; no command takes longer, and the model may ask for less."""
    env: dict[str, str] = field(default_factory=dict)
    shell: ShellKind | None = None
    """What reads the commands; one that is not installed is refused by its name. None: what the
    ``Config`` of the session says, else bash, and sh where that is missing."""


class FetchUrl(BuiltIn, frozen=True, kw_only=True):
    """Fetches a page of a host that is named, and returns its text.

    The agent's process asks for it, whatever network the session's sandbox leaves to commands. A
    name that leads to this machine or a private address is refused, unless that address is named.
    """

    short_name: ClassVar[str] = "fetch_url"
    allow: AllowedHosts
    """As ``allow_hosts`` of a sandbox: ``"docs.python.org"``, ``"*.example.org"``,
    ``"example.org:8443"``, ``"10.0.0.0/8"``, ``"*"`` for all names."""
    timeout: Annotated[float, Meta(gt=0, le=FETCH_TIMEOUT_S_MAX)] = FETCH_TIMEOUT_S
    """Seconds for a page, with those that it is redirected to."""
    max_bytes: Annotated[int, Meta(ge=1, le=FETCH_BYTES_MAX)] = FETCH_BYTES
    """Of a page, unpacked; a larger one is refused."""

    def __post_init__(self) -> None:
        """Refuse a list that is none; what is no list is reported with its type elsewhere."""
        given: object = self.allow
        if not isinstance(given, list | tuple):
            return
        rules_of(self.allow)
        if not self.allow:
            raise ValueError('allow names no host: ["docs.python.org", "*.example.org"] are two')


class Task(BuiltIn, frozen=True, kw_only=True):
    """Lets a subagent do a task; its last answer comes back."""

    short_name: ClassVar[str] = "task"
    timeout: Annotated[float, Meta(gt=0, le=TASK_TIMEOUT_S_MAX)] = TASK_TIMEOUT_S
    """Seconds after which the subagent is ended."""


class LoadSkill(BuiltIn, frozen=True, kw_only=True):
    """Reads a skill, or a file of its folder; ``skills_dirs`` brings it with the plugin Skills."""

    short_name: ClassVar[str] = "load_skill"
    dirs: SkillsDirs = ()
    """As the option ``skills_dirs``."""


class WriteTodos(BuiltIn, frozen=True, kw_only=True):
    """Keeps the model's list of what it has to do; subscribers see each change of it."""

    short_name: ClassVar[str] = "write_todos"


class AskUser(BuiltIn, frozen=True, kw_only=True):
    """Asks the user a question and waits for the answer."""

    short_name: ClassVar[str] = "ask_user"
    timeout: Annotated[float, Meta(gt=0, le=ASK_USER_TIMEOUT_S_MAX)] = ASK_USER_TIMEOUT_S
    """Seconds after which the model goes on without an answer."""


class CompactConversation(BuiltIn, frozen=True, kw_only=True):
    """Lets the model have its own conversation compacted."""

    short_name: ClassVar[str] = "compact_conversation"


# --- of a list of tools ---------------------------------------------------------------------------

_OPEN: Final = "workers.loader:load_tools"
"""What an agent opens built-in tools with; it is loaded where somebody asks for their schema."""


def find(tools: Iterable[Any], name: str) -> Any:  # Any: whatever ``tools=`` takes
    """Return the first tool of this name, as it stands in the list: ``tools`` of ``create_agent``.

    Raises:
        ToolNotFound: there is none; it names those that are there.
        InvalidTool: what stands before it is no tool.
    """
    names: list[str] = []
    for one in tools:
        names.append(_name_of(one))
        if names[-1] == name:
            return one
    there = f"there are {', '.join(names)}" if names else "there are none"
    raise ToolNotFound(f"no tool is named {short(name)}; {there}")


def to_schema(tools: Iterable[Any], context: ToolContext | None = None) -> list[dict[str, Any]]:
    """Return what a model reads of tools, in the form of OpenAI's requests, in their order.

    ``context`` is for tools that describe themselves by the folder, shell or subagents of their
    session.

    Raises:
        InvalidTool: one is no tool; the message says what to change.
    """
    specs = [_opened(one).spec(context or ToolContext()) for one in tools]
    return [
        {
            "type": "function",
            "function": {
                "name": spec.name,
                "description": spec.description,
                "parameters": spec.parameters,
            },
        }
        for spec in specs
    ]


def _name_of(thing: Any) -> str:  # Any: as above
    built_in = _reference(thing)
    if built_in is None:
        return as_tool(thing).name
    given: str = getattr(built_in, "name", built_in.short_name)
    return given


def _opened(thing: Any) -> Tool:  # Any: as above
    built_in = _reference(thing)
    if built_in is None:
        return as_tool(thing)
    load: Callable[..., tuple[Tool, ...]] = resolve(_OPEN)  # type: ignore[assignment]  # it is
    try:
        [opened] = load([pack(built_in, built_in.short_name)])
    except InvalidTool:
        raise
    except Exception as error:  # the error of what loads it, whose class is not known here
        raise InvalidTool(str(error)) from error
    return opened


def _reference(thing: Any) -> BuiltIn | None:  # Any: as above
    """Return the light reference that something is or names, None for other tools."""
    there = built_ins("tool")
    if isinstance(thing, str) and ":" not in thing:
        if thing not in there:
            raise InvalidTool(f"no built-in tool is named {short(thing)}")
        return there[thing]()
    if isinstance(thing, type):
        return next((kind() for kind in there.values() if kind is thing), None)
    return thing if isinstance(thing, BuiltIn) and type(thing) in there.values() else None


__all__ = [
    "ASK_USER_TIMEOUT_S",
    "ASK_USER_TIMEOUT_S_MAX",
    "FETCH_BYTES",
    "FETCH_BYTES_MAX",
    "FETCH_TIMEOUT_S",
    "FETCH_TIMEOUT_S_MAX",
    "SHELL_TIMEOUT_S",
    "SHELL_TIMEOUT_S_MAX",
    "TASK_TIMEOUT_S",
    "TASK_TIMEOUT_S_MAX",
    "ApplyPatch",
    "AskUser",
    "CompactConversation",
    "EditFile",
    "FetchUrl",
    "Glob",
    "Grep",
    "ListDir",
    "LoadSkill",
    "ReadFile",
    "Reason",
    "Shell",
    "Task",
    "WriteFile",
    "WriteTodos",
    "find",
    "to_schema",
]
