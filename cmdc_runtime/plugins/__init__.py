"""The built-in plugins by name: ``plugins=[cmdc.plugins.CostGuard(max_cost_usd=1.0)]``.

These are light references: an application imports no worker code. A reference is at the same time
the ``Config`` of the plugin in ``workers.builtin.plugins.<short_name>``, so its fields, bounds and
defaults stand here only, each in the module of the plugin's short name.
"""

from cmdc_runtime.plugins.cost_guard import CostGuard

__all__ = ["CostGuard"]
