"""Takes credentials out of texts: they are known by their values, whatever they are called.

``cmdc_runtime.discretion`` says which texts among options are secrets. Each is hidden in every form
in which somebody may repeat it. What it costs is bounded by the size of the text and by the number
of the secrets.
"""

import base64
import contextlib
import html
import itertools
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote, quote_plus

import msgspec

from cmdc_runtime.discretion import HIDDEN, SECRET_NAME, is_header, of_address, told, values_of
from cmdc_runtime.likeness import ALIKE_CHARS_MIN, spans_alike

SECRETS_MAX: Final = 512
"""Values that are hidden; where there are more, nothing of a text is shown."""
NAMED_MAX: Final = 256
"""Of these, values that are known by their names alone."""
STRINGS_MAX: Final = 10_000
"""Values of the options that are looked at; where there are more, nothing of a text is shown."""
LOOKED_CHARS_MAX: Final = 64 * 1024
"""Of a text that is looked at for all shapes of a secret; of a longer one both ends are, and what
stands between them for secrets as a whole."""
ALL: Final = ""
"""Stands among secrets for whatever a text says."""
_BELOW: Final = ("opts", "headers")
"""How names end of what holds options of a provider or headers, wherever they are given."""


def secrets_of_options(given: object) -> set[str]:
    """Return the secrets among the options of a provider; ``ALL`` where they are too many."""
    found: dict[str, None] = {}
    strings = _strings(given)
    for path, text in itertools.islice(strings, STRINGS_MAX):
        found |= dict.fromkeys(told(path, text))
    is_all = len(found) > SECRETS_MAX or next(strings, None) is not None
    return {ALL} if is_all else {*found}


def secrets_by_name(given: object) -> set[str]:
    """Return the secrets among other options than a provider's.

    They are what has a telling name, what lies in headers or in options that are for a provider
    after all, and what is secret in addresses. There are ``NAMED_MAX`` of them at most: such
    options may be large, and mean nothing.
    """
    found: dict[str, None] = {}
    for path, text in itertools.islice(_strings(given), STRINGS_MAX):
        is_named = bool(path) and SECRET_NAME.search(path[-1]) is not None
        is_secret = is_named or any(name.lower().endswith(_BELOW) for name in path)
        found |= dict.fromkeys(told(path, text) if is_secret else of_address(text))
    return {*itertools.islice(found, NAMED_MAX)}


def secrets_of_environment(environment: Mapping[str, str]) -> set[str]:
    """Return the values of variables with a telling name, and what is secret in addresses."""
    found: set[str] = set()
    for name, text in environment.items():
        if SECRET_NAME.search(name):
            found |= {*values_of(text, name)}
        found |= {*of_address(text)}
    return found


def forms_of(values: Iterable[str]) -> frozenset[str]:
    """Return secrets in every form that they may come in, ``ALL`` where they are too many.

    Backslashes are left out of them: see ``hidden``.
    """
    kept = {*values}
    if ALL in kept or len(kept) > SECRETS_MAX:
        return frozenset({ALL})
    return frozenset(form for value in kept for form in _forms(value))


def hidden(text: str, secrets: frozenset[str], *, is_cut: bool = False) -> str:
    """Return ``text`` without ``secrets``, which ``forms_of`` has made.

    One that ``is_cut`` does not end in the beginning of a secret.
    """
    if ALL in secrets:
        return HIDDEN
    if not secrets:
        return text
    shown, done = list[str](), 0
    for start, end in sorted(_spans(text, secrets, is_cut=is_cut)):
        if start > done or not shown:
            shown += [text[done:start], HIDDEN]
        done = max(done, end)
    return "".join((*shown, text[done:]))


def _spans(text: str, secrets: frozenset[str], *, is_cut: bool) -> Iterator[tuple[int, int]]:
    """Yield where a text repeats a secret."""
    if len(text) <= LOOKED_CHARS_MAX:
        yield from _close_spans(text, secrets, is_cut=is_cut)
        return
    for secret in secrets:
        yield from _found(text, secret)
    half = LOOKED_CHARS_MAX // 2
    yield from _close_spans(text[:half], secrets, is_cut=False)
    behind = len(text) - half
    for start, end in _close_spans(text[behind:], secrets, is_cut=is_cut):
        yield behind + start, behind + end


def _close_spans(text: str, secrets: frozenset[str], *, is_cut: bool) -> Iterator[tuple[int, int]]:
    # Who quotes a text that is quoted already doubles the backslashes in it, so none counts.
    is_plain = "\\" not in text
    places = range(len(text)) if is_plain else [i for i, char in enumerate(text) if char != "\\"]
    bare = text.replace("\\", "")
    found = [span for secret in secrets for span in _found(bare, secret)]
    if is_cut:
        begun = max((_begun(bare, secret) for secret in secrets), default=0)
        found += [(len(bare) - begun, len(bare))] if begun else []
    yield from ((places[start], places[end - 1] + 1) for start, end in found)
    yield from spans_alike(text, secrets)


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
