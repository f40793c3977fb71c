"""From what is known of an exit to its reason, and to what a Down tells of it."""

import signal
from itertools import product

import pytest

from cmdc_runtime import reasons
from cmdc_runtime.heartbeats import REBUILDING
from cmdc_runtime.process import EXIT_BAD_OPTIONS, EXIT_CRASHED, EXIT_ORPHANED
from cmdc_runtime.reasons import (
    ExitCode,
    MaxTurnsExceeded,
    Normal,
    Other,
    OutOfMemory,
    PluginAborted,
    ProviderTimeout,
    Shutdown,
    Signal,
    StartFailed,
)
from supervisor.core import exits
from supervisor.core.exits import (
    VERDICTS,
    Asked,
    Evidence,
    LastSeen,
    Said,
    Told,
    classify,
    ending_of,
    evidence_of,
    fell_at,
    killed_by,
)
from supervisor.core.tree.messages import Ending

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
LOST = Other(detail="its exit status was lost with the zygote")
MEMORY = {"oom_kills": 1, "memory_peak_bytes": 2**29, "memory_limit_bytes": 2**28}
TOO_BIG = OutOfMemory(rss_bytes=2**29, limit_bytes=2**28)
DUMPED = Signal(number=11, name="SIGSEGV", core_dumped=True)
TERMINATED = Signal(number=15, name="SIGTERM")
STACK = """\
Fatal Python error: Segmentation fault

Current thread 0x00007f05ed85cb80 (most recent call first):
  File "/lib/native.py", line 519 in call
"""

# fmt: off
CASES = {
    "said goodbye":              (Evidence(0, last_words=Normal()),              Normal()),
    "asked to end":              (Evidence(0, last_words=LEFT),                  LEFT),
    "0 without a goodbye":       (Evidence(0),                                   ExitCode(code=0)),
    "0 after an exception":      (Evidence(0, last_words=RAISED),                RAISED),
    "0 after a signal's word":   (Evidence(0, last_words=KILLED),                ExitCode(code=0)),
    "raised":                    (Evidence(EXIT_CRASHED, last_words=RAISED),     RAISED),
    "ended itself":              (Evidence(3),                                   ExitCode(code=3)),
    "a goodbye and a bad code":  (Evidence(3, last_words=Normal()),              ExitCode(code=3)),
    "orphaned":                  (Evidence(EXIT_ORPHANED),                       ExitCode(code=75)),
    "killed":                    (Evidence(-9),                                  KILLED),
    "killed at its goodbye":     (Evidence(-9, last_words=Normal()),             KILLED),
    "killed at its shutdown":    (Evidence(-9, last_words=LEFT),                 KILLED),
    "killed after its traceback": (Evidence(-9, last_words=RAISED),              RAISED),
    "crashed":                   (Evidence(-11),            Signal(number=11, name="SIGSEGV")),
    "crashed with a core":       (Evidence(-11, core_dumped=True),               DUMPED),
    "crashed after its traceback": (Evidence(-11, last_words=RAISED),            RAISED),
    "obeyed SIGTERM":            (Evidence(EXIT_CRASHED, last_words=TERMINATED), TERMINATED),
    "out of memory":             (Evidence(-9, **MEMORY),                        TOO_BIG),
    "out of memory, no figures": (Evidence(-9, oom_kills=1),                     OutOfMemory()),
    "out of memory as it left":  (Evidence(-9, last_words=LEFT, **MEMORY),       TOO_BIG),
    "out of memory as it raised": (Evidence(-9, last_words=RAISED, **MEMORY),    TOO_BIG),
    "a tool out of memory":      (Evidence(0, last_words=Normal(), **MEMORY),    Normal()),
    "another signal meanwhile":  (Evidence(-15, **MEMORY),                       TERMINATED),
    "killed, and big":           (Evidence(-9, memory_peak_bytes=2**40),         KILLED),
    "our kill, and too big":     (Evidence(-9, asked=Asked.SIGKILL, **MEMORY),   KILLED),
    "our own watch":             (Evidence(-9, fail_reason=TOO_BIG),                  TOO_BIG),
    "asked and killed":          (Evidence(-9, asked=Asked.SIGKILL),             KILLED),
    "asked, 0, no goodbye":      (Evidence(0, asked=Asked.POLITELY),        ExitCode(code=0)),
    "a signal without a name":   (Evidence(-33),            Signal(number=33, name="SIG33")),
    "never built":               (Evidence(EXIT_BAD_OPTIONS, not_started=NOT_BUILT), NOT_BUILT),
    "never built, then killed":  (Evidence(-9, not_started=NOT_BUILT),           NOT_BUILT),
    "bad options, no word":      (Evidence(EXIT_BAD_OPTIONS),                    ExitCode(code=78)),
    "we killed it":              (Evidence(-9, fail_reason=SILENT),                   SILENT),
    "we killed it as it left":   (Evidence(0, last_words=Normal(), fail_reason=SILENT), SILENT),
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
    assert ending_of(reason) is Ending.FINAL


@pytest.mark.parametrize(
    ("reason", "ending"),
    [
        (Normal(), Ending.NORMAL),
        (LEFT, Ending.NORMAL),
        (RAISED, Ending.CRASH),
        (KILLED, Ending.CRASH),
        (NOT_BUILT, Ending.CRASH),
        *((ExitCode(code=code), Ending.CRASH) for code in range(256)),
    ],
    ids=str,
)
def test_only_a_goodbye_is_a_normal_end(reason, ending):
    """No status is one, nor does any say that a restart cannot help."""
    assert ending_of(reason) is ending


def test_only_the_process_itself_says_that_no_start_can_work():
    """The daemon says of one that was not up in time that it was not built, too."""
    assert ending_of(NOT_BUILT, said_hopeless=True) is Ending.FINAL


def test_every_pair_of_words_has_a_verdict():
    """What the kernel told and what the process said: the rows missing are shown."""
    missing = set(product(Told, Said)) - set(VERDICTS)

    assert missing == set(), "add rows to VERDICTS in supervisor/core/exits.py"
    assert set(VERDICTS) == set(product(Told, Said))


WORDS = {
    Said.NOTHING: None,
    Said.GOODBYE: LEFT,
    Said.CHOSEN: CHOSEN["plugin"],
    Said.RAISED: RAISED,
    Said.OTHER: TERMINATED,
}
TELLING = {
    Told.NOTHING: Evidence(None),
    Told.ZERO: Evidence(0),
    Told.CODE: Evidence(70),
    Told.SIGNAL: Evidence(-9),
    Told.OUT_OF_MEMORY: Evidence(-9, oom_kills=1),
}


@pytest.mark.parametrize("told", Told)
@pytest.mark.parametrize("said", Said)
def test_every_pair_of_words_makes_a_reason(told, said):
    """No pair is left to chance, and none is normal but a goodbye that the kernel bears out."""
    told_alone = TELLING[told]
    evidence = Evidence(told_alone.status, last_words=WORDS[said], oom_kills=told_alone.oom_kills)
    reason = classify(evidence)
    is_borne_out = told in (Told.ZERO, Told.NOTHING) and said is Said.GOODBYE

    assert isinstance(reason, reasons.DownReason)
    assert (ending_of(reason) is Ending.NORMAL) == is_borne_out


# fmt: off
HANDS = {
    "from outside":          (Evidence(-9),                                   "outside"),
    "term from outside":     (Evidence(-15),                                  "outside"),
    "obeyed from outside":   (Evidence(70, last_words=TERMINATED),            "outside"),
    "killed while asked":    (Evidence(-9, asked=Asked.POLITELY),             "outside"),
    "killed before our kill": (Evidence(-9, asked=Asked.SIGTERM),             "outside"),
    "our kill":              (Evidence(-9, asked=Asked.SIGKILL),              "daemon"),
    "our term":              (Evidence(-15, asked=Asked.SIGTERM),             "daemon"),
    "obeyed ours":           (Evidence(70, last_words=TERMINATED, asked=Asked.SIGTERM), "daemon"),
    "term before our kill":  (Evidence(-15, asked=Asked.SIGKILL),             "daemon"),
    "fail_reason":                (Evidence(-9, fail_reason=SILENT),                    "daemon"),
    "the kernel":            (Evidence(-9, oom_kills=1),                      "kernel"),
    "ours, and too big":     (Evidence(-9, oom_kills=1, asked=Asked.SIGKILL), "daemon"),
    "a fault":               (Evidence(-11),                                  ""),
    "a fault while killed":  (Evidence(-11, fail_reason=SILENT),                   ""),
    "abort":                 (Evidence(-signal.SIGABRT),                      ""),
    "by itself":             (Evidence(0),                                    ""),
    "nobody knows":          (Evidence(None),                                 ""),
}
# fmt: on


@pytest.mark.parametrize("case", HANDS)
def test_whose_signal_it_was_is_told(case):
    """The daemon's, somebody else's or the kernel's: signal 9 alone does not say."""
    evidence, hand = HANDS[case]

    assert killed_by(evidence) == hand


def test_a_death_is_blamed_on_the_step_it_came_at():
    """One of rebuilding, or the opening of what a command brings; else on none."""
    assert fell_at(LastSeen(state=REBUILDING, turns=3)) == 3
    assert fell_at(LastSeen(state=REBUILDING, turns=0)) == 0
    assert fell_at(LastSeen(state="running", turns=3, opening=2**32)) == 2**32
    assert fell_at(LastSeen(state="running", turns=3)) is None


def test_a_down_tells_what_was_seen_last():
    """All of it, in milliseconds and bytes."""
    evidence = Evidence(-9, core_dumped=True, **MEMORY)
    seen = LastSeen(
        pid=7,
        lived_ms=1500,
        state="executing_tools",
        tools=("shell",),
        last_index=42,
        max_rss_bytes=2**20,
        user_us=2_100_999,
        system_us=999,
        output="loading\n",
    )

    assert evidence_of(evidence, seen) == reasons.Evidence(
        pid=7,
        status=-9,
        core_dumped=True,
        killed_by="kernel",
        lived_ms=1500,
        state="executing_tools",
        tools=("shell",),
        last_index=42,
        max_rss_bytes=2**20,
        user_ms=2100,
        system_ms=0,
        oom_kills=1,
        memory_peak_bytes=2**29,
        output="loading",
    )


def test_a_down_without_a_heartbeat_tells_what_there_is():
    """A process that was never seen at work."""
    assert evidence_of(Evidence(3), LastSeen()) == reasons.Evidence(status=3)
    assert (fell_at(LastSeen()), fell_at(LastSeen(state=REBUILDING))) == (None, 0)


def test_a_crash_in_native_code_comes_with_its_stack():
    """What faulthandler wrote is apart from the rest."""
    told = evidence_of(Evidence(-11), LastSeen(output=f"loading\n{STACK}"))

    assert (told.output, told.stack) == ("loading", STACK.rstrip())


def test_a_traceback_that_is_not_the_reason_is_kept():
    """It stands where the stack would, unless there is one."""
    evidence = Evidence(-9, last_words=RAISED, oom_kills=1)

    assert evidence_of(evidence, LastSeen()).stack == RAISED.traceback
    assert evidence_of(evidence, LastSeen(output=STACK)).stack == STACK.rstrip()
    assert evidence_of(Evidence(70, last_words=RAISED), LastSeen()).stack == ""


def test_everything_that_a_process_wrote_has_a_bound():
    """A Down goes to every monitor, and a frame has a bound itself."""
    long = "ä" * 2**20
    raised = reasons.Exception(type=long, message=long, traceback=f"{long}\nthe end")
    reason = classify(Evidence(70, last_words=raised))
    told = evidence_of(
        Evidence(-9, last_words=raised, oom_kills=1),
        LastSeen(state=long, tools=(long,) * 1000, output=f"{long}\nthe end"),
    )

    other = classify(Evidence(3, last_words=reasons.Other(detail=long)))
    failed = classify(Evidence(78, not_started=reasons.StartFailed(stage="load", message=long)))

    assert len(other.detail.encode()) <= exits.MESSAGE_BYTES_MAX
    assert len(failed.message.encode()) <= exits.MESSAGE_BYTES_MAX
    assert len(reason.type) == exits.NAME_CHARS_MAX
    assert len(reason.message) > exits.NAME_CHARS_MAX
    assert len(reason.message.encode()) <= exits.MESSAGE_BYTES_MAX
    assert len(reason.traceback.encode()) <= exits.TRACEBACK_BYTES_MAX
    assert (reason.traceback[-7:], told.output[-7:]) == ("the end", "the end")
    assert len(told.output.encode()) <= exits.OUTPUT_BYTES_MAX
    assert len(told.stack.encode()) <= exits.STACK_BYTES_MAX
    assert (len(told.tools), len(told.tools[0])) == (exits.TOOLS_MAX, exits.NAME_CHARS_MAX)
    assert len(told.state) == exits.NAME_CHARS_MAX
