"""A session and its children in the real tree: who ends with whom, whatever comes between."""

import msgspec
import pytest

from cmdc_runtime.reasons import Shutdown
from cmdc_runtime.wire.frames import IdleNotice, Terminate
from supervisor.core.session_phase import Phase
from supervisor.core.session_tree import PARENT_ENDED
from tests.unit.supervisor.services import (
    CLIENT,
    begin,
    play,
    services_with_tree,
    session_of,
    settle,
    up,
)


def test_second_stop_hastens_the_end_of_children_when_the_process_is_gone():
    """It ends with its agent; a caller in a hurry need not wait for the children's grace."""

    async def scenario():
        services = services_with_tree()
        parent = session_of(services, "p", restart="temporary")
        begin(parent)
        worker = await up(parent)
        child = session_of(services, "c", parent, shutdown=10.0)
        begin(child)
        below = await up(child)
        worker.ends(-9)
        await settle()
        phase = parent.phase
        parent.stop("now", 0.0)
        await settle()
        return phase, below.signals

    assert play(scenario) == (Phase.ENDING, [9])


@pytest.mark.parametrize("is_wanted", [False, True])
def test_child_that_hibernates_when_its_parent_ends(is_wanted):
    """It sleeps for nobody: one Down, and no process is started for what it is asked then."""

    async def scenario():
        services = services_with_tree()
        parent = session_of(services, "p")
        begin(parent)
        above = await up(parent)
        child = session_of(services, "c", parent)
        begin(child)
        below = await up(child)
        below.says(IdleNotice())
        if is_wanted:
            child.deliver(CLIENT, "c-1", msgspec.Raw(b"\xc0"), durable=False)
        above.ends(-9)
        await settle()
        below.ends()
        await settle()
        notices = [one for one in services.downs if one.ref.path == child.path]
        return [(one.reason, one.restarting) for one in notices], child.phase, len(services.answers)

    notices, phase, answers = play(scenario)

    assert notices == [(Shutdown(detail=PARENT_ENDED), False)]
    assert phase is Phase.ENDED
    assert answers == is_wanted


def test_idle_child_that_is_about_to_be_ended_is_only_ended():
    """Its supervisor takes no calls any more; the end that is under way is the one to report."""

    async def scenario():
        services = services_with_tree()
        parent = session_of(services, "p")
        begin(parent)
        above = await up(parent)
        child = session_of(services, "c", parent)
        begin(child)
        below = await up(child)
        grandchild = session_of(services, "g", child)
        begin(grandchild)
        last = await up(grandchild)
        above.ends(-9)
        await settle()
        below.says(IdleNotice())  # its own children are being ended, it is not asked yet
        phase = child.phase
        last.ends()
        await settle()
        asked = [type(one) for one in below.sent]
        below.ends()
        await settle()
        notices = [one.reason for one in services.downs if one.ref.path == child.path]
        return phase, asked.count(Terminate), notices, child.phase

    phase, asked, notices, end = play(scenario)

    assert phase is Phase.STOPPING
    assert asked == 1
    assert notices == [Shutdown(detail=PARENT_ENDED)]
    assert end is Phase.ENDED
