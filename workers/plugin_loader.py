"""Turns what travelled back into plugins.

``cost_guard`` means ``create`` in ``workers.builtin.plugins.cost_guard``; ``module:Class`` is what
it says. A new module in that folder is a new name.
"""

from collections.abc import Iterable
from typing import Final

from cmdc_runtime.extensions.admission import as_plugin
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.parcels import Packed
from workers.builtin import plugins as built_in_plugins
from workers.loader import Kind, load_all

PLUGINS: Final = Kind("plugin", built_in_plugins)


def load_plugins(parcels: Iterable[Packed]) -> tuple[Plugin, ...]:
    """Return new plugins in their order, each checked.

    Raises:
        LoadError: one cannot be loaded, is no plugin, or has the name of an earlier one.
    """
    return load_all(parcels, PLUGINS, as_plugin)
