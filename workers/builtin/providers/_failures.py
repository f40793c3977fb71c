"""What goes wrong at a model's provider, in the words of the contract and without any secret.

Everything that litellm raises leaves as a ``ProviderError``: its kind is decided by ``classify``,
this module finds out what there is to decide by. Nothing here imports litellm; names are enough.

The text of an error is cut before any other code reads it: what is done with it costs more than its
size, and only its beginning is of use. A server that has said "200" reports what goes wrong in an
event of the stream. Only what a server has said decides about a failure (``Heard``).

No text of a failure shows a credential. They are known by their values (see
``cmdc_runtime.redaction``): those among the options of a request and those that were in force
before, and those in the environment. What looks like a key is hidden, too: a provider may name
one that nobody here has given. ``hidden`` is the one function that texts of failures pass.
"""

import contextlib
import email.utils
import functools
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import msgspec

from cmdc_runtime import foreign, redaction
from cmdc_runtime.extensions.provider import FailureKind, ModelRequest, ProviderError, classify
from cmdc_runtime.redaction import HIDDEN
from workers.builtin.providers._facts import BadAddressError

# --- long texts -----------------------------------------------------------------------------------

ERROR_BYTES_MAX: Final = 64 * 2**10
"""Of an error, as the body of an answer or as an event in it: the rest is not looked at."""
TEXT_CHARS_MAX: Final = 8_192
"""Of the text of an error, or of a member of one: the rest is cut off before anything else."""
MEMBERS_MAX: Final = 6
"""Of an error that is cut: the first ones. Vendors send four at most."""
NAME_CHARS_MAX: Final = 64
_MARK: Final = b'"error"'


def may_be_long_error(event: bytes) -> bool:
    """Say whether an event is so long that it is to be cut where it is an error."""
    return len(event) > ERROR_BYTES_MAX and _MARK in event


def cut_error(reported: dict[str, object]) -> bool:
    """Leave of an event that is an error what says so; say whether it is one."""
    error = reported.get("error")
    if not error:
        return False
    kind = reported.get("type")
    reported.clear()
    if isinstance(kind, str):
        reported["type"] = kind[:NAME_CHARS_MAX]
    if isinstance(error, dict):
        members = list(error.items())[:MEMBERS_MAX]
        reported["error"] = {name[:NAME_CHARS_MAX]: _cut(member) for name, member in members}
    else:
        reported["error"] = _cut(error)
    return True


def _cut(member: object) -> object:
    if member is None or isinstance(member, bool | int | float):
        return member
    return (member if isinstance(member, str) else json.dumps(member))[:TEXT_CHARS_MAX]


def with_cut_text(redact: Callable[[str], str]) -> Callable[[str], str]:
    """Return ``redact``, which gets the beginning of a text instead of all of it."""

    @functools.wraps(redact)
    def cut_and_redact(text: str) -> str:
        return redact(text[:TEXT_CHARS_MAX])

    return cut_and_redact


# --- what a server has said -----------------------------------------------------------------------

_MEMBERS: Final = frozenset(
    (
        *("error", "errors", "message", "msg", "detail", "code", "type", "status", "reason"),
        *("originalmessage", "metadata", "raw"),
    )
)
"""Members of a body that say what is wrong, or hold what does. Others may repeat the request."""
HEARD_DEPTH_MAX: Final = 6
"""How deep the words of a body are looked for."""
ECHO_CHARS_MIN: Final = 24
"""Of a quotation, or of a whole message, that counts as repeated."""
_QUOTED: Final = re.compile(r"(['\"`])(.+?)\1", re.DOTALL)


@dataclass(slots=True)
class Heard:
    """What came to one request; ``status`` is None until a server has refused it.

    It is kept as it came. The texts of a client's exceptions mix the words of the server, its own,
    and what somebody has typed. So the transport notes what answers, and what a server repeats of
    the conversation is left out: it is no word of the server's.
    """

    is_asked: bool = False
    """A request has left this process, or has tried to."""
    status: int | None = None
    _said: bytearray = field(default_factory=bytearray)

    def ask(self) -> None:
        """Remember that a server is asked, and forget what an earlier one has said."""
        self.is_asked, self.status = True, None
        self._said.clear()

    def refuse(self, status: int) -> None:
        """Remember that the server has refused."""
        self.status = status

    def note(self, piece: bytes) -> None:
        """Remember a part of the body of a refusal."""
        self._said += piece[: max(ERROR_BYTES_MAX - len(self._said), 0)]

    def note_event(self, event: bytes) -> None:
        """Remember an event of a reply that says what is wrong; the first one counts."""
        if not self._said:
            self.note(event)

    def words(self, conversation: Sequence[str] = ()) -> str:
        """Return the server's words and codes, but for what they repeat of a conversation."""
        body = bytes(self._said)
        try:
            reported = " ".join(_words_of(msgspec.json.decode(body)))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            reported = body.decode(errors="replace")
        return _without_echoes(reported, conversation)[:TEXT_CHARS_MAX]


def _words_of(body: object, depth: int = 0) -> Iterator[str]:
    if isinstance(body, str):
        yield body
    elif depth < HEARD_DEPTH_MAX and isinstance(body, list):
        for one in body:
            yield from _words_of(one, depth + 1)
    elif depth < HEARD_DEPTH_MAX and isinstance(body, Mapping):
        for name, one in body.items():
            if str(name).lower() in _MEMBERS:
                yield from _words_of(one, depth + 1)


def _without_echoes(reported: str, conversation: Sequence[str]) -> str:
    for message in conversation:
        if len(message) >= ECHO_CHARS_MIN:
            reported = reported.replace(message, " ")

    def kept(quoted: re.Match[str]) -> str:
        words = quoted[2]
        is_echo = len(words) >= ECHO_CHARS_MIN and any(words in one for one in conversation)
        return " " if is_echo else quoted[0]

    return _QUOTED.sub(kept, reported)


# --- secrets --------------------------------------------------------------------------------------

_SECRET_SHAPE: Final = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|key)[-_][\w*./+=~-]{6,}"  # also when masked with stars
    r"|\bAIza[\w-]{20,}"
    r"|\bAKIA[A-Z0-9]{12,}"
    r"|\bBearer\s+[^\s'\",]+"
    r"|(?<=[?&]key=)[^&\s'\"]+",
    re.IGNORECASE,
)


def secrets_of(request: ModelRequest) -> frozenset[str]:
    """Return the values that no text may show, in every form that they may come in."""
    given = redaction.secrets_of_options((request.provider_opts, *request.former_opts))
    values = given | redaction.secrets_of_environment(os.environ)
    # The model's name is shown everywhere; a key that is a part of it is a placeholder.
    return redaction.forms_of(
        one for one in values if one == redaction.ALL or one not in request.model
    )


def hidden(text: str, secrets: frozenset[str]) -> str:
    """Return ``text`` without ``secrets`` and without what looks like a key.

    It has ``TEXT_CHARS_MAX`` characters at most, and does not end in the beginning of a secret.
    """
    is_cut = len(text) > TEXT_CHARS_MAX
    return _SECRET_SHAPE.sub(
        HIDDEN, redaction.hidden(text[:TEXT_CHARS_MAX], secrets, is_cut=is_cut)
    )


def is_safe(text: str, secrets: frozenset[str]) -> bool:
    """Say whether the whole of ``text`` may be shown as it is."""
    return len(text) <= TEXT_CHARS_MAX and hidden(text, secrets) == text


# --- failures -------------------------------------------------------------------------------------

_NO_ANSWER: Final = frozenset({"APIConnectionError", "TransportError"})
"""Classes of openai and httpx for requests that no server has answered."""
REASON_MAX_CHARS: Final = 500
CHAIN_MAX: Final = 12
"""How many causes of an exception are looked at."""
_NOISE: Final = re.compile(
    r"^(?:(?:litellm\.)?\w*(?:Error|Exception|Timeout)(?: \w*Error)?(?:: | - ))+"
    r"|\.? Handle with `litellm\.\w+`\.$"
)
"""What litellm puts around a provider's own words: names of classes, and advice."""
_BODY: Final = re.compile(r"^b?(['\"]?)(\{.*\})\1$")
"""A whole answer in the place of its message: litellm does so for Anthropic and Google."""
_BARE: Final = re.compile(r"^Error code: \d{3}$")
"""What openai says, since its third version, of an answer that has no message in ``error``."""
_WORDED: Final = ("error", "message", "detail")
"""Members of a body that may hold the words of an error, or a body that does."""
BODY_DEPTH_MAX: Final = 4
"""How deep the words of a body are looked for."""


_NO_KEY: Final = re.compile(
    r"missing credentials|missing [\w ]*\bkey\b|no key is set|unable to locate credentials"
    r"|[A-Z0-9]_(?:KEY|TOKEN)\b[\w ,'\"`]{0,60}(?:is|are) (?:not set|missing|required)",
    re.IGNORECASE,
)
"""What openai and litellm say before they have asked anybody."""
_UNREAD: Final = frozenset(
    (
        *("ValidationError", "TypeError", "AttributeError", "KeyError", "IndexError"),
        *("OverflowError", "RecursionError"),
    )
)
"""Classes of what code raises at an answer of a shape that it does not expect."""
_UNREAD_NUMBER: Final = "integer string conversion"
"""What Python says of a whole number with too many digits, in a plain ``ValueError``."""
_UNCERTAIN: Final = frozenset({"OSError", "TransportError", "ClientError", "Timeout"})
"""Classes of what may end otherwise the next time, whatever was raised on the way."""
_ECHOES: Final = re.compile(
    r"\s*(?:Traceback \(most recent call last\)|,? ?Received chunk:|For further information visit)"
    r".*",
    re.DOTALL,
)
"""What litellm and pydantic put behind an error: paths of files, the answer, a page of the web."""
UNREAD_CHARS_MAX: Final = 160
"""Of the words of the code that could not read an answer."""
_NO_PROVIDER: Final = "LLM Provider NOT provided"
_BAD_ADDRESSES: Final = frozenset({"InvalidURL", "UnsupportedProtocol"})
_VARIABLE: Final = re.compile(r"\b(?!\w*_ADMIN_KEY\b)[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_(?:KEY|TOKEN)\b")
"""Names of keys; one of an administrator, which openai's library offers too, asks no model."""
_ADDRESS: Final = re.compile(r"_API_BASE$|_BASE_URL$|_API_VERSION$")
"""Of the variables that litellm says are missing, those that are no key."""


class RefusedAnswerError(Exception):
    """A provider's answer is more than is taken, or can't be read; the text says why."""


class NoServerError(Exception):
    """Nobody is at the address of a provider; the text names it and says why."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known of a failed request beside the failure: its model, and what hides secrets.

    ``missing`` are the variables that its key is looked for in, where it has none; ``has_key``:
    one was given with the request. ``heard`` is what a server has said, and ``conversation`` what
    it may have repeated of the request.
    """

    model: str = ""
    secrets: frozenset[str] = frozenset()
    missing: Sequence[str] = ()
    has_key: bool = False
    heard: Heard = field(default_factory=Heard)
    conversation: Sequence[str] = ()


@contextlib.contextmanager
def border(
    request: ModelRequest,
    missing: Callable[[ModelRequest], Sequence[str]] = lambda _request: (),
    heard: Heard | None = None,
) -> Iterator[None]:
    """Let nothing but ``ProviderError`` out; ``missing`` names the variables without a key.

    ``heard`` is what the transport notes of the request.
    """
    try:
        yield
    except ProviderError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a foreign library raises ends here
        secrets = secrets_of(request)
        # A traceback prints the causes too, so one that holds a secret is left out of it.
        leaks = not all(is_safe(_text(cause), secrets) for cause in _chain(error))
        has_key = bool(request.provider_opts.get("api_key"))
        asked = Asked(
            model=request.model,
            secrets=secrets,
            missing=() if has_key else missing(request),
            has_key=has_key,
            heard=heard or Heard(),
            conversation=[request.system, *(one.content for one in request.messages)],
        )
        raise translated(error, asked) from (None if leaks else error)


def translated(error: Exception, asked: Asked) -> ProviderError:
    """Return the contract's error for one of litellm's, without any secret in its text."""
    inner = getattr(error, "original_exception", None)  # what broke a stream is wrapped once
    reported = inner if isinstance(inner, Exception) else error
    causes = tuple(_chain(reported))
    plainly = _plainly(causes, asked)
    if plainly is not None:
        kind, reason = plainly
        return ProviderError(kind, hidden(reason, asked.secrets)[:REASON_MAX_CHARS])
    names = [cls.__name__ for cause in causes for cls in type(cause).__mro__]
    body = _words_of_body(causes)
    status = asked.heard.status or _status_of(causes, names)
    unread = _unread(causes, names) if status is None else None
    if unread is not None:
        words = f"{type(unread).__name__}: {_ECHOES.sub('', _text(unread)[:TEXT_CHARS_MAX])}"
        shown = hidden(" ".join(words.split()), asked.secrets)[:UNREAD_CHARS_MAX]
        return ProviderError(
            FailureKind.PERMANENT, f"the answer of {asked.model} could not be read: {shown}"
        )
    reason = reason_of(reported, asked.secrets, body)
    if status == HTTPStatus.UNAUTHORIZED and asked.missing:
        reason = f"{no_key(asked.model, asked.missing)} {reason}"
    if status == HTTPStatus.NOT_FOUND and asked.model not in reason:
        reason = f"{asked.model}: {reason}"
    return ProviderError(
        _kind(status, names, asked),
        reason[:REASON_MAX_CHARS],
        status=status,
        retry_after_s=retry_after_s(_headers_of(reported), time.time()),
    )


def _headers_of(reported: Exception) -> Mapping[str, str] | None:
    """Return the headers of a refusal: a litellm error has them, and so has ``AnsweredError``."""
    named = getattr(reported, "litellm_response_headers", None)
    return getattr(reported, "response_headers", None) if named is None else named


def _kind(status: int | None, names: Sequence[str], asked: Asked) -> FailureKind:
    """Return the kind of a failure: by what a server has said, and else by its classes.

    Clients choose classes by words too, so that none counts where a server has refused. What fails
    before anybody is asked fails the next time as well.
    """
    heard = asked.heard
    if heard.is_asked:
        words = heard.words(asked.conversation)
        return classify(status, () if heard.status else names, words)
    if status is None and _UNCERTAIN.isdisjoint(names):
        return FailureKind.PERMANENT
    return classify(status, names, "")


def _plainly(causes: Sequence[BaseException], asked: Asked) -> tuple[FailureKind, str] | None:
    """Return what kind a failure is that has a text of our own, and the text."""
    for cause in causes:
        if isinstance(cause, RefusedAnswerError):
            return FailureKind.PERMANENT, _text(cause)
        if isinstance(cause, NoServerError):
            return FailureKind.UNREACHABLE, _text(cause)
        if isinstance(cause, BadAddressError) or type(cause).__name__ in _BAD_ADDRESSES:
            why = hidden(_text(cause), asked.secrets)[: REASON_MAX_CHARS // 2]
            reported = f"the address of {asked.model} is no URL that can be asked: {why}"
            return FailureKind.PERMANENT, f"{reported}; api_base reads like http://host:port/path"
    text = _text(causes[0])[:TEXT_CHARS_MAX]
    if not asked.heard.is_asked and _NO_PROVIDER in text:
        reported = f"no provider is known by the name in model {asked.model!r}"
        return FailureKind.PERMANENT, f"{reported}; a model reads like openai:gpt-4o"
    if not asked.heard.is_asked and not asked.has_key and _NO_KEY.search(text):
        variables = [*dict.fromkeys(_VARIABLE.findall(text))]
        return FailureKind.PERMANENT, no_key(asked.model, variables or asked.missing)
    return _no_package(causes, asked)


def _no_package(causes: Sequence[BaseException], asked: Asked) -> tuple[FailureKind, str] | None:
    """Return what is said where a package that the provider needs is not installed."""
    found = next((one for one in causes if isinstance(one, ImportError)), None)
    if found is None:
        return None
    reported = f"{asked.model} needs a package that the daemon's Python does not have"
    return FailureKind.PERMANENT, f"{reported}: {_text(found)[:UNREAD_CHARS_MAX]}; install it there"


def _unread(causes: Sequence[BaseException], names: Sequence[str]) -> BaseException | None:
    """Return what a reader of the answer raised at its shape, if that is what is wrong."""
    if not _UNCERTAIN.isdisjoint(names):
        return None
    return next(
        (
            cause
            for cause in reversed(causes)
            if any(cls.__name__ in _UNREAD for cls in type(cause).__mro__)
            or (isinstance(cause, ValueError) and _UNREAD_NUMBER in _text(cause)[:TEXT_CHARS_MAX])
        ),
        None,
    )


def no_key(model: str, variables: Sequence[str]) -> str:
    """Return what is said where a model has no key; ``variables`` are where one is looked for."""
    keys = [one for one in variables if not _ADDRESS.search(one)]
    named = " or ".join(keys) or "the provider's variable"
    return (
        f"there is no key for {model}: set {named} where create_agent is called, or in the"
        " daemon's environment, or give create_agent(api_key=…)."
    )


def _text(error: BaseException) -> str:
    return foreign.bare_text_of(error, None)


def _status_of(causes: tuple[BaseException, ...], class_names: list[str]) -> int | None:
    # litellm gives some of its exceptions a status of their own; the vendor's is further down.
    statuses = [getattr(cause, "status_code", None) for cause in causes]
    status = next((one for one in reversed(statuses) if isinstance(one, int)), None)
    # It also calls what got no answer at all a 500.
    no_answer = status == HTTPStatus.INTERNAL_SERVER_ERROR and not _NO_ANSWER.isdisjoint(
        class_names
    )
    return None if no_answer else status


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error`` and its causes, as far as they belong to the same request."""
    at: BaseException | None = error
    for _ in range(CHAIN_MAX):
        if at is None or isinstance(at, ProviderError):
            return
        yield at
        at = at.__cause__ or at.__context__


def reason_of(error: Exception, secrets: frozenset[str], body: str = "") -> str:
    """Return one readable line: what kind of error, and in whose words; else those of ``body``."""
    # Cut first: patterns cost more than their text is long.
    text = _ECHOES.sub("", hidden(_text(error), secrets))
    words = _message_of(" ".join(_NOISE.sub("", text).split()))
    if body and _BARE.match(words):
        words = " ".join(hidden(body, secrets).split())
    line = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return hidden(line, secrets)[:REASON_MAX_CHARS]


def _words_of_body(causes: Sequence[BaseException]) -> str:
    """Return the vendor's words in the body that a cause carries; "" where none has any.

    They are not cut here: answers are, and ``hidden`` cuts with an eye on secrets.
    """
    bodies = (getattr(cause, "body", None) for cause in causes)
    return next((words for body in bodies if (words := words_of(body))), "")


def words_of(body: object, depth: int = 0) -> str:
    """Return the vendor's words in the body of an error; "" where it has none."""
    if isinstance(body, Mapping) and depth < BODY_DEPTH_MAX:
        reported = (words_of(body.get(name), depth + 1) for name in _WORDED)
        return next((words for words in reported if words), "" if depth else _shown(body))
    if isinstance(body, str):
        return body
    return _shown(body) if isinstance(body, list) else ""


def _shown(body: object) -> str:
    """Return a body that has no words as it came."""
    try:
        return msgspec.json.encode(body).decode() if body else ""
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return ""


def _message_of(words: str) -> str:
    """Return the message in a JSON body; what is none comes back as it is."""
    found = _BODY.match(words)
    if found is None:
        return words
    try:
        # Python writes the quotes of an answer so, and JSON never does.
        return msgspec.json.decode(found[2].replace("\\'", "'"), type=_Body).error.message
    except (msgspec.DecodeError, UnicodeEncodeError):
        return words


class _Error(msgspec.Struct):
    message: str


class _Body(msgspec.Struct):
    error: _Error


def retry_after_s(headers: Mapping[str, str] | None, now_s: float) -> float | None:
    """Return the seconds that a ``retry-after`` header asks for; ``now_s`` is the wall clock.

    The header holds seconds or an HTTP date (RFC 9110, 10.2.3); what is neither counts as absent.
    """
    value = (headers or {}).get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        seconds = _date_s(value) - now_s
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _date_s(value: str) -> float:
    parsed = email.utils.parsedate_tz(value)
    try:
        return math.nan if parsed is None else email.utils.mktime_tz(parsed)
    except (ValueError, OverflowError):  # of a year that no clock has
        return math.nan
