"""What time it is, as an object that is passed in, so that rules can be tested without waiting.

Rules take seconds of a clock that only goes forward; what people and journals read is in
milliseconds since 1970. Waiting is the event loop's.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """What a part of the daemon may ask about time."""

    def monotonic_s(self) -> float:
        """Return seconds since some fixed moment; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Return milliseconds since 1970; jumps when somebody sets the time."""
        ...


class SystemClock:
    """The machine's clocks."""

    def monotonic_s(self) -> float:
        """Return seconds since some fixed moment; never goes back."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Return milliseconds since 1970; jumps when somebody sets the time."""
        return time.time_ns() // 1_000_000
