"""How an application's code gets to its agent; re-exports without logic.

``parcel`` decides, ``origin`` knows where code came from, and ``byvalue`` is the one module that
loads cloudpickle. Opening a parcel is the workers' business: ``workers.loader``.
"""

from cmdc_runtime.packing.parcel import (
    FUNCTION_KEY,
    PACKED_BYTES_MAX,
    BuiltIn,
    BuiltInPlugin,
    Function,
    pack,
    pack_function,
    pack_plugin,
)
from cmdc_runtime.parcels import Packed

__all__ = [
    "FUNCTION_KEY",
    "PACKED_BYTES_MAX",
    "BuiltIn",
    "BuiltInPlugin",
    "Function",
    "Packed",
    "pack",
    "pack_function",
    "pack_plugin",
]
