"""Which modules are mutated, and which tests belong to each: those that have to notice.

Unit tests mirror the tree, so they are found by name; what else shows a module's work stands here.
The quick come first: what they kill need not be tried on real processes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.mutants.place import ROOT

SLOW: Final = ("tests/conformance", "tests/fault", "tests/integration", "tests/model/journal")
"""Real processes and long games: what others notice need not be tried on them."""
TREE: Final = (
    "tests/unit/supervisor/core/tree",
    "tests/model/test_supervision.py",
    "tests/conformance",
)
JOURNAL: Final = ("tests/contract/journal", "tests/model/journal", "tests/integration/supervisor")
SQL: Final = (
    *JOURNAL[:2],
    "tests/unit/supervisor/adapters/journal/test_sql_store.py",
    "tests/unit/supervisor/adapters/journal/test_misplaced.py",
)
AGENT: Final = (
    "tests/unit/workers/core",
    "tests/model/test_recovery.py",
    "tests/model/test_replaying.py",
    "tests/model/test_snapshots.py",
)

BELONGS: Final[dict[str, tuple[str, ...]]] = {
    "supervisor/core": (),  # each has tests of its name, and they alone must do
    "supervisor/core/tree": TREE,
    "supervisor/core/monitors.py": (
        "tests/unit/supervisor/core/test_monitors.py",
        "tests/model/downs",
    ),
    "supervisor/adapters/hub.py": (
        "tests/integration/supervisor/test_hub.py",
        "tests/integration/supervisor/test_hub_ticks.py",
        "tests/integration/supervisor/test_hub_events.py",
        "tests/integration/supervisor/test_hub_replay.py",
    ),
    "supervisor/sessions/adoption.py": (
        "tests/integration/supervisor/test_adoption.py",
        "tests/integration/supervisor/test_sessions.py",
        "tests/fault/test_not_adopted.py",
    ),
    "supervisor/sessions/agent.py": (
        "tests/unit/supervisor/test_agent.py",
        "tests/unit/supervisor/test_agent_orders.py",
        "tests/unit/supervisor/test_agent_acks.py",
        "tests/unit/supervisor/test_start_attempt.py",
        "tests/integration/supervisor/test_flush_barrier.py",
        "tests/unit/supervisor/test_session.py",
        "tests/unit/supervisor/test_revival.py",
        "tests/unit/supervisor/test_stopping.py",
        "tests/integration/supervisor/test_adoption.py",
    ),
    "supervisor/sessions/tree_runtime.py": (
        "tests/unit/supervisor/test_tree_runtime.py",
        "tests/unit/supervisor/test_tree_runtime_reports.py",
        "tests/unit/supervisor/test_runtime_zygote_child.py",
        "tests/unit/supervisor/test_recordings.py",
        "tests/conformance",
    ),
    "supervisor/adapters/journal/sql_store.py": SQL,
    "supervisor/adapters/journal/writer.py": (
        "tests/integration/supervisor/test_writer.py",
        "tests/integration/supervisor/test_writer_copies.py",
        "tests/integration/supervisor/test_journal_copy.py",
        "tests/integration/supervisor/test_journal_faults.py",
        *JOURNAL[:1],
    ),
    "supervisor/adapters/journal/sql_reads.py": SQL,
    "workers/core": AGENT,
    "cmdc_runtime/packing": (
        "tests/unit/cmdc_runtime/test_packing.py",
        "tests/unit/cmdc_runtime/test_plugin_packing.py",
        "tests/integration/test_packing.py",
        "tests/integration/test_plugin_packing.py",
    ),
    "cmdc_runtime/wire/sockets.py": (
        "tests/unit/cmdc_runtime/wire/test_sockets.py",
        "tests/integration/test_sockets.py",
        "tests/integration/test_sockets_waiting.py",
        "tests/integration/test_dealer.py",
    ),
    "cmdc_runtime/plain.py": (
        "tests/unit/cmdc_runtime/test_plain.py",
        "tests/unit/cmdc_runtime/test_user_values.py",
        "tests/unit/workers/core/test_omissions.py",
    ),
}
"""By file or folder; the longest name that fits a module counts."""


@dataclass(frozen=True, slots=True)
class Module:
    """A module to be mutated, and the files of tests that belong to it."""

    path: str
    own: tuple[str, ...]
    """Those of its name, in unit tests and elsewhere; else the quick ones, else the first."""
    others: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name that it is imported by."""
        return self.path.removesuffix(".py").replace("/", ".")

    @property
    def file(self) -> str:
        """Where it is."""
        return str(ROOT / self.path)


def modules() -> Iterator[Module]:
    """Yield every module that is mutated."""
    seen: set[str] = set()
    for place in sorted(BELONGS, key=len, reverse=True):
        for path in _files(place, "*.py"):
            if path not in seen and not path.endswith("__init__.py"):
                seen.add(path)
                yield _module(path, BELONGS[place])


def _module(path: str, tests: tuple[str, ...]) -> Module:
    folder, stem = Path("tests/unit", path).parent, Path(path).stem
    unit = _files(str(folder), f"test_{stem}*.py") if (ROOT / folder).is_dir() else []
    files = [*unit, *(file for place in tests for file in _files(place, "test_*.py"))]
    named = [file for file in files if Path(file).stem.startswith(f"test_{stem}")]
    own = named or [file for file in files if not file.startswith(SLOW)] or files[:1]
    others = [file for file in files if file not in own]
    return Module(path, tuple(dict.fromkeys(own)), tuple(dict.fromkeys(others)))


def _files(place: str, pattern: str) -> list[str]:
    found = ROOT / place
    paths = sorted(found.rglob(pattern)) if found.is_dir() else [found]
    return [str(path.relative_to(ROOT)) for path in paths]
