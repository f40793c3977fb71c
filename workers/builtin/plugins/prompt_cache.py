"""Marks what Anthropic shall cache: the system prompt and the parts of a conversation that stay.

A mark is ``cache_control`` in a message's metadata, which the provider sends on. Marks of earlier
requests that are no longer wanted are taken away, so that there are never too many. Nothing is
ordered where all stands as it should, since each order is kept in the journal.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from cmdc_runtime import plugins
from cmdc_runtime.extensions.actions import (
    SYSTEM_MESSAGE_ID,
    Emit,
    MetadataUpdate,
    UpdateMessageMetadata,
)
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import BeforeRequest
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.ids import MessageId
from cmdc_runtime.messages import Message
from workers.builtin.providers._conversation import CACHE_CONTROL, takes_marks

CHARS_PER_TOKEN: Final = 4
"""An estimate that is good enough for a threshold."""
_EPHEMERAL: Final = {"type": "ephemeral"}


class PromptCache(Plugin):
    """Marks cache points; late, when others have said what is in the request."""

    name = "prompt_cache"
    priority = 130
    Config = plugins.PromptCache

    class State(msgspec.Struct):
        """Whether the system prompt is marked: its metadata are not to be seen."""

        is_system_marked: bool = False

    def before_request(
        self,
        event: BeforeRequest,  # noqa: ARG002 - orders are about the conversation as it is kept
        context: PluginContext,
    ) -> Emit | None:
        """Order the marks that are to change."""
        if not takes_marks(*_provider_and_id(context.model)):
            return None
        places = self._places(context.messages)
        updates = list(_updates(context.messages, places))
        if not self.state.is_system_marked:
            self.state.is_system_marked = True
            updates.append(_update(SYSTEM_MESSAGE_ID, is_wanted=True))
        return Emit(UpdateMessageMetadata(updates=tuple(updates))) if updates else None

    def _places(self, messages: Sequence[Message]) -> list[int]:
        """Return where marks are wanted beside the system prompt, the most important first."""
        start = _first_long_enough(messages, self.config.min_tokens * CHARS_PER_TOKEN)
        fit = {at for at in range(start, len(messages)) if messages[at].content}
        users = [at for at in fit if messages[at].role == "user"]
        results = [at for at in fit if messages[at].role == "tool_result"]
        first_round = [at for at in _first_results(messages) if at in fit]
        points = [max(some) for some in (users, first_round, results) if some]
        return list(dict.fromkeys(points))[: self.config.max_cache_points - 1]


def _provider_and_id(model: str) -> tuple[str, str]:
    """Return the parts of ``provider:model_id`` or ``provider/model_id``."""
    provider, colon, model_id = model.partition(":")
    if colon and "/" not in provider:
        return provider, model_id
    provider, slash, model_id = model.partition("/")
    return (provider, model_id) if slash else ("", model)


def _first_long_enough(messages: Sequence[Message], chars_min: int) -> int:
    """Return the first place at whose end the conversation is this long; none is behind all."""
    chars = 0
    for at, message in enumerate(messages):
        calls = (len(msgspec.json.encode(call.arguments)) for call in message.tool_calls)
        chars += len(message.content) + sum(calls)
        if chars >= chars_min:
            return at
    return len(messages)


def _first_results(messages: Sequence[Message]) -> list[int]:
    """Return the places of the results of the earliest round of calls."""
    rounds = (at for at, message in enumerate(messages) if message.tool_calls)
    first = next(rounds, len(messages))
    behind = range(first + 1, len(messages))
    return list(itertools.takewhile(lambda at: messages[at].role == "tool_result", behind))


def _updates(messages: Sequence[Message], places: Sequence[int]) -> Iterator[MetadataUpdate]:
    """Yield what has to change so that the messages at ``places`` are marked and no others."""
    for at, message in enumerate(messages):
        is_wanted, mark = at in places, message.metadata.get(CACHE_CONTROL)
        if is_wanted is (mark is None):
            yield _update(message.id, is_wanted=is_wanted)


def _update(message_id: MessageId, *, is_wanted: bool) -> MetadataUpdate:
    mark = _EPHEMERAL if is_wanted else None
    return MetadataUpdate(id=message_id, metadata={CACHE_CONTROL: mark})


create = PromptCache
