"""From what is known of an exit to its reason."""

import pytest

from cmdc_runtime import reasons
from cmdc_runtime.process import EXIT_BAD_OPTIONS, EXIT_CRASHED, EXIT_ORPHANED
from cmdc_runtime.reasons import (
    ExitCode,
    MaxTurnsExceeded,
    Normal,
    Other,
    PluginAborted,
    ProviderTimeout,
    Shutdown,
    Signal,
    StartFailed,
)
from supervisor.core.exits import Evidence, classify, ending_of
from supervisor.core.restart import Ending

RAISED = reasons.Exception(type="ValueError", message="bad", traceback="…")
KILLED = Signal(number=9, name="SIGKILL")
NOT_BUILT = StartFailed(stage="load", message="no such tool")
SILENT = reasons.Unresponsive(silent_ms=30_000)
LEFT = Shutdown(detail="bye")
CHOSEN = {
    "max turns": MaxTurnsExceeded(max_turns=3),
    "provider": ProviderTimeout(model="a:b", seconds=1.0),
    "plugin": PluginAborted(plugin="guard", why="no"),
}
LOST = Other(detail="its exit status was lost with the nursery")

# fmt: off
CASES = {
    "said goodbye":              (Evidence(0, last_words=Normal()),              Normal()),
    "asked to end":              (Evidence(0, last_words=LEFT),                  LEFT),
    "0 without a goodbye":       (Evidence(0),                                   ExitCode(code=0)),
    "0 after an exception":      (Evidence(0, last_words=RAISED),                ExitCode(code=0)),
    "raised":                    (Evidence(EXIT_CRASHED, last_words=RAISED),     RAISED),
    "ended itself":              (Evidence(3),                                   ExitCode(code=3)),
    "a goodbye and a bad code":  (Evidence(3, last_words=Normal()),              ExitCode(code=3)),
    "orphaned":                  (Evidence(EXIT_ORPHANED),                       ExitCode(code=75)),
    "killed":                    (Evidence(-9),                                  KILLED),
    "killed at its goodbye":     (Evidence(-9, last_words=Normal()),             KILLED),
    "killed at its shutdown":    (Evidence(-9, last_words=LEFT),                 KILLED),
    "killed after its traceback": (Evidence(-9, last_words=RAISED),              RAISED),
    "crashed":                   (Evidence(-11),            Signal(number=11, name="SIGSEGV")),
    "a signal without a name":   (Evidence(-33),            Signal(number=33, name="SIG33")),
    "never built":               (Evidence(EXIT_BAD_OPTIONS, not_started=NOT_BUILT), NOT_BUILT),
    "never built, then killed":  (Evidence(-9, not_started=NOT_BUILT),           NOT_BUILT),
    "bad options, no word":      (Evidence(EXIT_BAD_OPTIONS),                    ExitCode(code=78)),
    "we killed it":              (Evidence(-9, blamed=SILENT),                   SILENT),
    "we killed it as it left":   (Evidence(0, last_words=Normal(), blamed=SILENT), SILENT),
    "status lost, raised":       (Evidence(None, last_words=RAISED),             RAISED),
    "status lost":               (Evidence(None),                                LOST),
}
# fmt: on


@pytest.mark.parametrize("case", CASES)
def test_evidence_becomes_one_reason(case):
    """The kernel's word comes before the process's own, and ours before both."""
    evidence, reason = CASES[case]

    assert classify(evidence) == reason


@pytest.mark.parametrize("reason", CHOSEN.values(), ids=CHOSEN)
def test_an_end_that_the_options_chose_is_told_as_what_it_is(reason):
    """The word of a process that ends by itself is taken; one that was killed meant to say it."""
    assert classify(Evidence(0, last_words=reason)) == reason
    assert classify(Evidence(None, last_words=reason)) == reason
    assert classify(Evidence(-9, last_words=reason)) == KILLED
    assert classify(Evidence(3, last_words=reason)) == ExitCode(code=3)


@pytest.mark.parametrize("reason", CHOSEN.values(), ids=CHOSEN)
def test_an_end_that_the_options_chose_is_final(reason):
    """It is no crash, and no normal end that a permanent session comes back from."""
    assert ending_of(reason, 0) is Ending.CHOSEN


@pytest.mark.parametrize(
    ("reason", "status", "ending"),
    [
        (Normal(), 0, Ending.NORMAL),
        (LEFT, 0, Ending.NORMAL),
        (LEFT, None, Ending.NORMAL),
        (ExitCode(code=0), 0, Ending.CRASH),
        (RAISED, EXIT_CRASHED, Ending.CRASH),
        (KILLED, -9, Ending.CRASH),
        (NOT_BUILT, -9, Ending.CRASH),
        (NOT_BUILT, EXIT_BAD_OPTIONS, Ending.HOPELESS),
        (ExitCode(code=78), EXIT_BAD_OPTIONS, Ending.HOPELESS),
    ],
    ids=str,
)
def test_only_a_goodbye_is_a_normal_end(reason, status, ending):
    """And only the code for bad options says that a restart cannot help."""
    assert ending_of(reason, status) is ending
