"""Takes words and patterns out of an answer while it streams.

Each channel of an answer has a redaction of its own, so what it gives out never holds a match.
``after_response`` publishes how many there were, as ``output_filtered``, and looks at the
complete answer once more: a match in it has come past the redaction, by whatever way, and ends the
cycle. What was found is shown to nobody.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import regex

from cmdc_runtime import plugins
from cmdc_runtime.extensions.actions import Abort, Emit
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import AfterResponse
from cmdc_runtime.extensions.plugin import Channel, Plugin
from workers.builtin.filtering import (
    ALIKE,
    AS_SEEN,
    LETTERS,
    MARKS,
    WORDS,
    Bounds,
    Fold,
    Redaction,
    Rule,
    Span,
    pattern_of,
    stretches_of,
)

EVENT: Final = "output_filtered"
_LATIN: Final = regex.compile(r"\p{Latin}")


class OutputFilter(Plugin):
    """Filters what the model says and thinks."""

    name = "output_filter"
    priority = 900
    fail = "closed"
    Config = plugins.OutputFilter
    emits = (EVENT,)

    def __init__(self, **config: Any) -> None:  # Any: options as they come
        """Make the rules.

        Raises:
            InvalidOptions: options are unknown or wrong.
        """
        super().__init__(**config)
        self._rules = (*_of_patterns(self.config.patterns), *_of_keywords(self.config.keywords))
        self._redactions: list[tuple[Channel, Redaction]] = []
        self._answer: PluginContext | None = None

    def filter_output(
        self,
        channel: Channel,
        context: PluginContext,
    ) -> Redaction | None:
        """Return a filter for one answer's channel, None where there is nothing to look for.

        What an answer before has shown that was broken off, and asked for anew, counts no more.
        """
        if not self._rules:
            return None
        if context is not self._answer:
            self._answer = context
            self._redactions.clear()
        bounds = Bounds(
            held_chars_max=self.config.held_chars_max, search_s_max=self.config.match_timeout
        )
        made = Redaction(
            self._rules, bounds, self.config.replacement, stops=self.config.action == "abort"
        )
        self._redactions.append((channel, made))
        return made

    def after_response(
        self,
        event: AfterResponse,
        context: PluginContext,  # noqa: ARG002 - the contract of the hook
    ) -> list[Emit | Abort]:
        """Publish how much was taken out, and end the cycle where that is wanted or not enough."""
        counts: Counter[Channel] = Counter()
        for channel, made in self._redactions:
            counts[channel] += made.count
        counts = +counts
        self._redactions.clear()
        answer: list[Emit | Abort] = []
        if counts:
            payload = {
                "action": self.config.action,
                "count": counts.total(),
                "channels": dict(counts),
            }
            answer.append(Emit(EVENT, payload))
        if counts and self.config.action == "abort":
            answer.append(Abort("the answer held what must not be shown; the rest was withheld"))
        elif any(self._left_in(text) for text in (event.message.content, event.message.thinking)):
            answer.append(Abort("the answer holds what must not be shown, and came unfiltered"))
        return answer

    def _left_in(self, text: str | None) -> bool:
        """Say whether there is a match in a text, replacements and what is beside them aside.

        What stands beside a replacement was looked at together with what stood in its place.
        """
        found = stretches_of(self._rules, text or "", self.config.match_timeout)
        if not found:
            return False
        replaced = regex.finditer(regex.escape(self.config.replacement), text or "")
        spots = [spot.span() for spot in replaced]
        return any(not any(_touch(span, spot) for spot in spots) for span in found)


def _touch(one: Span, other: Span) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _of_patterns(patterns: Iterable[str]) -> Iterator[Rule]:
    for at, pattern in enumerate(patterns):
        yield Rule(f"patterns[{at}]", pattern, (None, AS_SEEN))


def _of_keywords(keywords: Iterable[str]) -> Iterator[Rule]:
    """Yield a rule for all keywords that are folded the same way.

    A keyword of nothing but marks and invisible characters is searched for as it is.
    """
    marked = [keyword for keyword in keywords if not MARKS.isdisjoint(keyword)]
    plain = [keyword for keyword in keywords if MARKS.isdisjoint(keyword)]
    bare = [keyword for keyword in keywords if not WORDS(keyword).strip()]
    yield from _of_folded("keywords", marked, LETTERS)
    yield from _of_folded("keywords", plain, WORDS)
    yield from _of_folded("keywords in letters that look alike", plain, ALIKE, accepts=_is_mixed)
    for keyword in bare:
        yield Rule("keywords", regex.escape(keyword))


def _of_folded(
    label: str, keywords: Iterable[str], fold: Fold, accepts: Callable[[str], bool] = bool
) -> Iterator[Rule]:
    if pattern := pattern_of({tuple(fold(keyword).split()) for keyword in keywords}):
        yield Rule(label, pattern, (fold,), accepts=accepts, overlaps=True)


def _is_mixed(text: str) -> bool:
    """Say whether a word is made up to look like another: one alphabet makes words of its own."""
    return not text.isascii() and _LATIN.search(text) is not None


create = OutputFilter
