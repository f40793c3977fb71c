"""How one session is kept, from its first process to its end."""

from dataclasses import replace
from itertools import product
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.reasons import Normal, RestartIntensityExceeded, Shutdown, Signal, StartFailed
from cmdc_runtime.requests import Supervision
from supervisor.core import lifecycle
from supervisor.core.lifecycle import (
    AgentUp,
    AskToEnd,
    Begin,
    DelayOver,
    Input,
    Kill,
    KillDue,
    Life,
    Phase,
    ProcessEnded,
    StartOverdue,
    StartProcess,
    Step,
    Stop,
    TellDown,
    TellEnded,
    TellUp,
    TermDue,
    Terminate,
    WaitDelay,
    advance,
)
from supervisor.core.restart import Ending

KILLED = Signal(number=9, name="SIGKILL")
NOT_BUILT = StartFailed(stage="load", message="no such tool")
STOP = Stop(reason="enough", grace_s=4.0)
INPUTS = {
    Begin: Begin(),
    AgentUp: AgentUp(),
    StartOverdue: StartOverdue(),
    ProcessEnded: ProcessEnded(KILLED, Ending.CRASH, 1.0),
    DelayOver: DelayOver(),
    Stop: STOP,
    TermDue: TermDue(),
    KillDue: KillDue(),
}
every_phase = pytest.mark.parametrize("phase", Phase)


def crash(now_s=1.0, reason=KILLED):
    return ProcessEnded(reason, Ending.CRASH, now_s)


def live(*inputs, **policy):
    """Return the last step of a session that took ``inputs``, and all effects on the way."""
    step, effects = Step(Phase.STARTING, Life(Supervision(**policy))), []
    for one in inputs:
        step = advance(step.phase, step.life, one)
        effects += step.effects
    return step, effects


PATHS = {
    Phase.STARTING: (Begin(),),
    Phase.UP: (Begin(), AgentUp()),
    Phase.RESTARTING: (Begin(), AgentUp(), crash(), AgentUp(), crash()),
    Phase.STOPPING: (Begin(), AgentUp(), Stop("first", None)),
    Phase.ENDED: (Begin(), AgentUp(), ProcessEnded(Normal(), Ending.NORMAL, 1.0)),
}


def at(phase):
    step, _ = live(*PATHS[phase])
    assert step.phase is phase
    return step


def test_every_input_has_a_row():
    """An input that no phase takes would never do anything."""
    assert set(INPUTS) == set(get_args(Input)) == {kind for _, kind in lifecycle.TRANSITIONS}


@pytest.mark.parametrize(("phase", "kind"), [*product(Phase, INPUTS)])
def test_an_input_acts_where_it_has_a_row_and_nowhere_else(phase, kind):
    """No pair raises; a late timer or notice leaves all as it was."""
    before = at(phase)
    after = advance(before.phase, before.life, INPUTS[kind])
    is_idle = after == Step(before.phase, before.life)

    assert is_idle == ((phase, kind) not in lifecycle.TRANSITIONS)


inputs = st.one_of(
    st.sampled_from([*INPUTS.values(), AgentUp(), Stop("now", 0.0), Stop("calmly", None)]),
    st.builds(
        ProcessEnded,
        st.sampled_from([KILLED, Normal(), NOT_BUILT]),
        st.sampled_from(Ending),
        st.floats(0, 60),
    ),
)


@given(st.lists(inputs, max_size=30), st.sampled_from(["permanent", "transient", "temporary"]))
def test_a_session_ends_exactly_once(given_inputs, restart):
    """Whatever came before, a stop and the end of the process end it, and nothing follows."""
    stop, gone = Stop("over", 1.0), ProcessEnded(KILLED, Ending.CRASH, 61.0)
    step, effects = live(Begin(), *given_inputs, stop, gone, restart=restart)
    (ended,) = (effect for effect in effects if isinstance(effect, TellEnded))
    told = [effect for effect in effects if isinstance(effect, TellDown)]
    started = [effect.incarnation for effect in effects if isinstance(effect, StartProcess)]

    assert step.phase is Phase.ENDED
    assert isinstance(effects[-1], TellEnded)
    assert [down.restarting for down in told] == [True] * (len(told) - 1) + [False]
    assert started == [*range(1, len(started) + 1)]
    assert told[-1].reason == ended.reason == step.life.last_reason
    assert step.life.restarts == len(told) - 1


def test_the_first_process_is_started():
    """As incarnation 1, with the time that the options allow."""
    step, effects = live(Begin(), start_timeout=7.0)

    assert effects == [StartProcess(1, 7.0)]
    assert step.life.incarnation == 1


def test_an_agent_that_is_up_is_told():
    """Who waits for the start is answered."""
    step, effects = live(Begin(), AgentUp())

    assert effects[-1] == TellUp()
    assert step.life.was_up


@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
def test_a_first_start_that_fails_is_not_tried_again(restart):
    """It is the caller's error, whatever the restart type says."""
    failed = crash(reason=NOT_BUILT)
    step, effects = live(Begin(), failed, restart=restart)

    assert step.phase is Phase.ENDED
    assert effects[1:] == [TellDown(NOT_BUILT, 1, restarting=False), TellEnded(NOT_BUILT, False)]


def test_a_start_that_takes_too_long_is_killed_and_blamed():
    """The reason says how long it was waited for; the end itself comes with the exit."""
    step, effects = live(Begin(), StartOverdue(), start_timeout=7.0)
    (kill,) = effects[1:]

    assert isinstance(kill.blamed, StartFailed)
    assert "7 s" in kill.blamed.message
    assert step.phase is Phase.STARTING


def test_a_crash_is_told_and_the_next_process_started_at_once():
    """The first restart has no delay; monitors hear that another process follows."""
    step, effects = live(Begin(), AgentUp(), crash())

    assert effects[2:] == [TellDown(KILLED, 1, restarting=True), StartProcess(2, 30.0)]
    assert (step.phase, step.life.restarts, step.life.last_reason) == (Phase.STARTING, 1, KILLED)


def test_a_second_crash_waits_first():
    """The back-off runs, and the process is started when it is over."""
    step, effects = live(*PATHS[Phase.RESTARTING], restart_delay=(0.5, 5.0))
    again = advance(step.phase, step.life, DelayOver())

    assert effects[-2:] == [TellDown(KILLED, 2, restarting=True), WaitDelay(0.5)]
    assert again.effects == (StartProcess(3, 30.0),)


def test_a_later_start_that_fails_counts_as_a_restart():
    """It is tried again until the budget is spent."""
    ups = (Begin(), AgentUp(), crash())
    step, effects = live(*ups, crash(reason=NOT_BUILT), max_restarts=2, restart_delay=(0, 0))
    last = advance(step.phase, step.life, crash(reason=NOT_BUILT))

    assert (step.phase, step.life.restarts) == (Phase.STARTING, 2)
    assert effects[-1] == StartProcess(3, 30.0)
    assert last.phase is Phase.ENDED


def test_giving_up_tells_the_last_reason():
    """The session ends with the spent budget, and with what spent it."""
    ups = (Begin(), AgentUp(), crash(), AgentUp())
    oom = crash(reason=NOT_BUILT)
    _, effects = live(*ups, oom, max_restarts=1, max_seconds=9.0)
    spent = RestartIntensityExceeded(restarts=1, seconds=9.0, last=NOT_BUILT)

    assert effects[-2:] == [TellDown(spent, 2, restarting=False), TellEnded(spent, was_up=True)]


@pytest.mark.parametrize("ending", [Ending.NORMAL, Ending.HOPELESS])
def test_an_end_that_needs_no_restart_ends_the_session(ending):
    """With the reason of the process."""
    _, effects = live(Begin(), AgentUp(), ProcessEnded(Normal(), ending, 1.0))

    assert effects[-2:] == [TellDown(Normal(), 1, restarting=False), TellEnded(Normal(), True)]


@every_phase
@pytest.mark.parametrize(
    ("grace_s", "effect"),
    [
        (4.0, AskToEnd("enough", 2.0, 4.0)),
        (None, AskToEnd("enough", None, None)),
        (0.0, Kill()),
    ],
    ids=["graceful", "patient", "brutal"],
)
def test_a_stop_ends_the_session_from_every_phase(phase, grace_s, effect):
    """Politely with its grace, for ever, or at once; where no process is, at once anyway."""
    before = at(phase)
    step = advance(before.phase, before.life, Stop("enough", grace_s))

    if phase is Phase.ENDED:
        assert step == Step(before.phase, before.life)
    elif phase is Phase.RESTARTING:
        assert step.phase is Phase.ENDED
        assert step.effects[-1] == TellEnded(Shutdown(detail="enough"), was_up=True)
    else:
        assert step.phase is Phase.STOPPING
        assert step.effects == (effect,)


def test_a_stop_gets_harder_with_time():
    """SIGTERM after its share of the grace, SIGKILL at its end, then the end is told."""
    stopping = at(Phase.STOPPING)
    kinds = [advance(*stopping[:2], due).effects for due in (TermDue(), KillDue())]
    over = advance(*stopping[:2], crash())

    assert kinds == [(Terminate(),), (Kill(),)]
    assert over.effects == (TellDown(KILLED, 1, restarting=False), TellEnded(KILLED, True))


def test_a_stop_outranks_a_restart():
    """A crash of a process that is being stopped brings no other one."""
    before = at(Phase.STOPPING)
    policy = replace(before.life, policy=Supervision(restart="permanent"))
    step = advance(before.phase, policy, crash())

    assert step.phase is Phase.ENDED
