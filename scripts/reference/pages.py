"""Which pages there are, and whether they are what the code says today."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from scripts.reference import (
    built_in_plugins,
    commands,
    conformance,
    diagram,
    errors,
    evasions,
    events,
    faults,
    hooks,
    measured,
    options,
    peers,
    phases,
    plugins,
    proofs,
    reasons,
    tools,
)

ROOT: Final = Path(__file__).parents[2]
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "docs/reference/commands.md": commands.page,
    "docs/reference/events.md": events.page,
    "docs/reference/options.md": options.page,
    "docs/reference/errors.md": errors.page,
    "docs/reference/reasons.md": reasons.page,
    "docs/reference/phases.md": phases.page,
    "docs/reference/tools.md": tools.page,
    "docs/reference/plugins.md": plugins.page,
    "docs/reference/hooks.md": hooks.page,
    "docs/reference/evasions.md": evasions.page,
    "docs/reference/conformance.md": conformance.page,
    "docs/reference/faults.md": faults.page,
    "docs/reference/measurements.md": measured.page,
    "docs/discussion/peers.md": peers.page,
    "README.md": measured.figures,
    "CONTRIBUTING.md": proofs.page,
    "cmdc_runtime/plugins/catalogue.json": built_in_plugins.catalogue,
    "ARCHITECTURE.md": diagram.page,
}


def write() -> list[str]:
    """Write every page that is out of date and return their names."""
    written = stale()
    for name in written:
        path = ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PAGES[name](), encoding="utf-8")
    return written


def stale() -> list[str]:
    """Return the names of the pages that are out of date."""
    return [name for name in PAGES if is_stale(name)]


def is_stale(name: str) -> bool:
    """Say whether a page is not what the code says, or is not there."""
    path = ROOT / name
    return not path.exists() or path.read_text(encoding="utf-8") != PAGES[name]()
