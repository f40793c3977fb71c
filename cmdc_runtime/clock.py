"""The wall clock as everybody here writes it down; rules get the time as an argument instead."""

import time


def now_ms() -> int:
    """Return milliseconds since 1970; it jumps when somebody sets the clock."""
    return time.time_ns() // 1_000_000
