"""What plugins make of an answer while it streams: their text filters, one behind the other.

A filter is foreign code in the session's own loop. What it raises never leaves here as it is: where
its plugin fails closed the answer ends with ``FilterFailedError``, else the filter is left out.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

import structlog
from msgspec.structs import replace

from cmdc_runtime import foreign
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.plugin import FILTER_OUTPUT, Channel, Plugin, TextFilter
from cmdc_runtime.extensions.provider import Chunk, FinishChunk, TextChunk, ThinkingChunk
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.plain import mended, own, short
from workers.core.tags import ALL, FoundTag, Tag, TagState, feed, flush

log = structlog.get_logger()

_Shown = TypeVar("_Shown", str, tuple[FoundTag, ...])


class FilterFailedError(Exception):
    """A filter broke whose plugin fails closed: nothing more of the answer may be shown."""

    def __init__(self, plugin: str, error: str) -> None:
        """Name the plugin and what it ended with."""
        super().__init__(f"plugin {plugin} failed at {FILTER_OUTPUT}: {error}")
        self.plugin = plugin


@dataclass(slots=True)
class _Link:
    """One filter of the chain."""

    plugin: Plugin
    filter: TextFilter
    is_broken: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """What may be shown now: chunks, and the tags that stood in the text, filtered too."""

    chunks: tuple[Chunk, ...] = ()
    found: tuple[FoundTag, ...] = ()


class OutputFilters:
    """The filters of one answer.

    Tags are taken out of the text before it is filtered: else what they stand between would come
    together behind the filters.
    """

    def __init__(
        self,
        plugins: Iterable[Plugin],
        context: PluginContext,
        crashed: Callable[[str, str], None],
        invited: frozenset[Tag] = ALL,
    ) -> None:
        """Make the filters of ``plugins``, in their order; a crash is reported by name and error.

        ``invited`` are the tags that the system prompt invites the model to use.

        Raises:
            FilterFailedError: one could not be made, and its plugin fails closed.
        """
        self._plugins = tuple(plugins)
        self._context = context
        self._crashed = crashed
        self._tags, self._invited = TagState(), invited
        self._has_ended = False
        self._off: set[str] = set()
        self._chains: dict[Channel, list[_Link]] = {
            "text": self._chain("text"),
            "thinking": self._chain("thinking"),
        }

    def pass_on(self, chunk: Chunk) -> Shown:
        """Return what may be shown and kept now of an answer's next chunk.

        Raises:
            FilterFailedError: a filter broke whose plugin fails closed.
        """
        match chunk:
            case TextChunk(text=text):
                self._tags, clean, found = feed(self._tags, text, self._invited)
                tags = self._filtered(found)
                shown = self._feed(self._chains["text"], self._if_open(clean))
                return Shown(_chunks("text", shown), self._if_open(tags))
            case ThinkingChunk(text=text):
                thought = self._feed(self._chains["thinking"], self._if_open(text))
                return Shown(_chunks("thinking", thought))
            case FinishChunk():
                self._tags, clean, found = flush(self._tags, self._invited)
                tags = self._filtered(found)
                shown = self._feed(self._chains["text"], self._if_open(clean))
                shown += self._close(self._chains["text"])
                thought = self._close(self._chains["thinking"])
                chunks = (*_chunks("thinking", thought), *_chunks("text", shown), chunk)
                return Shown(chunks, self._if_open(tags))
            case _:
                return Shown((chunk,))

    def _chain(self, channel: Channel) -> list[_Link]:
        chain = []
        for plugin in self._plugins:
            if plugin.name in self._off:
                continue
            try:
                found = foreign.call(partial(_made, plugin, channel, self._context))
            except ForeignError as failed:
                self._fail(plugin, failed)
                continue
            if found is not None:
                chain.append(_Link(plugin, found))
        return chain

    def _filtered(self, found: Iterable[FoundTag]) -> tuple[FoundTag, ...]:
        """Return tags with their contents filtered, each on its own.

        They come before the text around them: where one ends the answer, none of that is shown.
        """
        return tuple(replace(tag, text=self._whole(tag.text)) for tag in found)

    def _if_open(self, shown: _Shown) -> _Shown:
        """Return what may be shown, or nothing of it where a filter has ended the answer."""
        return shown[:0] if self._has_ended else shown

    def _whole(self, text: str) -> str:
        chain = self._chain("text")
        return self._feed(chain, text) + self._close(chain)

    def _feed(self, links: Sequence[_Link], text: str) -> str:
        for link in links:
            if not text:
                return ""
            if not link.is_broken:
                text = self._ask(link, link.filter.feed, text)
        return text

    def _close(self, links: Sequence[_Link]) -> str:
        """Return what is left, each filter's rest having gone through those behind it."""
        shown = ""
        for place, link in enumerate(links):
            if not link.is_broken:
                rest = self._ask(link, partial(_closed, link.filter), "")
                shown += self._feed(links[place + 1 :], rest)
        return shown

    def _ask(self, link: _Link, work: Callable[[str], str], text: str) -> str:
        """Return what a filter returns; of one that breaks and fails open, the text as it is."""
        try:
            given, has_ended = foreign.call(lambda: _asked(link.filter, work, text))
        except ForeignError as failed:
            link.is_broken = True
            self._fail(link.plugin, failed)
            return text
        self._has_ended = self._has_ended or has_ended
        return mended(given)

    def _fail(self, plugin: Plugin, error: ForeignError) -> None:
        trace = foreign.traceback_of(error)
        log.error("plugin.crashed", plugin=plugin.name, hook=FILTER_OUTPUT, exception=trace)
        text = foreign.summary_of(error)
        if plugin.fail == "disable":  # no more filters of it, for the tags of this answer either
            self._off.add(plugin.name)
        self._crashed(plugin.name, text)
        if plugin.fail == "closed":
            raise FilterFailedError(plugin.name, text) from error


def _asked(one: TextFilter, work: Callable[[str], str], text: str) -> tuple[str, bool]:
    """Return what a filter makes of a text, and whether nothing more comes from it.

    Raises:
        TypeError: it makes no text of it.
    """
    given = work(text)
    if not isinstance(given, str):
        raise TypeError(f"its filter returned {short(given)}: feed and close return a str")
    return own(str(given)), bool(getattr(one, "has_ended", False))


def _made(plugin: Plugin, channel: Channel, context: PluginContext) -> TextFilter | None:
    """Return the filter of a plugin, if it has one.

    Raises:
        TypeError: what it returns is none.
    """
    found: object = plugin.filter_output(channel, context)
    methods = [getattr(found, name, None) for name in ("feed", "close")]
    if found is not None and (isinstance(found, type) or not all(map(callable, methods))):
        raise TypeError(
            f"{FILTER_OUTPUT} returned {short(found)}: a filter is an object with the methods feed "
            "and close, or None"
        )
    return cast("TextFilter | None", found)  # it has what the protocol asks for


def _closed(one: TextFilter, _text: str) -> str:
    return one.close()


def _chunks(channel: Channel, text: str) -> tuple[Chunk, ...]:
    if not text:
        return ()
    return (TextChunk(text=text) if channel == "text" else ThinkingChunk(text=text),)
