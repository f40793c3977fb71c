"""A small real language model on this machine, for demos and tests without a key.

``LocalModel`` runs it as a child process; ``python -m cmdc_runtime.local_model`` is that process.
What it needs is installed by ``make setup-local``; importing this package needs none of it.
"""

from cmdc_runtime.local_model.child import LocalModel

__all__ = ["LocalModel"]
