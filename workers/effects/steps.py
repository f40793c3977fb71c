"""What a reasoning run tells of its steps: checked where it comes in."""

from typing import Final

import msgspec

from cmdc_runtime.codec import decode, encode
from cmdc_runtime.errors import ProtocolError, UsageError
from cmdc_runtime.events import Event
from cmdc_runtime.extensions.tool import ToolError
from cmdc_runtime.plain import problem_of, short
from workers.toolhost.words import PAYLOAD_BYTES_MAX

PREFIX: Final = "reasoning_"
"""Of the kinds of events that tell such steps."""


def checked_step(event: object) -> Event:
    """Return a copy of an event that tells a step, which nobody changes any more.

    Raises:
        ToolError: it is another event, too large, or cannot be kept.
    """
    name = event.kind if isinstance(event, Event) else ""
    if not isinstance(event, Event) or not name.startswith(PREFIX):
        raise ToolError(f"expected an event of a kind {PREFIX}*, got {short(event)}")
    try:
        body = encode(event)
        copy = decode(Event, body)
    except (ProtocolError, UsageError) as error:
        raise ToolError(f"{name!r} cannot be kept: {error}") from error
    if len(body) > PAYLOAD_BYTES_MAX:
        raise ToolError(f"{name!r} takes {len(body):,} bytes, more than {PAYLOAD_BYTES_MAX:,}")
    if (problem := problem_of(msgspec.to_builtins(copy))) is not None:
        raise ToolError(f"{name!r} cannot be kept: {problem}")
    return copy
