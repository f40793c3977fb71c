"""Plays tests in a process that was forked from a warm one: pytest is there, the product is not.

A warm process has imported pytest, hypothesis and what else is not ours. ``play`` runs in a fork of
it, with a mutant in place of its module or with none, and looks at the tests as they run.
"""

import builtins
import contextlib
import gc
import importlib
import importlib.util
import json
import mmap
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import hypothesis
import pytest

from scripts.mutants.place import ROOT, SITE
from scripts.mutants.reaching import REACHED

PRODUCT: Final = ("cmdc_runtime", "supervisor", "workers")
PASSED: Final = frozenset({pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED})
_FOREIGN: Final = (
    "_hypothesis_pytestplugin", "asyncio", "cloudpickle", "hypothesis.strategies", "jsonschema",
    "msgspec", "multiprocess", "psutil", "pytest_timeout", "regex", "structlog", "unittest.mock",
    "zmq", "zmq.asyncio",
)  # fmt: skip
_SHOWN_BYTES: Final = 4096
_WORDS: Final = (
    "-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", "--timeout", "0",
    "-p", "hypothesispytest", "-p", "timeout", "-W", "ignore::pytest.PytestAssertRewriteWarning",
)  # fmt: skip


def warm_up() -> None:
    """Import what is not ours and takes long; nothing in it may hold a thread or a context."""
    for name in _FOREIGN:
        importlib.import_module(name)
    freeze()


def freeze() -> None:
    """Keep what is there now out of the way of each fork's garbage collector."""
    gc.collect()
    gc.freeze()


class Shown:
    """What a fork shows to the process that forked it: the test that it is at."""

    def __init__(self) -> None:
        """Share some memory with what is forked from here on."""
        self._map = mmap.mmap(-1, _SHOWN_BYTES)

    def put(self, text: str) -> None:
        """Show this in place of what was shown before."""
        line = text.encode()[: _SHOWN_BYTES - 1]
        self._map[: len(line) + 1] = line + b"\0"

    def get(self) -> str:
        """Return what was shown last; "" where nothing was."""
        return self._map[:].partition(b"\0")[0].decode(errors="replace")


class _SameExamples:
    """Has a property play the same examples each time, and fail with the first that is wrong.

    Nobody reads the shortest; and how long one takes on a busy machine is no fault of the code.
    """

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """Take what Hypothesis has for build machines, which it found to be none of them."""
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        same = hypothesis.settings.get_profile("ci")
        hypothesis.settings.register_profile("mutants", same, phases=phases)
        hypothesis.settings.load_profile("mutants")


class Chosen(_SameExamples):
    """Runs only some tests, in an order, and shows the one that it is at; a plugin of pytest."""

    def __init__(self, chosen: Sequence[str], shown: Shown) -> None:
        """Keep what to run, in this order, and where to show it."""
        self._order = {name: at for at, name in enumerate(chosen)}
        self._shown = shown

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep what was chosen; without a choice, all."""
        if self._order:
            kept = [item for item in items if item.nodeid in self._order]
            items[:] = sorted(kept, key=lambda item: self._order[item.nodeid])

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        """Show which file is being imported."""
        if isinstance(collector, pytest.Module):
            self._shown.put(collector.nodeid)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Show which test is run."""
        self._shown.put(nodeid)


class Collected(_SameExamples):
    """Hands over what was collected instead of running it; a plugin of pytest."""

    def __init__(self, serve: Callable[[Mapping[str, pytest.Item]], None]) -> None:
        """Keep what gets all tests, by name."""
        self._serve = serve

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Hand over the tests, unless some could not be collected."""
        if not session.testsfailed:
            freeze()
            self._serve({item.nodeid: item for item in session.items})
        return True


class _Ear:
    """Hears whether a test has failed; a plugin of pytest."""

    has_failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a failure before a test, in it or behind it."""
        self.has_failed |= report.failed


def play_collected(items: Sequence[pytest.Item], shown: Shown, folder: Path, mutant: str) -> int:
    """Run tests that are collected, in this order, up to the first that fails.

    Return an exit status as pytest has it. It is called in a fork that ends thereafter.
    """
    os.environ |= {"MUTANT": mutant, "TMPDIR": str(folder)}
    tempfile.tempdir = None
    ear = _Ear()
    try:
        for item, behind in zip(items, [*items[1:], None], strict=True):
            if not item.config.pluginmanager.is_registered(ear):
                item.config.pluginmanager.register(ear)
            shown.put(item.nodeid)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=behind)
            if ear.has_failed:
                return int(pytest.ExitCode.TESTS_FAILED)
    except BaseException:  # noqa: BLE001 - a test may end anything, and then it was noticed
        return int(pytest.ExitCode.INTERRUPTED)
    return int(pytest.ExitCode.OK)


@dataclass(slots=True)
class Seen:
    """What a file of tests does with right code."""

    status: int = -1
    seconds: dict[str, float] = field(default_factory=dict)
    """By test, in the order of the file."""
    functions: dict[str, list[str]] = field(default_factory=dict)
    """By module and function, ``path:name``: the tests that run it; "" for the import of it."""
    loaded: list[str] = field(default_factory=list)
    """The modules of the product that are imported at its end."""
    elsewhere: list[str] = field(default_factory=list)
    """Tests whose work is done by processes that cannot be looked into."""


class Looking(_SameExamples):
    """Notes which test runs which function, and how long it takes; a plugin of pytest."""

    def __init__(self, out: Path) -> None:
        """Keep the file that what was seen is written to."""
        self._out = out
        self._seen = Seen()
        self._at = ""
        self._tests: defaultdict[str, set[str]] = defaultdict(set)
        setattr(builtins, REACHED, self._hear)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Note the tests that follow."""
        self._at, begun_s = item.nodeid, time.monotonic()
        result = yield
        self._seen.seconds[item.nodeid] = time.monotonic() - begun_s
        if any(item.iter_markers("process")) or any(item.iter_markers("fault")):
            self._seen.elsewhere.append(item.nodeid)
        return result

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Hand over what was seen."""
        self._seen.status = int(exitstatus)
        self._seen.functions = {name: sorted(tests) for name, tests in self._tests.items()}
        self._seen.loaded = [name for name in sys.modules if name.startswith(PRODUCT)]
        self._out.write_text(json.dumps({
            name: getattr(self._seen, name) for name in Seen.__slots__
        }))  # fmt: skip

    def _hear(self, function: str) -> None:
        self._tests[function].add(self._at)


def play(files: Sequence[str], plugin: object, folder: Path, mutant: str = "") -> int:
    """Run these files of tests in this process, and return pytest's exit status.

    ``mutant`` is the value of ``MUTANT``, as ``site`` has it.
    """
    os.environ |= {"MUTANT": mutant, "PYTHONPATH": str(SITE), "CI": "true", "TMPDIR": str(folder)}
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    tempfile.tempdir = None
    os.chdir(ROOT)
    _load_site()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nowhere, descriptor)
    status = int(pytest.main([*_WORDS, *files], plugins=[plugin]))
    sys.stdout.flush()
    return status


def _load_site() -> None:
    """Do what Python does by itself where ``PYTHONPATH`` was set at its start."""
    spec = importlib.util.spec_from_file_location("sitecustomize", SITE / "sitecustomize.py")
    if spec is None or spec.loader is None:
        raise ImportError(SITE)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


class _Absent:
    """Has imports of one module fail."""

    def __init__(self, module: str) -> None:
        self._module = module

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name == self._module:
            raise ModuleNotFoundError(name, name=name)


def import_without(module: str, names: Sequence[str]) -> None:
    """Import those of these modules that do without one; it is imported nowhere here."""
    absent: Any = _Absent(module)
    sys.meta_path.insert(0, absent)
    try:
        for name in names:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    finally:
        sys.meta_path.remove(absent)
    if module in sys.modules:
        raise ImportError(f"{module} was imported before its mutants")
    freeze()
