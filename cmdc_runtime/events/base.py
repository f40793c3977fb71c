"""What every event is, and the facts about one that stand on its class."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias

import msgspec

from cmdc_runtime.lines import one_line
from cmdc_runtime.reasons import snake

EVENT_CHARS_MAX: Final = 1_000
"""Of an event as text."""

Level: TypeAlias = Literal["debug", "info", "warning"]
LEVELS: Final[tuple[Level, ...]] = ("debug", "info", "warning")
"""From the least to the greatest."""

Notice: TypeAlias = Literal["", "quiet", "good", "warning", "bad"]

Span: TypeAlias = Literal["", "invoke_agent", "chat", "execute_tool", "reason"]


class SpanNote(NamedTuple):
    """What an event is in a trace that neither begins nor ends a span: an event of the span."""

    name: str
    attributes: Mapping[str, str] = MappingProxyType({})
    """By field the name of the attribute that has its value."""


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=snake):
    """Base of all events; as text an event is one line for people."""

    durable: ClassVar[bool] = True
    """The journal keeps it, so it outlives every crash."""
    level: ClassVar[Level] = "info"
    """How much it matters to whoever reads the log."""
    content_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that hold what people, the model, tools or plugins say."""
    notice: ClassVar[Notice] = ""
    """The style in which the command line shows it beside an answer; "" shows it in `tail` only."""
    span: ClassVar[Span] = ""
    """The span of a trace that it begins, ends or adds to; "" is none."""
    span_note: ClassVar[SpanNote | None] = None
    """What it adds there, if that is all it does."""
    theme: ClassVar[str] = ""
    """The section of the catalogue that it stands in; "" is that of its module."""

    @property
    def kind(self) -> str:
        """The event's name on the wire: ``MessageDelta`` is ``message_delta``."""
        return str(self.__struct_config__.tag)

    def __str__(self) -> str:
        """Return what happened, on one line and without control characters."""
        return one_line(self._line(), EVENT_CHARS_MAX)

    def _line(self) -> str:
        return ""
