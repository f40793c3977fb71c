"""What is played in place of a process, the disk or a client is called as the real one is."""

import inspect

import pytest

from supervisor.adapters.journal.writer import GroupWriter
from supervisor.adapters.self_check import Caller
from supervisor.adapters.zygote import Zygote
from supervisor.processes.containment import Containment
from supervisor.processes.pool import WorkerPool
from supervisor.processes.worker import Sweeper
from supervisor.sessions.session import Session
from tests.unit.supervisor.services import (
    LoopJournal,
    NoRouter,
    PlayedContainment,
    PlayedOwner,
    PlayedPool,
    PlayedZygote,
)

OF_TESTS = {"looks", "swept"}
"""What a test asks of a fake; and what the pool's sweeper does, which has a row of its own."""


def called(function):
    """Return how a method is called: whether it is awaited, and its parameters."""
    parameters = inspect.signature(function).parameters.values()
    return inspect.iscoroutinefunction(function), [
        (one.kind, one.name if one.kind is one.KEYWORD_ONLY else "") for one in parameters
    ]


@pytest.mark.parametrize(
    ("played", "real"),
    [
        (PlayedContainment, Containment),
        (PlayedOwner, Session),
        (PlayedPool, WorkerPool),
        (PlayedZygote, Zygote),
        (LoopJournal, GroupWriter),
        (NoRouter, Caller),
    ],
)
def test_a_fake_is_called_as_what_it_imitates(played, real):
    """What is renamed there, or takes another argument, fails here and not in the daemon alone."""
    methods = {
        name
        for name, function in vars(played).items()
        if inspect.isfunction(function) and not name.startswith("_") and name not in OF_TESTS
    }

    assert methods
    for name in methods:
        assert called(getattr(played, name)) == called(getattr(real, name)), name


def test_the_sweeper_of_a_played_pool_is_asked_as_the_real_one_is():
    """By each start."""
    assert called(PlayedPool.swept) == called(Sweeper.swept)
