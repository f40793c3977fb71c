"""What the stage of processes does to its own."""

import contextlib

import pytest

from tests.conformance.house import Actor, Troupe


@pytest.mark.process
def test_a_process_that_lives_when_it_is_given_back_is_ended_at_last():
    """A case that fails may leave one that is just being forked; the others have theirs."""
    with contextlib.closing(Troupe()) as troupe:
        actor = Actor(troupe, b"one")
        actor.close()
        lived, other = not actor.has_ended, Actor(troupe, b"other")
        for one in (actor, other):
            one.reap()

    assert lived
    assert actor.is_reaped
    assert other.is_reaped
