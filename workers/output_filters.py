"""What plugins make of an answer while it streams: their text filters, one behind the other.

A filter is foreign code in the session's own loop. What it raises never leaves here as it is: where
its plugin fails closed the answer ends with ``FilterFailedError``, else the filter is left out.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import structlog

from cmdc_runtime.extensions.plugin import FILTER_OUTPUT, Channel, Plugin, TextFilter
from cmdc_runtime.extensions.plugin_context import PluginContext
from cmdc_runtime.extensions.provider import Chunk, FinishChunk, TextChunk, ThinkingChunk
from workers.intake import fit

log = structlog.get_logger()


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


class OutputFilters:
    """The filters of one answer."""

    def __init__(
        self,
        plugins: Iterable[Plugin],
        context: PluginContext,
        crashed: Callable[[str, str], None],
    ) -> None:
        """Make the filters of ``plugins``, in their order; a crash is told by name and error.

        Raises:
            FilterFailedError: one could not be made, and its plugin fails closed.
        """
        self._crashed = crashed
        self._chains: dict[Channel, list[_Link]] = {"text": [], "thinking": []}
        for plugin in plugins:
            for channel, chain in self._chains.items():
                try:
                    found = plugin.filter_output(channel, context)
                except Exception as error:  # noqa: BLE001 - told, by name
                    self._fail(plugin, error)
                    continue
                if found is not None:
                    chain.append(_Link(plugin, found))

    def pass_on(self, chunk: Chunk) -> Sequence[Chunk]:
        """Return what may be shown and kept now of an answer's next chunk.

        Raises:
            FilterFailedError: a filter broke whose plugin fails closed.
        """
        match chunk:
            case TextChunk(text=text):
                return _chunks("text", self._feed("text", text, 0))
            case ThinkingChunk(text=text):
                return _chunks("thinking", self._feed("thinking", text, 0))
            case FinishChunk():
                rest = [*_chunks("thinking", self._close("thinking"))]
                return [*rest, *_chunks("text", self._close("text")), chunk]
            case _:
                return (chunk,)

    def _feed(self, channel: Channel, text: str, start: int) -> str:
        for link in self._chains[channel][start:]:
            if not text:
                return ""
            try:
                text = fit(str(link.filter.feed(text)))
            except Exception as error:  # noqa: BLE001 - told, by name
                self._drop(channel, link, error)
        return text

    def _close(self, channel: Channel) -> str:
        """Return what is left, each filter's rest having gone through those behind it."""
        shown = ""
        for place, link in enumerate([*self._chains[channel]]):
            try:
                rest = fit(str(link.filter.close()))
            except Exception as error:  # noqa: BLE001 - told, by name
                self._fail(link.plugin, error)
                continue
            shown += self._feed(channel, rest, place + 1)
        self._chains[channel] = []
        return shown

    def _drop(self, channel: Channel, link: _Link, error: Exception) -> None:
        self._fail(link.plugin, error)
        self._chains[channel] = [one for one in self._chains[channel] if one is not link]

    def _fail(self, plugin: Plugin, error: Exception) -> None:
        log.error("plugin.crashed", plugin=plugin.name, hook=FILTER_OUTPUT, exc_info=error)
        told = fit(f"{type(error).__name__}: {error}")
        self._crashed(plugin.name, told)
        if plugin.fail == "closed":
            raise FilterFailedError(plugin.name, told) from error


def _chunks(channel: Channel, text: str) -> Sequence[Chunk]:
    if not text:
        return ()
    return (TextChunk(text=text) if channel == "text" else ThinkingChunk(text=text),)
