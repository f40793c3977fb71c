"""What users may write where an option, or a call about a tool or a plugin, takes one of these.

They are for type checkers and editors: what is given is checked where it is taken. ``make sync``
writes ``given_options`` with them, by the table ``WIDER`` of ``scripts/given_options.py``.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, SupportsIndex, TypeAlias, TypeVar

from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.extensions.reasoning import ReasoningStrategy
from cmdc_runtime.extensions.tool import Tool
from cmdc_runtime.messages import Message
from cmdc_runtime.options import Builder, ModelSource, Options, OptionsSource
from cmdc_runtime.packing import BuiltIn, BuiltInPlugin, BuiltInStrategy

T_co = TypeVar("T_co", covariant=True)


class Several(Protocol[T_co]):
    """A list or a tuple of ``T_co``, and no str, which is a sequence of str to type checkers."""

    def __contains__(self, value: object, /) -> bool:
        """Say whether it holds ``value``, of any type; a str takes a str alone."""

    def __getitem__(self, index: SupportsIndex, /) -> T_co:
        """Return one of them."""

    def __iter__(self) -> Iterator[T_co]:
        """Return an iterator over them."""

    def __len__(self) -> int:
        """Return how many there are."""


AnyModel: TypeAlias = str | dict[str, Any] | ModelSource  # Any: see ``Options``
"""``"provider:model_id"``, a dict with provider and id, or an object that knows its model."""
AnyTool: TypeAlias = Tool | type[Tool] | BuiltIn | type[BuiltIn] | str
"""A tool, a decorated function, a class, one of ``cmdc.tools``, or ``"module:name"``."""
AnyPlugin: TypeAlias = (
    Plugin
    | type[Plugin]
    | BuiltInPlugin
    | type[BuiltInPlugin]
    | str
    | tuple[type[Plugin] | type[BuiltInPlugin] | str, Mapping[str, Any]]
)
"""A plugin, a class, ``(class, options)``, one of ``cmdc.plugins``, or ``"module:Class"``."""
AnyStrategy: TypeAlias = (
    ReasoningStrategy
    | type[ReasoningStrategy]
    | BuiltInStrategy
    | type[BuiltInStrategy]
    | BuiltIn  # the Reason tool with a strategy in it, as ``Runner.run`` makes it
    | str
    | tuple[type[ReasoningStrategy] | type[BuiltInStrategy] | str, Mapping[str, Any]]
)
"""A strategy, a class, ``(class, options)``, one of ``cmdc.reasoning``, its name, or
``"module:Class"``."""
AnyBlueprint: TypeAlias = OptionsSource | Builder | Options | type[Any]  # Any: one with ``build``
"""A ``cmdc.Blueprint``, a class or object with ``build(opts)``, or one with ``to_options()``."""
AnyMessage: TypeAlias = Message | Mapping[str, Any]  # Any: the fields of one
"""A message of a history, or its fields."""
AnyGuardrail: TypeAlias = Callable[..., Any] | str  # Any: None, a str or a Tripwire
"""A guardrail, or ``"module:name"`` of one."""
AnyRedaction: TypeAlias = Callable[..., Any] | str  # Any: the state that it gets, and returns
"""A function of a state, or ``"module:name"`` of one."""
