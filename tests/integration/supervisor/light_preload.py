"""A preload module for tests: nothing to import, nothing to warm."""

from pathlib import Path

import cmdc_runtime
from cmdc_runtime.wire.forks import PreloadReport

ORIGIN = str(Path(cmdc_runtime.__file__).parent.parent / "workers")


def preload(_needs):
    """Do nothing."""
    return PreloadReport(origin=ORIGIN)
