"""The filter, played as the kernel plays it: each row refuses what it says, and nothing else."""

import errno
import os
import struct
from typing import get_args

import pytest

from cmdc_runtime.confinement.layer import Network
from cmdc_runtime.confinement.seccomp import (
    MACHINES,
    NETWORKS,
    RULES,
    TIOCSTI,
    program,
    rules_of,
)

ALLOWED, KILLED = 0x7FFF0000, 0x80000000
X86_64 = MACHINES["x86_64"]
I386_AUDIT = 0x40000003
TIOCGWINSZ = 0x5413
NEW_USER = 0x10000000
SIGCHLD = 17


def refused(error):
    return 0x00050000 | error


def decided(machine, network, number, arguments=(0, 0, 0, 0), audit=None):
    """Return what the filter says of a call."""
    six = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    packed = struct.pack("=IIQ6Q", number, audit or machine.audit, 0, *six)
    program_ = [*struct.iter_unpack("=HBBI", program(network, machine))]
    at, register = 0, 0
    while True:
        code, if_true, if_false, operand = program_[at]
        at += 1
        match code:
            case 0x20:
                (register,) = struct.unpack_from("=I", packed, operand)
            case 0x54:
                register &= operand
            case 0x15:
                at += if_true if register == operand else if_false
            case 0x35:
                at += if_true if register >= operand else if_false
            case 0x06:
                return operand


def number_of(machine, call):
    return next(one.numbers[machine.column] for one in rules_of("off") if one.call == call)


@pytest.fixture(params=MACHINES)
def machine(request):
    return MACHINES[request.param]


@pytest.mark.parametrize("rule", [one for one in RULES if one.test is None], ids=lambda r: r.call)
def test_each_call_of_the_table_is_refused_with_its_error(rule, machine):
    """On each architecture that has the call, in each mode of the network."""
    number = rule.numbers[machine.column]
    if number is None:
        pytest.skip("this architecture never had it")

    assert {decided(machine, network, number) for network in NETWORKS} == {refused(rule.error)}


def test_the_table_is_total():
    """Each call stands once for each argument, says why, and has one number where there is it."""
    rows = [(rule.call, rule.test and rule.test.argument) for rule in RULES]

    assert len(set(rows)) == len(rows)
    assert all(rule.why and any(rule.numbers) for rule in RULES)
    for column in range(len(MACHINES)):
        named = {(rule.call, rule.numbers[column]) for rule in rules_of("off")}
        numbers = [number for _, number in named if number is not None]
        assert len(set(numbers)) == len(numbers)
        assert len(named) == len({call for call, _ in named})
    assert set(NETWORKS) == set(get_args(Network))


@pytest.mark.parametrize(
    "call", ["prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setattr", "move_pages"]
)
def test_a_process_sets_its_own_bounds_alone(machine, call):
    """0 is the caller itself."""
    number = number_of(machine, call)

    assert decided(machine, "off", number, (0, 7, 0)) == ALLOWED
    assert decided(machine, "off", number, (4711, 7, 0)) == refused(errno.EPERM)


@pytest.mark.parametrize(
    ("call", "arguments", "is_allowed"),
    [
        ("setpriority", (0, 0, 5), True),
        ("setpriority", (1, 0, 5), True),
        ("setpriority", (0, 4711, 5), False),
        ("setpriority", (2, 0, 5), False),
        ("ioprio_set", (1, 0, 5), True),
        ("ioprio_set", (1, 4711, 5), False),
        ("ioprio_set", (3, 0, 5), False),
    ],
)
def test_a_priority_is_of_the_process_or_its_group(machine, call, arguments, is_allowed):
    """Not of another one, nor of all of a user."""
    found = decided(machine, "off", number_of(machine, call), arguments)

    assert found == (ALLOWED if is_allowed else refused(errno.EPERM))


def test_what_is_not_in_the_table_is_allowed(machine):
    """Every number beside those of the table."""
    held = {rule.numbers[machine.column] for rule in rules_of("off")}

    found = {decided(machine, "off", number) for number in range(600) if number not in held}
    assert found == {ALLOWED}


def test_a_process_is_forked_without_namespaces_only(machine):
    """By clone, whose flags a filter sees; clone3 is not there."""
    clone = number_of(machine, "clone")

    assert decided(machine, "off", clone, (SIGCHLD, 0, 0)) == ALLOWED
    assert decided(machine, "off", clone, (SIGCHLD | NEW_USER, 0, 0)) == refused(errno.EPERM)
    assert decided(machine, "off", number_of(machine, "clone3")) == refused(errno.ENOSYS)


@pytest.mark.parametrize("bits", [0o4755, 0o2755, 0o6000, 0o104755, 1 << 32 | 0o4000])
@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("chmod", (0,)),
        ("fchmod", (3,)),
        ("fchmodat", (3, 0)),
        ("fchmodat2", (3, 0)),
        ("mknod", (0,)),
        ("mknodat", (3, 0)),
        ("creat", (0,)),
        ("open", (0, os.O_WRONLY | os.O_CREAT)),
        ("openat", (3, 0, os.O_RDWR | os.O_CREAT | os.O_EXCL)),
        ("openat", (3, 0, os.O_RDWR | os.O_TMPFILE)),
    ],
)
def test_no_program_runs_as_its_owner(machine, call, arguments, bits):
    """By whatever call a file gets its mode, unless a call does not read it as one."""
    number = number_of(machine, call)
    if number is None:
        pytest.skip("this architecture never had it")
    *before, flags = arguments

    assert decided(machine, "off", number, (*arguments, bits)) == refused(errno.EPERM)
    assert decided(machine, "off", number, (*arguments, bits & 0o101777)) == ALLOWED
    if call.startswith("open"):
        plain = flags & ~os.O_CREAT & ~os.O_TMPFILE
        assert decided(machine, "off", number, (*before, plain, bits)) == ALLOWED
        folder = (*before, plain | os.O_DIRECTORY, bits)
        assert decided(machine, "off", number, folder) == ALLOWED


def test_nothing_types_into_a_terminal(machine):
    """Not with bits above those that the kernel reads of a request, either."""
    ioctl = number_of(machine, "ioctl")

    assert decided(machine, "off", ioctl, (0, TIOCGWINSZ, 0)) == ALLOWED
    assert decided(machine, "off", ioctl, (0, TIOCSTI, 0)) == refused(errno.EPERM)
    assert decided(machine, "off", ioctl, (0, 1 << 32 | TIOCSTI, 0)) == refused(errno.EPERM)


@pytest.mark.parametrize(
    ("network", "family", "kind", "is_allowed"),
    [
        ("off", 1, 1, False),
        ("off", 2, 1, False),
        ("proxy", 2, 1, True),
        ("proxy", 10, 1, True),
        ("proxy", 1, 1, False),
        ("proxy", 16, 3, False),
        ("proxy", 17, 3, False),
        ("proxy", 40, 1, False),
        ("on", 2, 2, True),
        ("on", 10, 1, True),
        ("on", 16, 3, True),
        ("on", 1, 1, False),
        ("on", 17, 3, False),
        ("on", 40, 1, False),
    ],
)
def test_which_sockets_there_are(machine, network, family, kind, is_allowed):
    """By the mode of the network, the family and the kind."""
    found = decided(machine, network, number_of(machine, "socket"), (family, kind, 0))

    assert found == (ALLOWED if is_allowed else refused(errno.EACCES))


def test_numbers_of_other_architectures_mean_nothing_here(machine):
    """They are not looked up in this one's table: the process is killed."""
    assert decided(machine, "off", 0, audit=I386_AUDIT) == KILLED


def test_x32_is_refused():
    """It has the architecture of x86-64, and numbers beside all others."""
    assert decided(X86_64, "off", 0x40000000 | 1) == refused(errno.ENOSYS)
