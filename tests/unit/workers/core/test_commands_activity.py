"""What keeps a session awake."""

import pytest

from cmdc_runtime.commands import AwaitCycle, Command, GetStatus, Prompt
from workers.core.causes import Restarted
from workers.core.commands import IS_ACTIVITY, is_activity
from workers.core.inputs import FirstChunk, Order


def test_every_command_has_a_row():
    """Whoever adds a command says whether it keeps a session awake."""
    missing = set(Command.__subclasses__()) - set(IS_ACTIVITY)

    assert missing == set(), f"workers/core/commands.py lacks {missing}"


def test_what_is_journaled_counts_and_what_looks_does_not():
    """The table says so of all of them, however many there will be."""
    durable = {one for one in IS_ACTIVITY if one.durable}
    looking = {one for one in IS_ACTIVITY if one.looks}

    assert all(IS_ACTIVITY[one] for one in durable)
    assert not any(IS_ACTIVITY[one] for one in looking)
    assert durable & looking == set()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Order("c", Prompt(text="u"), 0), True),
        (Order("c", GetStatus(), 0), False),
        (Order("c", AwaitCycle(), 0), False),
        (FirstChunk(1), True),
        (Restarted(None, 0), True),
    ],
)
def test_results_of_own_work_count(given, expected):
    """A question does not, whoever asks it."""
    assert is_activity(given) is expected
