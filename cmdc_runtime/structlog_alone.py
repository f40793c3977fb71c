"""Imports structlog without rich, which it loads for the tracebacks of a developer's console.

A daemon and its agents write none, and each start would pay for it: a fifth of all that a daemon
imports. Who imports this first has it so; where one of both is there already, nothing changes.
"""

import sys

if "rich" in sys.modules:
    import structlog
else:
    # The import system's word for what is not there.
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog

    del sys.modules["rich"]

__all__ = ["structlog"]
