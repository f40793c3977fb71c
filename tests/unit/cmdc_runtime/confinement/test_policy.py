"""What follows from a policy, and what is none."""

import pytest

from cmdc_runtime.confinement.policy import PROTECTED, Policy, confinement_of, problem_of


def test_without_a_folder_it_is_the_sessions_own():
    """And what is protected is so below each of them."""
    plan = confinement_of(Policy(), "/srv/project")

    assert plan.writable == ("/srv/project",)
    assert plan.protected == PROTECTED
    assert plan.network == "off"


def test_paths_are_relative_to_the_sessions_folder():
    """An absolute one stays."""
    plan = confinement_of(Policy(writable=("out", "/srv/cache"), readable=("../lib",)), "/srv/p")

    assert plan.writable == ("/srv/p/out", "/srv/cache")
    assert plan.readable[-1] == "/srv/p/../lib"


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        (Policy(), None),
        (Policy(writable=("/",)), "'/'"),
        (Policy(writable=("//",)), "'/'"),
        (Policy(writable=("a/../..",)), "'a/../..'"),
        (Policy(readable=("a\0b",)), "is no path"),
        (Policy(protected=("/etc",)), "relative"),
        (Policy(protected=("../x",)), "relative"),
        (Policy(protected=(".",)), "relative"),
        (Policy(network="proxy", allow_hosts=("pypi.org",)), None),
        (Policy(network="proxy"), "needs allow_hosts"),
        (Policy(network="on", allow_hosts=("pypi.org",)), 'network is "on"'),
        (Policy(allow_hosts=("pypi.org",)), 'network is "off"'),
        (Policy(network="proxy", allow_hosts=("127.1",)), "'127.1' is no host"),
    ],
)
def test_what_is_wrong_is_named(policy, problem):
    """Or nothing is."""
    found = problem_of(policy)

    assert found == problem if problem is None else problem in found
