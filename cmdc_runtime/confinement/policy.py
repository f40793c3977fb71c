"""What a sandbox lets its processes do, and what follows from that. Pure.

A ``Policy`` is what an application says; a ``Confinement`` is the same for one machine, in
absolute paths, as a layer takes them. What is protected is named relative to each writable folder.
"""

from pathlib import PurePosixPath
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from cmdc_runtime.confinement.hosts import ENTRIES_MAX, rules_of
from cmdc_runtime.confinement.layer import Confinement, Network

PATHS_MAX: Final = 256
"""Of each kind, in one policy."""

PROTECTED: Final = (
    *(".git/hooks/", ".git/config", ".git/config.worktree", ".git/info/", ".git/modules/"),
    *(".vscode/", ".idea/", ".claude/"),
)
"""What programs outside of a sandbox take orders from, below a folder that tools write to; a folder
ends in a slash."""

SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store"),
    *("/proc", "/sys/devices/system", "/sys/fs/cgroup"),
)
"""What a program has to read to run, beside what everybody may read in /etc."""

DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

_Path = Annotated[str, Meta(min_length=1, max_length=4096)]


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What the processes of a sandbox may do."""

    writable: Annotated[tuple[_Path, ...], Meta(max_length=PATHS_MAX)] = ()
    """Folders, absolute or relative to the working folder of the session; none: that folder."""
    readable: Annotated[tuple[_Path, ...], Meta(max_length=PATHS_MAX)] = ()
    """Beside what programs need of the system."""
    protected: Annotated[tuple[_Path, ...], Meta(max_length=PATHS_MAX)] = PROTECTED
    network: Network = "off"
    allow_hosts: Annotated[tuple[_Path, ...], Meta(max_length=ENTRIES_MAX)] = ()
    """What may be reached where the network is "proxy"; see ``hosts``."""


def confinement_of(policy: Policy, working_dir: str) -> Confinement:
    """Return what a policy means for a session that works in ``working_dir``, an absolute path.

    Of /etc there is nothing in it: what everybody may read there is for the machine to say.
    """
    return Confinement(
        writable=tuple(_absolute(path, working_dir) for path in policy.writable or (working_dir,)),
        readable=(*SYSTEM, *(_absolute(path, working_dir) for path in policy.readable)),
        protected=policy.protected,
        devices=DEVICES,
        network=policy.network,
        allow_hosts=policy.allow_hosts,
    )


def problem_of(policy: Policy) -> str | None:
    """Return what is wrong with a policy in itself; None: nothing."""
    for path in policy.protected:
        parts = PurePosixPath(path).parts
        if path.startswith("/") or ".." in parts or not parts:
            return f"protected has {path!r}: it is relative to each writable folder, without '..'"
    for path in (*policy.writable, *policy.readable):
        if "\0" in path or ".." in PurePosixPath(path).parts:
            return f"{path!r} is no path without '..'"
    roots = [path for path in policy.writable if PurePosixPath(path).parent == PurePosixPath(path)]
    if "/" in "".join(roots):
        return "writable has '/': a sandbox that may write everything is none"
    return _problem_of_hosts(policy)


def _problem_of_hosts(policy: Policy) -> str | None:
    if policy.network != "proxy" and policy.allow_hosts:
        return f'allow_hosts counts with network="proxy", and network is "{policy.network}"'
    if policy.network == "proxy" and not policy.allow_hosts:
        return 'network="proxy" needs allow_hosts, such as ["pypi.org", "*.pythonhosted.org"]'
    try:
        rules_of(policy.allow_hosts)
    except ValueError as error:
        return str(error)
    return None


def _absolute(path: str, working_dir: str) -> str:
    return str(PurePosixPath(working_dir, path))
