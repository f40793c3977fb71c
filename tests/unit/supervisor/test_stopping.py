"""What systemd is doing with the daemon's unit, as far as it can be known from its words."""

import pytest

from supervisor.stopping import job_of

V2 = "0::/system.slice/cmdc.service/.control\n"
V1 = "12:memory:/x\n1:name=systemd:/system.slice/cmdc.service\n0::/system.slice/cmdc.service\n"
USER = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/cmdc.service\n"
JOBS = " 7 other.service stop    waiting\n41 cmdc.service  {} running\n"


@pytest.mark.parametrize("cgroups", [V2, V1, USER])
@pytest.mark.parametrize("job", ["restart", "stop", "start"])
def test_the_own_unit_is_found(cgroups, job):
    """Whichever hierarchies there are, and below a user's manager too."""
    assert job_of(cgroups, JOBS.format(job)) == job


@pytest.mark.parametrize(
    ("cgroups", "jobs"),
    [
        ("0::/\n", JOBS.format("restart")),
        (V2, ""),
        (V2, "No jobs running.\n"),
        (V2, "7 x.service stop y"),
    ],
)
def test_nothing_is_said_of_what_is_not_known(cgroups, jobs):
    """Outside of any unit, and without a job of it."""
    assert job_of(cgroups, jobs) == ""
