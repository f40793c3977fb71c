"""The options of the security guard, and what it blocks unless set otherwise."""

import re
from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from cmdc_runtime.packing import BuiltInPlugin

REGEX_MARK: Final = "re:"
"""What a blocked command begins with that is a regular expression."""
BLOCKED_PATHS: Final = (
    "*.key", "*.pem", "*.p12", "*.pfx", "*.crt", "*.cer", ".env", ".env.*", "~/.ssh/**",
    "**/.ssh/**", "~/.gnupg/**", "**/.aws/credentials", "**/.aws/config", "**/.config/gcloud/**",
    "/Library/Keychains/**", "~/Library/Keychains/**", "/etc/shadow", "/etc/passwd",
)  # fmt: skip
"""What ``default_blocked_paths`` stands for."""

Text = Annotated[str, Meta(min_length=1, max_length=500)]
Texts = Annotated[tuple[Text, ...], Meta(max_length=200)]


class SecurityGuard(BuiltInPlugin, frozen=True, kw_only=True):
    """Keeps tools away from secret files and destructive shell commands.

    It reads the arguments of every tool: those that name a path, and those that are a shell
    command, whose words count as paths too. A blocked call does not run; the model reads why.

    It is a barrier against mistakes and plain attempts, no sandbox: a program that the model has
    written itself reads what its user may read. Give a session that must not reach a file a user
    or a container that cannot.
    """

    short_name: ClassVar[str] = "security_guard"
    blocked_paths: Texts = ()
    """Patterns besides the defaults. ``*``, ``?`` and ``[a-z]`` match within a name, ``**`` stands
    for any folders. A pattern without ``/`` holds in any folder, one that begins with ``/`` or
    ``~/`` from there, any other from the working folder. It blocks all below what it matches;
    case does not count."""
    blocked_commands: Texts = ()
    """Words besides the defaults that no command may have, wherever they stand in it, such as
    ``"terraform destroy"``; case does not count. ``"re:..."`` is a regular expression, searched for
    in the whole command."""
    audit: bool = True
    """Tell observers ``security_audit`` of each call that is blocked."""
    default_blocked_paths: bool = True
    """Block keys and certificates (``*.key``, ``*.pem``, ``*.p12``, ``*.pfx``, ``*.crt``,
    ``*.cer``), ``.env`` and ``.env.*``, ``.ssh``, ``~/.gnupg``, the credentials of AWS and Google
    Cloud, keychains, ``/etc/shadow`` and ``/etc/passwd``."""
    default_blocked_commands: bool = True
    """Block what formats, wipes or partitions disks, deletes folders by force or at a root, changes
    the rights of whole trees, kills everything or by name (``pkill``, ``killall``, ``fuser -k``),
    stops services or the machine, or pipes a download into a shell."""
    path_arguments: Texts = ()
    """Names of tool arguments that hold paths, besides those that sound like it: ``path``,
    ``file``, ``directory``, ``target_file`` and their kin."""
    guard_searches: bool = True
    """Block a search or copy of a whole folder in which a blocked file lies, as ``grep -r`` or
    ``tar`` do it; folders of dependencies are not looked into."""
    undecidable_commands: Literal["allow", "block"] = "allow"
    """What becomes of a shell command that does what its text does not show: code of another
    language, a program whose name is computed, a script that is sourced. "block" lets pass only
    what can be read."""

    def __post_init__(self) -> None:
        """Check the regular expressions.

        Raises:
            ValueError: one is wrong, or a pattern is blank.
        """
        for pattern in self.blocked_paths:
            if not pattern.strip("/ *"):
                raise ValueError(
                    f"blocked_paths has {pattern!r}, which means every path: name a file or folder"
                )
        for command in self.blocked_commands:
            expression = command.removeprefix(REGEX_MARK)
            if not expression.strip():
                raise ValueError(f"blocked_commands has {command!r}, which is blank: name a word")
            if expression != command:
                _check(expression)


def _check(expression: str) -> None:
    try:
        re.compile(expression)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(
            f"blocked_commands has {REGEX_MARK + expression!r}, which is no regular expression:"
            f" {error}"
        ) from error
