"""What one call can say, wherever it runs: things to tell observers, then how it ended.

The agent makes these values for its threads and tasks, a forked call sends them over its pipe.
Rules: whatever a tool returned or raised becomes one of them, bounded, and fit to be written down.
"""

import traceback
from typing import Any, Final, TypeAlias

import msgspec

from cmdc_runtime.extensions.tool import Effect, ToolError
from cmdc_runtime.reasons import PlainReason, snake
from workers import intake

RESULT_CHARS_MAX: Final = 400_000
"""A longer result is cut; the model is told so."""
PAYLOAD_BYTES_MAX: Final = 2**20
"""Of one effect or one emitted event, as MessagePack."""
TRACEBACK_CHARS_MAX: Final = 8_000
"""The end of a traceback that is kept for the log."""
NAME_CHARS_MAX: Final = 128
"""Of an effect or an emitted event."""
EMITTED_MAX: Final = 10_000
"""Events of one call; more are a flood, and the tool is told."""


class Word(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=snake):
    """Base of what a call says."""


class Emitted(Word, frozen=True, kw_only=True, array_like=True):
    """Observers shall hear of this; the call goes on."""

    name: str
    payload: Any  # Any: the tool's own


class Returned(Word, frozen=True, kw_only=True, array_like=True):
    """The tool returned; ``effect`` is a name and a payload."""

    text: str
    effect: tuple[str, Any] | None = None  # Any: the tool's own


class Refused(Word, frozen=True, kw_only=True, array_like=True):
    """The call failed in a way that one had to expect; the model reads why."""

    text: str


class Crashed(Word, frozen=True, kw_only=True, array_like=True):
    """The call failed unexpectedly; it may be worth another try.

    ``text`` is for the model, ``detail`` for the log.
    """

    text: str
    detail: str = ""


class Died(Word, frozen=True, kw_only=True, array_like=True):
    """The call's process ended without an ending; its agent says so."""

    reason: PlainReason

    @property
    def text(self) -> str:
        """What the model reads."""
        return f"Error: the tool's process died: {self.reason}"


Ending: TypeAlias = Returned | Refused | Crashed | Died
"""How a call ended."""


def encoded(word: Word) -> bytes:
    """Return a word as it travels."""
    return msgspec.msgpack.encode(word)


def fit(text: str) -> str:
    """Return ``text`` with a ``?`` for what no encoder takes, cut at ``RESULT_CHARS_MAX``."""
    if len(text) > RESULT_CHARS_MAX:
        text = f"{text[:RESULT_CHARS_MAX]}\n[cut: the result had {len(text)} characters]"
    return intake.fit(text)


def returned(value: object) -> Returned:
    """Return the word for what a tool returned.

    Raises:
        ToolError: an effect is too large or has a bad name.
        TypeError: its payload is nothing that MessagePack takes.
    """
    if not isinstance(value, Effect):
        return Returned(text=fit(value if isinstance(value, str) else str(value)))
    name, payload = checked_event(value.name, value.payload)
    return Returned(text=fit(str(value.text)), effect=(name, payload))


def refused(error: ToolError) -> Refused:
    """Return the word for an expected failure."""
    return Refused(text=fit(str(error)))


def crashed(error: BaseException) -> Crashed:
    """Return the word for an unexpected failure."""
    detail = "".join(traceback.format_exception(error))[-TRACEBACK_CHARS_MAX:]
    return Crashed(text=fit(f"{type(error).__name__}: {error}"), detail=fit(detail))


def checked_event(name: object, payload: object) -> tuple[str, Any]:
    """Return a name and a copy of a payload that can be told, and that nobody changes any more.

    Raises:
        ToolError: the name is no short text, or the payload is too large.
        TypeError: the payload is nothing that MessagePack takes.
    """
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX:
        raise ToolError(
            f"a name of an event or effect has 1 to {NAME_CHARS_MAX} characters, got {name!r}"
        )
    body = msgspec.msgpack.encode(payload)
    if len(body) > PAYLOAD_BYTES_MAX:
        raise ToolError(
            f"the payload of {name!r} takes {len(body)} bytes, more than {PAYLOAD_BYTES_MAX}: put"
            " large data into a file and tell where it is"
        )
    return fit(name), msgspec.msgpack.decode(body)
