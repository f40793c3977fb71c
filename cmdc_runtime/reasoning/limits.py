"""How far a run of a strategy may go."""

from typing import Final

import msgspec

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.ranges import Cost, Count, Moment, Positive

NODES_MAX: Final = 2_000
"""Thoughts and branches of one run, whatever its steps."""
PROMPT_CHARS_MAX: Final = 1_000_000
"""Of one branch's prompt, feedback included, and of one thought of the strategy's own."""
PLAIN_BYTES_MAX: Final = 256 * 1024
"""Of a run's answer, and of what is said beside a branch, a thought or a score."""
SCORE_MAX: Final = 1e9
"""Of a score, and below 0."""
NODE_ID: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""What may name a thought or a branch, as a regular expression."""


class RunLimits(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """What ends a run: each gives it a status of its own."""

    max_steps: Positive = 20
    """Decisions of the strategy but ``Done`` and ``Failed``."""
    max_parallel: Positive = 4
    """Branches at a time."""
    max_revisions: Count = 3
    """``Revise`` decisions; one more ends the run as too many steps do."""
    budget_usd: Cost | None = None
    """Of all branches together. A branch of unknown price counts with all that was reserved for
    it."""
    budget_tokens: Positive | None = None
    """As above."""
    timeout: Moment | None = None
    """In seconds, from the beginning, whatever process dies meanwhile."""
