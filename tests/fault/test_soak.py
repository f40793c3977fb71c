"""Many sessions at random, by a seed: prompts, steers, aborts, tool swaps, approvals and kills.

The short form of ``make soak``; what is checked is in ``scripts/soak``.
"""

import pytest

from scripts.soak.run import Settings, soak

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

SESSIONS = 20
PROMPTS = 6
SEED = 11


def test_sessions_that_are_driven_at_random_stay_whole():
    """Histories are valid, indexes contiguous, what was accepted ends once, and nothing is left."""
    result = soak(Settings(sessions=SESSIONS, prompts=PROMPTS, seed=SEED))
    done = result.counts

    assert result.violations == []
    assert (done["sessions"], done["prompt"]) == (SESSIONS, SESSIONS * PROMPTS)
    assert [verb for verb in ("steer", "abort", "kill", "replace_tools") if not done[verb]] == []
