"""How a subagent's end is told to the model of its parent."""

from typing import get_args

import pytest

from cmdc_runtime import reasons
from cmdc_runtime.events import AgentAbort, AgentError
from cmdc_runtime.process import UNWATCHED
from cmdc_runtime.reasons import Normal, NurseryLost, Other, ProviderTimeout, Shutdown, Signal
from workers.performers import subagents


def test_every_reason_has_its_words():
    """A new one is to be told as what it is."""
    assert set(subagents._ENDS) == set(get_args(reasons.AnyReason))


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (Normal(), "the subagent was stopped"),
        (Shutdown(), "the subagent was stopped"),
        (Shutdown(detail="by\nhand"), "the subagent was stopped: by hand"),
        (Signal(number=9, name="SIGKILL"), "the subagent crashed: killed by signal 9 (SIGKILL)"),
        (
            Other(detail=UNWATCHED),
            "the subagent crashed: its process ended while no daemon ran",
        ),
        (NurseryLost(), f"the subagent did not start: {NurseryLost()}"),
        (ProviderTimeout(model="m", seconds=2), "the subagent ended: provider of m silent for 2 s"),
    ],
)
def test_an_end_is_told_as_what_it_is(reason, told):
    """Only a crash is one."""
    assert subagents.end_event(reason) == told


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (
            AgentError(reason="no river", retryable=False, command_id="c-1"),
            "the subagent's cycle failed: no river",
        ),
        (AgentAbort(reason="enough", command_id="c-1"), "the subagent's cycle was aborted: enough"),
        (AgentAbort(reason=None, command_id="c-1"), "the subagent's cycle was aborted: no reason"),
    ],
)
def test_so_is_the_end_of_its_cycle(event, told):
    """In plain words: nobody fails a cycle."""
    account = subagents._Account()
    account.take(event)

    assert account.outcome == (False, told)
