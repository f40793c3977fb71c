"""The version of this project; a test keeps it equal to the one in pyproject.toml."""

from typing import Final

VERSION: Final = "0.1.0"
