"""From what is known of an exit to its reason, and to what a Down says of it.

Two deaths at one step of rebuilding have it left out; more than enough of them end the tries.
"""

import signal
from itertools import product

import pytest

from cmdc_runtime import reasons
from cmdc_runtime.heartbeats import (
    DROPPED_STEP,
    REBUILDING,
    RESUME_STEP,
    greeting_step,
    packed_step,
)
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
    DEATHS_MAX,
    SPARED_MAX,
    STEPS_MAX,
    VERDICTS,
    Asked,
    ExitRecord,
    Falls,
    Reported,
    Said,
    classify,
    ending_of,
    evidence_of,
    fell_at,
    judge,
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
    "said goodbye":              (ExitRecord(0, said=Normal()), Normal()),
    "asked to end":              (ExitRecord(0, said=LEFT), LEFT),
    "0 without a goodbye":       (ExitRecord(0), ExitCode(code=0)),
    "0 after an exception":      (ExitRecord(0, said=RAISED), RAISED),
    "0 after a signal's word":   (ExitRecord(0, said=KILLED), ExitCode(code=0)),
    "raised":                    (ExitRecord(EXIT_CRASHED, said=RAISED), RAISED),
    "ended itself":              (ExitRecord(3), ExitCode(code=3)),
    "a goodbye and a bad code":  (ExitRecord(3, said=Normal()), ExitCode(code=3)),
    "orphaned":                  (ExitRecord(EXIT_ORPHANED), ExitCode(code=75)),
    "killed":                    (ExitRecord(-9), KILLED),
    "killed at its goodbye":     (ExitRecord(-9, said=Normal()), KILLED),
    "killed at its shutdown":    (ExitRecord(-9, said=LEFT), KILLED),
    "killed after its traceback": (ExitRecord(-9, said=RAISED), RAISED),
    "crashed":                   (ExitRecord(-11), Signal(number=11, name="SIGSEGV")),
    "crashed with a core":       (ExitRecord(-11, core_dumped=True), DUMPED),
    "crashed after its traceback": (ExitRecord(-11, said=RAISED), RAISED),
    "obeyed SIGTERM":            (ExitRecord(EXIT_CRASHED, said=TERMINATED), TERMINATED),
    "out of memory":             (ExitRecord(-9, **MEMORY), TOO_BIG),
    "out of memory, no figures": (ExitRecord(-9, oom_kills=1), OutOfMemory()),
    "out of memory as it left":  (ExitRecord(-9, said=LEFT, **MEMORY), TOO_BIG),
    "out of memory as it raised": (ExitRecord(-9, said=RAISED, **MEMORY), TOO_BIG),
    "a tool out of memory":      (ExitRecord(0, said=Normal(), **MEMORY), Normal()),
    "another signal meanwhile":  (ExitRecord(-15, **MEMORY), TERMINATED),
    "killed, and big":           (ExitRecord(-9, memory_peak_bytes=2**40), KILLED),
    "our kill, and too big":     (ExitRecord(-9, asked=Asked.SIGKILL, **MEMORY), KILLED),
    "our own watch":             (ExitRecord(-9, fail_reason=TOO_BIG), TOO_BIG),
    "asked and killed":          (ExitRecord(-9, asked=Asked.SIGKILL), KILLED),
    "asked, 0, no goodbye":      (ExitRecord(0, asked=Asked.POLITELY), ExitCode(code=0)),
    "a signal without a name":   (ExitRecord(-33), Signal(number=33, name="SIG33")),
    "never built":               (ExitRecord(EXIT_BAD_OPTIONS, not_started=NOT_BUILT), NOT_BUILT),
    "never built, then killed":  (ExitRecord(-9, not_started=NOT_BUILT), NOT_BUILT),
    "bad options, no word":      (ExitRecord(EXIT_BAD_OPTIONS), ExitCode(code=78)),
    "we killed it":              (ExitRecord(-9, fail_reason=SILENT), SILENT),
    "we killed it as it left":   (ExitRecord(0, said=Normal(), fail_reason=SILENT), SILENT),
    "status lost, raised":       (ExitRecord(None, said=RAISED), RAISED),
    "status lost":               (ExitRecord(None), LOST),
}
# fmt: on


@pytest.mark.parametrize("case", CASES)
def test_evidence_becomes_one_reason(case):
    """The kernel's word comes before the process's own, and ours before both."""
    record, reason = CASES[case]

    assert classify(record) == reason


@pytest.mark.parametrize("reason", CHOSEN.values(), ids=CHOSEN)
def test_an_end_that_the_options_chose_is_reported_as_what_it_is(reason):
    """The word of a process that ends by itself is taken; one that was killed meant to say it."""
    assert classify(ExitRecord(0, said=reason)) == reason
    assert classify(ExitRecord(None, said=reason)) == reason
    assert classify(ExitRecord(-9, said=reason)) == KILLED
    assert classify(ExitRecord(3, said=reason)) == ExitCode(code=3)


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
    reported = ExitRecord(EXIT_BAD_OPTIONS, not_started=NOT_BUILT)
    late = ExitRecord(-9, fail_reason=NOT_BUILT)
    judge(reported)
    judge(late)

    assert ending_of(NOT_BUILT, said_hopeless=True) is Ending.FINAL
    assert (reported.reason, reported.ending) == (NOT_BUILT, Ending.FINAL)
    assert (late.reason, late.ending) == (NOT_BUILT, Ending.CRASH)


def test_every_pair_of_words_has_a_verdict():
    """What the kernel reported and what the process said: the rows missing are shown."""
    missing = set(product(Reported, Said)) - set(VERDICTS)

    assert missing == set(), "add rows to VERDICTS in supervisor/core/exits.py"
    assert set(VERDICTS) == set(product(Reported, Said))


WORDS = {
    Said.NOTHING: None,
    Said.GOODBYE: LEFT,
    Said.CHOSEN: CHOSEN["plugin"],
    Said.RAISED: RAISED,
    Said.OTHER: TERMINATED,
}
STATUSES = {
    Reported.NOTHING: ExitRecord(None),
    Reported.ZERO: ExitRecord(0),
    Reported.CODE: ExitRecord(70),
    Reported.SIGNAL: ExitRecord(-9),
    Reported.OUT_OF_MEMORY: ExitRecord(-9, oom_kills=1),
}


@pytest.mark.parametrize("reported", Reported)
@pytest.mark.parametrize("said", Said)
def test_every_pair_of_words_makes_a_reason(reported, said):
    """No pair is left to chance, and none is normal but a goodbye that the kernel bears out."""
    reported_alone = STATUSES[reported]
    record = ExitRecord(reported_alone.status, said=WORDS[said], oom_kills=reported_alone.oom_kills)
    reason = classify(record)
    is_borne_out = reported in (Reported.ZERO, Reported.NOTHING) and said is Said.GOODBYE

    assert isinstance(reason, reasons.DownReason)
    assert (ending_of(reason) is Ending.NORMAL) == is_borne_out


# fmt: off
HANDS = {
    "from outside":          (ExitRecord(-9), "outside"),
    "term from outside":     (ExitRecord(-15), "outside"),
    "obeyed from outside":   (ExitRecord(70, said=TERMINATED), "outside"),
    "killed while asked":    (ExitRecord(-9, asked=Asked.POLITELY), "outside"),
    "killed before our kill": (ExitRecord(-9, asked=Asked.SIGTERM), "outside"),
    "our kill":              (ExitRecord(-9, asked=Asked.SIGKILL), "daemon"),
    "our term":              (ExitRecord(-15, asked=Asked.SIGTERM), "daemon"),
    "obeyed ours":           (ExitRecord(70, said=TERMINATED, asked=Asked.SIGTERM), "daemon"),
    "term before our kill":  (ExitRecord(-15, asked=Asked.SIGKILL), "daemon"),
    "fail_reason":                (ExitRecord(-9, fail_reason=SILENT), "daemon"),
    "the kernel":            (ExitRecord(-9, oom_kills=1), "kernel"),
    "ours, and too big":     (ExitRecord(-9, oom_kills=1, asked=Asked.SIGKILL), "daemon"),
    "a fault":               (ExitRecord(-11), ""),
    "a fault while killed":  (ExitRecord(-11, fail_reason=SILENT), ""),
    "abort":                 (ExitRecord(-signal.SIGABRT), ""),
    "by itself":             (ExitRecord(0), ""),
    "nobody knows":          (ExitRecord(None), ""),
}
# fmt: on


@pytest.mark.parametrize("case", HANDS)
def test_whose_signal_it_was_is_reported(case):
    """The daemon's, somebody else's or the kernel's: signal 9 alone does not say."""
    record, hand = HANDS[case]

    assert killed_by(record) == hand


def test_a_death_is_charged_to_the_step_it_came_at():
    """One of rebuilding, or the opening of what a command brings; else on none."""
    assert fell_at(ExitRecord(state=REBUILDING, turns=3)) == 3
    assert fell_at(ExitRecord(state=REBUILDING, turns=0)) == 0
    assert fell_at(ExitRecord(state="running", turns=3, opening=2**32)) == 2**32
    assert fell_at(ExitRecord(state="running", turns=3)) is None
    assert fell_at(ExitRecord(state=REBUILDING, turns=3, ending=Ending.FINAL)) is None


def test_a_down_says_what_was_seen_last():
    """All of it, in milliseconds and bytes."""
    record = ExitRecord(
        -9,
        core_dumped=True,
        **MEMORY,
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

    assert evidence_of(record) == reasons.Evidence(
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


def test_a_down_without_a_heartbeat_says_what_there_is():
    """A process that was never seen at work."""
    assert evidence_of(ExitRecord(3)) == reasons.Evidence(status=3)
    assert (fell_at(ExitRecord()), fell_at(ExitRecord(state=REBUILDING))) == (None, 0)


def test_a_crash_in_native_code_comes_with_its_stack():
    """What faulthandler wrote is apart from the rest."""
    reported = evidence_of(ExitRecord(-11, output=f"loading\n{STACK}"))

    assert (reported.output, reported.stack) == ("loading", STACK.rstrip())


def test_a_traceback_that_is_not_the_reason_is_kept():
    """It stands where the stack would, unless there is one."""
    known = {"said": RAISED, "oom_kills": 1}

    assert evidence_of(ExitRecord(-9, **known)).stack == RAISED.traceback
    assert evidence_of(ExitRecord(-9, **known, output=STACK)).stack == STACK.rstrip()
    assert evidence_of(ExitRecord(70, said=RAISED)).stack == ""


def test_everything_that_a_process_wrote_has_a_bound():
    """A Down goes to every monitor, and a frame has a bound itself."""
    long = "ä" * 2**20
    raised = reasons.Exception(type=long, message=long, traceback=f"{long}\nthe end")
    reason = classify(ExitRecord(70, said=raised))
    reported = evidence_of(
        ExitRecord(
            -9,
            said=raised,
            oom_kills=1,
            state=long,
            tools=(long,) * 1000,
            output=f"{long}\nthe end",
        )
    )

    other = classify(ExitRecord(3, said=reasons.Other(detail=long)))
    failed = classify(ExitRecord(78, not_started=reasons.StartFailed(stage="load", message=long)))

    assert len(other.detail.encode()) <= exits.MESSAGE_BYTES_MAX
    assert len(failed.message.encode()) <= exits.MESSAGE_BYTES_MAX
    assert len(reason.type) == exits.NAME_CHARS_MAX
    assert len(reason.message) > exits.NAME_CHARS_MAX
    assert len(reason.message.encode()) <= exits.MESSAGE_BYTES_MAX
    assert len(reason.traceback.encode()) <= exits.TRACEBACK_BYTES_MAX
    assert (reason.traceback[-7:], reported.output[-7:]) == ("the end", "the end")
    assert len(reported.output.encode()) <= exits.OUTPUT_BYTES_MAX
    assert len(reported.stack.encode()) <= exits.STACK_BYTES_MAX
    assert (len(reported.tools), len(reported.tools[0])) == (exits.TOOLS_MAX, exits.NAME_CHARS_MAX)
    assert len(reported.state) == exits.NAME_CHARS_MAX


# --- deaths at a step, one after another ----------------------------------------------------------


def fallen(*steps):
    falls = Falls()
    for step in steps:
        falls.note(step)
    return falls


def test_a_step_is_left_out_after_its_second_death():
    """One death may be anything's doing."""
    assert fallen(3).set_aside == ()
    assert fallen(3, 4).set_aside == ()
    assert fallen(3, 4, 3).set_aside == (3,)
    assert fallen(4, 3, 4, 3).set_aside == (3, 4)


def test_a_process_that_came_through_clears_the_list():
    """What was left out is in the journal by then, and the steps may have other numbers."""
    assert fallen(3, 3, None).set_aside == ()
    assert fallen(3, None, 3).set_aside == ()


TRAP, OTHER = packed_step("00" * 32), packed_step("ff" * 32)
GREETING = greeting_step("00" * 32)


def test_who_was_up_and_died_of_packed_code_came_through_but_for_packed_code():
    """A record, a greeting and a command have nothing to do with those of the next process."""
    falls = fallen(3, 3, GREETING, GREETING, RESUME_STEP + 1, RESUME_STEP + 1, OTHER, OTHER, TRAP)
    falls.note(TRAP, was_up=True)

    assert falls.set_aside == (TRAP, OTHER)
    assert falls.total == 10  # the tries have their end all the same


@pytest.mark.parametrize(("step", "was_up"), [(TRAP, False), (RESUME_STEP, True), (3, False)])
def test_others_that_died_at_a_step_had_not_come_through(step, was_up):
    """What was left out is not written down before the session goes on."""
    falls = fallen(3, 3, GREETING, GREETING)
    falls.note(step, was_up=was_up)

    assert {3, GREETING} <= set(falls.set_aside)


def test_the_tries_have_an_end():
    """A journal that kills at every step is given up."""
    steps = [step for step in range(STEPS_MAX) for _ in range(DEATHS_MAX)]

    assert fallen(*steps).may_try_again
    assert not fallen(*steps, 99).may_try_again


def test_a_step_is_spared_twice():
    """That is how often it takes to have it left out; a third death shows that this is no help."""
    falls, spared = Falls(), []
    for step in (3, 4, 3, 4, 3, 5):
        falls.note(step)
        spared.append(falls.spares(step))

    assert spared == [True, True, True, True, False, True]


def test_a_death_at_no_step_is_not_spared():
    """It is a crash like any other."""
    falls = fallen(3, None)

    assert not falls.spares(None)


@pytest.mark.parametrize("often", range(1, DEATHS_MAX + 1))
@pytest.mark.parametrize("before", [(), (None,), (1, 2, None)])
def test_who_falls_at_ever_new_steps_is_spared_only_so_often(before, often):
    """Between two deaths that are charged; however many steps there are, and whatever was."""
    falls, spared = fallen(*before), 0
    for step in [step for step in range(10 * STEPS_MAX) for _ in range(often)]:
        falls.note(step)
        spared += falls.spares(step)

    assert spared == SPARED_MAX


def test_a_cycle_that_kills_as_it_is_dropped_is_not_spared_for_ever():
    """The dropping is a step as well, whose deaths go on being counted."""
    falls, spared = Falls(), 0
    for step in [RESUME_STEP, RESUME_STEP, DROPPED_STEP] * 100:
        falls.note(step)
        spared += falls.spares(step)

    assert spared <= SPARED_MAX


def test_a_cycle_that_was_dropped_is_not_charged_to_the_next():
    """Who dies behind the giving up has gone on with another cycle, which has its own tries."""
    falls = Falls()
    for _ in range(DEATHS_MAX):
        falls.note(RESUME_STEP)
    assert RESUME_STEP in falls.set_aside

    falls.note(DROPPED_STEP)

    assert RESUME_STEP not in falls.set_aside


def test_a_start_that_dies_of_packed_code_has_come_through_nothing():
    """Unless it is said to have been up, steps before it count still."""
    falls = fallen(3, TRAP)

    assert falls.deaths == {3: 1, TRAP: 1}
