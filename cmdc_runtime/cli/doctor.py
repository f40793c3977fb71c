"""``cmdc doctor``: is the machine as a daemon needs it, and is the daemon well, if one runs.

A check is a function that returns findings and never raises. What limits sessions only the daemon
knows, so it is asked; without one that is said. To add a check of the machine: a function in
``MACHINE``.
"""

import asyncio
import fcntl
import os
import platform
import resource
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

import click
import msgspec

from cmdc_runtime import installation
from cmdc_runtime.cli.choices import address_option, json_option
from cmdc_runtime.cli.terminal import Terminal, json_line, show_table
from cmdc_runtime.confinement import landlock, namespaces, seccomp
from cmdc_runtime.confinement.bubblewrap import VERSION_MIN
from cmdc_runtime.confinement.layer import LayerMissing
from cmdc_runtime.errors import CmdcError
from cmdc_runtime.installation import package_problem
from cmdc_runtime.prctl import refusal
from cmdc_runtime.requests import DaemonFacts
from cmdc_runtime.runtime_dir import (
    default_runtime_dir,
    default_state_dir,
    find_daemon,
    path_problem,
    privacy_problem,
    running_daemon,
)
from cmdc_runtime.version import VERSION

EXIT_PROBLEM: Final = 1
FILES_MIN: Final = 1024
"""What most systems allow a process by default; a daemon with fewer is soon full."""
FILES_PER_SESSION: Final = 8
"""Of the daemon: a pidfd, a pipe from the zygote, its connection, its output, its tool host's."""
TEMPORARY_BYTES_MIN: Final = 100 * 2**20
"""Room for what tools and the zygote put there."""
CHILD_S: Final = 10.0
"""For a child that ends at once."""

# PIDFD_GET_INFO with PIDFD_INFO_EXIT, of <linux/pidfd.h>.
_GET_INFO: Final = 3 << 30 | 64 << 16 | 0xFF << 8 | 11
_MASK: Final = struct.Struct("=Q")
_EXIT: Final = 1 << 3
_ASK_EXIT: Final = _MASK.pack(_EXIT).ljust(64, b"\0")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One line: what was looked at, how it is, and what to do about it."""

    name: str
    status: Literal["ok", "note", "problem"]
    found: str
    advice: str = ""


_COLUMNS: Final[Mapping[str, Callable[[Finding], str]]] = {
    "CHECK": lambda one: one.name,
    "STATUS": lambda one: one.status,
    "FOUND": lambda one: one.found,
    "ABOUT IT": lambda one: one.advice,
}


@click.command()
@json_option
@address_option
def doctor(*, as_json: bool, address: str | None) -> int:
    """Look whether machine and daemon are as they should be.

    A note is worth knowing; a problem needs seeing to, and the exit status is 1 then. With --json
    all findings are one array.
    """
    directory = _directory(address)
    findings = [one for check in MACHINE for one in check()]
    findings += [*_runtime_dir(directory), *_daemon(directory, is_named=address is not None)]
    if as_json:
        Terminal().line(json_line(findings))
    else:
        show_table(_COLUMNS, findings)
    return EXIT_PROBLEM if any(one.status == "problem" for one in findings) else 0


# --- the machine ------------------------------------------------------------------------------


def _python() -> Iterator[Finding]:
    found = f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    yield Finding(name="python", status="ok", found=found)


def _packages() -> Iterator[Finding]:
    """Say whether what is installed under the names of our packages is ours, and whole."""
    problems = [text for name in installation.PACKAGES if (text := package_problem(name))]
    if not problems:
        found = f"{', '.join(installation.PACKAGES)} at {installation.HOME}"
        yield Finding(name="packages", status="ok", found=found)
    for text in problems:
        found, advice = text.split(f" {installation.MEND}")[0], installation.MEND
        yield Finding(name="packages", status="problem", found=found, advice=advice)


def _kernel() -> Iterator[Finding]:
    name, release = platform.system(), platform.release()
    try:
        has_status = _has_exit_status()
    except (OSError, AttributeError, subprocess.SubprocessError) as error:
        advice = "a daemon needs Linux 5.4 or newer, and a sandbox that allows pidfd_open"
        found = f"{name} {release}: pidfds do not work ({error})"
        yield Finding(name="kernel", status="problem", found=found, advice=advice)
        return
    how = "pidfds give exits" if has_status else "pidfds work; the zygote alone gives exits"
    advice = "" if has_status else "from Linux 6.15 on the kernel gives them to any process"
    found = f"{name} {release}: {how}"
    yield Finding(name="kernel", status="ok" if has_status else "note", found=found, advice=advice)


def _has_exit_status() -> bool:
    """Say whether the kernel gives the status of a process that was reaped; raises if no pidfds."""
    command = [sys.executable, "-I", "-S", "-c", ""]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as child:  # noqa: S603 - ourselves
        pidfd = os.pidfd_open(child.pid)
        try:
            child.wait(CHILD_S)
            (mask,) = _MASK.unpack_from(fcntl.ioctl(pidfd, _GET_INFO, _ASK_EXIT))
            return bool(mask & _EXIT)
        except OSError:  # ENOTTY before Linux 6.13, ESRCH before 6.15
            return False
        finally:
            os.close(pidfd)


def _huge_pages() -> Iterator[Finding]:
    why = refusal()
    if not why:
        yield Finding(name="huge pages", status="ok", found="made where they are asked for")
        return
    advice = "each fork of an agent, and each end of one, takes some 10 ms more; Linux 6.1 has them"
    found = f"not to be had: {why}"
    yield Finding(name="huge pages", status="note", found=found, advice=advice)


def _service_manager() -> Iterator[Finding]:
    if Path("/run/systemd/system").is_dir():
        yield Finding(name="systemd", status="ok", found="it runs")
        return
    found, advice = "it does not run", "nobody starts the daemon again if it ends"
    yield Finding(name="systemd", status="note", found=found, advice=advice)


def _open_files() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    shown = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    found = f"{soft} of {shown}, enough for about {soft // FILES_PER_SESSION} sessions"
    advice = "raise it where the daemon is started: ulimit -n, or LimitNOFILE= in its unit"
    enough = soft == resource.RLIM_INFINITY or soft >= FILES_MIN
    yield Finding(
        name="open files",
        status="ok" if enough else "problem",
        found="unlimited" if soft == resource.RLIM_INFINITY else found,
        advice="" if enough else advice,
    )


def _temporary_files() -> Iterator[Finding]:
    try:
        place = Path(tempfile.gettempdir())
        mode, free = place.stat().st_mode, shutil.disk_usage(place).free
    except OSError as error:
        yield Finding(
            name="temporary files",
            status="problem",
            found=str(error),
            advice="name a directory that can be written to with TMPDIR",
        )
        return
    is_open = bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX
    problem = "anybody may remove what others put there: chmod +t" if is_open else ""
    if free < TEMPORARY_BYTES_MIN:
        problem = "it is nearly full: make room, or name another directory with TMPDIR"
    yield Finding(
        name="temporary files",
        status="problem" if problem else "ok",
        found=f"{place}, {free // 2**20} MiB free",
        advice=problem,
    )


def _state_dir() -> Iterator[Finding]:
    place = default_state_dir(os.environ, home=Path.home())
    yield from _private("state directory", place, "the journal")


def _confinement() -> Iterator[Finding]:
    """Say which layers of a sandbox this machine has."""
    found, lacks = landlock.abi(), landlock.missing(landlock.abi())
    advice = f"it does not hold: {'; '.join(lacks)}" if lacks else ""
    is_enough = found >= landlock.ABI_MIN
    if not found:
        advice = "tools of root read every process; turn it on with lsm=landlock,... at boot"
    yield Finding(
        name="landlock",
        status="ok" if is_enough and not lacks else "note",
        found=f"ABI {found}" if found else "none",
        advice=advice,
    )
    try:
        seccomp.machine()
        yield Finding(name="seccomp", status="ok", found=f"a filter for {platform.machine()}")
    except LayerMissing as error:
        yield Finding(name="seccomp", status="note", found="no filter", advice=error.why)
    why = namespaces.refusal()
    yield Finding(
        name="namespaces",
        status="note" if why else "ok",
        found=f"none for a user: {why}" if why else "any user can have them",
        advice="no layer of a sandbox can be had without them" if why else "",
    )
    yield _bubblewrap()


def _bubblewrap() -> Finding:
    try:
        program = shutil.which("bwrap") or ""
        done = subprocess.run(  # noqa: S603 - it says its version
            [program, "--version"], capture_output=True, check=True, timeout=CHILD_S
        )
        found = done.stdout.decode(errors="replace").strip()[:40]
        numbers = tuple(int(one) for one in found.split()[-1].split(".")[:2])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        advice = "install bubblewrap, if sessions are to run in it"
        return Finding(name="bubblewrap", status="note", found="none", advice=advice)
    is_new = numbers >= VERSION_MIN
    wanted = ".".join(map(str, VERSION_MIN))
    advice = "" if is_new else f"update it: {wanted} mends CVE-2026-87766"
    return Finding(name="bubblewrap", status="ok" if is_new else "note", found=found, advice=advice)


def _tools() -> Iterator[Finding]:
    """Say what a tool can read: without a sandbox, what its user has."""
    has_shield = landlock.abi() >= landlock.ABI_OF[landlock.Fs.REFER]
    files = "they read every file" if os.geteuid() == 0 else "they read this user's files"
    who = f"as root: {files}" if os.geteuid() == 0 else f"as this user: {files}"
    processes = ", no other process" if has_shield else ", and into other processes"
    advice = (
        "they get no keys, and are refused at this user's daemons, but what they can read has"
        " journal and token in it, and they can use cron, systemd-run, tmux or ssh: give sessions a"
        " sandbox, or run it all in a container, or as a user of its own"
    )
    found = f"without a sandbox, {who}{processes}"
    yield Finding(name="tools", status="note", found=found, advice=advice)


MACHINE: Final[tuple[Callable[[], Iterator[Finding]], ...]] = (
    _python,
    _packages,
    _kernel,
    _huge_pages,
    _service_manager,
    _open_files,
    _temporary_files,
    _state_dir,
    _confinement,
    _tools,
)
"""The checks that need no daemon and no address."""


# --- the daemon -------------------------------------------------------------------------------


def _directory(address: str | None) -> Path:
    """Return the runtime directory that is meant: the one named, of a daemon, or the default."""
    if address:
        return Path(address.removeprefix("ipc://")).expanduser().absolute()
    found = find_daemon(os.environ, uid=os.getuid(), home=Path.home())
    if found is not None:
        return found.directory
    return default_runtime_dir(os.environ, uid=os.getuid(), home=Path.home())


def _runtime_dir(place: Path) -> Iterator[Finding]:
    yield from _private("runtime directory", place, "sockets and lock", path_problem(place))


def _private(name: str, place: Path, purpose: str, problem: str | None = None) -> Iterator[Finding]:
    """Say whether the daemon would take ``place``, of which ``problem`` is known already."""
    try:
        problem = problem or privacy_problem(place, uid=os.getuid())
    except (FileNotFoundError, NotADirectoryError):
        yield _writable(name, place, purpose)
        return
    except OSError as error:
        problem = str(error)
    yield Finding(
        name=name,
        status="problem" if problem else "ok",
        found=str(place) if problem else f"{place}, open to you alone",
        advice=problem or "",
    )


def _writable(name: str, place: Path, purpose: str) -> Finding:
    """Say whether ``place`` is there and can be written to, or can be made."""
    there = next(one for one in (place, *place.parents) if one.exists())
    state = "" if there == place else ", not there yet"
    can_be_used = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    return Finding(
        name=name,
        status="ok" if can_be_used else "problem",
        found=f"{place}{state}",
        advice="" if can_be_used else f"{there} cannot be written to: no place for {purpose}",
    )


def _daemon(directory: Path, *, is_named: bool) -> Iterator[Finding]:
    if running_daemon(directory) is None:
        yield Finding(
            name="daemon",
            status="problem" if is_named else "note",
            found=f"none runs at {directory}",
            advice="start one with `cmdc serve`; what limits sessions is known once one runs",
        )
        return
    try:
        facts = asyncio.run(_facts(directory))
    except CmdcError as error:
        advice = "look at its log; it can be ended with SIGTERM"
        yield Finding(name="daemon", status="problem", found=str(error), advice=advice)
        return
    found = f"pid {facts.pid}, {facts.sessions} sessions, {facts.spares} spares, at {directory}"
    is_same = facts.version == VERSION
    yield Finding(
        name="daemon",
        status="ok" if is_same else "problem",
        found=found,
        advice=""
        if is_same
        else f"it is version {facts.version} and this is {VERSION}: restart it",
    )
    yield _zygote(facts)
    is_open = facts.journal == "open"
    yield Finding(
        name="journal",
        status="ok" if is_open else "problem",
        found=facts.journal,
        advice="" if is_open else "nothing new is taken; see docs/howto/disk-full.md",
    )
    yield _connections(facts)
    yield _log(facts)
    for layer in facts.layers:
        is_kernel = layer.by.startswith("cgroup") or layer.by == "rlimit"
        yield Finding(
            name=f"limits: {layer.what}",
            status="ok" if is_kernel else "note",
            found=layer.by,
            advice=layer.why,
        )


async def _facts(directory: Path) -> DaemonFacts:
    from cmdc_runtime.client.address import at  # noqa: PLC0415 - loads zmq
    from cmdc_runtime.client.connection import Connection  # noqa: PLC0415
    from cmdc_runtime.errors import DaemonUnavailable  # noqa: PLC0415
    from cmdc_runtime.requests import GetFacts  # noqa: PLC0415

    connection = Connection(at(directory))
    try:
        await connection.open()
        facts: DaemonFacts = await connection.ask(GetFacts())
    finally:
        await connection.close(DaemonUnavailable("the question was answered"))
    return facts


def _zygote(facts: DaemonFacts) -> Finding:
    if facts.nursery in {"ready", "warming"}:
        status: Literal["ok", "note"] = "ok" if facts.nursery == "ready" else "note"
        return Finding(name="zygote", status=status, found=facts.nursery)
    advice = "no session can start before it is back; the daemon's log says more"
    return Finding(name="zygote", status="problem", found=facts.nursery, advice=advice)


def _connections(facts: DaemonFacts) -> Finding:
    cut = facts.cut_connections
    return Finding(
        name="connections",
        status="note" if cut else "ok",
        found=f"{cut} were cut, for what they made the daemon remember" if cut else "none was cut",
        advice="its log names the processes: connection.cut, subscriber.cut" if cut else "",
    )


def _log(facts: DaemonFacts) -> Finding:
    lost = facts.lost_log_lines
    return Finding(
        name="log",
        status="note" if lost else "ok",
        found=f"{lost} lines were lost" if lost else "whole",
        advice="who reads the daemon's standard error is too slow or gone, or its disk is full"
        if lost
        else "",
    )
