"""The built-in tools by name: ``tools=[cmdc.tools.ReadFile, cmdc.tools.Shell(timeout=20)]``.

These are light references: an application imports no worker code. A field is an argument of
``create`` in ``workers.builtin.tools.<short_name>``, which takes its default from here.
"""

from typing import Annotated, ClassVar, Final

from msgspec import Meta, field

from cmdc_runtime.extensions.sandbox import ShellKind
from cmdc_runtime.option_checks import SkillsDirs
from cmdc_runtime.packing import BuiltIn
from cmdc_runtime.reasoning.limits import Reason

SHELL_TIMEOUT_S: Final = 120.0
SHELL_TIMEOUT_S_MAX: Final = 3600.0
TASK_TIMEOUT_S: Final = 120.0
TASK_TIMEOUT_S_MAX: Final = 86_400.0
ASK_USER_TIMEOUT_S: Final = 300.0
ASK_USER_TIMEOUT_S_MAX: Final = 7 * 86_400.0


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
    """What reads the commands; one that is not installed is refused by its name. None: bash, and sh
    where that is missing."""


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


__all__ = [
    "ASK_USER_TIMEOUT_S",
    "ASK_USER_TIMEOUT_S_MAX",
    "SHELL_TIMEOUT_S",
    "SHELL_TIMEOUT_S_MAX",
    "TASK_TIMEOUT_S",
    "TASK_TIMEOUT_S_MAX",
    "AskUser",
    "CompactConversation",
    "EditFile",
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
]
