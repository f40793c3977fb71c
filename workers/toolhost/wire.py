"""What agent, tool host and forked call exchange: frames of bytes, and a call's reports.

A frame is its length in four bytes, then as many bytes; between agent and host these are one
message. The host does not read what a call reports: it passes the bytes on. To add a message, add
its class below its direction and its handler in ``host`` or in
``workers.performers.toolhost_link``.

A call publishes events and then reports how it ended, wherever it runs: the agent makes these
reports for its threads and tasks, a forked call sends them over its pipe. Rules: whatever a tool
returned or raised becomes one of them, bounded, and fit to be written down.
"""

import inspect
import struct
from collections.abc import Iterator
from typing import Any, Final, TypeAlias, Union

import msgspec

from cmdc_runtime import foreign
from cmdc_runtime.extensions.context import SessionFacts
from cmdc_runtime.extensions.schema import text_of
from cmdc_runtime.extensions.tool import Effect, ToolError
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.ids import CallId, Incarnation, SessionId
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.plain import is_a, mended, problem_of, without_controls
from cmdc_runtime.reasons import PlainReason, snake

# --- frames ---------------------------------------------------------------------------------------

FRAME_BYTES_MAX: Final = 16 * 2**20
"""Between agent and host: packed code, or the arguments of a call."""
REPORT_BYTES_MAX: Final = 4 * 2**20
"""Of one report of a call: 400,000 characters and a payload fit."""
LENGTH: Final = struct.Struct(">I")


class FrameTooLargeError(Exception):
    """A frame is larger than its bound."""


class ToHost(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=snake):
    """Agent to host."""


class Begin(ToHost, frozen=True, kw_only=True, array_like=True):
    """What all calls have in common; always the first message."""

    session_id: SessionId
    incarnation: Incarnation
    group_id: str | None
    working_dir: str
    user_data: dict[str, Any]  # Any: the application's own
    environment: dict[str, str] = {}  # what calls see beside what every tool sees
    config_facts: dict[str, Any] | None = None  # Any: fields of a Config
    sandbox: Packed | None = None  # the session's; None: the built-in one
    real_dir: str = ""  # the working folder without symbolic links, as the agent found it


class Open(ToHost, frozen=True, kw_only=True, array_like=True):
    """Have this tool ready under ``tool``, for every fork from now on."""

    tool: int
    packed: Packed


class Close(ToHost, frozen=True, kw_only=True, array_like=True):
    """Forget a tool; calls of it that run go on."""

    tool: int


class RunCall(ToHost, frozen=True, kw_only=True, array_like=True, tag="run"):
    """Fork and call; ``number`` names the call in both directions. Arguments are the model's."""

    call_id: CallId
    arguments: dict[str, Any]  # Any: whatever the model sent
    model: str
    turn: int
    todos: tuple[dict[str, str], ...] = ()
    tool: int = 0
    number: int = 0
    facts: SessionFacts = SessionFacts()
    """Without ``todos``, which stand beside it."""


class Kill(ToHost, frozen=True, kw_only=True, array_like=True):
    """End a call with all that it started; ``Ended`` follows."""

    number: int


class FromHost(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=snake):
    """Host to agent."""


class ReportFrame(FromHost, frozen=True, kw_only=True, array_like=True, tag="said"):
    """One report of a call, as it came."""

    number: int
    report: bytes


class Ended(FromHost, frozen=True, kw_only=True, array_like=True):
    """The call's process and its group are gone; ``reason`` is how the process ended."""

    number: int
    reason: PlainReason


# Any: each decoder is one of its own union.
to_host: Final[Any] = msgspec.msgpack.Decoder(Union[tuple(ToHost.__subclasses__())])  # noqa: UP007
from_host: Final[Any] = msgspec.msgpack.Decoder(Union[tuple(FromHost.__subclasses__())])  # noqa: UP007


def framed(message: msgspec.Struct, bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """Return a message as a frame.

    Raises:
        FrameTooLargeError: it has more than ``bytes_max``.
        TypeError, ValueError, OverflowError: it holds what MessagePack does not take.
    """
    body = msgspec.msgpack.encode(message)
    if len(body) > bytes_max:
        raise FrameTooLargeError(f"{len(body)} bytes; at most {bytes_max} can go")
    return LENGTH.pack(len(body)) + body


class Frames:
    """Cuts a stream of bytes into frames; memory is bounded by the largest frame."""

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        """Refuse frames of more than ``bytes_max``."""
        self._bytes_max = bytes_max
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the frames that are complete with ``chunk``.

        Raises:
            FrameTooLargeError: the stream announces one that is too large, and is of no use.
        """
        self._buffer += chunk
        start = 0
        try:
            while (end := self._end(start)) is not None and end <= len(self._buffer):
                yield bytes(self._buffer[start + LENGTH.size : end])
                start = end
        finally:
            del self._buffer[:start]

    def _end(self, start: int) -> int | None:
        """Return where the frame from ``start`` ends, None while its length is not there."""
        if len(self._buffer) - start < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(self._buffer, start)
        if length > self._bytes_max:
            raise FrameTooLargeError(f"{length} bytes are announced, more than {self._bytes_max}")
        return start + LENGTH.size + int(length)


# --- reports of a call ----------------------------------------------------------------------------

RESULT_CHARS_MAX: Final = 400_000
"""A longer result is cut; the model reads that."""
REPORT_CHARS_MAX: Final = RESULT_CHARS_MAX + 1_000
"""Of a text from another process: a result that was cut, with the text that says so."""
PAYLOAD_BYTES_MAX: Final = 2**20
"""Of one effect or one emitted event, as MessagePack."""
TRACEBACK_CHARS_MAX: Final = 8_000
"""The end of a traceback that is kept for the log."""
NAME_CHARS_MAX: Final = 128
"""Of an effect or an emitted event."""
EMITTED_MAX: Final = 10_000
"""Events of one call; more are a flood, and the tool gets an error."""


class CallReport(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=snake):
    """Base of what a call reports."""


class Emitted(CallReport, frozen=True, kw_only=True, array_like=True):
    """An event to be published; the call goes on."""

    name: str
    payload: Any  # Any: the tool's own


class Returned(CallReport, frozen=True, kw_only=True, array_like=True):
    """The tool returned; ``effect`` is a name and a payload."""

    text: str
    effect: tuple[str, Any] | None = None  # Any: the tool's own


class Refused(CallReport, frozen=True, kw_only=True, array_like=True):
    """The call failed in a way that one had to expect; the model reads why."""

    text: str


class Crashed(CallReport, frozen=True, kw_only=True, array_like=True):
    """The call failed unexpectedly; it may be worth another try.

    ``text`` is for the model, ``detail`` for the log.
    """

    text: str
    detail: str = ""


class Cut(CallReport, frozen=True, kw_only=True, array_like=True):
    """The call was over before its tool had an end; its agent says so."""

    text: str


class Died(CallReport, frozen=True, kw_only=True, array_like=True):
    """The call's process ended without an ending; its agent says so."""

    reason: PlainReason

    @property
    def text(self) -> str:
        """What the model reads."""
        return f"Error: the tool's process died: {self.reason}"


CallEnding: TypeAlias = Returned | Refused | Crashed | Cut | Died
"""How a call ended."""


def encoded(word: CallReport) -> bytes:
    """Return a report as it travels."""
    return msgspec.msgpack.encode(word)


def fit(text: str) -> str:
    """Return ``text`` mended and cut at ``RESULT_CHARS_MAX``."""
    if len(text) > RESULT_CHARS_MAX:
        text = f"{text[:RESULT_CHARS_MAX]}\n[cut: the result had {len(text)} characters]"
    return mended(text)


def returned(value: object) -> Returned:
    """Return the report for what a tool returned.

    Raises:
        ToolError: the result cannot be kept as it is; or an effect is too large, has a bad name, or
            a payload that cannot be kept.
    """
    if not is_a(value, Effect):
        return Returned(text=_result_text(value))
    effect: Any = value  # Any: one, with attributes that nobody has checked
    name, payload = checked_event(effect.name, effect.payload)
    return Returned(text=_result_text(effect.text), effect=(name, payload))


def _result_text(value: object) -> str:
    """Return a result as text; that is its class's code, whose failure is none of the tool."""
    try:
        return foreign.call(lambda: fit(text_of(value)))
    except ForeignError as failure:
        why = f"the tool has run, but its result cannot be kept: {failure}"
        raise ToolError(why) from failure


def is_awaitable(value: object) -> bool:
    """Say whether a result is to be awaited; one whose class fails when asked is not."""
    try:
        return foreign.call(lambda: inspect.isawaitable(value))
    except ForeignError:
        return False


def failed(failure: ForeignError) -> Refused | Crashed:
    """Return the report for what a tool raised: what one had to expect, an exit, or a crash."""
    error = failure.error
    if isinstance(error, ToolError):
        return refused(error)
    if failure.is_exit:
        return Refused(text=fit(f"the tool tried to end its process: {failure}"))
    return crashed(error)


def refused(error: ToolError) -> Refused:
    """Return the report for an expected failure."""
    return Refused(text=fit(foreign.text_of(error, None)))


def crashed(error: BaseException) -> Crashed:
    """Return the report for an unexpected failure."""
    detail = foreign.traceback_of(error, TRACEBACK_CHARS_MAX)
    return Crashed(text=fit(foreign.summary_of(error, None)), detail=fit(detail))


def checked_event(
    name: Any,  # Any: what a stranger named
    payload: object,
) -> tuple[str, Any]:
    """Return a name and a copy of a payload that can be published, which nobody changes any more.

    A Struct in the place of a name is both: its class's name, and its fields.

    Raises:
        ToolError: the name is no short text, or the payload is too large or cannot be kept.
    """
    if is_a(name, msgspec.Struct):
        name, payload = snake(type(name).__name__), msgspec.structs.asdict(name)
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX:
        raise ToolError(
            f"a name of an event or effect has 1 to {NAME_CHARS_MAX} characters, got"
            f" {foreign.text_of(name, NAME_CHARS_MAX)!r}"
        )
    name = without_controls(name)
    body = _encoded_payload(name, payload)
    if len(body) > PAYLOAD_BYTES_MAX:
        raise ToolError(
            f"the payload of {name!r} takes {len(body)} bytes, more than {PAYLOAD_BYTES_MAX}: put"
            " large data into a file and name it"
        )
    copy = msgspec.msgpack.decode(body)
    problem = problem_of(copy)
    if problem is None and len(msgspec.msgpack.encode(copy)) != len(body):
        problem = "two keys of one dict in it are the same text"
    if problem is not None:
        raise ToolError(f"the payload of {name!r} cannot be kept: {problem}")
    return name, copy


def _encoded_payload(name: str, payload: object) -> bytes:
    try:
        return foreign.call(lambda: msgspec.msgpack.encode(payload))
    except ForeignError as failure:
        raise ToolError(f"the payload of {name!r} cannot be kept: {failure}") from failure


def decoded_report(body: bytes) -> Emitted | CallEnding:
    """Return the report that another process has sent; what cannot be taken is its crash.

    That process runs foreign code, which can write to the pipe itself. It knows no credentials,
    so what its failures show of them is hidden here.
    """
    try:
        word: Emitted | CallEnding = _decoder.decode(body)
        match word:
            case Emitted(name=name, payload=payload) | Returned(effect=(name, payload)):
                checked_event(name, payload)
            case _:
                pass
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ToolError) as error:
        return Crashed(
            text=f"the tool's process said what can't be taken: {foreign.summary_of(error)}"
        )
    match word:
        case Crashed(text=text, detail=detail):
            word = Crashed(text=foreign.hidden(text), detail=foreign.hidden(detail))
        case Refused(text=text) | Cut(text=text):
            word = msgspec.structs.replace(word, text=foreign.hidden(text))
        case _:
            pass
    if isinstance(word, Emitted | Died) or len(word.text) <= REPORT_CHARS_MAX:
        return word
    return msgspec.structs.replace(word, text=fit(word.text))


_decoder: Final[Any] = msgspec.msgpack.Decoder(  # Any: the union; mypy has no name for it
    Union[tuple(CallReport.__subclasses__())]  # noqa: UP007
)
