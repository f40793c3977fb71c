"""Where a text repeats a secret in another shape, or a part of it.

Both are compared as their characters alone: without white space and case, and without the escapes
of URLs, HTML, JSON and Python, however often they were put on. A run of ``RUN_CHARS`` characters of
a long secret is hidden too, where the secret is no phrase and the run no word. Short secrets and
words are left to who looks for them as they are. The cost is bounded by the sizes of both.
"""

import functools
import html
import re
import sys
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

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
    """Yield where ``text`` repeats any of ``secrets``, or a run of one."""
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
