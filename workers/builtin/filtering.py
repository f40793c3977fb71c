"""Finds and replaces in a text that comes in pieces, as if it had come as a whole.

``Redaction`` gives out text as soon as it is certain that no match will ever touch it. What is
certain, rule by rule: from the first place on where matching runs into the end of what has come,
more text may decide otherwise (``cmdc_runtime.plugins.guards`` says how that place is found).
Before it, a match is one whatever comes, and what is no match never becomes one.

Each rule finds what ``regex.finditer`` finds in the whole text, empty matches left out. Matches
that overlap are one stretch, which is replaced once; so neither the order of the rules nor the
length of a match matters. A lookbehind sees ``BEFORE_CHARS`` at least. Every rule goes on where it
got to, whatever another one has to keep back. A list of words becomes one regular expression by
``pattern_of``.

Text is compared without the differences that a reader does not see, or looks past. A ``Fold`` turns
each character by itself into none, one or more, so that a text may be folded in pieces. What needs
to know the neighbours is out of reach: letters that are spaced out, entities, encodings, other
spellings.
"""

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeAlias

import regex

from cmdc_runtime.plugins.guards import probe_of

# --- folding --------------------------------------------------------------------------------------

# ruff: noqa: RUF001 - it is about letters that look like others


CACHED_MAX: Final = 4096
"""Characters whose folding is remembered; few texts have more."""
MARKS: Final = frozenset("*_~`\\")
"""What markdown takes out of a word, and the sign that keeps it from doing so."""

_INVISIBLE: Final = regex.compile(r"\p{Default_Ignorable_Code_Point}")
_ACCENT: Final = regex.compile(r"(?![\u3099\u309A])(?=\p{M})\p{Script=Inherited}")
"""A mark that goes with letters of any script; the two of Japanese make another letter."""

_ALIKE_PAIRS: Final = (
    ("АВЕЗКМНОРСТУХІЈЅҮԌԜ", "abe3kmhopctyxijsygw"),  # Cyrillic
    ("аеорсухіјѕһԁԛԝүѵӏ", "aeopcyxijshdqwyvl"),
    ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "abezhikmnoptyx"),  # Greek
    ("αικνορυχ", "aikvopux"),
    ("օսոհց", "ounhg"),  # Armenian
    ("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnoprstuvwyz"),  # small capitals
    ("ıɑɡ", "iag"),
)
_ALIKE: Final = {
    ord(one): latin
    for ours, theirs in _ALIKE_PAIRS
    for one, latin in zip(ours, theirs, strict=True)
}
"""Letters that look like plain Latin ones: the commonest of Unicode's table of confusables."""


class Fold:
    """A way to fold text, one character at a time."""

    def __init__(self, character: Callable[[str], str]) -> None:
        """Fold each character as ``character`` says."""
        self._table = _Table(character)

    def __call__(self, text: str) -> str:
        """Return ``text`` folded."""
        return text.translate(self._table)

    def origins(self, text: str) -> list[int]:
        """Return where in ``text`` each character of the folded text comes from."""
        table = self._table
        return [at for at, one in enumerate(text) for _ in table[ord(one)]]


class _Table(dict[int, str]):
    """What each character becomes, worked out when it is first met."""

    def __init__(self, character: Callable[[str], str]) -> None:
        super().__init__()
        self._character = character

    def __missing__(self, code: int) -> str:
        if len(self) >= CACHED_MAX:
            self.clear()
        folded = self[code] = self._character(chr(code))
        return folded


def _as_seen(one: str) -> str:
    return "" if _INVISIBLE.match(one) else unicodedata.normalize("NFKC", one)


def _letters(one: str) -> str:
    parts = unicodedata.normalize("NFKD", "" if _INVISIBLE.match(one) else one).casefold()
    plain = unicodedata.normalize("NFKD", parts)
    return "".join(" " if part.isspace() else part for part in plain if not _ACCENT.match(part))


def _words(one: str) -> str:
    return "".join(letter for letter in _letters(one) if letter not in MARKS)


def _alike(one: str) -> str:
    return _words(one.translate(_ALIKE))


AS_SEEN: Final = Fold(_as_seen)
"""Nothing invisible, and plain characters for those that are variants: wide, bold, circled."""
LETTERS: Final = Fold(_letters)
"""As seen, and without case and accents; white space is blanks."""
WORDS: Final = Fold(_words)
"""Letters without markdown's marks."""
ALIKE: Final = Fold(_alike)
"""Words, with Latin letters for those of other alphabets that look like them."""


# --- a list of words as one pattern ---------------------------------------------------------------

SHARED_MAX: Final = 8
"""Letters up to which beginnings are shared; by then few words are left that are alike."""
_GAP: Final = r"\s+"

_Signs: TypeAlias = tuple[str, ...]
"""What is left of a word, each letter as a pattern; empty at its end."""


def pattern_of(phrases: Iterable[Sequence[str]]) -> str:
    """Return a pattern of phrases, each given as its words; empty where there are none.

    Between words may be any white space.

    Words that begin alike share their beginning, so that a place in a text is compared with the
    letters that can follow there, and not with each word: ``a(?:b|cd?)`` is ab, ac, acd.
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


# --- redaction of a stream ------------------------------------------------------------------------

BEFORE_CHARS: Final = 256
"""What is remembered of the text that was given out, for lookbehinds and boundaries."""
SEARCHED_AT_ONCE: Final = 256
"""Characters kept back up to which every piece is looked at: less than a millisecond's work."""
GROWTH: Final = 4
"""Beyond those, a search waits until the part that was never searched is one of so many."""

SLICE: Final = 4096
"""Characters of a long piece that are searched together; a probe may take the square of it."""

Span: TypeAlias = tuple[int, int]


class UndecidedError(Exception):
    """A rule cannot be decided within its bounds; the text says which bound, and the way out."""


class Rule:
    """One regular expression, with the ways in which text is looked at."""

    def __init__(
        self,
        label: str,
        pattern: str,
        folds: Sequence[Fold | None] = (None,),
        *,
        accepts: Callable[[str], bool] = bool,
        overlaps: bool = False,
    ) -> None:
        """Search for ``pattern`` in the text as each fold makes it; None is the text itself.

        A match counts where ``accepts`` says so of the original text. With ``overlaps`` a match may
        begin inside another one. ``label`` names the rule in errors. The pattern is one that
        ``guards.problem_of`` has nothing against.
        """
        self.label = label
        self.whole = regex.compile(pattern)
        self.probe = probe_of(pattern)
        self.folds = tuple(folds)
        self.accepts = accepts
        self.overlaps = overlaps


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a redaction may take."""

    held_chars_max: int
    search_s_max: float
    """Processor time of one search for one rule, in seconds."""


class Redaction:
    """Replaces what rules find in one text that comes in pieces.

    While little is kept back, each piece is looked at; more is searched again only when it has
    grown by a quarter, so that the work for an answer grows with its length, but for patterns that
    are themselves slow. Those meet the time limit of a search.
    """

    def __init__(
        self, rules: Iterable[Rule], bounds: Bounds, replacement: str, *, stops: bool = False
    ) -> None:
        """Put ``replacement`` in the place of each stretch.

        With ``stops`` nothing is given out from the first stretch on instead.
        """
        self.count = 0
        """Stretches that were taken out so far."""
        self._watches = _watches(rules, bounds.search_s_max)
        self._held_chars_max = bounds.held_chars_max
        self._replacement = replacement
        self._stops = stops
        self._before = ""
        self._held: list[str] = []
        self._kept = 0
        self._fresh = 0

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is given out."""
        return self._stops and self.count > 0

    def feed(self, text: str) -> str:
        """Take the next piece and return what is certain now.

        Raises:
            UndecidedError: a rule takes too long, or too much would have to be kept back.
        """
        slices = (text[at : at + SLICE] for at in range(0, len(text), SLICE))
        return "".join(map(self._feed, slices))

    def close(self) -> str:
        """Return the rest: the text is complete.

        Raises:
            UndecidedError: a rule takes too long.
        """
        return self._decide(is_final=True)

    def _feed(self, text: str) -> str:
        self._held.append(text)
        self._fresh += len(text)
        if self._kept > SEARCHED_AT_ONCE and self._fresh * GROWTH < self._kept:
            return ""
        given = self._decide(is_final=False)
        if self._kept > self._held_chars_max:
            raise UndecidedError(
                f"{self._kept} characters would have to be kept back, more than"
                f" {self._held_chars_max}: a rule that matches without end needs a bound"
            )
        return given

    def _decide(self, *, is_final: bool) -> str:
        """Search what is held, keep what is not certain, and return what becomes of the rest."""
        if self.has_ended:
            self._held.clear()
            return ""
        held = "".join(self._held)
        stretches, certain = _certain(self._watches, _Text(self._before, held, is_final=is_final))
        for watch in self._watches:
            watch.leave(certain)
        self._before = (self._before + held[:certain])[-BEFORE_CHARS:]
        self._held = [held[certain:]]
        self._kept, self._fresh = len(held) - certain, 0
        return "".join(self._given(held[:certain], stretches))

    def _given(self, certain: str, stretches: Iterable[Span]) -> Iterator[str]:
        shown = 0
        for start, stop in stretches:
            self.count += 1
            yield certain[shown:start]
            if self._stops:
                return
            yield self._replacement
            shown = stop
        yield certain[shown:]


def stretches_of(rules: Iterable[Rule], text: str, search_s_max: float) -> list[Span]:
    """Return what rules find in a text that is there as a whole, in order.

    Raises:
        UndecidedError: a rule takes too long.
    """
    stretches, _ = _certain(_watches(rules, search_s_max), _Text("", text, is_final=True))
    return stretches


class _Text:
    """What is held, and what went before it."""

    def __init__(self, before: str, held: str, *, is_final: bool) -> None:
        """Hold ``held``; nothing comes after it if ``is_final``."""
        self.held = held
        self.is_final = is_final
        self.results: dict[tuple[Rule, str, int, int], tuple[list[Span], int]] = {}
        """What was found, and up to where all is certain: by rule, text, and where that begins."""
        self._all = before + held
        self._shift = len(before)
        self._views: dict[tuple[Fold | None, int], _View] = {}

    def view(self, fold: Fold | None, at: int) -> "_View":
        """Return what is held from ``at`` on, as a fold makes it."""
        if (view := self._views.get((fold, at))) is None:
            seam = self._shift + at
            before = self._all[max(0, seam - BEFORE_CHARS) : seam]
            view = self._views[fold, at] = _View(before, self.held[at:], fold, at)
        return view


class _View:
    """A part of a text as a fold makes it, with what went before it."""

    def __init__(self, before: str, part: str, fold: Fold | None, at: int) -> None:
        self._part = part
        self._fold = fold
        self._at = at
        self._origins: list[int] | None = None
        head = before if fold is None else fold(before)
        self.start = len(head)
        self.text = head + (part if fold is None else fold(part))

    def place(self, at: int) -> int:
        """Return where in the held text the character at ``at`` comes from."""
        at -= self.start
        if self._fold is None:
            return self._at + at
        if self._origins is None:
            self._origins = self._fold.origins(self._part)
        return self._at + (self._origins[at] if at < len(self._origins) else len(self._part))

    def span(self, start: int, stop: int) -> Span:
        """Return what of the held text a match is, whole characters."""
        return self.place(start), self.place(stop - 1) + 1


def _certain(watches: Sequence["_Watch"], text: _Text) -> tuple[list[Span], int]:
    """Return the stretches that are certain, and up to where of the held text all is."""
    for watch in watches:
        watch.look(text)
    certain = min((watch.at for watch in watches), default=len(text.held))
    stretches = _merged(span for watch in watches for span in watch.found)
    for start, stop in stretches:
        if start < certain < stop:
            certain = start
    return [span for span in stretches if span[0] < certain], certain


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order, those that overlap as one; spans that touch stay two."""
    merged: list[Span] = []
    for start, stop in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(stop, merged[-1][1])
        else:
            merged.append((start, stop))
    return merged


def _watches(rules: Iterable[Rule], search_s_max: float) -> list["_Watch"]:
    return [_Watch(rule, fold, search_s_max) for rule in rules for fold in rule.folds]


class _Watch:
    """How far one rule is with a text, seen in one way."""

    def __init__(self, rule: Rule, fold: Fold | None, search_s_max: float) -> None:
        """Begin at the beginning."""
        self.found: list[Span] = []
        """The matches in what is held that are certain."""
        self.at = 0
        """Up to where in what is held all is certain; never inside a match."""
        self._rule = rule
        self._fold = fold
        self._search_s_max = search_s_max

    def leave(self, chars: int) -> None:
        """Forget so many characters of what was held, all of them certain."""
        self.at -= chars
        self.found = [(start - chars, stop - chars) for start, stop in self.found if start >= chars]

    def look(self, text: _Text) -> None:
        """Search what is not certain yet; another watch of the rule may have seen just that."""
        view = text.view(self._fold, self.at)
        seen = (self._rule, view.text, view.start, self.at)
        if seen not in text.results:
            text.results[seen] = self._search(view, text)
        found, self.at = text.results[seen]
        self.found += found

    def _search(self, view: _View, text: _Text) -> tuple[list[Span], int]:
        """Return the matches that are certain, and up to where all is."""
        found: list[Span] = []
        at, end = view.start, len(view.text)
        unsure = end if text.is_final else self._unsure(view, at)
        while (match := self._next(view, at)) is not None and match.start() < unsure:
            start, stop = match.span()
            if stop == end and not text.is_final:
                unsure = start
                break
            span = view.span(start, max(stop, start + 1))
            is_one = stop > start and self._rule.accepts(text.held[slice(*span)])
            if is_one:
                found.append(span)
            at = stop if is_one and not self._rule.overlaps else start + 1
            if at > unsure:
                unsure = self._unsure(view, at)
        return _ended_before(found, view.place(unsure))

    def _unsure(self, view: _View, at: int) -> int:
        """Return the first place from which on more text may decide otherwise."""
        search = self._rule.probe.search
        match = self._timed(
            lambda: search(view.text, at, partial=True, timeout=self._search_s_max), view
        )
        return len(view.text) if match is None else match.start()

    def _next(self, view: _View, at: int) -> "regex.Match[str] | None":
        search = self._rule.whole.search
        return self._timed(lambda: search(view.text, at, timeout=self._search_s_max), view)

    def _timed(
        self, search: Callable[[], "regex.Match[str] | None"], view: _View
    ) -> "regex.Match[str] | None":
        try:
            return search()
        except TimeoutError as error:
            raise UndecidedError(
                f"the search for {self._rule.label} took longer than {self._search_s_max:g} s in"
                f" {len(view.text)} characters: the pattern tries too many ways"
            ) from error


def _ended_before(found: list[Span], certain: int) -> tuple[list[Span], int]:
    """Return what ends before ``certain``, and that place or the start of what does not."""
    for start, stop in reversed(found):
        if stop > certain:
            certain = start
    return [span for span in found if span[1] <= certain], certain
