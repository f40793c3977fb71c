r"""A list of words as one regular expression, of which the longest word at a place matches.

Words that begin alike share their beginning, so that a place in a text is compared with the
letters that can follow there, and not with each word: ``a(?:b|cd?)`` is ab, ac, acd.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, TypeAlias

import regex

SHARED_MAX: Final = 8
"""Letters up to which beginnings are shared; by then few words are left that are alike."""
_GAP: Final = r"\s+"

_Signs: TypeAlias = tuple[str, ...]
"""What is left of a word, each letter as a pattern; empty at its end."""


def pattern_of(phrases: Iterable[Sequence[str]]) -> str:
    """Return a pattern of phrases, each given as its words; empty where there are none.

    Between words may be any white space.
    """
    return _alternatives(sorted({_signs(words) for words in phrases if words}), SHARED_MAX)


def _signs(words: Sequence[str]) -> _Signs:
    signs: list[str] = []
    for word in words:
        signs += [*((_GAP,) if signs else ()), *map(regex.escape, word)]
    return tuple(signs)


def _alternatives(phrases: Sequence[_Signs], shared: int) -> str:
    """Return a pattern of any of these; those that begin alike stand together."""
    if shared == 0:
        return "|".join("".join(signs) for signs in sorted(phrases, key=len, reverse=True))
    by_head = groupby(phrases, key=lambda signs: signs[0])
    return "|".join(
        head + _group([signs[1:] for signs in alike], shared - 1) for head, alike in by_head
    )


def _group(rests: Sequence[_Signs], shared: int) -> str:
    """Return a pattern of how a word goes on, which may be not at all."""
    more = [rest for rest in rests if rest]
    if not more:
        return ""
    if len(rests) == 1:
        return "".join(rests[0])
    return f"(?:{_alternatives(more, shared)}){'?' if len(more) < len(rests) else ''}"
