"""Limits as files, names of cgroups, and the kernel's words."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.ids import is_session_id
from cmdc_runtime.requests import Supervision
from supervisor.core.cgroups import (
    CGROUP_NAME_BYTES_MAX,
    MEMORY_FILES,
    NEEDED_FILES,
    SETTINGS,
    Controller,
    Limits,
    Setting,
    Version,
    base_name,
    cgroup_name,
    is_base_name,
    is_populated,
    oom_kills,
    parse_cgroup_name,
    parse_keyed,
    parse_pids,
    settings,
)

OPTIONAL = {"memory.oom.group", "memory.swap.max", "memory.memsw.limit_in_bytes"}
"""Kernels without swap accounting have none of them, and hold the limit all the same."""
ALL = Limits(memory_bytes=2**26, cpu_cores=1.5, processes=20)
SESSION_IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}", fullmatch=True)
ANY_TEXT = st.text(min_size=1, max_size=400)
INCARNATIONS = st.integers(1, 10**9)


def test_every_controller_has_a_row_for_every_version():
    """What is limited in one kind of hierarchy is limited in the other, too."""
    pairs = set(product(Controller, Version))

    assert pairs - SETTINGS.keys() == set(), "supervisor/core/cgroups.py, SETTINGS"
    assert pairs - NEEDED_FILES.keys() == set(), "supervisor/core/cgroups.py, NEEDED_FILES"
    assert set(Version) - MEMORY_FILES.keys() == set(), "supervisor/core/cgroups.py, MEMORY_FILES"


@pytest.mark.parametrize(
    ("controller", "version", "written"),
    [
        (
            Controller.MEMORY,
            Version.V2,
            [("memory.oom.group", "1"), ("memory.swap.max", "0"), ("memory.max", "67108864")],
        ),
        (
            Controller.MEMORY,
            Version.V1,
            [
                ("memory.limit_in_bytes", "67108864"),
                ("memory.memsw.limit_in_bytes", "67108864"),
            ],
        ),
        (Controller.CPU, Version.V2, [("cpu.max", "150000 100000")]),
        (
            Controller.CPU,
            Version.V1,
            [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "150000")],
        ),
        (Controller.PROCESSES, Version.V2, [("pids.max", "20")]),
        (Controller.PROCESSES, Version.V1, [("pids.max", "20")]),
    ],
)
def test_a_limit_is_these_files(controller, version, written):
    """The order is that of the writes, since the kernel refuses some of them in another."""
    found = settings(controller, version, ALL)

    assert [(one.file, one.value) for one in found] == written
    assert {one.file for one in found if one.is_optional} == OPTIONAL & {one.file for one in found}


@pytest.mark.parametrize(("controller", "version"), sorted(SETTINGS))
def test_without_a_limit_only_what_is_no_limit_is_written(controller, version):
    """A session with no limits gets none, not even a large one."""
    found = settings(controller, version, Limits())

    group = Setting("memory.oom.group", "1", is_optional=True)
    is_memory_v2 = (controller, version) == (Controller.MEMORY, Version.V2)
    assert found == ((group,) if is_memory_v2 else ())


def test_a_tiny_share_is_the_least_that_the_kernel_takes():
    """Less than a hundredth of a core is a hundredth."""
    assert settings(Controller.CPU, Version.V2, Limits(cpu_cores=0.0001))[0].value == "1000 100000"


def test_limits_are_those_of_the_session():
    """Each option of a session is one limit, and what is None is none."""
    full = Supervision(memory_limit=2**26, cpu_limit=1.5, max_processes=20)

    assert Limits.of(full) == ALL
    assert Limits.of(full).controllers == set(Controller)
    assert Limits.of(Supervision()).controllers == set()


# --- names ------------------------------------------------------------------------------------


@given(SESSION_IDS, INCARNATIONS)
def test_a_valid_session_id_can_be_read_off_its_cgroup(session_id, incarnation):
    """Whoever looks at the cgroups sees whose they are."""
    name = cgroup_name(session_id, incarnation)

    assert is_session_id(session_id)
    assert name == f"s-{session_id}.{incarnation}"
    assert parse_cgroup_name(name) == (session_id, incarnation)


@given(ANY_TEXT, INCARNATIONS)
def test_any_id_makes_a_name_that_is_safe_and_short(session_id, incarnation):
    """No id leads out of the directory, hides in it, or is too long for it."""
    name = cgroup_name(session_id, incarnation)

    assert name.isascii()
    assert "/" not in name
    assert name.isprintable()
    assert name.startswith("s-")
    assert len(name) <= CGROUP_NAME_BYTES_MAX
    assert parse_cgroup_name(name) in ((session_id, incarnation), None)


@given(ANY_TEXT, INCARNATIONS, ANY_TEXT, INCARNATIONS)
def test_no_two_generations_share_a_cgroup(one, first, other, second):
    """The name distinguishes sessions and incarnations, also where the id had to be cut."""
    is_same = (one, first) == (other, second)

    assert (cgroup_name(one, first) == cgroup_name(other, second)) is is_same


def test_ids_that_are_cut_are_kept_apart():
    """What they begin with is the same, and nobody takes them for each other."""
    long = "x" * 300

    assert cgroup_name(long + "a", 1) != cgroup_name(long + "b", 1)
    assert len(cgroup_name(long, 1)) == CGROUP_NAME_BYTES_MAX
    assert parse_cgroup_name(cgroup_name(long, 1)) is None


def test_an_id_that_just_fits_is_not_cut():
    """Whoever looks at the cgroups sees it whole."""
    fits = "x" * (CGROUP_NAME_BYTES_MAX - len("s-.1"))

    assert cgroup_name(fits, 1) == f"s-{fits}.1"
    assert parse_cgroup_name(cgroup_name(fits + "x", 1)) is None


@pytest.mark.parametrize("name", ["", "s-", "s-a", "s-a.0", "s-a.01", "a.1", "s-%ff.1", "s-%FF.1"])
def test_what_is_no_cgroup_is_not_taken_for_one(name):
    """A directory that somebody else made is nobody's cgroup."""
    assert parse_cgroup_name(name) is None


def test_a_daemon_is_known_by_its_place():
    """Each life of a daemon has the same base, and every other daemon another one."""
    assert base_name("/run/cmdc") == base_name("/run/cmdc")
    assert base_name("/run/cmdc") != base_name("/run/other")
    assert is_base_name(base_name("/run/cmdc"))
    assert not is_base_name("cmdc-systemd-1")


# --- the kernel's words -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kills"),
    [
        ("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n", 2),
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n", 5),
        ("oom_kill_disable 0\nunder_oom 0\n", 0),
        ("", 0),
    ],
    ids=["v2", "v1", "before 4.13", "empty"],
)
def test_the_kernel_counts_what_it_killed(text, kills):
    """Both files have the count under the same word, among others that begin like it."""
    assert oom_kills(text) == kills


@pytest.mark.parametrize(
    ("text", "populated"),
    [("populated 1\nfrozen 0\n", True), ("populated 0\n", False), ("", False)],
)
def test_the_kernel_says_whether_anything_lives(text, populated):
    """One word of cgroup.events is about that."""
    assert is_populated(text) is populated


def test_lines_that_are_no_numbers_are_passed_over():
    """A newer kernel may say more, in another form."""
    assert parse_keyed("a 1\nb max\nc\nd 1 2\n") == {"a": 1}
    assert parse_pids("12\n0\n345\n") == {0, 12, 345}
