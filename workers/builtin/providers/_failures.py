"""What goes wrong at a model's provider, in the words of the contract and without any secret.

Everything that litellm raises leaves as a ``ProviderError``: its kind is decided by ``classify``,
this module finds out what there is to decide by. Nothing here imports litellm; names are enough.
"""

import contextlib
import email.utils
import math
import os
import re
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from cmdc_runtime.extensions.provider import ModelRequest, ProviderError, classify

_NO_ANSWER: Final = frozenset({"APIConnectionError", "TransportError"})
"""Classes of openai and httpx for requests that no server has answered."""
REASON_MAX_CHARS: Final = 500
CHAIN_MAX: Final = 12
"""How many causes of an exception are looked at."""
_SECRET_MIN_CHARS: Final = 6
"""Shorter values are placeholders (``none``, ``x``); hiding them would blank out plain words."""

_SECRET_NAME: Final = re.compile(
    r"key|token|secret|password|credential|authorization|cookie", re.IGNORECASE
)
_SECRET_SHAPE: Final = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|key)[-_][\w*.-]{6,}"  # prefixed keys, also when masked with stars
    r"|\bAIza[\w-]{20,}"
    r"|\bAKIA[A-Z0-9]{12,}"
    r"|\bBearer\s+[^\s'\",]+"
    r"|(?<=[?&]key=)[^&\s'\"]+",
    re.IGNORECASE,
)
_HIDDEN: Final = "[hidden]"
_NOISE: Final = re.compile(
    r"^(?:(?:litellm\.)?\w*(?:Error|Exception|Timeout)(?: \w*Error)?(?:: | - ))+"
    r"|\.? Handle with `litellm\.\w+`\.$"
)
"""What litellm puts around a provider's own words: names of classes, and advice."""
_BODY: Final = re.compile(r"^b?(['\"]?)(\{.*\})\1$")
"""A whole answer in the place of its message: litellm does so for Anthropic and Google."""


@contextlib.contextmanager
def border(request: ModelRequest) -> Iterator[None]:
    """Let nothing but ``ProviderError`` out."""
    try:
        yield
    except ProviderError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a foreign library raises ends here
        secrets = secrets_of(request)
        texts = [str(cause) for cause in _chain(error)]
        # A traceback prints the causes too, so one that holds a secret is left out of it.
        leaks = any(hidden(text, secrets) != text for text in texts)
        raise translated(error, secrets) from (None if leaks else error)


def translated(error: Exception, secrets: frozenset[str]) -> ProviderError:
    """Return the contract's error for one of litellm's; ``secrets`` are kept out of its text."""
    inner = getattr(error, "original_exception", None)  # what broke a stream is wrapped once
    told = inner if isinstance(inner, Exception) else error
    causes = tuple(_chain(told))
    names = [cls.__name__ for cause in causes for cls in type(cause).__mro__]
    # What a provider names by a code, it does not always say in words.
    codes = [getattr(cause, name, None) for cause in causes for name in ("code", "type")]
    text = " ".join([str(told), *(code for code in codes if isinstance(code, str))])
    status = _status_of(causes, names)
    return ProviderError(
        classify(status, names, text),
        reason_of(told, secrets),
        status=status,
        retry_after_s=retry_after_s(getattr(told, "litellm_response_headers", None), time.time()),
    )


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


def reason_of(error: Exception, secrets: frozenset[str]) -> str:
    """Return one readable line: what kind of error, and in whose words."""
    words = _message_of(" ".join(_NOISE.sub("", str(error)).split()))
    line = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return hidden(line, secrets)[:REASON_MAX_CHARS]


def _message_of(words: str) -> str:
    """Return the message in a JSON body; what is none comes back as it is."""
    found = _BODY.match(words)
    if found is None:
        return words
    try:
        return msgspec.json.decode(found[2], type=_Body).error.message
    except (msgspec.DecodeError, UnicodeEncodeError):
        return words


class _Error(msgspec.Struct):
    message: str


class _Body(msgspec.Struct):
    error: _Error


def secrets_of(request: ModelRequest) -> frozenset[str]:
    """Return the values that no text may show: those that the options or environment call so."""
    named = [*_strings("", request.provider_opts), *os.environ.items()]
    return frozenset(
        value
        for name, value in named
        if _SECRET_NAME.search(name) and len(value) >= _SECRET_MIN_CHARS
    )


def _strings(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield every string in ``value`` with the names of all that it lies in."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _strings(f"{name}.{key}", inner)


def hidden(text: str, secrets: frozenset[str]) -> str:
    """Return ``text`` without ``secrets``, longest first, and without what looks like a key."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return _SECRET_SHAPE.sub(_HIDDEN, text)


def retry_after_s(headers: Mapping[str, str] | None, now_s: float) -> float | None:
    """Return the seconds that a ``retry-after`` header asks for; ``now_s`` is the wall clock.

    The header holds seconds or an HTTP date (RFC 9110, 10.2.3); what is neither counts as absent.
    """
    value = (headers or {}).get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        parsed = email.utils.parsedate_tz(value)
        seconds = math.nan if parsed is None else email.utils.mktime_tz(parsed) - now_s
    return max(seconds, 0.0) if math.isfinite(seconds) else None
