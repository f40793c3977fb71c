"""Two of those who are compared do the work: an agent in the script itself, and a session."""

import os
import sys

import psutil
import pytest

from benchmarks.peers.__main__ import HISTORY, Size, run
from benchmarks.peers.catalogue import CANDIDATES, CMDC
from benchmarks.peers.figures import UNITS, Kill

pytestmark = [pytest.mark.process, pytest.mark.slow]

PLAYED = [one for one in CANDIDATES if one.name in {CMDC, "asyncio"}]
SMALL = Size(rounds=1, crowd=2, firsts=1, pages=1)


def test_both_do_the_work_and_leave_nothing():
    """Every measure has its sample, and after a kill one goes on with its history."""
    findings = run(PLAYED, SMALL, sys.executable)
    found = {metric.metric: metric.value for metric in findings.metrics()}

    expected = {f"{measure}.{one.name}" for measure in UNITS for one in PLAYED}
    assert found.keys() == expected - {"goes_on.asyncio"}
    assert all(value > 0 for name, value in found.items() if not name.startswith("pss_added"))
    assert findings.kills == {
        CMDC: Kill(CMDC, goes_on=True, script_lives=True, history=HISTORY, kept=HISTORY),
        "asyncio": Kill("asyncio", goes_on=False, script_lives=False, history=HISTORY, kept=0),
    }
    assert psutil.Process(os.getpid()).children() == []
