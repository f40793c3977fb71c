"""How one session is kept, from its first process to its end."""

from dataclasses import replace
from itertools import product
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.reasons import Normal, RestartIntensityExceeded, Shutdown, Signal, StartFailed
from cmdc_runtime.requests import Supervision
from supervisor.core.lifecycle import (
    AgentUp,
    AskToEnd,
    AwaitChildren,
    Begin,
    ChildrenGone,
    DelayOver,
    Doze,
    EndChildren,
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
    Wanted,
)
from supervisor.core.restart import Ending
from supervisor.core.transitions import DOZE_GRACE_S, TRANSITIONS, advance

KILLED = Signal(number=9, name="SIGKILL")
NOT_BUILT = StartFailed(stage="load", message="no such tool")
STOP = Stop(reason="enough", grace_s=4.0)
INPUTS = {
    Begin: Begin(),
    AgentUp: AgentUp(),
    StartOverdue: StartOverdue(),
    ProcessEnded: ProcessEnded(KILLED, Ending.CRASH, 1.0),
    DelayOver: DelayOver(),
    ChildrenGone: ChildrenGone(),
    Doze: Doze(commands_pending=0, children=0),
    Wanted: Wanted(),
    Stop: STOP,
    TermDue: TermDue(),
    KillDue: KillDue(),
}
UPS = (Begin(), AgentUp())
BEDTIME = INPUTS[Doze]
ASK_TO_DOZE = AskToEnd("hibernate", DOZE_GRACE_S / 2, DOZE_GRACE_S)
END_ALL = (EndChildren(), AwaitChildren())
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
    Phase.UP: UPS,
    Phase.CLEARING: (*UPS, crash()),
    Phase.RESTARTING: (*UPS, crash(), ChildrenGone(), AgentUp(), crash(), ChildrenGone()),
    Phase.DOZING: (*UPS, BEDTIME),
    Phase.HIBERNATED: (*UPS, BEDTIME, crash()),
    Phase.STOPPING: (*UPS, Stop("first", None)),
    Phase.ENDING: (*UPS, ProcessEnded(Normal(), Ending.NORMAL, 1.0)),
    Phase.ENDED: (*UPS, ProcessEnded(Normal(), Ending.NORMAL, 1.0), ChildrenGone()),
}


def at(phase):
    step, _ = live(*PATHS[phase])
    assert step.phase is phase
    return step


def test_every_input_has_a_row():
    """An input that no phase takes would never do anything."""
    assert set(INPUTS) == set(get_args(Input)) == {kind for _, kind in TRANSITIONS}


@pytest.mark.parametrize(("phase", "kind"), [*product(Phase, INPUTS)])
def test_an_input_acts_where_it_has_a_row_and_nowhere_else(phase, kind):
    """No pair raises; a late timer or notice leaves all as it was."""
    before = at(phase)
    after = advance(before.phase, before.life, INPUTS[kind])
    is_idle = after == Step(before.phase, before.life)

    assert is_idle == ((phase, kind) not in TRANSITIONS)


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
    step, effects = live(Begin(), *given_inputs, stop, gone, ChildrenGone(), restart=restart)
    (ended,) = (effect for effect in effects if isinstance(effect, TellEnded))
    told = [effect for effect in effects if isinstance(effect, TellDown)]
    started = [effect.incarnation for effect in effects if isinstance(effect, StartProcess)]

    assert step.phase is Phase.ENDED
    assert isinstance(effects[-1], TellEnded)
    assert [down.restarting for down in told] == [True] * (len(told) - 1) + [False]
    assert started == [*range(1, len(started) + 1)]
    assert told[-1].reason == ended.reason == step.life.last_reason
    assert step.life.restarts == len(told) - 1


@given(st.lists(inputs, max_size=30))
def test_children_are_gone_before_anything_follows(given_inputs):
    """Between a process that was told to be down and the next one, or the end, no child is left."""
    step, is_clear = Step(Phase.STARTING, Life(Supervision())), True
    for one in (Begin(), *given_inputs):
        step = advance(step.phase, step.life, one)
        is_clear = is_clear or isinstance(one, ChildrenGone)
        if any(isinstance(effect, StartProcess | TellEnded) for effect in step.effects):
            assert is_clear
        is_clear = is_clear and not any(isinstance(effect, TellDown) for effect in step.effects)
        waits = [isinstance(effect, AwaitChildren) for effect in step.effects]

        assert not any(waits[:-1])


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

    assert step.phase is Phase.ENDING
    assert effects[1:] == [TellDown(NOT_BUILT, 1, restarting=False), *END_ALL]
    assert advance(*step[:2], ChildrenGone()).effects == (TellEnded(NOT_BUILT, False),)


def test_a_start_that_takes_too_long_is_killed_and_blamed():
    """The reason says how long it was waited for; the end itself comes with the exit."""
    step, effects = live(Begin(), StartOverdue(), start_timeout=7.0)
    (kill,) = effects[1:]

    assert isinstance(kill.blamed, StartFailed)
    assert "7 s" in kill.blamed.message
    assert step.phase is Phase.STARTING


def test_a_crash_is_told_and_the_next_process_started_when_the_children_are_gone():
    """The first restart has no delay; monitors hear that another process follows."""
    step, effects = live(*UPS, crash())
    again = advance(step.phase, step.life, ChildrenGone())

    assert effects[2:] == [TellDown(KILLED, 1, restarting=True), *END_ALL]
    assert (step.phase, step.life.restarts, step.life.last_reason) == (Phase.CLEARING, 1, KILLED)
    assert (again.phase, again.effects) == (Phase.STARTING, (StartProcess(2, 30.0),))


def test_a_second_crash_waits_first():
    """The back-off runs once the children are gone; when it is over the process is started."""
    step, effects = live(*PATHS[Phase.RESTARTING], restart_delay=(0.5, 5.0))
    again = advance(step.phase, step.life, DelayOver())

    assert effects[-4:] == [TellDown(KILLED, 2, restarting=True), *END_ALL, WaitDelay(0.5)]
    assert again.effects == (StartProcess(3, 30.0),)


def test_a_later_start_that_fails_counts_as_a_restart():
    """It is tried again until the budget is spent."""
    failing = (crash(reason=NOT_BUILT), ChildrenGone())
    ups = (*UPS, crash(), ChildrenGone())
    step, effects = live(*ups, *failing, max_restarts=2, restart_delay=(0, 0))
    last = advance(step.phase, step.life, crash(reason=NOT_BUILT))

    assert (step.phase, step.life.restarts) == (Phase.STARTING, 2)
    assert effects[-1] == StartProcess(3, 30.0)
    assert last.phase is Phase.ENDING


def test_giving_up_tells_the_last_reason():
    """The session ends with the spent budget, and with what spent it."""
    ups = (*UPS, crash(), ChildrenGone(), AgentUp(), crash(reason=NOT_BUILT), ChildrenGone())
    _, effects = live(*ups, max_restarts=1, max_seconds=9.0)
    spent = RestartIntensityExceeded(restarts=1, seconds=9.0, last=NOT_BUILT)
    told = TellDown(spent, 2, restarting=False)

    assert effects[-4:] == [told, *END_ALL, TellEnded(spent, was_up=True)]


@pytest.mark.parametrize("ending", [Ending.NORMAL, Ending.HOPELESS, Ending.CHOSEN])
def test_an_end_that_needs_no_restart_ends_the_session(ending):
    """With the reason of the process."""
    _, effects = live(*UPS, ProcessEnded(Normal(), ending, 1.0), ChildrenGone())
    told = TellDown(Normal(), 1, restarting=False)

    assert effects[2:] == [told, *END_ALL, TellEnded(Normal(), True)]


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
    """Politely with its grace, for ever, or at once; children have the same time as the process.

    Where there is no process, the session is over at once.
    """
    before = at(phase)
    step = advance(before.phase, before.life, Stop("enough", grace_s))
    incarnation, over = before.life.incarnation, Shutdown(detail="enough")

    if phase is Phase.ENDED:
        assert step == Step(before.phase, before.life)
    elif phase is Phase.ENDING:
        assert step == Step(before.phase, before.life, (EndChildren(grace_s),))
    elif phase in {Phase.CLEARING, Phase.RESTARTING, Phase.HIBERNATED}:
        told = TellDown(over, incarnation, restarting=False)
        assert step.phase is Phase.ENDING
        assert step.effects == (told, EndChildren(grace_s), AwaitChildren())
    else:
        assert step.phase is Phase.STOPPING
        assert step.effects == (effect, EndChildren(grace_s))


def test_a_stop_gets_harder_with_time():
    """SIGTERM after its share of the grace, SIGKILL at its end, then the end is told.

    The children were asked to end together with the process: no time begins anew for them.
    """
    stopping = at(Phase.STOPPING)
    kinds = [advance(*stopping[:2], due).effects for due in (TermDue(), KillDue())]
    over = advance(*stopping[:2], crash())

    assert kinds == [(Terminate(),), (Kill(),)]
    assert over.effects == (TellDown(KILLED, 1, restarting=False), AwaitChildren())
    assert advance(*over[:2], ChildrenGone()).effects == (TellEnded(KILLED, True),)


def test_a_stop_outranks_a_restart():
    """A crash of a process that is being stopped brings no other one."""
    before = at(Phase.STOPPING)
    policy = replace(before.life, policy=Supervision(restart="permanent"))
    step = advance(before.phase, policy, crash())

    assert step.phase is Phase.ENDING


def test_a_session_that_is_stopped_before_it_begins_has_no_process():
    """Its parent may end while it is written down."""
    step, effects = live(STOP, Begin(), ChildrenGone())

    assert step.phase is Phase.ENDED
    assert [effect for effect in effects if isinstance(effect, StartProcess)] == []


# --- hibernation --------------------------------------------------------------------------------


def test_an_idle_process_is_asked_to_end():
    """With a grace of its own: nobody waits for it, and it has nothing to do."""
    step, effects = live(*PATHS[Phase.DOZING])

    assert step.phase is Phase.DOZING
    assert effects[2:] == [ASK_TO_DOZE]


@pytest.mark.parametrize("bedtime", [Doze(1, 0), Doze(0, 1)], ids=["a command", "a child"])
def test_a_process_that_somebody_depends_on_is_kept(bedtime):
    """The wish is dropped; the agent tells it again."""
    before = at(Phase.UP)

    assert advance(*before[:2], bedtime) == Step(before.phase, before.life)


@pytest.mark.parametrize("ending", Ending)
@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
def test_a_process_that_dozed_off_has_not_ended_to_anybody(ending, restart):
    """However it went: nobody is told, no restart is counted, and no process follows by itself."""
    step, effects = live(*UPS, BEDTIME, ProcessEnded(KILLED, ending, 1.0), restart=restart)

    assert step.phase is Phase.HIBERNATED
    assert effects[3:] == []
    assert (step.life.restarts, step.life.last_reason) == (0, None)


def test_a_command_wakes_a_hibernated_session():
    """The next process is another incarnation of the same, and no earlier end is told to it."""
    step, effects = live(*UPS, crash(), ChildrenGone(), AgentUp(), BEDTIME, crash(), Wanted())

    assert step.phase is Phase.STARTING
    assert effects[-1] == StartProcess(3, 30.0)
    assert (step.life.restarts, step.life.last_reason) == (1, None)


def test_a_command_for_a_dozing_session_brings_the_next_process_at_once():
    """As soon as the old one is gone; two never run side by side."""
    dozing = at(Phase.DOZING)
    wanted = advance(*dozing[:2], Wanted())
    step = advance(*wanted[:2], crash())

    assert (wanted.phase, wanted.effects) == (Phase.DOZING, ())
    assert (step.phase, step.effects) == (Phase.STARTING, (StartProcess(2, 30.0),))


def test_a_command_of_an_earlier_night_wakes_nobody_later():
    """Each time that a session dozes off it is asked anew whether it is wanted."""
    night = (AgentUp(), BEDTIME, Wanted(), crash())
    step, _ = live(Begin(), *night, AgentUp(), BEDTIME, crash())

    assert step.phase is Phase.HIBERNATED


def test_a_dozing_process_that_does_not_end_is_killed():
    """SIGTERM after its share of the grace, then SIGKILL."""
    dozing = at(Phase.DOZING)
    effects = [advance(*dozing[:2], due).effects for due in (TermDue(), KillDue())]

    assert effects == [(Terminate(),), (Kill(),)]


@pytest.mark.parametrize(
    ("asked", "reason"), [("normal", Normal()), ("bye", Shutdown(detail="bye"))]
)
def test_a_stop_of_a_dozing_session_has_the_callers_reason(asked, reason):
    """What its process says of its end is that it was to hibernate, which is no end at all."""
    hibernate = ProcessEnded(Shutdown(detail="hibernate"), Ending.NORMAL, 1.0)
    step, effects = live(*PATHS[Phase.DOZING], Stop(asked, 1.0), hibernate, ChildrenGone())

    assert step.phase is Phase.ENDED
    assert effects[-1] == TellEnded(reason, was_up=True)


def test_a_start_that_fails_when_waking_is_a_crash():
    """The session was up before, so it is tried again, and counted."""
    step, effects = live(*PATHS[Phase.HIBERNATED], Wanted(), crash(reason=NOT_BUILT))

    assert (step.phase, step.life.restarts) == (Phase.CLEARING, 1)
    assert TellDown(NOT_BUILT, 2, restarting=True) in effects
