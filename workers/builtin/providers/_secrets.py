"""What no text may show: credentials are known by their values, whatever they are called.

``cmdc_runtime.discretion`` says which texts in the options of a request, nested ones included, are
secrets. So are the variables of the environment with a telling name, and the same of the options
that were in force before. A secret is hidden in every form in
which a server may echo it. ``hidden`` is the one function that texts of failures pass; what it
costs is bounded by the size of the text and by the number of the secrets.
"""

import base64
import contextlib
import html
import itertools
import json
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote, quote_plus

import msgspec

from cmdc_runtime.discretion import (
    HIDDEN,
    SECRET_NAME,
    is_header,
    of_address,
    told,
    values_of,
)
from cmdc_runtime.extensions.provider import ModelRequest
from workers.builtin.providers._error_texts import TEXT_CHARS_MAX
from workers.builtin.providers._likeness import ALIKE_CHARS_MIN, spans_alike

SECRETS_MAX: Final = 512
"""Values that are hidden; where there are more, nothing of a text is shown."""
STRINGS_MAX: Final = 10_000
"""Values of the options that are looked at; where there are more, nothing of a text is shown."""
ALL: Final = ""
"""Stands among secrets for whatever a text says."""
_SECRET_SHAPE: Final = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|key)[-_][\w*./+=~-]{6,}"  # also when masked with stars
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
        found |= dict.fromkeys(told(path, text))
    for name, text in os.environ.items():
        if SECRET_NAME.search(name):
            found |= dict.fromkeys(values_of(text, name))
        found |= dict.fromkeys(of_address(text))
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
    found = [span for secret in secrets for span in _found(bare, secret)]
    if is_cut:
        begun = max((_begun(bare, secret) for secret in secrets), default=0)
        found += [(len(bare) - begun, len(bare))] if begun else []
    spans = [(places[start], places[end - 1] + 1) for start, end in found]
    shown, done = list[str](), -1
    for start, end in sorted((*spans, *spans_alike(text, secrets))):
        if start > done:
            shown += [text[max(done, 0) : start], HIDDEN]
        done = max(done, end)
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
            is_pair = len(value) == len(("name", "value")) and is_header(path)
            name = [str(next(iter(value)))] if is_pair else []
            left += (((*path[-2:], *name), inner) for inner in value)
        elif isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            with contextlib.suppress(msgspec.DecodeError, RecursionError):
                left.append((path, msgspec.json.decode(value.encode(errors="replace"))))
        yield path, value if isinstance(value, str) else ""


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
    if len(value) >= ALIKE_CHARS_MIN:
        forms |= {raw.hex(), *_cores(raw)}
    return {form.replace("\\", "") for form in forms}


def _cores(raw: bytes) -> Iterator[str]:
    """Yield what base64 makes of ``raw`` behind any other bytes, such as ``Bearer `` or a user."""
    for before in (1, 2):
        encoded = base64.b64encode(bytes(before) + raw).decode()
        core = encoded[before + 1 : (before + len(raw)) * 8 // 6]
        yield from (core, core.replace("+", "-").replace("/", "_"))


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
