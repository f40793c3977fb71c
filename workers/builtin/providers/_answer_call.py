"""A reply by a schema that is asked for as a call: the tool for it, and its arguments as text.

The tool is offered beside those of the session, and the model has to call one: it works with the
others as long as it likes, and ends by calling this one. Nobody behind the provider hears of it:
the arguments are the reply's text, so that a conversation has no call without a result, and
whatever is made of an answer in a form is made of this one too.

Text that comes beside such a call is no part of the answer: it is passed on as thoughts. Until
it is clear whether the answer is called, text is held, and each piece of it is passed on as an
empty one, so that nobody takes the model for silent.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from cmdc_runtime.extensions.provider import (
    Chunk,
    FinishChunk,
    ModelRequest,
    TextChunk,
    ThinkingChunk,
    ToolCallChunk,
    ToolSpec,
)
from cmdc_runtime.ids import CallId
from workers.builtin.providers._facts import ModelFacts
from workers.builtin.providers._formats import Schema, Way, rooted, way_of
from workers.builtin.providers._usages import SplitPairs

NAME: Final = "final_answer"
_DESCRIPTION: Final = (
    "Give your final answer: call this once, alone, when the work is done. Its arguments are the"
    " answer, and nothing else that you write is read."
)


def answer_tool(request: ModelRequest, schema: Schema) -> ToolSpec:
    """Return the tool whose call is the reply; no tool of the request has its name."""
    name, taken = NAME, {tool.name for tool in request.tools}
    while name in taken:
        name += "_"
    return ToolSpec(name=name, description=_DESCRIPTION, parameters=rooted(schema))


def forced(tool: ToolSpec, *, has_others: bool) -> object:
    """Return OpenAI's ``tool_choice``: this tool, or any where there are others."""
    if has_others:
        return "required"
    return {"type": "function", "function": {"name": tool.name}}


def answer_call(request: ModelRequest, facts: ModelFacts) -> "AnswerCall | None":
    """Return what makes text of the reply's call; None: it was not asked for as one."""
    schema = request.response_format
    if schema is None or way_of(request, facts) is not Way.TOOL:
        return None
    return AnswerCall(answer_tool(request, schema).name)


class AnswerCall:
    """One reply, in which the first call of the tool is the text; a second is a thought."""

    def __init__(self, name: str) -> None:
        """Begin with nothing; ``name`` is the tool's."""
        self._name = name
        self._held: list[TextChunk] = []
        self._pairs = SplitPairs()
        self._calls: dict[int, tuple[CallId | None, type[TextChunk | ThinkingChunk] | None]] = {}
        self._is_called = self._has_others = False

    def through(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yield the chunks of the reply as if its text had been said."""
        for chunk in chunks:
            match chunk:
                case TextChunk():
                    yield self._text(chunk)
                case ToolCallChunk():
                    yield from self._call(chunk)
                case FinishChunk():
                    yield from self._end(chunk)
                case _:
                    yield chunk

    def _text(self, chunk: TextChunk) -> Chunk:
        if self._is_called:
            return ThinkingChunk(text=chunk.text)
        if self._has_others:
            return chunk
        self._held.append(chunk)
        return TextChunk(text="")

    def _call(self, chunk: ToolCallChunk) -> Iterator[Chunk]:
        known = self._calls.get(chunk.index)
        if known is None or (chunk.call_id and known[0] and chunk.call_id != known[0]):
            known = (chunk.call_id, self._kind(chunk.name))
            self._calls[chunk.index] = known
            yield from self._released()
        kind = known[1]
        if kind is None:
            yield chunk
        elif chunk.arguments:
            yield from self._pairs.joined((kind(text=chunk.arguments),))

    def _kind(self, name: str | None) -> type[TextChunk | ThinkingChunk] | None:
        """Return what a call that begins is passed on as; None: it is one of another tool."""
        if name != self._name:
            self._has_others = True
            return None
        if self._is_called:
            return ThinkingChunk
        self._is_called = True
        return TextChunk

    def _released(self) -> Iterator[Chunk]:
        held, self._held = self._held, []
        for chunk in held:
            yield ThinkingChunk(text=chunk.text) if self._is_called else chunk

    def _end(self, chunk: FinishChunk) -> Iterator[Chunk]:
        yield from self._released()
        yield from self._pairs.rest()
        is_said = chunk.reason == "tool_calls" and not self._has_others
        yield msgspec.structs.replace(chunk, reason="stop") if is_said else chunk
