"""What a server has said to one request, as it came: the only words that decide about a failure.

The texts of a client's exceptions mix the words of the server, its own, and what somebody has
typed. So the transport notes what answers, and what a server repeats of the conversation is left
out: it is no word of the server's.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from workers.builtin.providers._error_texts import ERROR_BYTES_MAX, TEXT_CHARS_MAX

_MEMBERS: Final = frozenset(
    (
        *("error", "errors", "message", "msg", "detail", "code", "type", "status", "reason"),
        *("originalmessage", "metadata", "raw"),
    )
)
"""Members of a body that say what is wrong, or hold what does. Others may repeat the request."""
BODY_DEPTH_MAX: Final = 6
"""How deep the words of a body are looked for."""
ECHO_CHARS_MIN: Final = 24
"""Of a quotation, or of a whole message, that counts as repeated."""
_QUOTED: Final = re.compile(r"(['\"`])(.+?)\1", re.DOTALL)


@dataclass(slots=True)
class Heard:
    """What came to one request; ``status`` is None until a server has refused it."""

    is_asked: bool = False
    """A request has left this process, or has tried to."""
    status: int | None = None
    _said: bytearray = field(default_factory=bytearray)

    def ask(self) -> None:
        """Note that a server is asked, and forget what an earlier one has said."""
        self.is_asked, self.status = True, None
        self._said.clear()

    def refuse(self, status: int) -> None:
        """Note that the server has refused."""
        self.status = status

    def note(self, piece: bytes) -> None:
        """Note a part of the body of a refusal."""
        self._said += piece[: max(ERROR_BYTES_MAX - len(self._said), 0)]

    def note_event(self, event: bytes) -> None:
        """Note an event of a reply that says what is wrong; the first one counts."""
        if not self._said:
            self.note(event)

    def words(self, conversation: Sequence[str] = ()) -> str:
        """Return the server's words and codes, but for what they repeat of a conversation."""
        body = bytes(self._said)
        try:
            told = " ".join(_words(msgspec.json.decode(body)))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            told = body.decode(errors="replace")
        return _without_echoes(told, conversation)[:TEXT_CHARS_MAX]


def _words(body: object, depth: int = 0) -> Iterator[str]:
    if isinstance(body, str):
        yield body
    elif depth < BODY_DEPTH_MAX and isinstance(body, list):
        for one in body:
            yield from _words(one, depth + 1)
    elif depth < BODY_DEPTH_MAX and isinstance(body, Mapping):
        for name, one in body.items():
            if str(name).lower() in _MEMBERS:
                yield from _words(one, depth + 1)


def _without_echoes(told: str, conversation: Sequence[str]) -> str:
    for message in conversation:
        if len(message) >= ECHO_CHARS_MIN:
            told = told.replace(message, " ")

    def kept(quoted: re.Match[str]) -> str:
        words = quoted[2]
        is_echo = len(words) >= ECHO_CHARS_MIN and any(words in one for one in conversation)
        return " " if is_echo else quoted[0]

    return _QUOTED.sub(kept, told)
