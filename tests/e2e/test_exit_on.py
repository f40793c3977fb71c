"""What ``exit_on`` names ends the session for good, whatever its restart type says."""

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.reasons import MaxTurnsExceeded, ProviderTimeout
from cmdc_runtime.testing import Hold, ToolCalls, ToolUse

TURN_S = 20.0


@cmdc.tool(effects="read")
def look() -> str:
    """Find something to do."""
    return "more"


@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
def test_too_many_turns_end_the_session(agent, scripted, restart):
    """The reason is reported as what it is, and no process follows."""
    model = scripted(default=ToolCalls(ToolUse("look", {})))
    session = agent(
        model, tools=[look], max_turns=1, exit_on=["max_turns_exceeded"], restart=restart
    )
    monitor = session.monitor()
    session.prompt("Go.")
    down = monitor.wait(TURN_S)

    assert (down.reason, down.restarting) == (MaxTurnsExceeded(max_turns=1), False)
    with pytest.raises(cmdc.SessionNotAlive) as caught:
        session.prompt("Anybody?")
    assert caught.value.reason == down.reason


def test_silent_provider_ends_the_session(agent, scripted):
    """A request that gets no answer in time, and the last retry of it."""
    session = agent(
        scripted((Hold(), "never")),
        stall_after=0.1,
        stall_timeout=0.3,
        max_retries=0,
        exit_on=["provider_timeout"],
    )
    monitor = session.monitor()
    session.prompt("Go.")
    down = monitor.wait(TURN_S)

    assert isinstance(down.reason, ProviderTimeout)
    assert not down.restarting


def test_other_ends_of_a_cycle_end_no_session(agent, scripted):
    """Only what is named does; by default nothing is."""
    model = scripted(ToolCalls(ToolUse("look", {})), "fine")
    session = agent(model, tools=[look], max_turns=1, exit_on=["provider_timeout"])
    monitor = session.monitor()
    with pytest.raises(cmdc.CmdcError):
        session.run("Go.", timeout=TURN_S)

    assert session.run("And now?", timeout=TURN_S).text == "fine"
    with pytest.raises(TimeoutError):
        monitor.wait(0)
