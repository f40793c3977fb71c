"""The sandboxes by name: ``create_agent(…, sandbox=cmdc.sandbox.Local(root="project"))``.

These are light references: an application imports no worker code. A reference is the option
``sandbox``, and becomes a ``cmdc_runtime.extensions.sandbox.Sandbox`` in the session's process by
``create`` in ``workers.builtin.sandboxes.<short_name>``, which takes its defaults from here.
"""

from typing import Annotated, ClassVar, Final, Literal

import msgspec
from msgspec import Meta

from cmdc_runtime.confinement.hosts import ENTRIES_MAX, HOST_CHARS_MAX
from cmdc_runtime.confinement.policy import PATHS_MAX, Policy, problem_of
from cmdc_runtime.extensions.sandbox import EXECUTE_TIMEOUT_S
from cmdc_runtime.packing import BuiltInSandbox
from cmdc_runtime.plain import short

TIMEOUT_S_MAX: Final = 86_400.0
ROOT_CHARS_MAX: Final = 4096

Paths = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=ROOT_CHARS_MAX)]], Meta(max_length=PATHS_MAX)
]

Hosts = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=HOST_CHARS_MAX)]],
    Meta(max_length=ENTRIES_MAX),
]


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


class _Confining(BuiltInSandbox, frozen=True, kw_only=True):
    """What both confining sandboxes take."""

    writable: Paths = []  # noqa: RUF012 - msgspec copies it
    """Folders that tools may write to, relative to the working folder or absolute; none: the
    working folder."""
    readable: Paths = []  # noqa: RUF012 - as above
    """What they may read beside that, programs and libraries of the system, and the Python that
    runs them."""
    protected: Paths | None = None
    """Below each writable folder, what stays as it is; a folder ends in a slash. None: hooks and
    configuration of git, ``.vscode/``, ``.idea/`` and ``.claude/``. What is missing is made,
    empty."""
    network: Literal["off", "proxy", "on"] = "off"
    """"off": none; "proxy": a proxy outside reaches ``allow_hosts`` for them, and nothing else;
    "on": that of the machine."""
    allow_hosts: Hosts = []  # noqa: RUF012 - as above
    """What the proxy reaches: ``"pypi.org"``, ``"*.example.org"`` for the names below one,
    ``"example.org:8443"``, ``"10.0.0.0/8"``, ``"*"`` for all names; without a port 443 and 80 are
    meant. An address that is not of the public internet is reached only if it is named, or a
    network that it is in."""
    timeout: Annotated[float, Meta(gt=0, le=TIMEOUT_S_MAX)] = EXECUTE_TIMEOUT_S
    """Seconds that a command may run which says nothing of it."""

    def __post_init__(self) -> None:
        """Refuse a policy that is none."""
        policy = Policy(
            writable=tuple(self.writable),
            readable=tuple(self.readable),
            network=self.network,
            allow_hosts=tuple(self.allow_hosts),
        )
        if self.protected is not None:
            policy = msgspec.structs.replace(policy, protected=tuple(self.protected))
        if problem := problem_of(policy):
            raise ValueError(problem)


class Landlock(_Confining, frozen=True, kw_only=True):
    """Commands and tools in processes confined by the kernel: Landlock, seccomp, namespaces.

    They read the system, write to the folders that are named, and reach no process, socket or
    network outside. Tools for files can't leave the working folder, as in ``Local``.
    """

    short_name: ClassVar[str] = "landlock"


class Bubblewrap(_Confining, frozen=True, kw_only=True):
    """As ``Landlock``, and commands see a file system and processes of their own alone."""

    short_name: ClassVar[str] = "bubblewrap"


__all__ = ["ROOT_CHARS_MAX", "TIMEOUT_S_MAX", "Bubblewrap", "Landlock", "Local"]
