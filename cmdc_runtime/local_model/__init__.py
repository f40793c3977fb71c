"""A small real language model on this machine, for demos and tests without a key.

``LocalModel`` runs it as a child process; ``python -m cmdc_runtime.local_model`` is that process.
The extra ``local`` installs its engine, the first start fetches its weights (``weights``);
importing this package needs neither.
"""

from cmdc_runtime.local_model.child import LocalModel

__all__ = ["LocalModel"]
