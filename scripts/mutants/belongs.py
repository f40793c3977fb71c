"""Which modules are mutated, and which tests belong to each: those that have to notice.

Unit tests mirror the tree, so they are found by name; what else shows a module's work stands here.
The quick come first: what they kill need not be tried on real processes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
TREE: Final = (
    "tests/unit/supervisor/core/tree",
    "tests/model/test_supervision.py",
    "tests/conformance",
)
JOURNAL: Final = ("tests/contract/journal", "tests/model/journal", "tests/integration/supervisor")
AGENT: Final = (
    "tests/unit/workers/core",
    "tests/model/test_recovery.py",
    "tests/model/test_replaying.py",
    "tests/model/test_snapshots.py",
)

BELONGS: Final[dict[str, tuple[str, ...]]] = {
    "supervisor/core": ("tests/unit/supervisor/core",),
    "supervisor/core/tree": TREE,
    "supervisor/core/watching.py": (
        "tests/unit/supervisor/core/test_watching.py",
        "tests/model/downs",
    ),
    "supervisor/adapters/hub.py": (
        "tests/integration/supervisor/test_hub.py",
        "tests/integration/supervisor/test_hub_events.py",
    ),
    "supervisor/takeover.py": ("tests/unit/supervisor", "tests/fault/test_not_adopted.py"),
    "supervisor/receipts.py": ("tests/unit/supervisor/test_receipts.py",),
    "supervisor/incarnation.py": ("tests/unit/supervisor/test_incarnation.py",),
    "supervisor/keeper.py": ("tests/unit/supervisor/test_keeper.py", "tests/conformance"),
    "supervisor/adapters/journal/ledger.py": JOURNAL[:2],
    "supervisor/adapters/journal/writer.py": JOURNAL[:1],
    "supervisor/adapters/journal/downs.py": JOURNAL[:1],
    "supervisor/adapters/journal/checkpoints.py": JOURNAL[:1],
    "workers/core": AGENT,
    "cmdc_runtime/packing": (
        "tests/unit/cmdc_runtime/packing",
        "tests/integration/test_packing.py",
        "tests/integration/test_plugin_packing.py",
    ),
    "cmdc_runtime/sockets.py": (
        "tests/unit/cmdc_runtime/test_sockets.py",
        "tests/integration/test_sockets.py",
    ),
    "cmdc_runtime/plain.py": ("tests/unit/cmdc_runtime/test_plain.py",),
}
"""By file or folder; the longest name that fits a module counts."""


@dataclass(frozen=True, slots=True)
class Module:
    """A module to be mutated, and the tests that belong to it, the nearest first."""

    path: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name that it is imported by."""
        return self.path.removesuffix(".py").replace("/", ".")


def modules() -> Iterator[Module]:
    """Yield every module that is mutated."""
    seen: set[str] = set()
    for place in sorted(BELONGS, key=len, reverse=True):
        found = ROOT / place
        paths = sorted(found.rglob("*.py")) if found.is_dir() else [found]
        for path in paths:
            name = str(path.relative_to(ROOT))
            if name not in seen and path.name != "__init__.py":
                seen.add(name)
                yield Module(name, _nearest(name, BELONGS[place]))


def _nearest(path: str, tests: tuple[str, ...]) -> tuple[str, ...]:
    folder, name = (ROOT / "tests/unit" / path).parent, Path(path).name
    own = sorted(folder.glob(f"test_{Path(name).stem}*.py")) if folder.is_dir() else []
    first = tuple(str(one.relative_to(ROOT)) for one in own)
    return (*first, *(one for one in tests if one not in first))
