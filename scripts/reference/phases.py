"""``phases.md``: the phases of a session, and what leads from one to another."""

from typing import Final

from scripts.reference import markdown
from scripts.reference.sources import members_of
from supervisor.core.session_phase import SHOWN, Happening, Phase, after

_INTRO: Final = (
    "Where a session stands, as the daemon sees it: `cmdc ps`, `list_sessions` and the log show it."
    " The table is the daemon's own. A cell that is empty says that nothing comes of it, or that it"
    " can't happen there."
)


def page() -> str:
    """Return the page."""
    phases = [
        (markdown.code(name), markdown.code(SHOWN[Phase(name)]), said)
        for name, said in members_of(Phase).items()
    ]
    ways = [
        (markdown.code(name), said, *(_cell(phase, Happening(name)) for phase in Phase))
        for name, said in members_of(Happening).items()
    ]
    return markdown.page(
        "Phases of a session",
        _INTRO,
        markdown.table(("phase", "shown as", "meaning"), phases),
        markdown.table(("what happens", "meaning", *map(markdown.code, Phase)), ways),
    )


def _cell(phase: Phase, happening: Happening) -> str:
    there = after(phase, happening)
    return "" if there is phase else f"→ {markdown.code(there)}"
