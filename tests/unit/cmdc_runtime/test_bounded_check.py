"""A check that would take for ever is ended in the middle of it."""

import re
import signal
import threading
from contextlib import suppress

import pytest

from cmdc_runtime import bounded_check
from cmdc_runtime.bounded_check import CheckTooLongError, bounded

ENDLESS = "a" * 40 + "b"


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(bounded_check, "CHECK_CPU_S", 0.05)


def endless():
    """Match what takes years."""
    return re.search("^(a+)+$", ENDLESS)


def test_a_match_without_an_end_is_ended():
    """Where neither a task nor a thread could end it."""
    with pytest.raises(CheckTooLongError, match=r"it took more than 0\.05 s of CPU time"):
        bounded(endless)


def test_code_that_swallows_the_end_is_ended_again():
    """A foreign check may catch whatever it likes."""

    def stubborn():
        with suppress(Exception):
            endless()
        return endless()

    with pytest.raises(CheckTooLongError):
        bounded(stubborn)


def test_what_a_check_returns_or_raises_is_left_alone():
    """It is a check like any other as long as it is short."""
    assert bounded(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        bounded(lambda: 1 / 0)


@pytest.mark.parametrize("check", [lambda: 7, endless], ids=["short", "endless"])
def test_no_timer_is_left(check):
    """And a signal that comes late ends nothing."""
    with suppress(CheckTooLongError):
        bounded(check)

    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    signal.raise_signal(signal.SIGVTALRM)


def test_a_thread_checks_without_a_bound():
    """Signals are heard in the main thread alone, where agents check."""
    found = []
    thread = threading.Thread(target=lambda: found.append(bounded(lambda: 7)))
    thread.start()
    thread.join()

    assert found == [7]
