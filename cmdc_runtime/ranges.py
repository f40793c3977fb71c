"""The ranges of numbers that come from outside, each written once.

An option, a field of the wire and a column of the journal that mean the same take the same range.
As an annotation a range is checked by msgspec, in options and in frames alike; NaN is in none. To
add one, add it here and name it in the field's annotation.
"""

from typing import Annotated, Final

from msgspec import Meta

COUNT_MAX: Final = 10**12
"""Of turns, tokens, retries: more than any session lives to see, and far from 64 bits."""
TOTAL_MAX: Final = 2**63 - 1
"""Of a sum of counts, which stays there however much is added: what a journal can keep."""
SECONDS_MAX: Final = 1_000_000.0
"""Eleven days: the longest wait that anybody may ask for."""
INCARNATION_MAX: Final = 2**31 - 1
"""Processes of one session; at one restart a second it takes 68 years."""
INDEX_MAX: Final = 2**53 - 1
"""Of an event, a record or a command in its session: what JSON's readers tell apart."""
TIME_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999, in ms since 1970: the last moment that has a date."""
COMMAND_VALUES_MAX: Final = 200_000
"""Values in one command, keys included: the daemon looks at each, for 0.1 s at most."""
NAME_CHARS_MAX: Final = 256
"""Of a group, a reference, a command's id: what names a thing and is one line."""
STOP_REASON_CHARS_MAX: Final = 1_000
"""Of what a caller gives as the reason of a session's end, which everybody is told."""
MEMORY_BYTES_MAX: Final = 2**62
"""What the kernel takes as a limit, with room to add to it."""

Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
Total = Annotated[int, Meta(ge=0, le=TOTAL_MAX)]
Positive = Annotated[int, Meta(ge=1, le=COUNT_MAX)]
Milliseconds = Annotated[int, Meta(ge=0, le=TIME_MS_MAX)]
Seconds = Annotated[float, Meta(ge=0, le=SECONDS_MAX)]
Moment = Annotated[float, Meta(gt=0, le=SECONDS_MAX)]
Silence = Annotated[float, Meta(ge=0.5, le=SECONDS_MAX)]
Share = Annotated[float, Meta(ge=0, le=1)]
Cost = Annotated[float, Meta(gt=0, le=1_000_000_000)]
Loops = Annotated[int, Meta(ge=2, le=10)]
Depth = Annotated[int, Meta(ge=0, le=8)]
Memory = Annotated[int, Meta(ge=1, le=MEMORY_BYTES_MAX)]
Cores = Annotated[float, Meta(ge=0.01, le=4096)]
Processes = Annotated[int, Meta(ge=4, le=1_000_000)]
OpenFiles = Annotated[int, Meta(ge=64, le=1_000_000)]
RingEvents = Annotated[int, Meta(ge=0, le=1_000_000)]
