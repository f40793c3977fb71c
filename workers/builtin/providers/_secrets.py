"""What no text may show: credentials are known by their values, whatever they are called.

Every text in the options of a request, nested ones included, is a secret unless it is known to be
none: by the name of its option (``_PLAIN_OPTIONS``), of its header (``_PLAIN_HEADERS``), or as one
of the words that options choose from (``_PLAIN_VALUES``). So are the variables of the environment
with a telling name, the users of addresses, and the same of the options that were in force before.
To let an option be read in errors, add its name to the table. A secret is hidden in every form in
which a server may echo it. ``hidden`` is the one function that texts of failures pass; what it
costs is bounded by the size of the text and by the number of the secrets.
"""

import base64
import binascii
import contextlib
import html
import itertools
import json
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote, quote_plus, unquote, unquote_plus

import msgspec

from cmdc_runtime.extensions.provider import ModelRequest

TEXT_CHARS_MAX: Final = 8_192
"""Of a text that is looked through; the rest of it is cut off before anything else is done."""
SECRETS_MAX: Final = 512
"""Values that are hidden; where there are more, nothing of a text is shown."""
SECRET_CHARS_MIN: Final = 4
"""Of a value that is hidden, wherever it stands. Fewer characters are no credential, since anybody
guesses them, and to hide them would take syllables out of plain words."""
SECRET_CHARS_MAX: Final = 4_096
"""Of a value that is hidden; a longer one is a document, and no service has such a credential."""
STRINGS_MAX: Final = 10_000
"""Values of the options that are looked at; where there are more, nothing of a text is shown."""
ALL: Final = ""
"""Stands among secrets for whatever a text says."""
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
    (
        *("application/json", "text/event-stream", "text/plain", "keep-alive", "no-cache"),
        *("none", "null", "undefined", "empty", "true", "false", "auto", "default", "required"),
        *("enabled", "disabled", "adaptive", "minimal", "medium", "high", "xhigh", "ephemeral"),
        *("text", "json", "json_object", "json_schema", "object", "string", "number", "integer"),
        *("boolean", "array", "function", "flex", "priority", "standard", "verbose", "concise"),
    )
)
"""Words that options choose from, and what stands where there is no key."""
_PLAIN_OPTIONS: Final = frozenset(
    (
        *("model", "base_model", "custom_llm_provider", "api_version", "api_type", "timeout"),
        *("api_base", "base_url"),  # but for the user and the query in them
        *("reasoning_effort", "effort", "verbosity", "service_tier", "tool_choice", "stop"),
        *("stop_sequences", "modalities", "response_format", "json_schema", "type", "role"),
        *("region_name", "aws_region_name", "vertex_location", "location", "truncation"),
        *("drop_params", "additional_drop_params", "allowed_openai_params", "summary", "format"),
        *("provider", "order", "only", "ignore", "sort", "quantizations", "transforms"),
        *("prompt_cache_retention", "ttl", "search_context_size", "voice", "detail"),
    )
)
"""Options that say nothing which anybody would hide, wherever they lie."""
_SCHEME: Final = re.compile(r"^(?:Bearer|Basic|Token|ApiKey|Digest)\s+(.+)$", re.IGNORECASE)
_USER: Final = re.compile(r"://([^/?#\s@]{1,4096})@")
_QUERY: Final = re.compile(r"://[^\s?#]{0,4096}\?([^\s#]{1,4096})")
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
    given = (request.provider_opts, *request.former_opts)
    found: dict[str, None] = {}
    strings = _strings(given)
    for path, text in itertools.islice(strings, STRINGS_MAX):
        found |= dict.fromkeys(_told(path, text))
    for name, text in os.environ.items():
        if _SECRET_NAME.search(name):
            found |= dict.fromkeys(_values_of(text, name))
        found |= dict.fromkeys(_of_address(text))
    if len(found) > SECRETS_MAX or next(strings, None) is not None:
        return frozenset({ALL})
    # The model's name is told everywhere; a key that is a part of it is a placeholder.
    return frozenset(
        form for value in found if value not in request.model for form in _forms(value)
    )


def hidden(text: str, secrets: frozenset[str]) -> str:
    """Return ``text`` without ``secrets`` and without what looks like a key.

    It has ``TEXT_CHARS_MAX`` characters at most, and does not end in the beginning of a secret.
    """
    if ALL in secrets:
        return HIDDEN
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


def _strings(given: object) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield every text in ``given`` with the names of all that it lies in; others as "".

    Text that is JSON itself, as the file of a service account, is looked into as well.
    """
    left: deque[tuple[tuple[str, ...], object]] = deque([((), given)])
    while left:
        path, value = left.popleft()
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        if isinstance(value, Mapping):
            left += (((*path[-2:], str(key)), inner) for key, inner in value.items())
        elif isinstance(value, list | tuple | set | frozenset):
            # Headers may come as pairs, too: the first of a pair is the name of the second.
            is_pair = len(value) == len(("name", "value")) and _is_header(path)
            name = [str(next(iter(value)))] if is_pair else []
            left += (((*path[-2:], *name), inner) for inner in value)
        elif isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            with contextlib.suppress(msgspec.DecodeError, RecursionError):
                left.append((path, msgspec.json.decode(value.encode(errors="replace"))))
        yield path, value if isinstance(value, str) else ""


def _is_header(path: tuple[str, ...]) -> bool:
    return any(_HEADERS.search(name) for name in path)


def _told(path: tuple[str, ...], text: str) -> Iterator[str]:
    """Yield what of a text of the options is a secret; ``path`` is what it lies in."""
    name = path[-1].lower() if path else ""
    yield from _of_address(text)
    plain = _PLAIN_HEADERS if _is_header(path) else _PLAIN_OPTIONS
    if name not in plain:
        yield from _values_of(text, name)


def _values_of(text: str, name: str) -> Iterator[str]:
    """Yield the values that a text of the option or variable ``name`` gives."""
    found = _SCHEME.match(text)
    for value in (text, text.strip(), *_credentials(found[1] if found else "")):
        is_plain = value.lower() in _PLAIN_VALUES or value.lower() == name.lower()
        if SECRET_CHARS_MIN <= len(value) <= SECRET_CHARS_MAX and not is_plain:
            yield value


def _of_address(text: str) -> Iterator[str]:
    """Yield the users in the addresses of a text, and what is asked of them by a telling name."""
    if "://" not in text:
        return
    for found in _USER.finditer(text):
        yield from _user_parts(found[1])
    fields = (field for found in _QUERY.finditer(text) for field in found[1].split("&"))
    for name, _, value in (field.partition("=") for field in fields):
        if _SECRET_NAME.search(name):
            for form in (value, unquote(value), unquote_plus(value)):
                yield from _values_of(form, name)


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
    return tuple(part for part in parts if len(part) >= SECRET_CHARS_MIN)


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
