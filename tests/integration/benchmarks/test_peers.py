"""Two of those who are compared do the work: an agent in the script itself, and a session."""

import os
import sys

import psutil
import pytest

from benchmarks.peers.__main__ import HISTORY, Size, run
from benchmarks.peers.catalogue import CANDIDATES, CMDC
from benchmarks.peers.figures import UNITS, Kill
from benchmarks.peers.quickstart import MEASURES, metrics, play

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


def test_two_quickstarts_print_the_answer_and_are_timed():
    """The first turn warms up; of the next one each measure has a sample."""
    found = play(sys.executable, [CMDC, "openai SDK"], turns=1)
    named = {metric.metric: metric for metric in metrics(found)}

    assert named.keys() == {f"{one}.{name}" for one in MEASURES for name in (CMDC, "openai SDK")}
    assert all(metric.n == 1 and metric.value > 0 for metric in named.values())
    assert named["real.openai SDK"].baseline == named[f"real.{CMDC}"].value
