"""Search over thoughts: scoring, selection, votes and the way back, as functions of values.

Everything here is pure, and ties go to the thought that comes first in what was given, which for
a strategy is the order in which it asked for the branches: so a result never depends on which
branch was quicker. A thought without a score, or with NaN, ranks behind all that have one, and one
that failed is never kept.
"""

import math
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

import msgspec

from cmdc_runtime.extensions.reasoning import Thought
from cmdc_runtime.plain import number_problem, short

Scored: TypeAlias = float | tuple[float, Mapping[str, Any]]  # Any: plain data
"""A score, or one with its details."""
Scorer: TypeAlias = Callable[[Thought], Scored | None] | Mapping[str, Scored | None]
"""A function of a thought, or scores by the ids of thoughts; None leaves a thought as it is.

A score is whatever is a finite number, as ``True`` and a number of numpy's are.
"""

ANSWER_CHARS_MAX: Final = 2_000
"""Of an answer that is compared with others; the rest is not looked at."""
_PAIR: Final = 2
_DIGITS_MAX: Final = 200
"""Of a number that is written out again; a longer one is compared as text."""
_ANSWER: Final = re.compile(
    r"\banswer\b[ \t*]*(?:is\b[ \t]*:?|[:=])[\s*]*([^\s*][^\n]*)", re.IGNORECASE
)
_NUMBER: Final = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:e[-+]?\d{1,3})?")
_EDGES: Final = " \t\n.,;:!?*_`'\"()[]{}$€£“”"
_CURRENCY: Final = re.compile("[$€£]")
# NFKC makes "102" of "10²" and of "10₂", and "11/2" of "1½": each is written out before.
_RAISED: Final = re.compile("[⁰¹²³⁴-⁹⁺⁻]+")
_LOWERED: Final = re.compile(r"(?<=\d)([₀-₉]+)")
_FRACTION: Final = re.compile(r"(?<=\d)\s*([¼-¾⅐-⅟↉])")
_SLASH: Final = "\u2044"
_MINUS: Final = "\u2212"
_DASH: Final = re.compile("[\u2010-\u2013](?=[$€£]?\\.?\\d)")
"""What stands for a minus before a number."""


class Tally(msgspec.Struct, frozen=True):
    """One answer with the votes for it."""

    answer: str
    """As it was given first."""
    weight: float
    """How many gave it, or the sum of their scores."""
    thought_ids: tuple[str, ...]
    """Who gave it, in their order."""


def score(thoughts: Iterable[Thought], scorer: Scorer) -> list[Thought]:
    """Return the thoughts with their scores; one that failed gets none.

    Raises:
        ValueError: a score is no finite number, or its details are no dict; or ``scorer`` or one of
            ``thoughts`` is none.
    """
    if not (callable(scorer) or isinstance(scorer, Mapping)):
        raise _wrong("scorer", "a function or a dict", scorer)
    return [_scored(one, scorer) for one in _listed(thoughts)]


def select_beam(thoughts: Iterable[Thought], width: int) -> tuple[list[Thought], list[Thought]]:
    """Return the ``width`` best thoughts, the best first, and all others in their order.

    Raises:
        ValueError: ``width`` is no whole number, or one of ``thoughts`` is none.
    """
    _check_whole("width", width)
    given = _listed(thoughts)
    sound = [place for place, one in enumerate(given) if one.error is None]
    best = sorted(sound, key=lambda place: _rank(given[place]))[: max(0, width)]
    chosen = frozenset(best)
    kept = [given[place] for place in best]
    return kept, [one for place, one in enumerate(given) if place not in chosen]


def score_and_prune(
    thoughts: Iterable[Thought], scorer: Scorer, width: int
) -> tuple[list[Thought], list[Thought]]:
    """Return ``select_beam`` of the thoughts with their scores.

    Raises:
        ValueError: as both of them raise.
    """
    _check_whole("width", width)
    return select_beam(score(thoughts, scorer), width)


def final_answer(text: str) -> str:
    """Return what a text gives as its answer: behind the last "answer", else its last line.

    Raises:
        ValueError: ``text`` is none.
    """
    _check_text("text", text)
    found = _ANSWER.findall(text)
    lines = [line for line in text.splitlines() if line.strip()]
    chosen = found[-1] if found else (lines[-1] if lines else "")
    return str(chosen).strip(" \t*`")


def normalise(answer: str) -> str:
    """Return an answer as it is compared with others.

    Case, spaces, quotes and the marks around it do not count, and a number is its value: "$1,000.",
    "1000.0" and "1e3" are one answer. "10²" is "10^2", "1½" is "1 1/2", each minus is "-".

    Raises:
        ValueError: ``answer`` is no text.
    """
    _check_text("answer", answer)
    text = unicodedata.normalize("NFKC", _spelled(answer[:ANSWER_CHARS_MAX])).casefold()
    text = text.replace(_SLASH, "/").replace(_MINUS, "-")
    text = _DASH.sub("-", " ".join(text.split()))
    bare = _bare(text)
    return _number(_CURRENCY.sub("", bare)) or bare or text


def vote(
    thoughts: Iterable[Thought],
    *,
    answer_of: Callable[[str], str] = final_answer,
    key: Callable[[str], str] = normalise,
    weighted: bool = False,
) -> tuple[Tally, ...]:
    """Return the answers with their votes, the one with the most first.

    ``answer_of`` reads the answer from a thought's content, ``key`` says which answers are the
    same. Where ``weighted``, a vote counts as its thought's score, one without or below 0 as
    nothing. Thoughts that failed or give no answer have no vote.

    Raises:
        ValueError: one of ``thoughts`` is none, an answer or its key is no text, or scores that
            count are no finite number, or add up to none.
    """
    found: dict[str, tuple[str, list[Thought]]] = {}
    for one in _listed(thoughts):
        answer = "" if one.error is not None else answer_of(one.content)
        name = key(answer)
        _check_text("key", name)
        if name:
            found.setdefault(name, (answer, []))[1].append(one)
    tallies = [
        Tally(answer, _weight(voters, weighted=weighted), tuple(voter.id for voter in voters))
        for answer, voters in found.values()
    ]
    return tuple(sorted(tallies, key=lambda tally: -tally.weight))


def decided(votes: Sequence[Tally], remaining: int, weight_max: float = 1.0) -> bool:
    """Say whether ``remaining`` votes more, of ``weight_max`` at most each, leave the same winner.

    A lead that they could make up for is none: which of two equal answers came first is known only
    when all are there.

    Raises:
        ValueError: ``remaining`` is no whole number, or ``weight_max`` or one of ``votes`` none.
    """
    _check_votes(votes)
    _check_whole("remaining", remaining)
    if (problem := number_problem(weight_max, 0, sys.float_info.max)) is not None:
        raise ValueError(f"weight_max: {problem}")
    if not votes:
        return False
    second = votes[1].weight if len(votes) > 1 else 0.0
    return remaining <= 0 or votes[0].weight - second > remaining * weight_max


def agreement(votes: Sequence[Tally]) -> float:
    """Return the winner's part of all votes, 0 where there are none.

    Raises:
        ValueError: one of ``votes`` is none.
    """
    _check_votes(votes)
    total = math.fsum(tally.weight for tally in votes)
    return votes[0].weight / total if total > 0 else 0.0


def backtrack(
    levels: Sequence[Sequence[Thought]],
) -> tuple[Thought | None, tuple[tuple[Thought, ...], ...]]:
    """Return the thought to go on with, and what is left open then.

    ``levels`` are the untried thoughts at each depth, the deepest last. The best one of the deepest
    level that has any is next; None where nothing is open.

    Raises:
        ValueError: ``levels`` are none, or one of their thoughts is.
    """
    if not isinstance(levels, list | tuple):
        raise _wrong("levels", "a list of lists of thoughts", levels)
    left = [tuple(_listed(level)) for level in levels]
    while left:
        kept, others = select_beam(left[-1], 1)
        if kept:
            rest = tuple(one for one in others if one.error is None)
            return kept[0], (*left[:-1], rest)
        left.pop()
    return None, ()


def _rank(thought: Thought) -> float:
    if thought.score is None or math.isnan(thought.score):
        return math.inf
    return -thought.score


def _scored(thought: Thought, scorer: Scorer) -> Thought:
    if thought.error is not None:
        return thought
    given = scorer.get(thought.id) if isinstance(scorer, Mapping) else scorer(thought)
    if given is None:
        return thought
    detail: Any  # Any, here and below: what a stranger's function returned
    value: Any
    if isinstance(given, tuple) and len(given) == _PAIR:
        value, detail = given
    else:
        value, detail = given, thought.score_detail
    number = _finite(value)
    if number is None:
        raise ValueError(
            f"the score of {thought.id!r} is no finite number: {short(given)}; return a number,"
            " (number, details) or None for no score"
        )
    if not isinstance(detail, Mapping):
        raise ValueError(  # noqa: TRY004 - one error for all that a scorer says
            f"the details of {thought.id!r}'s score are no dict: {short(detail)}"
        )
    return msgspec.structs.replace(thought, score=number, score_detail=dict(detail))


def _finite(value: Any) -> float | None:  # Any: what a stranger's function returned
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):  # as of an array, or of 10**400
        return None
    return number if math.isfinite(number) else None


def _wrong(name: str, expected: str, value: object) -> ValueError:
    """Return the error of an argument that is of another type: one for all that is wrong."""
    return ValueError(f"{name}: expected {expected}, got {short(value)}")


def _listed(thoughts: Iterable[Thought]) -> list[Thought]:
    if isinstance(thoughts, str | bytes | Mapping) or not isinstance(thoughts, Iterable):
        raise _wrong("thoughts", "thoughts", thoughts)
    found = list(thoughts)
    for at, one in enumerate(found):
        if not isinstance(one, Thought):
            raise _wrong(f"thoughts[{at}]", "a Thought", one)
    return found


def _check_whole(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(name, "a whole number", value)


def _check_votes(votes: object) -> None:
    if not isinstance(votes, list | tuple):
        raise _wrong("votes", "what vote returns", votes)
    for at, one in enumerate(votes):
        if not isinstance(one, Tally):
            raise _wrong(f"votes[{at}]", "a Tally", one)


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise _wrong(name, "a text", value)


def _weight(voters: Sequence[Thought], *, weighted: bool) -> float:
    if not weighted:
        return float(len(voters))
    for one in voters:
        if one.score == math.inf:
            raise ValueError(f"the score of {one.id!r}: inf is not a finite number")
    try:
        return math.fsum(max(0.0, voter.score or 0.0) for voter in voters)
    except OverflowError:
        names = ", ".join(repr(voter.id) for voter in voters)
        raise ValueError(f"the scores of {names}: their sum is no finite number") from None


def _spelled(text: str) -> str:
    """Return a text whose raised and lowered digits and fractions stand apart from a number."""
    text = _RAISED.sub(lambda found: f"^{found[0]}", text)
    text = _LOWERED.sub(r"_\1", text)
    return _FRACTION.sub(r" \1", text)


def _bare(text: str) -> str:
    """Return a text without the marks around it; the point of ".5" is none."""
    rest = text.lstrip(_EDGES)
    before = text[: len(text) - len(rest)]
    has_point = rest[:1].isdigit() and before.endswith(".") and not before.endswith("..")
    return ("." if has_point else "") + rest.rstrip(_EDGES)


def _number(text: str) -> str | None:
    """Return the one way to write a number, None where the text is none."""
    if not _NUMBER.fullmatch(text) or not any(map(str.isdigit, text)):
        return None
    try:
        value = Decimal(text.replace(",", ""))
    except InvalidOperation:
        return None
    if not value:
        return "0"
    if abs(value.adjusted()) > _DIGITS_MAX:
        return None
    written = f"{value:f}"
    return (written.rstrip("0").rstrip(".") if "." in written else written).removeprefix("+")
