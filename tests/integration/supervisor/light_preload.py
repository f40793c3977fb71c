"""A preload module for tests: nothing to import, nothing to warm."""

from pathlib import Path

import cmdc_runtime

REPORT = {
    "origin": str(Path(cmdc_runtime.__file__).parent.parent / "workers"),
    "import_ms": 0.0,
    "warm_ms": 0.0,
    "problems": [],
}
