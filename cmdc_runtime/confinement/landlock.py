"""Landlock: a process gives up rights to files, ports and other processes, without privileges.

See landlock(7). A kernel knows an ABI, and each ABI adds rights: see ``ABI_OF``. What a kernel
lacks ``missing`` names. Rights that this kernel does not know are not asked for; the caller decides
whether it can do without.

Two things hold for any domain, whatever its rules: nobody in it looks into a process outside of it
(ptrace, /proc/PID/environ, mem, fd, maps), root neither where it has lost the capabilities of
``namespaces.OVER_PROCESSES``, and nobody in it mounts anything. A
domain whose rules allow everything, of ``shield``, has just these two.
"""

import ctypes
import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Flag
from typing import Final

from cmdc_runtime.confinement.layer import LayerMissing

_libc: Final = ctypes.CDLL(None, use_errno=True)
# The numbers are the same on all architectures.
_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_VERSION: Final = 1
_PATH_BENEATH: Final = 1
_SET_NO_NEW_PRIVS: Final = 38


class Fs(Flag):
    """Rights to files, LANDLOCK_ACCESS_FS_*."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


class Net(Flag):
    """Rights to ports, LANDLOCK_ACCESS_NET_*."""

    BIND_TCP = 1 << 0
    CONNECT_TCP = 1 << 1


class Scope(Flag):
    """What stays within the domain, LANDLOCK_SCOPE_*."""

    ABSTRACT_UNIX_SOCKET = 1 << 0
    SIGNAL = 1 << 1


# fmt: off
ABI_OF: Final[dict[Flag, int]] = {
    # right                      since ABI
    **{right: 1 for right in Fs if right.value < Fs.REFER.value},
    Fs.REFER:                    2,
    Fs.TRUNCATE:                 3,
    Net.BIND_TCP:                4,
    Net.CONNECT_TCP:             4,
    Fs.IOCTL_DEV:                5,
    Scope.ABSTRACT_UNIX_SOCKET:  6,
    Scope.SIGNAL:                6,
}
# fmt: on

ABI_MIN: Final = 3
"""Below it files can be emptied without a right to write them (TRUNCATE), or not be moved."""

OF_FILES: Final = Fs.EXECUTE | Fs.WRITE_FILE | Fs.READ_FILE | Fs.TRUNCATE | Fs.IOCTL_DEV
"""What a rule about anything but a folder may give."""
READ: Final = Fs.EXECUTE | Fs.READ_FILE | Fs.READ_DIR
WRITE: Final = READ | Fs(0x7FFF) & ~(Fs.MAKE_CHAR | Fs.MAKE_BLOCK)
"""All but making devices, and speaking to them."""
DEVICE: Final = Fs.READ_FILE | Fs.WRITE_FILE | Fs.TRUNCATE | Fs.IOCTL_DEV


@dataclass(frozen=True, slots=True)
class Grant:
    """What may be done at a path and below it."""

    path: str
    rights: Fs


@dataclass(frozen=True, slots=True)
class Domain:
    """What is handled, which is denied where no grant gives it; and what stays within."""

    fs: Fs
    net: Net
    scope: Scope

    def known(self, abi: int) -> "Domain":
        """Return the part of it that a kernel with this ABI knows."""
        return Domain(
            Fs(sum(right.value for right in self.fs if ABI_OF[right] <= abi)),
            Net(sum(right.value for right in self.net if ABI_OF[right] <= abi)),
            Scope(sum(right.value for right in self.scope if ABI_OF[right] <= abi)),
        )


EVERYTHING: Final = Domain(Fs(0xFFFF), Net(0x3), Scope(0x3))
EVERYTHING_BUT_PORTS: Final = Domain(EVERYTHING.fs, Net(0), EVERYTHING.scope)
SHIELD: Final = Domain(Fs.REFER | Fs.MAKE_BLOCK, Net(0), Scope(0))
"""Two rights that ``shield`` gives back everywhere: a domain has to handle one, and REFER, where it
is not handled, is denied."""


def abi() -> int:
    """Return the ABI of this kernel; 0 where it has no Landlock, or it was not turned on."""
    found: int = _libc.syscall(_CREATE_RULESET, None, 0, _VERSION)
    return max(found, 0)


def missing(known: int) -> tuple[str, ...]:
    """Return what a kernel with this ABI does not hold, in words, most important first."""
    if known < 1:
        return ("everything: the kernel has no Landlock, or it was not turned on at boot",)
    words = {
        2: "files can't be moved between folders",
        3: "files can be emptied without a right to write them",
        4: "ports are not held",
        5: "devices take ioctl",
        6: "signals and abstract sockets reach processes outside",
    }
    return tuple(word for number, word in words.items() if number > known)


def shield() -> int | None:
    """Return a ruleset for ``enforce``, with which nobody looks into processes outside, or mounts.

    Everything else stays allowed, but that a program gains privileges at its exec (setuid), which
    a process without privileges has to give up for it. None where the kernel has none.
    """
    if abi() < ABI_OF[Fs.REFER]:
        return None
    return make(SHIELD, [Grant("/", SHIELD.fs)])


def restrict(domain: Domain, grants: Iterable[Grant]) -> None:
    """Give up what ``domain`` handles and no grant gives back, in this process and its children.

    Raises:
        LayerMissing: the kernel has no Landlock.
        OSError: it refuses, since 16 domains are stacked already.
    """
    ruleset = make(domain, grants)
    try:
        enforce(ruleset)
    finally:
        os.close(ruleset)


def make(domain: Domain, grants: Iterable[Grant]) -> int:
    """Return the descriptor of a ruleset; a grant of a path that is not there is none.

    Raises:
        LayerMissing: the kernel has no Landlock.
        OSError: no descriptor is left.
    """
    number = abi()
    if number < 1:
        raise LayerMissing("landlock", missing(0)[0])
    known = domain.known(number)
    ruleset = _create(known, number)
    try:
        for grant in grants:
            with suppress(FileNotFoundError, NotADirectoryError):
                _add(ruleset, grant, known.fs)
    except BaseException:
        os.close(ruleset)
        raise
    return ruleset


def enforce(ruleset: int) -> None:
    """Restrict this process by a ruleset, and no exec gains privileges any more; raises OSError."""
    _checked(_libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")
    _checked(_libc.syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")


_SIZES: Final = {1: 8, 4: 16, 6: 24}
"""Of the attributes of a ruleset, from which ABI on."""


def _create(known: Domain, number: int) -> int:
    attributes = struct.pack("=QQQ", known.fs.value, known.net.value, known.scope.value)
    size = max(size for since, size in _SIZES.items() if since <= number)
    made: int = _libc.syscall(_CREATE_RULESET, attributes, size, 0)
    return _checked(made, "landlock_create_ruleset")


def _add(ruleset: int, grant: Grant, handled: Fs) -> None:
    place = os.open(grant.path, os.O_PATH | os.O_CLOEXEC)
    try:
        is_folder = os.path.isdir(f"/proc/self/fd/{place}")  # noqa: PTH112 - of the descriptor
        rights = grant.rights & handled & (handled if is_folder else OF_FILES)
        rule = struct.pack("=Qi", rights.value, place)
        if rights:
            _checked(
                _libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0), f"a rule of {grant.path}"
            )
    finally:
        os.close(place)


def _checked(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result
