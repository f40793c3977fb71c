"""Vectors without a model: words and parts of words, hashed into a fixed number of places.

Lexical only: texts are near when they share words, or parts of them, as forms and misspellings of
one word do; what words mean plays no role. The same text has the same vector in every process. The
signed hashing is that of Weinberger et al. 2009, "Feature Hashing for Large Scale Multitask
Learning".
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator
from typing import Final

from workers.builtin.stores._words import pairs_of, phrases_in

PART_CHARS: Final = 3
PART_WEIGHT: Final = 0.3
"""Of a part of a word, where the word counts 1: a dozen of them shall not drown it."""
_HASH_BYTES: Final = 8


def hashed(text: str, dimensions: int) -> list[float]:
    """Return the vector of a text, of length 1; all zeros if it has no words."""
    vector = [0.0] * dimensions
    for (feature, weight), count in Counter(_features(text)).items():
        digest = hashlib.blake2b(feature.encode(), digest_size=_HASH_BYTES).digest()
        number = int.from_bytes(digest, "little")
        sign = 1.0 if number & 1 else -1.0
        # What occurs often counts more, but not in proportion.
        vector[(number >> 1) % dimensions] += sign * weight * (1.0 + math.log(count))
    length = math.hypot(*vector)
    return [value / length for value in vector] if length else vector


def _features(text: str) -> Iterator[tuple[str, float]]:
    for phrase in phrases_in(text):
        if len(phrase) > 1:
            yield from (("".join(pair), 1.0) for pair in pairs_of(phrase))
            yield from ((word, PART_WEIGHT) for word in phrase)
            continue
        yield phrase[0], 1.0
        edged = f"<{phrase[0]}>"
        for at in range(len(edged) - PART_CHARS + 1):
            yield edged[at : at + PART_CHARS], PART_WEIGHT
