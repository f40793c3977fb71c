"""How an application's code gets to its agent; re-exports without logic.

``packer`` decides, ``origin`` knows where code came from, and ``byvalue`` is the one module that
loads cloudpickle. Opening packed code is the workers' business: ``workers.loader``.
"""

from cmdc_runtime.packed_code import Packed
from cmdc_runtime.packing.packer import (
    FUNCTION_KEY,
    PACKED_BYTES_MAX,
    STRATEGY_KEY,
    BuiltIn,
    BuiltInPlugin,
    BuiltInSandbox,
    BuiltInStrategy,
    Function,
    brings_code,
    built_ins,
    pack,
    pack_function,
    pack_plugin,
    pack_sandbox,
    pack_strategy,
    packed_in,
    strategy_option,
)

__all__ = [
    "FUNCTION_KEY",
    "PACKED_BYTES_MAX",
    "STRATEGY_KEY",
    "BuiltIn",
    "BuiltInPlugin",
    "BuiltInSandbox",
    "BuiltInStrategy",
    "Function",
    "Packed",
    "brings_code",
    "built_ins",
    "pack",
    "pack_function",
    "pack_plugin",
    "pack_sandbox",
    "pack_strategy",
    "packed_in",
    "strategy_option",
]
