"""Where the project is, and what has its processes import modules with changes in them."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SITE: Final = Path(__file__).parent / "site"
"""On ``PYTHONPATH`` it has modules imported with changes in them."""
