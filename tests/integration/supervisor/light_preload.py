"""A preload module for tests: nothing to warm, and nothing to import but what is asked for."""

import importlib
from pathlib import Path

import cmdc_runtime
from cmdc_runtime.wire.forks import PreloadReport

ORIGIN = str(Path(cmdc_runtime.__file__).parent.parent / "workers")


def preload(needs):
    """Import what is needed, if it is there."""
    for name in needs:
        learn(name)
    return PreloadReport(origin=ORIGIN)


def learn(name):
    """Import one more."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        return [str(error)]
    return []
