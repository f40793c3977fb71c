"""Imports structlog without rich, which it loads for the tracebacks of a developer's console.

A daemon and its agents write none, and each start would pay for it: a fifth of all that a daemon
imports. Who imports this first has it so; where one of both is there already, nothing changes.
"""

import sys

if "rich" in sys.modules:
    import structlog
else:
    sys.modules["rich"] = None  # type: ignore[assignment] - the import system's word for "not there"
    import structlog

    del sys.modules["rich"]

__all__ = ["structlog"]
