"""Characters that a stream has cut in two."""

from collections.abc import Iterable, Iterator

import msgspec

from cmdc_runtime import plain
from cmdc_runtime.extensions.provider import Chunk, TextChunk, ThinkingChunk


class SplitPairs:
    """Holds the first half of a pair until the next piece of the same kind.

    JSON writes what is beyond U+FFFF as a pair of surrogates, and a server may cut between them.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._held: dict[type[TextChunk | ThinkingChunk], str] = {}

    def joined(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yield ``chunks``, each with the half before it and without one at its end."""
        for chunk in chunks:
            if isinstance(chunk, TextChunk | ThinkingChunk) and isinstance(chunk.text, str):
                yield from self._joined(chunk)
            else:
                yield chunk

    def _joined(self, chunk: TextChunk | ThinkingChunk) -> Iterator[Chunk]:
        if not self._held and (chunk.text.isascii() or plain.mended(chunk.text) == chunk.text):
            if chunk.text:
                yield chunk
            return
        text = self._held.pop(type(chunk), "") + chunk.text
        if "\ud800" <= text[-1:] <= "\udbff":
            self._held[type(chunk)] = text[-1]
            text = text[:-1]
        if text:
            yield msgspec.structs.replace(chunk, text=plain.mended(text))

    def rest(self) -> Iterator[Chunk]:
        """Yield the halves without a second one."""
        for kind, half in self._held.items():
            yield kind(text=plain.mended(half))
