"""Whether a model goes round in circles: the same call again and again, or two calls in turn.

Each call leaves a fingerprint, and a session keeps the last ``HASHES_MAX`` of them. The caller
leaves out tools that may be repeated (``loop_exempt_tools``), asks ``detect`` after each call and
``verdict`` what to do about it. To find another shape of loop, add it to ``LoopKind``, to
``detect`` and to ``_TEXTS``.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import msgspec

LoopKind: TypeAlias = Literal["repeat", "cycle"]
LoopVerdict: TypeAlias = Literal["go_on", "notice", "abort"]

HASHES_MAX: Final = 20
"""A loop that is longer than ten calls in turn looks no different from work."""
LOOP_COUNT_MIN: Final = 2
"""What happened once is no loop."""
_PERIOD: Final = 2
_DIGEST_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that was found: its shape, the tool called last, and how many times over."""

    kind: LoopKind
    name: str
    count: int


_TEXTS: Final[Mapping[LoopKind, str]] = {
    "repeat": "this was call number {count} of `{name}` in a row with the same arguments.",
    "cycle": "the same two calls were made in turn {count} times over, `{name}` being the last.",
}
_WAY_OUT: Final = (
    "Making them again gives nothing new. Use what you have, try another way, or say what keeps"
    " you from going on. If this goes on, the run is ended."
)


def fingerprint(name: str, arguments: Mapping[str, object], malformed: str | None) -> str:
    """Return a short hash of one call, the same in every process and for any order of the keys.

    ``malformed`` is the raw text of arguments that were no JSON object, else None. Arguments may
    hold whatever MessagePack takes, at any depth.
    """
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for token in tokens([name, malformed, arguments]):
        raw = token.encode("utf-8", "surrogatepass")
        digest.update(b"%d:%b" % (len(raw), raw))
    return digest.hexdigest()


def remember(seen: tuple[str, ...], new: Iterable[str]) -> tuple[str, ...]:
    """Return the fingerprints with the new ones behind them; the oldest beyond the bound go."""
    return (*seen, *new)[-HASHES_MAX:]


def detect(seen: tuple[str, ...]) -> tuple[LoopKind, int] | None:
    """Return the loop that the latest calls are in, and how many times over it was gone through.

    A "repeat" counts equal calls in a row, a "cycle" pairs of two different calls.
    """
    repeats = _run(seen, 1)
    if repeats >= LOOP_COUNT_MIN:
        return "repeat", repeats
    cycles = _run(seen, _PERIOD) // _PERIOD
    return ("cycle", cycles) if cycles >= LOOP_COUNT_MIN else None


def verdict(loop_count: int, threshold: int, abort: int) -> LoopVerdict:
    """Say what a loop of this count means: from ``threshold`` a notice, from ``abort`` the end."""
    if loop_count >= abort:
        return "abort"
    return "notice" if loop_count >= threshold else "go_on"


def notice(loop: Loop) -> str:
    """Return what the model reads of its loop, behind the tool's result."""
    return f"Notice: {_TEXTS[loop.kind].format(count=loop.count, name=loop.name)} {_WAY_OUT}"


def _run(seen: tuple[str, ...], period: int) -> int:
    """Return how many of the latest calls equal the one a period before, the first period too."""
    pairs = zip(reversed(seen), reversed(seen[:-period]), strict=False)
    equal = 0
    for later, earlier in pairs:
        if later != earlier:
            break
        equal += 1
    return min(len(seen), period) + equal


def tokens(value: object) -> Iterator[str]:
    """Yield the parts of a value in an order of its own, so that equal values give equal tokens.

    It keeps a stack in place of calling itself: a model may nest deeper than Python's own stack.
    """
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, Mapping):
            yield f"mapping {len(item)}"
            for key in sorted(item, key=_scalar, reverse=True):
                left += (item[key], key)
        elif isinstance(item, list | tuple):
            yield f"list {len(item)}"
            left += reversed(item)
        elif isinstance(item, AbstractSet):
            yield f"set {len(item)}"
            left += sorted(item, key=_scalar)
        else:
            yield _scalar(item)


def _scalar(value: object) -> str:
    match value:
        case bool() | None:
            text = repr(value)
        case int():
            text = f"{value:x}"  # has no limit, where decimal digits have one
        case msgspec.msgpack.Ext():
            text = f"{value.code} {bytes(value.data)!r}"
        case _:
            text = repr(value)
    return f"{type(value).__name__} {text}"
