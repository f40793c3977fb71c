"""What plugins read out of a conversation."""

from collections.abc import Sequence
from typing import Final

from cmdc_runtime.messages import Message

_NOT_A_PERSONS: Final = frozenset({"compacted", "plugins", "repair"})
"""Keys of the metadata of user messages that no user wrote: a summary of older messages, plugins'
notes, and the session's wish for an answer in the right form."""


def latest_request(messages: Sequence[Message]) -> int | None:
    """Return the place of the latest message that a user wrote, None if there is none."""
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message.role == "user" and _NOT_A_PERSONS.isdisjoint(message.metadata):
            return place
    return None
