"""The arguments of bwrap, of a confinement."""

import pytest

from cmdc_runtime.confinement.bubblewrap import OWN, arguments_of, inside
from cmdc_runtime.confinement.policy import Policy, confinement_of

WORK = "/srv/project"


def arguments(network="off", hidden=None, **policy):
    """Return them as one text, with blanks between."""
    wanted = confinement_of(Policy(network=network, **policy), WORK)
    return " ".join(arguments_of(wanted, hidden or {}, WORK))


def test_every_namespace_is_new_and_nothing_outlives_it():
    """No capability is left, and no terminal."""
    given = arguments()

    for one in ("user", "ipc", "pid", "uts", "cgroup-try", "net"):
        assert f"--unshare-{one}" in given
    for one in ("--die-with-parent", "--new-session", "--cap-drop ALL"):
        assert one in given
    assert given.endswith(" --")


def test_a_network_is_shared_where_there_is_to_be_one():
    """It is the one namespace that stays."""
    assert "--unshare-net" not in arguments("on")
    assert "--unshare-net" not in arguments("proxy", allow_hosts=("a.org",))  # it is around bwrap


def test_the_system_is_read_only_and_folders_are_writable():
    """In this order: a writable folder may lie in one that is not."""
    given = arguments(readable=("/srv",))

    assert "--ro-bind-try /usr /usr" in given
    assert given.index("--ro-bind-try /srv /srv") < given.index(f"--bind {WORK} {WORK}")
    assert "--bind / " not in given
    assert "-bind-try /proc" not in given


def test_what_not_everybody_may_read_is_covered():
    """A folder by an empty one, a file by a device that can't be opened."""
    given = arguments(hidden={"/etc/cmdc": True, "/etc/shadow": False})

    assert "--tmpfs /etc/cmdc --ro-bind /dev/null /etc/shadow" in given


def test_nothing_is_mounted_below_what_is_writable():
    """Such a mount point would have to be made there, where a link could lead it elsewhere."""
    given = arguments_of(confinement_of(Policy(), WORK), {}, WORK)

    assert [one for one in given if one.startswith(f"{WORK}/")] == []


def test_the_program_begins_in_the_working_folder():
    """By its path without links, whatever $PWD says; where it is not shown nothing is asked for."""
    shown, other = confinement_of(Policy(), WORK), confinement_of(Policy(writable=("/mnt",)), WORK)

    assert f"--chdir {WORK} --" in " ".join(arguments_of(shown, {}, WORK))
    assert "--chdir" not in arguments_of(other, {}, WORK)


@pytest.mark.parametrize("folder", OWN)
def test_inside_its_own_folders_are_writable(folder):
    """Landlock holds there what the file system does not."""
    wanted = inside(confinement_of(Policy(), WORK))

    assert folder in wanted.writable
    assert wanted.writable[0] == WORK
    assert wanted.readable == ("/",)
