"""An agent that goes on when its session has long had another process: it is not heard, and ends.

Whoever takes a session over ends its old process first, by the roll or by its cgroup. So this is a
machine without cgroups, whose roll somebody removes while there is no daemon.
"""

import shutil
import sys

import psutil
import pytest

from cmdc_runtime import runtime_dir
from cmdc_runtime.testing import Hold, Text
from tests.fault.conftest import OwnDaemon

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 30.0
GRACE_S = 600.0
"""For which an agent waits for a daemon: none of these cases ends by that."""
WITHOUT_CELLS = """
import functools, runpy
from supervisor.adapters.cgroups import Cgroups
Cgroups.survey = functools.partial(Cgroups.survey, versions=())
runpy.run_module("supervisor", run_name="__main__", alter_sys=True)
"""


class BareDaemon(OwnDaemon):
    """Daemons of a machine without cgroups."""

    grace = GRACE_S

    def command(self, *flags):
        return [sys.executable, "-P", "-c", WITHOUT_CELLS, *flags]


@pytest.fixture(scope="module")
def shared_daemon():
    """Directories for such a daemon."""
    found = BareDaemon()
    yield found
    found.close()


@pytest.mark.fault_case("F11")
def test_an_agent_that_is_continued_too_late_is_of_an_old_generation(
    place, audit, agent, scripted, bystander
):
    """Its daemon is dead, and the next one did not find it: what it goes on with counts nothing."""
    audit.daemon_died = audit.bystander_died = True
    model = scripted("one", (Text("its "), Hold(), Text("late")), default="next")
    session = agent(model)
    assert session.run("1", timeout=TURN_S).text == "one"
    session.prompt("2")
    model.wait_held()
    late, other = (psutil.Process(one.agent_pid()) for one in (session, bystander))
    late.suspend()
    try:
        place.kill()
        other.kill()  # nobody would find it either, and it would call, too
        shutil.rmtree(place.address / runtime_dir.REGISTRY)
        place.start()
        assert session.collect_reply(timeout=TURN_S) == "next"
        index, pid = session.last_index(), session.agent_pid()
        before, logged = session.messages(), len(place.log.read_text())
        assert late.status() == psutil.STATUS_STOPPED
    finally:
        late.resume()
    model.release()
    late.wait(TURN_S)

    assert "agent.rejected" in place.log.read_text()[logged:]
    assert (session.last_index(), session.agent_pid()) == (index, pid)
    assert session.messages() == before
    assert session.status().incarnation == 2
    assert session.run("3", timeout=TURN_S).text == "next"
