"""Takes credentials out of texts: they are known by their values, whatever they are called.

``cmdc_runtime.redaction`` says which texts among options are secrets. Each is hidden in every form
in which somebody may repeat it. What it costs is bounded by the size of the text and by the number
of the secrets.

A text may also repeat a secret in another shape, or a part of it: see ``spans_alike``.
"""

import base64
import contextlib
import functools
import html
import itertools
import json
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote, quote_plus, unquote

import msgspec

from cmdc_runtime.redaction import HIDDEN, SECRET_NAME, is_header, of_address, secrets_in, values_of

# --- in another shape, or in part -----------------------------------------------------------------

ALIKE_CHARS_MIN: Final = 8
"""Of a secret that is known by its likeness."""
LONG_CHARS_MIN: Final = 20
"""Of a secret that is known by a part of it."""
RUN_CHARS: Final = 8
"""Of such a part."""
RUNS_MAX: Final = 200_000
"""Of all secrets together: beyond it, secrets are known as a whole only."""
_KINDS_MIN: Final = 4
"""Of different characters in a run: others are rulers and zeros."""
_ESCAPE: Final = re.compile(
    r"\\+u([0-9a-f]{4})|\\+x([0-9a-f]{2})|%(?:25)*([0-9a-f]{2})"
    r"|&(?:amp;)*#(?:x([0-9a-f]{1,6})|([0-9]{1,7}));|&(?:amp;)*([a-z]{2,8};)"
    r"|\\+",
    re.IGNORECASE,
)
_SPACE: Final = re.compile(r"\s+|\\+[nrt]")
_SIGNS: Final = re.compile(r"[\W_]")
_PHRASE: Final = re.compile(r"\s|://|^[/~.]")
"""What phrases, addresses and paths have in them, and keys do not."""


def spans_alike(text: str, secrets: frozenset[str]) -> Iterator[tuple[int, int]]:
    """Yield where ``text`` repeats any of ``secrets``, or a run of one.

    Both are compared as their characters alone: without white space and case, and without the
    escapes of URLs, HTML, JSON and Python, however often they were put on. A run of ``RUN_CHARS``
    characters of a long secret is hidden too, where the secret is no phrase and the run no word.
    Short secrets and words are left to who looks for them as they are. The cost is bounded by the
    sizes of both.
    """
    wholes, runs = _needles(secrets)
    if not wholes or not _may_have(text, wholes, runs):
        return
    chars, places = _bare(text)
    lowered = chars.lower()
    for whole in wholes:
        at = lowered.find(whole)
        while at >= 0:
            yield places[at][0], places[at + len(whole) - 1][1]
            at = lowered.find(whole, at + len(whole))
    for at in range(len(lowered) - RUN_CHARS + 1 if runs else 0):
        if lowered[at : at + RUN_CHARS] in runs:
            yield places[at][0], places[at + RUN_CHARS - 1][1]


def _may_have(text: str, wholes: frozenset[str], runs: frozenset[str]) -> bool:
    """Say whether a text has anything to be found; most have not, and cost less so."""
    if _ESCAPE.search(text):
        return True
    lowered = _as_bytes("".join(text.split())).lower()
    found = (lowered[at : at + RUN_CHARS] for at in range(len(lowered) - RUN_CHARS + 1))
    return any(whole in lowered for whole in wholes) or not runs.isdisjoint(found if runs else ())


@functools.lru_cache(maxsize=4)
def _needles(secrets: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return what is looked for: whole secrets, and runs of the long ones."""
    # A secret may have in it what reads as an escape, and a text may have that or what it means.
    bare = {_as_bytes("".join(secret.split())): secret for secret in secrets}
    bare |= {_bare(secret)[0]: secret for secret in secrets}
    alike = {chars: one for chars, one in bare.items() if _is_telling(one) and chars[3:]}
    runs = set[str]()
    for chars, secret in alike.items():
        is_long = LONG_CHARS_MIN <= len(chars) <= RUNS_MAX - len(runs)
        if is_long and _is_random(chars) and _PHRASE.search(unquote(secret)) is None:
            runs |= set(_runs(chars))
    return frozenset(chars.lower() for chars in alike), frozenset(runs)


def _is_telling(secret: str) -> bool:
    chars = "".join(secret.split())
    return len(chars) >= ALIKE_CHARS_MIN and not chars.isalpha()


def _is_random(chars: str) -> bool:
    return any(map(str.isdigit, chars)) and any(map(str.isalpha, chars))


def _runs(chars: str) -> Iterator[str]:
    for at in range(len(chars) - RUN_CHARS + 1):
        run = chars[at : at + RUN_CHARS]
        letters = _SIGNS.sub("", run)
        is_word = letters.isalpha() and (letters[1:].islower() or letters.isupper())
        if not is_word and len(set(run)) >= _KINDS_MIN:
            yield run.lower()


def _bare(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return the bytes of a text as characters, and where each begins and ends in it."""
    # White space goes first: it may stand within an escape.
    kept, done = list[int](), 0
    for space in _SPACE.finditer(text):
        kept += range(done, space.start())
        done = space.end()
    kept += range(done, len(text))
    text = "".join([text[at] for at in kept])
    chars, places, done = list[str](), list[tuple[int, int]](), 0
    for found in (*_ESCAPE.finditer(text), None):
        upto = len(text) if found is None else found.start()
        pieces = [(_as_bytes(text[at]), at, at + 1) for at in range(done, upto)]
        if found is not None:
            pieces.append((_meant(found), found.start(), found.end()))
            done = found.end()
        for piece, start, end in pieces:
            if not (piece.isascii() and piece.isspace()):
                chars.append(piece)
                places += [(kept[start], kept[end - 1] + 1)] * len(piece)
    return "".join(chars), places


def _meant(found: re.Match[str]) -> str:
    """Return what an escape stands for, as ``_bare`` writes it."""
    long, short, byte, hexed, number, name = found.groups()
    if byte:
        return chr(int(byte, 16))
    code = int(long or short or hexed or "0", 16) or int(number or "0")
    meant = html.unescape(f"&{name}") if name else chr(code) if 0 < code <= sys.maxunicode else ""
    return _as_bytes("".join(meant.split()))


def _as_bytes(text: str) -> str:
    return text if text.isascii() else text.encode(errors="replace").decode("latin-1")


# --- as they are ----------------------------------------------------------------------------------

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
WORDS_OF_OURS: Final = ("via", "litellm")
"""An option of a provider, and its value, that say nothing of anybody's: the name of a library."""
_BELOW: Final = ("opts", "headers")
"""How names end of what holds options of a provider or headers, wherever they are given."""


def secrets_of_options(given: object) -> set[str]:
    """Return the secrets among the options of a provider; ``ALL`` where they are too many."""
    found: dict[str, None] = {}
    strings = _strings(given)
    for path, text in itertools.islice(strings, STRINGS_MAX):
        if (*path, text) != WORDS_OF_OURS:
            found |= dict.fromkeys(secrets_in(path, text))
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
        found |= dict.fromkeys(secrets_in(path, text) if is_secret else of_address(text))
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
