"""Namespaces of a process's own: for its mounts and, where that is asked for, its network.

See user_namespaces(7), mount_namespaces(7) and network_namespaces(7). In a user namespace any
process may have the others; its user stays the same there, and files of others belong to nobody.
Landlock knows no exception below a folder that it gives: a mount over a path makes one, and since
nobody in a domain mounts, nobody undoes it.
"""

import ctypes
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from cmdc_runtime.confinement.layer import LayerMissing
from cmdc_runtime.prctl import is_dumpable, set_dumpable

_libc: Final = ctypes.CDLL(None, use_errno=True)
_NEW_MOUNTS: Final = 0x00020000
_NEW_IPC: Final = 0x08000000
_NEW_USER: Final = 0x10000000
_NEW_NETWORK: Final = 0x40000000
_MS_NO_SETUID: Final = 2
_MS_NO_DEVICES: Final = 4
_MS_REC: Final = 16384
_MS_PRIVATE: Final = 1 << 18
_OPEN_TREE: Final = 428
_MOVE_MOUNT: Final = 429
_OPENAT2: Final = 437
_MOUNT_SETATTR: Final = 442
_READ_ONLY: Final = 1
_CLONE: Final = 1
_EMPTY: Final = 0x1000
_RECURSIVE: Final = 0x8000
_BOTH_EMPTY: Final = 0x04 | 0x40  # MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH
_RESOLVE_PLAINLY: Final = 0x02 | 0x04 | 0x08  # NO_MAGICLINKS, NO_SYMLINKS, BENEATH
_CAPBSET_DROP: Final = 24
_CAP_AMBIENT: Final = 47
_CLEAR_ALL: Final = 4
_CAPSET: Final = {"x86_64": 126, "aarch64": 91}
_CAPABILITIES_V3: Final = 0x20080522
_CAPABILITIES_MAX: Final = 64
_INTERFACE_UP: Final = 0x1 | 0x40  # IFF_UP, IFF_RUNNING
_SET_FLAGS: Final = 0x8914  # SIOCSIFFLAGS


def refusal() -> str:
    """Return why this process can't have a user namespace; "" where it can. It forks to try."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            enter(has_network=False)
        except (LayerMissing, OSError) as error:
            os.write(write, str(error).encode()[:512])
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as reader:
        why = reader.read().decode(errors="replace")
    os.waitpid(pid, 0)
    return why


def enter(*, has_network: bool) -> None:
    """Give this process mounts and shared memory of its own, and no network unless it has one.

    It must have one thread. The loopback of an empty network is up.

    Raises:
        LayerMissing: the kernel, its settings or another sandbox don't let it.
    """
    uid, gid = os.geteuid(), os.getegid()
    was_dumpable = is_dumpable()
    set_dumpable(is_dumpable=True)  # else its own /proc/self is root's
    try:
        flags = _NEW_USER | _NEW_MOUNTS | _NEW_IPC | (0 if has_network else _NEW_NETWORK)
        _checked(_libc.unshare(flags), "unshare")
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1", encoding="ascii")
        _checked(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "mount /")
        if not has_network:
            _raise_loopback()
    except OSError as error:
        advice = "allow user namespaces (user.max_user_namespaces, or the AppArmor profile)"
        raise LayerMissing("namespaces", f"{error}: {advice}") from error
    finally:
        set_dumpable(is_dumpable=was_dumpable)


def mount_own(path: str, bytes_max: int) -> None:
    """Put an empty folder of this namespace's own, kept in memory, in the place of one.

    Raises:
        OSError: it can't be mounted, or there is no such folder.
    """
    options = f"mode=1777,size={bytes_max}".encode()
    flags = _MS_NO_SETUID | _MS_NO_DEVICES
    _checked(_libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", flags, options), f"mount {path}")


def open_below(folder: int, path: str) -> int:
    """Return a descriptor of what lies at a path below a folder, with no link on the way.

    Raises:
        OSError: nothing is there, or a link is.
    """
    how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_PLAINLY)
    found: int = _libc.syscall(_OPENAT2, folder, os.fsencode(path), how, len(how))
    _checked(found, path)
    return found


def hold(place: int, *, is_read_only: bool = False) -> None:
    """Mount what a descriptor has open over itself.

    No process in the namespace renames or removes a mount point, or puts another thing there; and
    what is read only nobody writes to, at or below it. By descriptors, since what lies at a path
    may be exchanged at any time. Raises OSError.
    """
    tree = _libc.syscall(_OPEN_TREE, place, b"", _CLONE | _EMPTY | _RECURSIVE | os.O_CLOEXEC)
    _checked(tree, "open_tree")
    try:
        if is_read_only:
            attributes = struct.pack("=QQQQ", _READ_ONLY, 0, 0, 0)
            arguments = (tree, b"", _EMPTY | _RECURSIVE, attributes, len(attributes))
            _checked(_libc.syscall(_MOUNT_SETATTR, *arguments), "mount_setattr")
        _checked(_libc.syscall(_MOVE_MOUNT, tree, b"", place, b"", _BOTH_EMPTY), "move_mount")
    finally:
        os.close(tree)


OVER_PROCESSES: Final = (16, 17, 19, 21, 38, 39, 40)
"""SYS_MODULE, SYS_RAWIO, SYS_PTRACE, SYS_ADMIN, PERFMON, BPF and CHECKPOINT_RESTORE.

With some of them the kernel shows the memory of any process before it asks Landlock, with the
others it does what their holder asks.
"""


def lose_at_exec(capabilities: Iterable[int]) -> None:
    """Have no program that this process becomes get these capabilities, whoever its user is."""
    for number in capabilities:
        if not _libc.prctl(_CAPBSET_DROP, number, 0, 0, 0):
            continue
        if ctypes.get_errno() not in {errno.EINVAL, errno.EPERM}:
            # EINVAL: this kernel has none of that number; EPERM: nor has this process any.
            _checked(-1, "PR_CAPBSET_DROP")


def drop_capabilities() -> None:
    """Give up every capability, now and at every exec; raises OSError."""
    lose_at_exec(range(_CAPABILITIES_MAX))
    _libc.prctl(_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    head = struct.pack("=II", _CAPABILITIES_V3, 0)
    number = _CAPSET[os.uname().machine]
    _checked(_libc.syscall(number, head, bytes(24)), "capset")


def _raise_loopback() -> None:
    with (
        suppress(OSError),  # a program that speaks to itself there can't, then
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket,
    ):
        request = struct.pack("16sh14x", b"lo", _INTERFACE_UP)
        fcntl.ioctl(any_socket, _SET_FLAGS, request)


def _checked(result: int, what: str) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
