"""A plugin that keeps words from the provider: ``Abort`` before a request, whoever said the word.

It runs as it is, with a model that plays a script; CMDC_MODEL=openai:gpt-4o-mini names a real one.

python examples/plugins/05_sensitive_words.py
"""

import os
import re
from typing import Annotated

import msgspec
from msgspec import Meta

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ScriptedModel

_Word = Annotated[str, Meta(min_length=1)]


class SensitiveWords(cmdc.Plugin):
    """Ends the cycle in which a word turns up, and hides the word from all later requests.

    The message that has it stays in the conversation: without the second half of the rule, no
    request of the session could be made any more.
    """

    priority = 100
    fail = "closed"

    class Config(msgspec.Struct, frozen=True):
        """The words, in any case."""

        words: Annotated[tuple[_Word, ...], Meta(min_length=1)]

    class State(msgspec.Struct):
        """How many messages are judged already."""

        judged: int = 0

    def before_request(
        self, event: cmdc.BeforeRequest, _context: cmdc.PluginContext
    ) -> cmdc.Abort | cmdc.ReplaceMessages | None:
        """Abort for a new message, mask in an old one."""
        words = re.compile("|".join(map(re.escape, self.config.words)), re.IGNORECASE)
        judged, self.state.judged = self.state.judged, len(event.messages)
        for message in event.messages[judged:]:
            if hit := words.search(message.content):
                return cmdc.Abort(f"sensitive word: {hit[0]}")
        masked = [
            msgspec.structs.replace(message, content=words.sub("[...]", message.content))
            for message in event.messages
        ]
        return cmdc.ReplaceMessages(masked) if masked != list(event.messages) else None


SCRIPT = ScriptedModel(["It is a fine day.", "Of course."])

with (
    SCRIPT,
    cmdc.create_agent(
        model=os.environ.get("CMDC_MODEL") or SCRIPT,
        plugins=[(SensitiveWords, {"words": ["Project Falcon"]})],
    ) as session,
):
    for prompt in ("How is it?", "Tell me about PROJECT FALCON.", "Forget it, please."):
        try:
            print(f"{prompt} -> {session.run(prompt).text}")
        except cmdc.AgentAborted as error:
            print(f"{prompt} -> {error}")
    if SCRIPT.requests:
        print("The provider saw:", [one["content"] for one in SCRIPT.requests[-1]["messages"][1:]])
