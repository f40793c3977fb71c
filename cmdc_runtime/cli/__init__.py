"""The command line, ``cmdc``; ``entry`` knows all commands and loads only the one that is used."""

from cmdc_runtime.cli.entry import main

__all__ = ["main"]
