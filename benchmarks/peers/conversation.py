"""The agent of all peers but ours: the history of a conversation, and the openai SDK.

It imports the SDK, so it is imported in the agents' processes only.
"""

from collections.abc import Iterator

from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

from benchmarks.peers.prompts import KEY, MODEL


class Conversation:
    """One conversation with the model."""

    def __init__(self, url: str) -> None:
        """Talk to the model at ``url``; nothing is sent yet."""
        self._client = OpenAI(base_url=url, api_key=KEY)
        self._messages: list[ChatCompletionMessageParam] = []

    def ask(self, prompt: str) -> Iterator[str]:
        """Yield the pieces of the answer as they come, and keep it."""
        self._messages.append({"role": "user", "content": prompt})
        said: list[str] = []
        stream = self._client.chat.completions.create(
            model=MODEL, messages=self._messages, stream=True
        )
        for chunk in stream:
            if piece := chunk.choices[0].delta.content:
                said.append(piece)
                yield piece
        self._messages.append({"role": "assistant", "content": "".join(said)})
