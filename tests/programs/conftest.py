"""What a user starts from a shell: the command line, examples, how-tos, benchmarks, scripts.

They have the run's daemon and its fixtures as end-to-end tests have; no test judges a run of them.
"""

from tests.e2e.conftest import (
    _cycle_of,
    _events_until,
    _nothing_is_left,
    _poll,
    agent,
    client,
    plugin_of,
    scripted,
)

__all__ = [
    "_cycle_of",
    "_events_until",
    "_nothing_is_left",
    "_poll",
    "agent",
    "client",
    "plugin_of",
    "scripted",
]
