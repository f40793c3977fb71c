"""A removal that races with a notice, thread against thread: nothing is heard after it returned."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client.engine import CallbackThread
from cmdc_runtime.client.sync.stream import Monitor
from cmdc_runtime.reasons import Down, Normal

RACES = 5_000
"""100,000 take some twenty seconds."""
SWITCH_S = 1e-6
"""So often that threads meet at every step."""


@pytest.fixture
def callbacks():
    """A thread for callbacks, while threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    found = CallbackThread()
    yield found
    found.close()
    sys.setswitchinterval(before)


@pytest.mark.slow
def test_nothing_is_heard_after_a_removal(callbacks):
    """Neither by a callback nor by ``wait``, whatever was under way."""
    heard = []
    late = []
    start = threading.Barrier(2)

    def deliver(watch, down):
        callbacks.put(watch, heard.append, down)

    def notify(monitor):
        start.wait()
        monitor.on_down(
            Down(ref=monitor.ref, session_id="s", reason=Normal(), incarnation=1, restarting=False)
        )

    with ThreadPoolExecutor(1) as pool:
        for _ in range(RACES):
            heard.clear()
            monitor = Monitor("s", deliver)
            notifying = pool.submit(notify, monitor)
            start.wait()
            monitor.mark_removed()
            callbacks.await_done(monitor)
            count = len(heard)
            with pytest.raises(cmdc.UsageError, match="removed"):
                monitor.wait(0)
            notifying.result()
            callbacks.await_done(monitor)
            late.append(len(heard) - count)

    assert late == [0] * RACES
