"""``landlock``: tools for files as in ``local``, commands and tools in processes confined.

A command stands behind a program of ours that confines itself and becomes it
(``cmdc_runtime.confinement.launch``); a tool's process confines itself before the tool's code runs.
Both are in namespaces of their own, in which protected paths are read only, in a domain of
Landlock, and behind a filter of seccomp. Tools for files run in the agent, which is not confined:
what they may not write is refused here.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Final, Literal

import msgspec

import cmdc_runtime
from cmdc_runtime.beneath import OutsideError, Reach, named_path
from cmdc_runtime.confinement import apply, namespaces
from cmdc_runtime.confinement.layer import Confinement, LayerMissing, Network
from cmdc_runtime.confinement.policy import Policy, confinement_of
from cmdc_runtime.confinement.protection import is_protected
from cmdc_runtime.errors import SandboxUnavailable
from cmdc_runtime.extensions.sandbox import EXECUTE_TIMEOUT_S, Sandbox, SandboxPlace, ShellKind
from workers.builtin.sandboxes.local import Local

LAUNCH: Final = Path(apply.__file__).with_name("launch.py")
_OWN: Final = Path(cmdc_runtime.__file__).parent

LaunchStep = Literal["all", "separate", "close"]


class Landlock(Local):
    """See the module."""

    confines = True

    def __init__(self, policy: Policy, *, timeout: float = EXECUTE_TIMEOUT_S) -> None:
        """Take the options of ``cmdc_runtime.sandbox.Landlock``."""
        super().__init__(timeout=timeout)
        self._policy = policy
        self._is_confined = False

    def begin(self, place: SandboxPlace) -> None:
        """See that the machine has every layer; see the contract."""
        super().begin(place)
        self.wanted = self._bounds()
        self._reach = _Guarded(self._reach, self._policy.protected)
        try:
            apply.check_machine()
        except LayerMissing as missing:
            raise SandboxUnavailable(missing.layer, missing.why) from missing
        if why := _refusal():
            raise SandboxUnavailable("namespaces", why)

    def confine(self) -> None:
        """Confine this process; see the contract."""
        try:
            apply.confine(self.wanted)
        except LayerMissing as missing:
            raise SandboxUnavailable(missing.layer, missing.why) from missing
        self._reach.go_alone()
        self._is_confined = True

    @property
    def confines_commands_itself(self) -> bool:
        """Whether ``program`` confines: not in a process that is confined already."""
        return not self._is_confined

    def program(self, command: str, shell: ShellKind | None = None) -> Sequence[str]:
        """Return a command line behind what confines it."""
        program = super().program(command, shell)
        return program if self._is_confined else self._behind(program, self.wanted)

    def server_program(
        self, program: Sequence[str], *, needs_network: bool = False
    ) -> Sequence[str]:
        """Return a program behind what confines it, as a command is."""
        is_open = needs_network and self.wanted.network == "off"  # named hosts stay those alone
        return self._behind(program, replace(self.wanted, network="on") if is_open else self.wanted)

    def _behind(self, program: Sequence[str], wanted: Confinement) -> Sequence[str]:
        return launched("all", wanted, program)

    def _bounds(self) -> Confinement:
        """Return what is given: paths by what they are now, whoever makes links later.

        What may be read below what may be written to may be read as it is; as a path of its own it
        would be what a link leads to that a command has put there.
        """
        root = self._reach.root
        wanted = confinement_of(self._policy, root)
        writable = tuple(_folder(path, root) for path in wanted.writable)
        for path in self._policy.readable:
            _check_readable(path, root)
        own = (sys.prefix, sys.base_prefix, str(_OWN), str(_OWN.with_name("workers")))
        given = dict.fromkeys((*wanted.readable, *apply.openness_of("/etc").open, *own))
        readable = tuple(path for path in given if not _is_below(path, writable))
        return replace(wanted, readable=readable, writable=writable)


def _folder(path: str, root: str) -> str:
    """Return a folder without links; what is none holds up every command, and so the session."""
    try:
        descriptor = named_path(path, root).open_as_folder()
    except FileNotFoundError:
        why = "is not there: make the folder first"
    except NotADirectoryError:
        why = "is no folder"
    except (OSError, ValueError) as error:
        why = f"can't be had: {error}"
    else:
        real = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - a text
        os.close(descriptor)
        return real
    raise SandboxUnavailable("writable", f"{path!r} {why}")


def _check_readable(path: str, root: str) -> None:
    """Refuse a path that whoever wrote the project has led out of there."""
    try:
        os.close(named_path(path, root).open(os.O_PATH))
    except OutsideError as error:
        raise SandboxUnavailable("readable", f"{path!r} {error}") from error
    except (OSError, ValueError):  # it is not there, and nothing is given
        return


def _is_below(path: str, folders: Sequence[str]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


def launched(step: LaunchStep, wanted: Confinement, program: Sequence[str]) -> list[str]:
    """Return a program behind ours, which confines itself as far as a step goes."""
    text = msgspec.json.encode(asdict(wanted)).decode()
    return [sys.executable, "-I", "-S", str(LAUNCH), step, text, *program]


class _Guarded(Reach):
    """A reach that gives nobody a protected path to change."""

    def __init__(self, reach: Reach, protected: Sequence[str]) -> None:
        """Reach what ``reach`` does."""
        self.__dict__.update(vars(reach))
        self._protected = protected

    @contextlib.contextmanager
    def folder_of(self, path: str, *, makes: bool = False) -> Iterator[tuple[int, str]]:
        """Yield the folder that a path is in; see the base.

        What the folder is is asked of its descriptor, so that no link leads round it.
        """
        self._refuse(self.names_of(path), path)
        with super().folder_of(path, makes=makes) as (folder, name):
            real = Path(f"/proc/self/fd/{folder}").readlink()
            if real.is_relative_to(self.root):
                self._refuse((*real.relative_to(self.root).parts, name), path)
            yield folder, name

    def _refuse(self, names: Sequence[str], path: str) -> None:
        if is_protected(names, self._protected):
            raise PermissionError(1, f"{path} is protected: programs outside take orders from it")


@cache
def _refusal() -> str:
    """Return why there are no namespaces; in a process that has threads, a fork of it tries."""
    return namespaces.refusal()


def policy_from(given: Policy, protected: Sequence[str] | None) -> Policy:
    """Return a policy with what is protected, None: what is so without a word."""
    if protected is None:
        return given
    return msgspec.structs.replace(given, protected=tuple(protected))


def create(  # noqa: PLR0913, PLR0917 - the fields of the light reference
    writable: Sequence[str] = (),
    readable: Sequence[str] = (),
    protected: Sequence[str] | None = None,
    network: Network = "off",
    allow_hosts: Sequence[str] = (),
    timeout: float = EXECUTE_TIMEOUT_S,
) -> Sandbox:
    """Return the sandbox; see ``cmdc_runtime.sandbox.Landlock``."""
    policy = Policy(
        writable=tuple(writable),
        readable=tuple(readable),
        network=network,
        allow_hosts=tuple(allow_hosts),
    )
    return Landlock(policy_from(policy, protected), timeout=timeout)
