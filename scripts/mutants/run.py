"""Runs a mutant's tests in processes that import it, and says whether any of them noticed."""

import contextlib
import marshal
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from scripts.mutants.belongs import ROOT, Module
from scripts.mutants.operators import Mutant

SITE: Final = Path(__file__).parent / "site"
TESTS_S: Final = 240.0
"""For the tests of one file or folder; a mutant that hangs them was noticed."""
AT_ONCE: Final = 2
_NO_TESTS: Final = 5
"""What pytest says where nothing was collected."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one mutant; ``by`` are the tests that noticed, "" where none did."""

    module: Module
    mutant: Mutant
    by: str
    seconds: float

    @property
    def name(self) -> str:
        """The module's path and the mutant's name, as ``survivors.toml`` has it."""
        return f"{self.module.path}: {self.mutant.name}"


def judge(pairs: Iterable[tuple[Module, Mutant]]) -> Iterator[Verdict]:
    """Yield what becomes of each mutant, in their order."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(lambda pair: _judged(*pair), pairs)


def _judged(module: Module, mutant: Mutant) -> Verdict:
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        code = Path(folder) / "code"
        code.write_bytes(marshal.dumps(compile(mutant.tree(), str(ROOT / module.path), "exec")))
        environment = os.environ | {
            "MUTANT": f"{module.name}:{code}",
            "PYTHONPATH": str(SITE),
            "CI": "true",
        }
        by = next((one for one in module.tests if not _passes(one, environment)), "")
    return Verdict(module, mutant, by, time.monotonic() - started_s)


def _passes(tests: str, environment: dict[str, str]) -> bool:
    words = ["-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", "--timeout", "60"]
    process = subprocess.Popen(  # noqa: S603 - our own tests
        [sys.executable, "-m", "pytest", *words, tests],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(TESTS_S) in {0, _NO_TESTS}
    except subprocess.TimeoutExpired:
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        _end_strays(environment["MUTANT"])


def _end_strays(mutant: str) -> None:
    """End what the tests of a mutant have left: they were cut off, or the mutant hides it."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get("MUTANT") == mutant:
                process.kill()
