"""Where the cgroups of a process are, as machines of several kinds report it."""

import pytest

from supervisor.core.cgroups import (
    SYSTEMD,
    UNIFIED,
    parse_mountinfo,
    parse_own_cgroups,
    spot_of,
)

UNIFIED_MOUNTS = """\
24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 master:2 - cgroup2 cgroup2 rw,nsdelegate
"""
HYBRID_MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs cgroup rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /../.. /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 /docker/ab12 /sys/fs/cgroup/pids ro,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/a\\040b rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 none rw
nonsense
"""
HYBRID_OWN = """\
9:name=systemd:/system.slice/x.service
8:pids:/docker/ab12/inner
4:memory:/../../system.slice/x.service
2:cpu,cpuacct:/
0::/system.slice/x:y.service
nonsense
"""


@pytest.mark.parametrize(
    ("mounts", "own", "controller", "path"),
    [
        (UNIFIED_MOUNTS, "0::/a/b\n", UNIFIED, "/sys/fs/cgroup/a/b"),
        (UNIFIED_MOUNTS, "0::/\n", UNIFIED, "/sys/fs/cgroup"),
        (UNIFIED_MOUNTS, "0::/a/b\n", "memory", None),
        (UNIFIED_MOUNTS, "0::/../a\n", UNIFIED, None),
        (HYBRID_MOUNTS, HYBRID_OWN, "memory", "/sys/fs/cgroup/memory/system.slice/x.service"),
        (HYBRID_MOUNTS, HYBRID_OWN, "cpu", "/sys/fs/cgroup/cpu,cpuacct"),
        (HYBRID_MOUNTS, HYBRID_OWN, "pids", "/sys/fs/cgroup/pids/inner"),
        (HYBRID_MOUNTS, HYBRID_OWN, SYSTEMD, "/sys/fs/cgroup/a b/system.slice/x.service"),
        (HYBRID_MOUNTS, HYBRID_OWN, UNIFIED, "/sys/fs/cgroup/unified/system.slice/x:y.service"),
        (HYBRID_MOUNTS, "8:pids:/docker/ab123\n", "pids", None),
        (HYBRID_MOUNTS, "8:blkio:/\n", "blkio", None),
        ("", "0::/a\n", UNIFIED, None),
    ],
)
def test_own_cgroup_is_found_below_its_mount(mounts, own, controller, path):
    """A mount may begin in the midst of the hierarchy, or above what the namespace can name."""
    found = spot_of(controller, parse_mountinfo(mounts), parse_own_cgroups(own))

    assert (found and found.path) == path


def test_mounts_of_other_kinds_are_passed_over():
    """Only cgroups are found, with the controllers of v1; those of v2 are in a file."""
    found = parse_mountinfo(HYBRID_MOUNTS)

    assert [one.point.rpartition("/")[2] for one in found] == [
        "cpu,cpuacct",
        "memory",
        "pids",
        "a b",
        "unified",
    ]
    assert {"cpu", "cpuacct"} <= found[0].controllers
    assert found[-1].controllers == {UNIFIED}
