"""What the stage of processes does to its own."""

import contextlib

import pytest

from tests.conformance.stage_services import ChildProcess, ForkServer


@pytest.mark.process
def test_a_process_that_lives_when_it_is_given_back_is_ended_at_last():
    """A case that fails may leave one that is just being forked; the others have theirs."""
    with contextlib.closing(ForkServer()) as fork_server:
        process = ChildProcess(fork_server, b"one")
        process.close()
        lived, other = not process.has_ended, ChildProcess(fork_server, b"other")
        for one in (process, other):
            one.reap()

    assert lived
    assert process.is_reaped
    assert other.is_reaped
