"""The machine's clocks, in the units that their names say."""

import time

from supervisor.adapters.clock import SystemClock


def test_the_monotonic_clock_counts_seconds_and_never_goes_back():
    """Two readings are in order, and they are those of the machine."""
    before = time.monotonic()
    first, second = SystemClock().monotonic_s(), SystemClock().monotonic_s()

    assert before <= first <= second <= time.monotonic()


def test_the_wall_clock_counts_milliseconds_since_1970():
    """It agrees with the machine's time to the millisecond."""
    before = time.time()
    found = SystemClock().wall_ms()

    assert int(before * 1000) - 1 <= found <= time.time() * 1000 + 1
