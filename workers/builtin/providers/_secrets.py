"""What no text may show: credentials are known by their values, whatever they are called.

A value is a secret where it was given as one: in a header, under an option or a variable of the
environment with a telling name, or as the user of an address. It is hidden in every form in which
a server may echo it. ``hidden`` is the one function that texts of failures pass; what it costs is
bounded by the size of the text and by the number of the secrets.
"""

import base64
import binascii
import html
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote, quote_plus, unquote

from cmdc_runtime.extensions.provider import ModelRequest

TEXT_CHARS_MAX: Final = 8_192
"""Of a text that is looked through; the rest of it is cut off before anything else is done."""
SECRETS_MAX: Final = 256
"""Values that are hidden; the options come first, then the environment."""
NAMED_CHARS_MIN: Final = 6
"""Of a value with a telling name. Shorter ones are placeholders (``none``, ``x``): hiding them
would blank out plain words."""
HEADER_CHARS_MIN: Final = 8
"""Of the value of any other header."""
STRINGS_MAX: Final = 1_000
"""Texts of the options that are looked at."""
HIDDEN: Final = "[hidden]"

_SECRET_NAME: Final = re.compile(
    r"key|token|secret|password|passwd|credential|authorization|cookie|signature", re.IGNORECASE
)
_HEADERS: Final = re.compile(r"headers$", re.IGNORECASE)
_PLAIN_HEADERS: Final = frozenset(
    (
        *("accept", "accept-charset", "accept-encoding", "accept-language", "cache-control"),
        *("connection", "content-encoding", "content-language", "content-length", "content-type"),
        *("anthropic-beta", "anthropic-version", "openai-beta", "host", "origin", "referer"),
        *("http-referer", "x-title", "user-agent"),
    )
)
"""Headers that say nothing which anybody would hide."""
_PLAIN_VALUES: Final = frozenset(
    ("application/json", "text/event-stream", "text/plain", "keep-alive", "no-cache", "undefined")
)
_SCHEME: Final = re.compile(r"^(?:Bearer|Basic|Token|ApiKey|Digest)\s+(.+)$", re.IGNORECASE)
_USER: Final = re.compile(r"://([^/?#\s@]{1,4096})@")
_SECRET_SHAPE: Final = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|key)[-_][\w*.-]{6,}"  # prefixed keys, also when masked with stars
    r"|\bAIza[\w-]{20,}"
    r"|\bAKIA[A-Z0-9]{12,}"
    r"|\bBearer\s+[^\s'\",]+"
    r"|(?<=[?&]key=)[^&\s'\"]+",
    re.IGNORECASE,
)


def secrets_of(request: ModelRequest) -> frozenset[str]:
    """Return the values that no text may show, in every form that they may come in.

    Backslashes are left out of them: see ``hidden``.
    """
    given = [*_strings((), request.provider_opts)]
    told = [value for path, text in given for value in _told(path, text)]
    told += [
        value for name, text in os.environ.items() for value in _told((name,), text, is_env=True)
    ]
    values = dict.fromkeys(told)
    return frozenset(form for value in [*values][:SECRETS_MAX] for form in _forms(value))


def hidden(text: str, secrets: frozenset[str]) -> str:
    """Return ``text`` without ``secrets`` and without what looks like a key.

    It has ``TEXT_CHARS_MAX`` characters at most, and does not end in the beginning of a secret.
    """
    is_cut, text = len(text) > TEXT_CHARS_MAX, text[:TEXT_CHARS_MAX]
    # Who quotes a text that is quoted already doubles the backslashes in it, so none counts.
    places = [at for at, char in enumerate(text) if char != "\\"]
    bare = text.replace("\\", "")
    spans = [span for secret in secrets for span in _found(bare, secret)]
    if is_cut:
        begun = max((_begun(bare, secret) for secret in secrets), default=0)
        spans += [(len(bare) - begun, len(bare))] if begun else []
    shown, done = list[str](), -1
    for start, end in sorted(spans):
        if places[start] > done:
            shown += [text[max(done, 0) : places[start]], HIDDEN]
        done = max(done, places[end - 1] + 1)
    return _SECRET_SHAPE.sub(HIDDEN, "".join((*shown, text[max(done, 0) :])))


def is_safe(text: str, secrets: frozenset[str]) -> bool:
    """Say whether the whole of ``text`` may be shown as it is."""
    return len(text) <= TEXT_CHARS_MAX and hidden(text, secrets) == text


def _strings(path: tuple[str, ...], options: object) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield every text in ``options`` with the names of all that it lies in."""
    left: list[tuple[tuple[str, ...], object]] = [(path, options)]
    seen = 0
    while left and seen < STRINGS_MAX:
        path, value = left.pop()
        seen += 1
        if isinstance(value, str):
            yield path, value
        elif isinstance(value, bytes):
            yield path, value.decode(errors="replace")
        elif isinstance(value, Mapping):
            left += [((*path[-2:], str(key)), inner) for key, inner in value.items()]
        elif isinstance(value, list | tuple | set | frozenset):
            # Headers may come as pairs, too: the first of a pair is the name of the second.
            is_pair = len(value) == len(("name", "value")) and _is_header(path)
            name = [str(next(iter(value)))] if is_pair else []
            left += [((*path[-2:], *name), inner) for inner in value]


def _is_header(path: tuple[str, ...]) -> bool:
    return any(_HEADERS.search(name) for name in path)


def _told(path: tuple[str, ...], text: str, *, is_env: bool = False) -> Iterator[str]:
    """Yield what of a text was given as a secret; ``path`` is what it lies in."""
    name = path[-1].lower() if path else ""
    yield from (part for found in _USER.finditer(text) for part in _user_parts(found[1]))
    is_named = any(_SECRET_NAME.search(part) for part in path)
    is_header = not is_env and _is_header(path) and name not in _PLAIN_HEADERS
    if is_named:
        least = NAMED_CHARS_MIN
    elif is_header:
        least = HEADER_CHARS_MIN
    else:
        return
    found = _SCHEME.match(text)
    for value in (text, text.strip(), *_credentials(found[1] if found else "")):
        if len(value) >= least and value.lower() not in _PLAIN_VALUES and value.lower() != name:
            yield value


def _credentials(value: str) -> tuple[str, ...]:
    """Return what follows the scheme of an Authorization, and what it says in base64."""
    try:
        decoded = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        return (value,)
    return (value, *_user_parts(decoded))


def _user_parts(user: str) -> tuple[str, ...]:
    """Return ``name:password`` and the password, also without their percent signs."""
    _, _, password = user.partition(":")
    parts = (user, password, unquote(user), unquote(password))
    return tuple(part for part in parts if len(part) >= NAMED_CHARS_MIN)


def _forms(value: str) -> Iterable[str]:
    """Return a value as a server may write it."""
    raw = value.encode(errors="replace")
    encoded = base64.b64encode(raw).decode().rstrip("=")
    forms = {
        value,
        quote(value, safe="", errors="replace"),
        quote(value, errors="replace"),
        quote_plus(value, errors="replace"),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        html.escape(value),
        encoded,
        encoded.replace("+", "-").replace("/", "_"),
    }
    return {form.replace("\\", "") for form in forms}


def _found(text: str, secret: str) -> Iterator[tuple[int, int]]:
    """Yield where ``secret`` begins and ends in ``text``."""
    at = text.find(secret) if secret else -1
    while at >= 0:
        yield at, at + len(secret)
        at = text.find(secret, at + len(secret))


def _begun(text: str, secret: str) -> int:
    """Return how many characters at the end of ``text`` are the beginning of ``secret``."""
    most = min(len(secret) - 1, len(text))
    sizes = range(most, 0, -1)
    return next((size for size in sizes if text.endswith(secret[:size])), 0)
