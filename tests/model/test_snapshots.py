"""A session rebuilt from a snapshot is the one that is rebuilt from all of its records."""

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from tests.model.conftest import durable
from tests.model.test_recovery import (
    POLICIES,
    check_accepted,
    check_calls,
    check_subagents,
    finish,
    histories,
    lived,
    policies,
)
from workers.core import evolve, snapshot
from workers.core.conversation import repair
from workers.core.state import Memory


@cache
def writing_down(life):
    """Return a ``Life`` that is written down as a whole after each of its steps."""

    class Written(life):
        def __init__(self, **policy):
            self.snapshots = []
            super().__init__(**policy)

        def take(self, step):
            super().take(step)
            taken = snapshot.encode(self.memory)
            self.snapshots.append((len(self.journal), taken))
            restored = snapshot.restore(Memory(policy=self.memory.policy), taken)
            assert durable(restored) == durable(self.memory)

    return Written


@given(history=histories, policy=policies)
def test_every_snapshot_with_the_records_after_it_is_the_whole_journal(life, history, policy):
    """Wherever it was taken, also in the middle of a cycle, and across crashes."""
    session = lived(writing_down(life), history, policy)
    first = life(**POLICIES[policy]).memory
    whole = durable(evolve.rebuild(first, session.journal))

    for records, taken in session.snapshots:
        restored = snapshot.restore(first, taken)
        assert durable(evolve.rebuild(restored, session.journal[records:])) == whole


@given(history=histories, policy=policies)
def test_a_snapshot_is_the_memory_that_it_was_made_of(life, history, policy):
    """Nothing of what a journal gives is lost on the way to bytes and back."""
    known = lived(life, history, policy).known

    assert snapshot.restore(Memory(policy=known.policy), snapshot.encode(known)) == known


@given(history=histories, policy=policies, data=st.data())
def test_a_session_goes_on_from_any_snapshot(life, history, policy, data):
    """A fork of any moment comes to a valid end: no prompt of it is lost, no call is doubled."""
    session = lived(writing_down(life), history, policy)
    records, taken = data.draw(st.sampled_from(session.snapshots), label="snapshot")
    fork = life(**POLICIES[policy])
    fork.journal += session.journal[:records]
    fork.resume(snapshot.restore(fork.memory, taken))
    finish(fork)
    check_accepted(fork.journal)
    check_calls(fork.journal)
    check_subagents(fork)

    assert repair(fork.memory.messages) == fork.memory.messages
