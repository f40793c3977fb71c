"""What a session can be asked."""

import pytest

from cmdc_runtime.commands import (
    Abort,
    AwaitCycle,
    Command,
    CycleResult,
    DeleteOwnCheckpoint,
    ForgetWait,
    GetMessages,
    GetStatus,
    ListOwnCheckpoints,
    LoadOwnCheckpoint,
    NextPage,
    SaveCheckpoint,
    Status,
    TakeToolCall,
)
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.reasons import snake

KINDS = Command.__subclasses__()


def test_only_what_changes_a_session_is_durable():
    """A question may be asked again; a change is journaled and takes effect once."""
    questions = {AwaitCycle, ForgetWait, GetStatus, GetMessages, NextPage}
    questions |= {ListOwnCheckpoints, LoadOwnCheckpoint}
    # What it makes has the name of the command, so that it is made once all the same.
    assert {kind for kind in KINDS if not kind.durable} == {
        *questions,
        SaveCheckpoint,
        DeleteOwnCheckpoint,  # twice is once
        TakeToolCall,  # asked again for as long as its call waits
    }


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_command_is_explained_and_named(kind):
    """Its wire name is its class's name in small letters."""
    assert kind.__doc__
    assert kind.__struct_config__.tag == snake(kind.__name__)
    assert kind.__struct_config__.frozen


def test_the_plain_form_of_a_command_is_the_usual_one():
    """An abort takes the queue and what can be killed; a wait is for the latest prompt."""
    assert Abort() == Abort(reason=None, clear_queue=True, kill_tools="killable")
    assert AwaitCycle().prompt_id is None


def test_answers_have_plain_defaults():
    """What is not known is nothing, not a guess."""
    status = Status(state="idle", session_id="s", incarnation=1)

    assert (status.cost_usd, status.pid, status.last_index) == (None, None, 0)
    assert CycleResult(outcome="failed").usage == TokenUsage()
