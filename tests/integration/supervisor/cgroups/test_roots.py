"""Which layers a daemon has, and how daemons and their earlier lives are kept apart."""

import contextlib
import json
import os
import subprocess
import sys

import pytest

from supervisor.adapters import cgroup_roots
from supervisor.adapters.cgroups import Cgroups
from supervisor.core.cgroups import (
    NEEDED_FILES,
    Controller,
    Limits,
    Version,
    base_name,
    cgroup_name,
)

pytestmark = pytest.mark.process

WAIT_S = 10.0
LIMIT_BYTES = 48 * 2**20
NAME = cgroup_name("s1", 1)


# --- other daemons, and earlier lives ----------------------------------------------------------


def test_what_an_earlier_life_left_is_ended_before_this_one_starts(stage, name):
    """Stale cgroups are killed and removed; another daemon's cgroups are not touched."""
    with stage.surveyed(base_name(name)) as other:
        stage.need(other, "kill", *Version)
        stale = Cgroups.survey(name)
        cgroup, foreign = stale.open(NAME, Limits()), other.open(NAME, Limits())
        with stage.program("input()") as left, stage.program("input()") as stranger:
            cgroup.admit(left.pid)
            foreign.admit(stranger.pid)
            die(stale)
            with stage.surveyed(name) as cgroups:
                assert left.wait(WAIT_S) == -9
                assert [part.path for part in cgroup.parts if part.path.exists()] == []
                assert len(cgroups.roots) == len(other.roots)
            assert stranger.poll() is None
            assert foreign.kill()


def die(cgroups):
    """Do what the kernel does for a daemon that is killed: give its locks back."""
    for root in cgroups.roots:
        os.close(root.lock_fd)


def test_the_place_of_a_daemon_that_lives_is_not_taken(stage, name):
    """Two daemons of one name are kept apart, and the second one knows why it has nothing."""
    with stage.surveyed(name) as first:
        stage.need(first, "kill", *Version)
        cgroup = first.open(NAME, Limits())
        with stage.program("input()") as process:
            cgroup.admit(process.pid)
            with stage.surveyed(name) as second:
                (layer,) = [one for one in second.layers if one.what == "kill"]

                assert second.roots == ()
                assert layer.by == "process session"
                assert "belongs to another daemon" in layer.why
            assert process.poll() is None
            assert cgroup.kill()


def test_an_empty_place_of_a_dead_daemon_is_removed_by_any_other(stage, name):
    """A daemon that never comes back leaves no directories behind for good."""
    dead = Cgroups.survey(base_name(name))
    stage.need(dead, "kill", *Version)
    dead.open(NAME, Limits())
    die(dead)
    with stage.surveyed(name):
        assert [root.path for root in dead.roots if root.path.exists()] == []


def test_what_was_left_in_another_cgroup_is_found_by_the_record(stage, name, tmp_path):
    """Started elsewhere, a daemon still knows where its earlier life had its cgroups."""
    record = tmp_path / "roots.json"
    with stage.surveyed(name) as cgroups:
        stage.need(cgroups, "kill", "cgroup v2")
        ground = cgroups.roots[0].path.parent / f"{name}-elsewhere"
    cgroup = ground / name / NAME
    cgroup.mkdir(parents=True)
    try:
        record.write_text(f'["{ground / name}", "{ground}", "/etc", 7]')
        with stage.program("input()") as left:
            cgroup_roots.admit(cgroup, left.pid)
            with stage.surveyed(name, record=record) as cgroups:
                ours = [str(root.path) for root in cgroups.roots]

                assert left.wait(WAIT_S) == -9
                assert not (ground / name).exists()
                assert ground.exists()
                assert sorted(ours) == sorted(json.loads(record.read_text()))
    finally:
        cgroup_roots.remove(ground)


# --- what is reported -------------------------------------------------------------------------


def test_each_resource_has_its_own_layer_and_reason(cgroups):
    """What cannot be held by a cgroup says why, and nothing else is the worse for it."""
    found = {layer.what: layer for layer in cgroups.layers}
    wanted = Limits(memory_bytes=LIMIT_BYTES, cpu_cores=1.0, processes=30)
    held = frozenset().union(*(root.controllers for root in cgroups.roots))
    cgroup = cgroups.open(NAME, wanted)

    assert list(found) == ["memory", "cpu", "processes", "files", "kill", "oom"]
    assert [layer for layer in cgroups.layers if not layer.why] == []
    assert cgroup.guards == held
    assert cgroups.unenforced(wanted) == (() if Controller.CPU in held else ("cpu_limit",))
    assert cgroup.close()


# A daemon that is alone in its cgroup: it makes part for a controller, and takes that back.
ALONE = """
import json, os, sys
from pathlib import Path
from supervisor.adapters.cgroup_roots import come_back, enable

ground, controller = Path(sys.argv[1]), sys.argv[2]
input()
found = [enable(ground, [controller, "nonsense"]), (ground / "cgroup.procs").read_text()]
base = ground / "base"
base.mkdir()
found += [enable(base, [controller]), (base / "cgroup.subtree_control").read_text().split()]
base.rmdir()
come_back(ground)
print(json.dumps([*found, (ground / "cgroup.procs").read_text().split() == [str(os.getpid())]]))
"""


def test_a_daemon_makes_room_for_the_controllers_of_v2(stage, name):
    """It leaves its cgroup for one below, since the kernel limits no children of a full one."""
    with stage.surveyed(name) as cgroups:
        stage.need(cgroups, "kill", "cgroup v2")
        own = cgroups.roots[0].path.parent
    with passed_on(own) as offered:
        makes_room(own / f"{name}-alone", offered)


@contextlib.contextmanager
def passed_on(own):
    """Lend a controller that a cgroup passes on; where it passes none on, it does meanwhile.

    A machine whose controllers are v1's still has one or the other for v2, as hugetlb, and root may
    pass it on at the top of the tree.
    """
    control = own / "cgroup.subtree_control"
    offered = control.read_text().split()
    if offered:
        yield offered[0]
        return
    there = (own / "cgroup.controllers").read_text().split()
    if not there:
        pytest.skip(f"{own} has no controller of cgroup v2")
    try:
        control.write_text(f"+{there[0]}")
    except OSError as error:
        pytest.skip(f"{own} may not pass {there[0]} on: {error.strerror}")
    try:
        yield there[0]
    finally:
        control.write_text(f"-{there[0]}")


def makes_room(ground, offered):
    """See a daemon that is alone in ``ground`` pass a controller on to what is below."""
    ground.mkdir()
    try:
        command = [sys.executable, "-c", ALONE, str(ground), offered]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as daemon:
            cgroup_roots.admit(ground, daemon.pid)
            output, _ = daemon.communicate("\n", WAIT_S)
        refused, inside, below, enabled, is_back = json.loads(output)

        assert list(refused) == ["nonsense"]
        assert inside == ""
        assert below == {}
        assert enabled == [offered]
        assert is_back
        assert cgroup_roots.children(ground) == []
    finally:
        cgroup_roots.remove(ground)


def test_without_cgroups_everything_has_a_layer_all_the_same(name):
    """Where no cgroup is wanted or to be had, the daemon watches, and says so."""
    cgroups = Cgroups.survey(name, versions=())
    found = {layer.what: layer.by for layer in cgroups.layers}
    cgroup = cgroups.open(NAME, Limits(memory_bytes=LIMIT_BYTES, cpu_cores=1.0))

    assert found == {
        "memory": "watch",
        "cpu": "none",
        "processes": "watch",
        "files": "rlimit",
        "kill": "process session",
        "oom": "watch",
    }
    assert cgroups.unenforced(cgroup.limits) == ("cpu_limit",)
    assert cgroup.guards == frozenset()
    assert cgroup.close()
    cgroups.close()


def test_every_needed_file_is_there_where_a_controller_is_used(cgroups):
    """A controller counts only if the kernel was built with all that is asked of it."""
    found = [
        root.path / file
        for root in cgroups.roots
        for controller in root.controllers
        for file in NEEDED_FILES[controller, root.version]
    ]

    assert [path for path in found if not path.exists()] == []
