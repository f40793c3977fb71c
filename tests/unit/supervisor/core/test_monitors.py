"""Who is told of an end, and how often."""

import pytest

from cmdc_runtime.reasons import Down, Normal, Signal
from supervisor.core.monitors import Monitor, Monitors, down

KILLED = Signal(number=9, name="SIGKILL")


def monitor(ref, session_id="s", client=b"c", *, persistent=False):
    return Monitor(ref, session_id, client, persistent)


def holding(*monitors):
    held = Monitors()
    for one in monitors:
        held.add(one)
    return held


def fired(monitors, session_id="s", *, restarting=False):
    return [
        (client, notice.ref)
        for client, notice in monitors.fire(session_id, KILLED, 1, restarting=restarting)
    ]


def test_a_notice_says_all_that_is_known():
    """Which monitor, which process of which session, why, and whether another follows."""
    notices = holding(monitor("r")).fire("s", KILLED, 4, restarting=True)
    right = Down(ref="r", session_id="s", reason=KILLED, incarnation=4, restarting=True)

    assert notices == [(b"c", right)]
    assert down(monitor("r"), KILLED, 4, restarting=True) == right


def test_each_monitor_is_told_once():
    """In the order in which they were set; the second end of the session is not theirs."""
    monitors = holding(monitor("r1"), monitor("r2", client=b"d"), monitor("r3", "other"))

    assert fired(monitors) == [(b"c", "r1"), (b"d", "r2")]
    assert (fired(monitors), len(monitors)) == ([], 1)
    assert "r3" in monitors


@pytest.mark.parametrize("restarting", [True, False])
def test_a_persistent_monitor_stays_until_the_last_end(restarting):
    """Every process of the session, and then no more."""
    monitors = holding(monitor("r", persistent=True))

    assert fired(monitors, restarting=restarting) == [(b"c", "r")]
    assert ("r" in monitors) == restarting
    assert len(fired(monitors)) == restarting
    assert fired(monitors) == []


def test_nothing_comes_after_a_removal():
    """An unknown reference is forgotten already."""
    monitors = holding(monitor("r1"), monitor("r2"))
    monitors.remove("r1")
    monitors.remove("r1")

    assert fired(monitors) == [(b"c", "r2")]
    assert len(monitors) == 0


def test_setting_it_again_renews_the_connection():
    """A client that comes back is told on its new connection, once."""
    monitors = holding(monitor("r", client=b"old"), monitor("r", client=b"new"))

    assert len(monitors) == 1
    assert fired(monitors) == [(b"new", "r")]


def test_a_reference_names_one_monitor():
    """Set again for another session it is gone from the first."""
    monitors = holding(monitor("r", "s"), monitor("r", "t"))

    assert fired(monitors, "s") == []
    assert fired(monitors, "t") == [(b"c", "r")]
    assert len(monitors) == 0


def test_an_end_that_nobody_watches_tells_nobody():
    """Any session may end."""
    assert Monitors().fire("s", Normal(), 1, restarting=False) == []
