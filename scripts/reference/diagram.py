"""The picture of the agent's machine in ``ARCHITECTURE.md``, between two markers."""

from itertools import product
from pathlib import Path
from typing import Final

from scripts.reference import markdown
from scripts.reference.exploration import explore
from scripts.reference.scenes import COMMANDS, RESULTS
from workers.core.state import State

ARCHITECTURE: Final = Path(__file__).parents[2] / "ARCHITECTURE.md"


def page() -> str:
    """Return ``ARCHITECTURE.md`` with the picture of today."""
    return markdown.with_part(ARCHITECTURE, "machine", picture())


def picture() -> str:
    """Return the states and what leads from one to another."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {State.IDLE}"]
    for start, end in product(State, State):
        names = [given.__name__ for given in _inputs() if (start, given, end) in explore().edges]
        if names:
            lines.append(f"    {start} --> {end} : {', '.join(names)}")
    return "\n".join([*lines, "```"])


def _inputs() -> list[type]:
    return [*COMMANDS, *RESULTS]
