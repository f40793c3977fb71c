"""How a subagent's end is reported to the model of its parent."""

from typing import get_args

import pytest

from cmdc_runtime import reasons
from cmdc_runtime.events import (
    AgentAbort,
    AgentError,
    PromptReceived,
    RequestCut,
    RequestStart,
    ResponseComplete,
    StreamError,
)
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.process import UNWATCHED
from cmdc_runtime.reasons import Normal, NurseryLost, Other, ProviderTimeout, Shutdown, Signal
from workers.performers import subagents


def test_every_reason_has_its_words():
    """A new one is to be reported as what it is."""
    assert set(subagents._ENDS) == set(get_args(reasons.AnyReason))


@pytest.mark.parametrize(
    ("reason", "text"),
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
def test_an_end_is_reported_as_what_it_is(reason, text):
    """Only a crash is one."""
    assert subagents.end_event(reason) == text


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            AgentError(reason="no river", retryable=False, command_id="c-1"),
            "the subagent's cycle failed: no river",
        ),
        (AgentAbort(reason="enough", command_id="c-1"), "the subagent's cycle was aborted: enough"),
        (AgentAbort(reason=None, command_id="c-1"), "the subagent's cycle was aborted: no reason"),
    ],
)
def test_so_is_the_end_of_its_cycle(event, text):
    """In plain words: nobody fails a cycle."""
    account = subagents._Account()
    account.take(event)

    assert account.outcome == (False, text)


ASKED = PromptReceived(text="word" * 100, queued=False, command_id="c-1")
SENT = RequestStart(model="m", messages=1)
SAID = ResponseComplete(
    message=Message(id="m-2", role="assistant", content="42"), usage=TokenUsage(total_tokens=700)
)


@pytest.mark.parametrize(
    ("events", "tokens"),
    [
        ((ASKED,), 0),
        ((ASKED, SENT), 100 + 256),
        ((ASKED, SENT, SAID), 700),
        ((ASKED, SENT, SAID, SENT), 700 + 700 + 256),
        ((ASKED, SENT, StreamError(reason="busy")), 0),
        ((ASKED, SENT, RequestCut(usage=TokenUsage(total_tokens=120))), 120),
    ],
)
def test_a_request_that_died_with_its_process_is_counted_about(events, tokens):
    """As one of a usual length; its process has said so where it could."""
    account = subagents._Account()
    for event in events:
        account.take(event)
    account.close()
    account.close()

    assert account.usage.total_tokens == tokens
