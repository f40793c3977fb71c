"""The parcels of a session opened: each one is a step of rebuilding it, since its code runs then.

A tool that has killed the processes which opened it is left out, and the session goes on. It does
not run without anything else that its caller gave it: whether a plugin guards is known only once it
is open, and a saved state without ``redact`` would show what that takes out.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from cmdc_runtime import parcels as named
from cmdc_runtime.board import parcel_step
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.parcels import Packed
from workers.core import aside
from workers.core.records import Record, SetAside
from workers.core.state import Memory
from workers.effects.tools import LoadedTool
from workers.loader import LoadError, load_function, load_tools
from workers.plugin_loader import PLUGINS, load_plugins

LoadedPlugin: TypeAlias = tuple[Plugin, Packed]
"""A plugin, with the parcel that it came in."""

_UNSAFE: Final = (
    "processes that opened it have died of it, and the session does not run without it;"
    " resume it with another one"
)


@dataclass(slots=True)
class Opening:
    """Opens parcels; ``at`` is told of each before it is opened.

    ``doomed`` are the steps that have killed, ``left_out`` the digests of the tools that were set
    aside before. ``news`` is what has still to be recorded of that.
    """

    at: Callable[[int], None] = lambda _step: None
    doomed: frozenset[int] = frozenset()
    left_out: frozenset[str] = frozenset()
    news: list[SetAside] = field(default_factory=list)

    def tools(self, parcels: Iterable[Packed]) -> tuple[LoadedTool, ...]:
        """Return the tools of a definition but for those that are left out, each with its own.

        Raises:
            LoadError: one can't be opened.
        """
        kept = []
        for packed in parcels:
            if named.digest_of(packed) in self.left_out:
                continue
            if aside.is_doomed(packed, self.doomed):
                self.news.append(aside.set_tool_aside(packed, packed.label, "the definition"))
            else:
                kept.append(packed)
        return self._opened(kept)

    def plugins(self, parcels: Sequence[Packed]) -> tuple[LoadedPlugin, ...]:
        """Return the plugins of ``parcels``, each with its own.

        Raises:
            LoadError: one can't be opened, or has killed who opened it.
        """
        opened = load_plugins(self._needed(parcels, PLUGINS.noun))
        return tuple(zip(opened, parcels, strict=True))

    def function(self, packed: Packed, noun: str) -> Callable[..., Any]:  # Any: the caller knows
        """Return the function of a parcel; ``noun`` is what error messages call it.

        Raises:
            LoadError: it can't be opened, or has killed who opened it.
        """
        (needed,) = self._needed([packed], noun)
        return load_function(needed, noun)

    def without_doomed(self, memory: Memory, records: Iterable[Record]) -> tuple[SetAside, ...]:
        """Return what is newly left out of the tools that a memory has; ``records`` led to it."""
        return tuple(
            aside.set_tool_aside(tool.packed, tool.name, aside.came_with(tool.packed, records))
            for tool in memory.tools
            if tool.packed is not None and aside.is_doomed(tool.packed, self.doomed)
        )

    def tools_of(self, memory: Memory, own: Sequence[LoadedTool]) -> tuple[LoadedTool, ...]:
        """Return the tools of the memory: those of the definition, and what was attached since.

        Raises:
            LoadError: one can't be opened.
        """
        known = {(one.tool.name, one.packed): one for one in own}
        found = []
        for facts in memory.tools:
            assert facts.packed is not None  # noqa: S101 - only tests make tools without
            kept = known.get((facts.name, facts.packed))
            found.append(kept or self._opened([facts.packed])[0])
        return tuple(found)

    def plugins_of(self, memory: Memory, own: Sequence[LoadedPlugin]) -> tuple[Plugin, ...]:
        """Return the plugins of the memory: the definition's, and what was attached since.

        Raises:
            LoadError: one can't be opened, or has killed who opened it.
        """
        known = {(one.name, packed): one for one, packed in own}
        found = []
        for facts in memory.plugins:
            assert facts.packed is not None  # noqa: S101 - only tests make plugins without
            kept = known.get((facts.name, facts.packed))
            found.append(kept or self.plugins([facts.packed])[0][0])
        return tuple(found)

    def _opened(self, parcels: Sequence[Packed]) -> tuple[LoadedTool, ...]:
        tools = load_tools(self._steps(parcels))
        return tuple(LoadedTool(*pair) for pair in zip(tools, parcels, strict=True))

    def _needed(self, parcels: Iterable[Packed], noun: str) -> Iterator[Packed]:
        for packed in self._steps(parcels):
            if aside.is_doomed(packed, self.doomed):
                raise LoadError(packed.label, _UNSAFE, noun)
            yield packed

    def _steps(self, parcels: Iterable[Packed]) -> Iterator[Packed]:
        for packed in parcels:
            self.at(parcel_step(named.digest_of(packed)))
            yield packed
