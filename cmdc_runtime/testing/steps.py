"""The words a script is written in: what "the model" says, and how it fails.

An answer is one piece or a sequence of pieces, performed in order. Pieces that carry text
(``Text``, ``Thinking``, ``ToolCalls``) are streamed in fragments; ``Delay`` and ``Hold`` wait where
they stand, before the HTTP head if they come first; ``Error``, ``Stall``, ``Disconnect`` and
``Truncate`` end the answer, so nothing may follow them. All are checked when they are made.

To add a piece: one class here and in ``Piece``, its fragments in ``wire.deltas``, and one case in
``scripted.py`` if it waits or ends the answer.
"""

import itertools
import json
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from types import UnionType
from typing import Any, Final, TypeAlias, get_args

from cmdc_runtime.messages import TokenUsage

CHUNK_CHARS: Final = 16
"""Characters of text in one streamed chunk, about four tokens."""
ARGUMENT_CHUNK_CHARS: Final = 8
"""Characters of tool arguments in one chunk; few, so that a key is torn in two somewhere."""
PAUSE_S_MAX: Final = 300.0
"""The longest delay that a script may ask for."""
FILLER: Final = "and so on "
"""What ``Stall``, ``Disconnect`` and ``Truncate`` say, repeated, before they fail."""


def _require(held: bool, rule: str) -> None:  # noqa: FBT001 - a condition is what it takes
    if not held:
        raise ValueError(rule)


def _require_type(value: object, kind: type | UnionType, rule: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{rule}, got a {type(value).__name__}")


def _require_pace(chunk_chars: int, delay: float) -> None:
    _require(chunk_chars >= 1, f"chunk_chars must be at least 1, got {chunk_chars}")
    _require(0 <= delay <= PAUSE_S_MAX, f"delay must be 0..{PAUSE_S_MAX} seconds, got {delay}")


@dataclass(frozen=True, slots=True)
class Text:
    """The model says ``text``, ``chunk_chars`` at a time with ``delay`` seconds in between.

    ``usage`` is what the provider reports for the whole answer; None: computed from lengths.
    """

    text: str
    _: KW_ONLY
    chunk_chars: int = CHUNK_CHARS
    delay: float = 0.0
    usage: TokenUsage | None = None
    finish: str = "stop"

    def __post_init__(self) -> None:
        """Check the pace."""
        _require_pace(self.chunk_chars, self.delay)


@dataclass(frozen=True, slots=True)
class Thinking:
    """The model thinks ``text`` aloud, in ``reasoning_content``; paced like ``Text``."""

    text: str
    _: KW_ONLY
    chunk_chars: int = CHUNK_CHARS
    delay: float = 0.0

    def __post_init__(self) -> None:
        """Check the pace."""
        _require_pace(self.chunk_chars, self.delay)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One tool call; a str as ``arguments`` is sent as it is, so it may be malformed JSON.

    ``id`` None: ``call_<request>_<index>``, counted from 1 and 0, unique within one model.
    """

    name: str
    arguments: dict[str, Any] | str  # Any: JSON
    id: str | None = None

    def __post_init__(self) -> None:
        """Check that it can be sent."""
        _require(isinstance(self.name, str), f"a tool's name is a str, got {self.name!r}")
        _require_type(
            self.arguments, dict | str, f"the arguments of {self.name!r} are a dict or str"
        )
        try:
            json.dumps(self.arguments, ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"the arguments of {self.name!r} are no JSON: {error}") from error


@dataclass(frozen=True, slots=True, init=False)
class ToolCalls:
    """The model says ``text``, then asks for one or more tools, in order."""

    calls: tuple[ToolUse, ...]
    text: str
    chunk_chars: int
    delay: float
    usage: TokenUsage | None
    finish: str

    def __init__(
        self,
        *calls: ToolUse,
        text: str = "",
        chunk_chars: int = ARGUMENT_CHUNK_CHARS,
        delay: float = 0.0,
        usage: TokenUsage | None = None,
        finish: str = "tool_calls",
    ) -> None:
        """Take the calls as positional arguments."""
        _require(bool(calls), "ToolCalls needs at least one ToolUse")
        for call in calls:
            _require_type(call, ToolUse, "ToolCalls takes each ToolUse as an argument by itself")
        _require_pace(chunk_chars, delay)
        values = (calls, text, chunk_chars, delay, usage, finish)
        for name, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class Error:
    """The provider answers with an HTTP error, or with an error event once the stream began.

    ``retry_after`` is in seconds and sent as a header, so it needs an answer not yet begun.
    """

    status: int
    message: str
    _: KW_ONLY
    retry_after: float | None = None
    code: str | None = None

    def __post_init__(self) -> None:
        """Check the status."""
        _require(400 <= self.status <= 599, f"status must be 400..599, got {self.status}")  # noqa: PLR2004 - HTTP's own


@dataclass(frozen=True, slots=True)
class Delay:
    """Nothing happens for ``seconds``; as the first piece, before the HTTP head."""

    seconds: float

    def __post_init__(self) -> None:
        """Check the bound."""
        _require(0 <= self.seconds <= PAUSE_S_MAX, f"a delay is 0..{PAUSE_S_MAX} seconds")


@dataclass(frozen=True, slots=True)
class Hold:
    """The answer waits here until the test calls ``ScriptedModel.release()``."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """An answer that fails after ``after_chars`` more characters of filler text."""

    _: KW_ONLY
    after_chars: int = 0

    def __post_init__(self) -> None:
        """Check the count."""
        _require(self.after_chars >= 0, f"after_chars must not be negative: {self.after_chars}")

    @property
    def text(self) -> str:
        """What is said before the failure."""
        return (FILLER * (self.after_chars // len(FILLER) + 1))[: self.after_chars]


@dataclass(frozen=True, slots=True)
class Stall(_Cut):
    """The provider falls silent with the connection open, until the client goes away."""


@dataclass(frozen=True, slots=True)
class Disconnect(_Cut):
    """The provider closes the connection in the middle; as the only piece, before the head."""


@dataclass(frozen=True, slots=True)
class Truncate(_Cut):
    """The stream ends well-formed but without finish reason, usage and ``[DONE]``."""


Piece: TypeAlias = (
    Text | Thinking | ToolCalls | Error | Delay | Hold | Stall | Disconnect | Truncate
)
_PIECES: Final = get_args(Piece)
_ENDINGS: Final = (Error, _Cut)


@dataclass(frozen=True, slots=True, init=False)
class Sequence:
    """One answer made of several pieces, performed in order; a str is ``Text``."""

    pieces: tuple[Piece, ...]

    def __init__(self, *pieces: str | Piece) -> None:
        """Take the pieces as positional arguments."""
        made = tuple(Text(piece) if isinstance(piece, str) else piece for piece in pieces)
        _require(bool(made), "an answer needs at least one piece")
        for piece, after in itertools.zip_longest(made, made[1:]):
            if not isinstance(piece, _PIECES):
                raise TypeError(f"not a piece of an answer: {piece!r}")
            ends_early = isinstance(piece, _ENDINGS) and after is not None
            _require(not ends_early, f"nothing can follow {piece!r}, got {after!r}")
        object.__setattr__(self, "pieces", made)


Request: TypeAlias = dict[str, Any]  # Any: the decoded JSON body of one request
Answer: TypeAlias = str | Piece | Sequence | tuple[str | Piece, ...]
Step: TypeAlias = Answer | Callable[[Request], Answer]


def sequence_of(answer: Answer) -> Sequence:
    """Return the answer as pieces.

    Raises:
        TypeError: it is none of the kinds of ``Answer``.
        ValueError: it is empty, or a piece follows one that ends the answer.
    """
    if isinstance(answer, Sequence):
        return answer
    return Sequence(*answer) if isinstance(answer, tuple) else Sequence(answer)
