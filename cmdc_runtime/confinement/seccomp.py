"""seccomp: a table of system calls that a process gives up, as a filter of the kernel.

See seccomp(2). A rule names a call by its number on each architecture, with the error that the
program sees, and why. A filter decides on numbers alone: it can't look behind a pointer, so what
depends on a path is Landlock's. To add a rule, add a row; what has no number on an architecture is
None there.

Other architectures than the process's own are killed, since their numbers mean other calls; x32,
which shares the architecture of x86-64, is refused as a kernel without it does.
"""

import ctypes
import errno
import os
import platform
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from cmdc_runtime.confinement.layer import LayerMissing, Network


@dataclass(frozen=True, slots=True)
class Machine:
    """An architecture: AUDIT_ARCH_* of <linux/audit.h>, and the number of seccomp(2)."""

    audit: int
    seccomp: int
    column: int
    has_x32: bool = False


MACHINES: Final = {
    "x86_64": Machine(audit=0xC000003E, seccomp=317, column=0, has_x32=True),
    "aarch64": Machine(audit=0xC00000B7, seccomp=277, column=1),
}


@dataclass(frozen=True, slots=True)
class Test:
    """A condition on the low half of one argument; the kernel reads no more of these."""

    argument: int
    mask: int
    values: frozenset[int]
    """The rule refuses where the masked argument is among them; with ``is_allowed``, where not."""
    is_allowed: bool = False


@dataclass(frozen=True, slots=True)
class CallRule:
    """One call that is refused, always or where ``test`` says so."""

    call: str
    numbers: tuple[int | None, int | None]
    error: int
    why: str
    test: Test | None = None
    also: Test | None = None
    """A second condition: the rule refuses where both say so."""


TIOCSTI: Final = 0x5412
TIOCLINUX: Final = 0x541C
_NAMESPACES: Final = 0x7E020000
"""All CLONE_NEW* flags that clone(2) takes."""

_PERM, _NOSYS, _ACCES = errno.EPERM, errno.ENOSYS, errno.EACCES
_PEEK = "it reads or changes another process"
_MOUNT = "it changes what paths mean"
_NEST = "in a namespace of its own a process is root, for the kernel's least tested code"
_KEYS = "the kernel's keys are the user's, not the session's"
_KERNEL = "it changes the kernel or the machine"
_OTHER = "it slows another process down, or takes what it may have"
_SURFACE = "much of it does what no filter sees"

_GRANT = "who runs such a program is its owner for that time"

_ITSELF: Final = Test(0, 0xFFFFFFFF, frozenset({0}), is_allowed=True)
_GRANTING: Final = stat.S_ISUID | stat.S_ISGID
_MAKING: Final = os.O_CREAT | (os.O_TMPFILE & ~os.O_DIRECTORY)
"""Flags of open(2) with which it reads its mode; without them the argument is whatever it was."""


def _without(bits: int, argument: int) -> Test:
    """Refuse an argument that has any of these bits."""
    return Test(argument, bits, frozenset({0}), is_allowed=True)


# fmt: off
RULES: Final[tuple[CallRule, ...]] = (
    #    call                 x86-64 aarch64   error    why
    CallRule("ptrace",            (101, 117),      _PERM,   _PEEK),
    CallRule("process_vm_readv",  (310, 270),      _PERM,   _PEEK),
    CallRule("process_vm_writev", (311, 271),      _PERM,   _PEEK),
    CallRule("process_madvise",   (440, 440),      _PERM,   _PEEK),
    CallRule("kcmp",              (312, 272),      _PERM,   _PEEK),
    CallRule("pidfd_getfd",       (438, 438),      _PERM,   _PEEK),
    CallRule("mount",             (165, 40),       _PERM,   _MOUNT),
    CallRule("umount2",           (166, 39),       _PERM,   _MOUNT),
    CallRule("pivot_root",        (155, 41),       _PERM,   _MOUNT),
    CallRule("chroot",            (161, 51),       _PERM,   _MOUNT),
    CallRule("open_tree",         (428, 428),      _PERM,   _MOUNT),
    CallRule("move_mount",        (429, 429),      _PERM,   _MOUNT),
    CallRule("fsopen",            (430, 430),      _PERM,   _MOUNT),
    CallRule("fsconfig",          (431, 431),      _PERM,   _MOUNT),
    CallRule("fsmount",           (432, 432),      _PERM,   _MOUNT),
    CallRule("fspick",            (433, 433),      _PERM,   _MOUNT),
    CallRule("mount_setattr",     (442, 442),      _PERM,   _MOUNT),
    CallRule("open_tree_attr",    (467, 467),      _PERM,   _MOUNT),
    CallRule("name_to_handle_at", (303, 264),      _PERM,   _MOUNT),
    CallRule("open_by_handle_at", (304, 265),      _PERM,   _MOUNT),
    CallRule("unshare",           (272, 97),       _PERM,   _NEST),
    CallRule("setns",             (308, 268),      _PERM,   _NEST),
    CallRule("clone",             (56, 220),       _PERM,   _NEST,
         Test(0, _NAMESPACES, frozenset({0}), is_allowed=True)),
    # No filter sees its flags. The C library takes clone where a kernel does not have it.
    CallRule("clone3",            (435, 435),      _NOSYS,  _NEST),
    CallRule("add_key",           (248, 217),      _PERM,   _KEYS),
    CallRule("request_key",       (249, 218),      _PERM,   _KEYS),
    CallRule("keyctl",            (250, 219),      _PERM,   _KEYS),
    CallRule("io_uring_setup",    (425, 425),      _PERM,   _SURFACE),
    CallRule("io_uring_enter",    (426, 426),      _PERM,   _SURFACE),
    CallRule("io_uring_register", (427, 427),      _PERM,   _SURFACE),
    CallRule("bpf",               (321, 280),      _PERM,   _SURFACE),
    CallRule("perf_event_open",   (298, 241),      _PERM,   _SURFACE),
    CallRule("userfaultfd",       (323, 282),      _PERM,   _SURFACE),
    CallRule("fanotify_init",     (300, 262),      _PERM,   _SURFACE),
    CallRule("modify_ldt",        (154, None),     _PERM,   _SURFACE),
    CallRule("lookup_dcookie",    (212, 18),       _PERM,   _SURFACE),
    CallRule("kexec_load",        (246, 104),      _PERM,   _KERNEL),
    CallRule("kexec_file_load",   (320, 294),      _PERM,   _KERNEL),
    CallRule("init_module",       (175, 105),      _PERM,   _KERNEL),
    CallRule("finit_module",      (313, 273),      _PERM,   _KERNEL),
    CallRule("delete_module",     (176, 106),      _PERM,   _KERNEL),
    CallRule("iopl",              (172, None),     _PERM,   _KERNEL),
    CallRule("ioperm",            (173, None),     _PERM,   _KERNEL),
    CallRule("swapon",            (167, 224),      _PERM,   _KERNEL),
    CallRule("swapoff",           (168, 225),      _PERM,   _KERNEL),
    CallRule("reboot",            (169, 142),      _PERM,   _KERNEL),
    CallRule("acct",              (163, 89),       _PERM,   _KERNEL),
    CallRule("quotactl",          (179, 60),       _PERM,   _KERNEL),
    CallRule("quotactl_fd",       (443, 443),      _PERM,   _KERNEL),
    CallRule("settimeofday",      (164, 170),      _PERM,   _KERNEL),
    CallRule("clock_settime",     (227, 112),      _PERM,   _KERNEL),
    CallRule("sethostname",       (170, 161),      _PERM,   _KERNEL),
    CallRule("setdomainname",     (171, 162),      _PERM,   _KERNEL),
    CallRule("syslog",            (103, 116),      _PERM,   "the kernel's log shows addresses"),
    CallRule("vhangup",           (153, 58),       _PERM,   "the terminal is the user's"),
    # Of a folder, too: no filter sees what the path names.
    CallRule("chmod",       (90, None),  _PERM, _GRANT, _without(_GRANTING, 1)),
    CallRule("fchmod",      (91, 52),    _PERM, _GRANT, _without(_GRANTING, 1)),
    CallRule("fchmodat",    (268, 53),   _PERM, _GRANT, _without(_GRANTING, 2)),
    CallRule("fchmodat2",   (452, 452),  _PERM, _GRANT, _without(_GRANTING, 2)),
    CallRule("mknod",       (133, None), _PERM, _GRANT, _without(_GRANTING, 1)),
    CallRule("mknodat",     (259, 33),   _PERM, _GRANT, _without(_GRANTING, 2)),
    CallRule("creat",       (85, None),  _PERM, _GRANT, _without(_GRANTING, 1)),
    CallRule("open",        (2, None),   _PERM, _GRANT,
         _without(_GRANTING, 2), _without(_MAKING, 1)),
    CallRule("openat",      (257, 56),   _PERM, _GRANT,
         _without(_GRANTING, 3), _without(_MAKING, 2)),
    # No filter sees its mode. Who takes it does without it where a kernel does not have it.
    CallRule("openat2",     (437, 437),  _NOSYS, _GRANT),
    # Landlock lets these pass for processes of the same user; 0 is the caller itself.
    CallRule("prlimit64",         (302, 261),  _PERM,   _OTHER, _ITSELF),
    CallRule("sched_setaffinity", (203, 122),  _PERM,   _OTHER, _ITSELF),
    CallRule("sched_setscheduler", (144, 119), _PERM,   _OTHER, _ITSELF),
    CallRule("sched_setparam",    (142, 118),  _PERM,   _OTHER, _ITSELF),
    CallRule("sched_setattr",     (314, 274),  _PERM,   _OTHER, _ITSELF),
    CallRule("migrate_pages",     (256, 238),  _PERM,   _OTHER, _ITSELF),
    CallRule("move_pages",        (279, 239),  _PERM,   _OTHER, _ITSELF),
    CallRule("setpriority",       (141, 140),  _PERM,   _OTHER,
         Test(0, 0xFFFFFFFF, frozenset({0, 1}), is_allowed=True)),
    CallRule("setpriority",       (141, 140),  _PERM,   _OTHER,
         Test(1, 0xFFFFFFFF, frozenset({0}), is_allowed=True)),
    CallRule("ioprio_set",        (251, 30),   _PERM,   _OTHER,
         Test(0, 0xFFFFFFFF, frozenset({1, 2}), is_allowed=True)),
    CallRule("ioprio_set",        (251, 30),   _PERM,   _OTHER,
         Test(1, 0xFFFFFFFF, frozenset({0}), is_allowed=True)),
    CallRule("ioctl",             (16, 29),        _PERM,   "it types into the user's terminal",
         Test(1, 0xFFFFFFFF, frozenset({TIOCSTI, TIOCLINUX}))),
)

_INET: Final = frozenset({2, 10})
_ANY: Final = 0xFFFFFFFF
_SOCKET: Final = (41, 198)

NETWORKS: Final[dict[Network, tuple[CallRule, ...]]] = {
    # A pair of sockets leads nowhere: socketpair stays in each.
    "off":   (CallRule("socket", _SOCKET, _ACCES, "the network is off"),),
    # In a namespace that has nothing but the way to a proxy.
    "proxy": (CallRule("socket", _SOCKET, _ACCES, "sockets of Unix lead to other programs",
                   Test(0, _ANY, _INET, is_allowed=True)),),
    # From Netlink (16) programs read which addresses there are.
    "on":    (CallRule("socket", _SOCKET, _ACCES, "sockets of Unix lead to other programs",
                   Test(0, _ANY, _INET | {16}, is_allowed=True)),),
}
# fmt: on

# --- the filter -----------------------------------------------------------------------------------

_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_AND: Final = 0x54  # BPF_ALU | BPF_AND | BPF_K
_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_AT_LEAST: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
_ALLOW: Final = 0x7FFF0000
_KILL: Final = 0x80000000
_ERRNO: Final = 0x00050000
_X32_BIT: Final = 0x40000000

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, operand: struct sock_filter."""


def machine() -> Machine:
    """Return the architecture of this process.

    Raises:
        LayerMissing: the table has no column for it.
    """
    found = MACHINES.get(platform.machine())
    if found is None or struct.calcsize("P") != 8:  # noqa: PLR2004 - bytes of a pointer
        known = ", ".join(MACHINES)
        why = f"no filter for {platform.machine()!r}; there is one for 64 bits of {known}"
        raise LayerMissing("seccomp", why)
    return found


def rules_of(network: Network) -> tuple[CallRule, ...]:
    """Return all that a process with this network gives up."""
    return (*RULES, *NETWORKS[network])


def program(network: Network, on: Machine) -> bytes:
    """Return the filter as the kernel, and bwrap's --seccomp, take it."""
    return b"".join(struct.pack("=HBBI", *one) for one in _instructions(rules_of(network), on))


def install(network: Network) -> None:
    """Give up the calls of the table, for this process and all that it starts.

    Raises:
        LayerMissing: for this architecture there is no filter, or the kernel takes none.
    """
    on = machine()
    body = program(network, on)
    libc = ctypes.CDLL(None, use_errno=True)
    filters = ctypes.create_string_buffer(body, len(body))
    head = struct.pack("@HP", len(body) // 8, ctypes.addressof(filters))
    if libc.prctl(38, 1, 0, 0, 0) or libc.syscall(on.seccomp, 1, 0, head):
        raise LayerMissing("seccomp", f"the kernel refuses it: {os.strerror(ctypes.get_errno())}")


def _instructions(rules: Iterable[CallRule], on: Machine) -> Iterator[Instruction]:
    yield (_LOAD, 0, 0, _ARCH_AT)
    yield (_EQUAL, 1, 0, on.audit)
    yield (_RETURN, 0, 0, _KILL)
    yield (_LOAD, 0, 0, _NUMBER_AT)
    if on.has_x32:
        yield (_AT_LEAST, 0, 1, _X32_BIT)
        yield (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)
    for rule in rules:
        number = rule.numbers[on.column]
        if number is None:
            continue
        refusing = [*_tested(rule)]
        yield (_EQUAL, 0, len(refusing), number)
        yield from refusing
    yield (_RETURN, 0, 0, _ALLOW)


def _tested(rule: CallRule) -> Iterator[Instruction]:
    """Yield what stands behind the comparison of the number: the refusal, and tests before it."""
    refuse = (_RETURN, 0, 0, _ERRNO | rule.error)
    if rule.test is None:
        yield refuse
        return
    behind = [refuse]
    for test in (rule.also, rule.test):
        if test is not None:
            behind = [*_test(test, len(behind)), *behind]
    yield from behind
    yield (_LOAD, 0, 0, _NUMBER_AT)


def _test(test: Test, behind: int) -> Iterator[Instruction]:
    """Yield a test: it goes on where it refuses, else over so many instructions behind it."""
    yield (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * test.argument)
    yield (_AND, 0, 0, test.mask)
    values = sorted(test.values)
    for at, value in enumerate(values):
        after = len(values) - at - 1
        # Over the other values: to the number again where it is allowed, else to what is behind.
        yield (_EQUAL, after + (behind if test.is_allowed else 1), 0, value)
    if not test.is_allowed:
        yield (_EQUAL, behind, behind, 0)  # none of them
