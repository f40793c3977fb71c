"""Puts the engine's chunks into the shapes that a client of OpenAI's API expects. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from cmdc_runtime.local_model.prompting import call_of

Json: TypeAlias = dict[str, Any]  # Any: JSON

MODEL: Final = "local"
ARGUMENT_CHUNK_CHARS: Final = 8
_KEPT: Final = ("id", "object", "created", "choices", "usage")


def cleaned(chunk: Json) -> Json:
    """Return the engine's chunk without timings and without the path of the weights."""
    return {key: chunk[key] for key in _KEPT if key in chunk} | {"model": MODEL}


@dataclass(slots=True)
class Gathered:
    """An answer that is collected before it is told; it owns what ``add`` was given."""

    id: str = ""
    created: int = 0
    finish: str | None = None
    usage: Json = field(default_factory=dict)
    parts: list[str] = field(default_factory=list)

    def add(self, chunk: Json) -> None:
        """Take the engine's next chunk."""
        self.id, self.created = chunk["id"], chunk["created"]
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk["choices"]:
            self.parts.append(choice["delta"].get("content") or "")
            self.finish = choice["finish_reason"] or self.finish

    def completion(self, *, is_call: bool) -> Json:
        """Return the whole answer; as a tool call if it is one and was not cut short."""
        text = "".join(self.parts)
        call = call_of(text) if is_call else None
        message: Json = {"role": "assistant", "content": text}
        if call:
            message = {"role": "assistant", "content": None, "tool_calls": [self._call(*call)]}
        choice = {"index": 0, "message": message, "finish_reason": self._finish(call)}
        return self._object("chat.completion", [choice]) | {"usage": self.usage}

    def call_chunks(self) -> Iterator[Json]:
        """Yield the answer as a stream of a tool call, or of text if it was cut short."""
        text = "".join(self.parts)
        call = call_of(text)
        if call is None:
            yield self._chunk({"role": "assistant", "content": text})
        else:
            yield from self._fragments(*call)
        yield self._chunk({}, self._finish(call))

    def usage_chunk(self) -> Json:
        """Return the chunk that carries only the usage."""
        return self._object("chat.completion.chunk", []) | {"usage": self.usage}

    def _fragments(self, name: str, arguments: str) -> Iterator[Json]:
        opening = self._call(name, "") | {"index": 0}
        yield self._chunk({"role": "assistant", "content": None, "tool_calls": [opening]})
        for at in range(0, len(arguments), ARGUMENT_CHUNK_CHARS):
            function = {"arguments": arguments[at : at + ARGUMENT_CHUNK_CHARS]}
            yield self._chunk({"tool_calls": [{"index": 0, "function": function}]})

    def _call(self, name: str, arguments: str) -> Json:
        # One call per answer, so the answer's id makes the call's unique too.
        function = {"name": name, "arguments": arguments}
        return {"id": f"call_{self.id[-12:]}", "type": "function", "function": function}

    def _finish(self, call: tuple[str, str] | None) -> str | None:
        return self.finish if call is None else "tool_calls"

    def _chunk(self, delta: Json, finish: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return self._object("chat.completion.chunk", [choice])

    def _object(self, kind: str, choices: list[Json]) -> Json:
        created = self.created
        return {"id": self.id, "object": kind, "created": created, "model": MODEL} | {
            "choices": choices
        }
