"""What there is to know about each built-in plugin, without loading any.

An application and the command line import no worker code, and a plugin's priority, hooks and
events stand in its class there. So the facts are written into ``catalogue.json`` beside this
module when the reference pages are made, and a test fails where they are not those of the code.
"""

from functools import cache
from pathlib import Path
from typing import Final, Literal

import msgspec

FILE: Final = Path(__file__).with_name("catalogue.json")


class OptionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One option, in words for a person."""

    name: str
    type: str
    default: str | None = None
    """As one writes it; None where the option is required."""
    bound: str = ""
    meaning: str = ""


class PartFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A Struct that options are made of."""

    name: str
    module: str
    """Where it is imported from."""
    meaning: str
    options: tuple[OptionFacts, ...] = ()


class MethodFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A hook that the plugin has, or ``observe`` or ``filter_output``, and what it does there."""

    name: str
    meaning: str


class PluginFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One built-in plugin."""

    name: str
    reference: str
    """The class of ``cmdc_runtime.plugins`` that stands for it."""
    sentence: str
    """What it does, in one sentence."""
    meaning: str
    """The same at length."""
    priority: int
    fail: Literal["open", "closed", "disable"]
    methods: tuple[MethodFacts, ...]
    emits: tuple[str, ...] = ()
    """Names of its events, as observers get them."""
    options: tuple[OptionFacts, ...] = ()
    parts: tuple[PartFacts, ...] = ()


@cache
def built_in_plugins() -> tuple[PluginFacts, ...]:
    """Return the facts of every built-in plugin, by name."""
    return msgspec.json.decode(FILE.read_bytes(), type=tuple[PluginFacts, ...])
