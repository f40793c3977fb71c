"""Plays mutants against the tests that belong to their module, and says which test noticed each.

Tests are collected once for all mutants that differ inside of functions only: each is tried in a
fork, with its code swapped in. Others have their module, and what imports it, imported anew.

Own tests come first, and only tests that run the mutant's function: so says a look at each file of
tests with right code. Of them come first those that have noticed most so far, then the quickest.
What none of them notices is tried on the module's other tests. A mutant that makes tests last
``TIMES`` as long and ``MORE_S`` seconds more was noticed, unless right code is as slow just then.
A file that fails with right code is looked at twice; where it is one of the others, it is named and
left out.
"""

import contextlib
import marshal
import os
import pickle
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil
import pytest

from scripts.mutants import player, reaching, sandbox, swapping
from scripts.mutants.belongs import Module, modules
from scripts.mutants.operators import TABLE, Mutant
from scripts.mutants.swapping import Swap

AT_ONCE: Final = 2
TIMES: Final = 5.0
MORE_S: Final = 10.0
FOREMOST: Final = 20
"""Tests that have noticed mutants, which are asked before others."""
LOOK_S: Final = 900.0
"""For one file of tests with right code."""
_Found = dict[int, tuple[str, float]]
"""By the mutant's place in its list: what noticed it, "" where nothing did, and seconds."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one mutant; ``by`` is the test that noticed, "" where none did."""

    module: Module
    mutant: Mutant
    by: str
    seconds: float

    @property
    def killer(self) -> str:
        """The file of that test."""
        return _file(self.by)


class WrongTestsError(Exception):
    """Tests fail without a mutant, so they can show nothing."""


class Bench:
    """A warm process that forks one for each run; what it has seen of tests it keeps."""

    def __init__(self, *, has_others: bool = True) -> None:
        """Become warm: this process, and each that it forks.

        Without ``has_others`` nothing but a module's own tests is played.
        """
        self._has_others = has_others
        self._seen: dict[str, player.Seen] = {}
        self._broken: set[str] = set()
        self._compiled = tempfile.TemporaryDirectory(prefix="mutants-", dir=sandbox.PLACES)
        player.warm_up()
        sandbox.is_apart()  # once, for all forks

    def judge(self, module: Module, mutants: Sequence[Mutant]) -> Iterator[Verdict]:
        """Yield what becomes of mutants of one module, in their order; raises WrongTestsError."""
        found = self._tried(module, mutants, module.own, is_near=True)
        left = [at for at in range(len(mutants)) if not (at in found and found[at][0])]
        others = module.others if self._has_others else ()
        rest = self._tried(module, [mutants[at] for at in left], others, is_near=False)
        for number, (by, seconds) in rest.items():
            at = left[number]
            found[at] = by, seconds + found.get(at, ("", 0.0))[1]
        for at, mutant in enumerate(mutants):
            yield Verdict(module, mutant, *found.get(at, ("", 0.0)))

    def left_out(self, module: Module) -> set[str]:
        """Return what was not played of a module's tests: it may notice what has survived."""
        return self._broken.intersection(module.others) if self._has_others else set(module.others)

    def _tried(
        self, module: Module, mutants: Sequence[Mutant], files: Sequence[str], *, is_near: bool
    ) -> _Found:
        if not mutants or not files:
            return {}
        files = [file for file in files if self._has_looked(file, must=is_near)]
        chosen = [self._chosen(module, mutant, files) for mutant in mutants]
        loaded = [name for file in files for name in self._seen[file].loaded] if is_near else []

        tasks = [
            Task(
                at, mutant, tests, self._limit_s(tests), self._runs_at_import(module, mutant, files)
            )
            for at, (mutant, tests) in enumerate(zip(mutants, chosen, strict=True))
            if tests
        ]

        def work() -> _Found:
            found = _in_a_fork(lambda: _play_swapped(module, tasks))
            left = [task for task in tasks if task.at not in found]
            if left and loaded:
                player.import_without(module.name, list(dict.fromkeys(loaded)))
                _check(module, _union(left))
            return found | _play_all(module, left, _play_anew)

        return _in_a_fork(work)

    def _has_looked(self, file: str, *, must: bool) -> bool:
        """Say whether a file passes, so that it can show something; raises WrongTestsError."""
        if file in self._seen:
            return True
        if file in self._broken and not must:
            return False
        compiled = Path(self._compiled.name)
        seen = _look(file, compiled) or _look(file, compiled)
        if seen is not None:
            self._seen[file] = seen
        elif must:
            raise WrongTestsError(f"{file} fails by itself")
        else:
            self._broken.add(file)
            sys.stdout.write(f"left out, since it fails by itself: {file}\n")
        return seen is not None

    def _chosen(self, module: Module, mutant: Mutant, files: Sequence[str]) -> list[str]:
        """Return the tests that run a mutant's function, the quickest first."""
        seconds: dict[str, float] = {}
        for file in files:
            seen = self._seen[file]
            tests = set(seen.functions.get(f"{module.path}:{mutant.place.function}", ()))
            is_all = "" in tests or (mutant.place.function == TABLE and module.name in seen.loaded)
            names = seen.seconds if is_all else tests.union(seen.elsewhere)
            seconds |= {name: seen.seconds[name] for name in names}
        return sorted(seconds, key=lambda name: seconds[name])

    def _runs_at_import(self, module: Module, mutant: Mutant, files: Sequence[str]) -> bool:
        """Say whether a mutant's function has been run when the tests are there."""
        function = f"{module.path}:{mutant.place.function}"
        return any("" in self._seen[file].functions.get(function, ()) for file in files)

    def _limit_s(self, tests: Sequence[str]) -> float:
        return MORE_S + TIMES * sum(self._seen[_file(test)].seconds[test] for test in tests)


def _file(test: str) -> str:
    return test.partition(":")[0]


@dataclass(frozen=True, slots=True)
class Task:
    """A mutant that is to be tried, by its place in the list, and the tests that may notice it."""

    at: int
    mutant: Mutant
    tests: list[str]
    limit_s: float
    runs_at_import: bool


def _union(tasks: Sequence[Task]) -> list[str]:
    return list(dict.fromkeys(test for task in tasks for test in task.tests))


def _look(file: str, compiled: Path) -> player.Seen | None:
    """Return what a file of tests does with right code; None where it fails."""
    with _folder() as folder:
        out = folder / "seen"

        def look() -> int:
            reaching.install({module.name: module.path for module in modules()}, compiled)
            return player.play([file], player.Looking(out), folder)

        pid = sandbox.start_apart([folder, compiled], look, LOOK_S)
        status = sandbox.status_of(os.waitpid(pid, 0)[1])
        if status not in player.PASSED:
            return None
        return msgspec.json.decode(out.read_bytes(), type=player.Seen)


def _check(module: Module, tests: list[str]) -> None:
    """Raise WrongTestsError where these tests fail without a mutant, the product being there."""
    with _folder() as folder:
        shown = player.Shown()
        files = list(dict.fromkeys(_file(test) for test in tests))
        chosen = player.Chosen(tests, shown)
        status = sandbox.run(lambda: player.play(files, chosen, folder), LOOK_S)
    if status not in player.PASSED:
        raise WrongTestsError(f"{module.path}: {shown.get()} fails by itself: status {status}")


_Play = Callable[["Task", player.Shown, Path, str], int]
"""Runs the tests of a task in a process that ends then; the last is the value of ``MUTANT``."""


def _play_swapped(module: Module, tasks: Sequence[Task]) -> _Found:
    """Try those mutants that need no import of anything: here pytest collects the tests once."""
    found: _Found = {}
    wrong_tests: list[WrongTestsError] = []

    def serve(items: Mapping[str, pytest.Item]) -> None:
        right = compile(Path(module.file).read_text(encoding="utf-8"), module.file, "exec")
        swaps: dict[int, Sequence[Swap]] = {}
        for task in tasks:
            if not task.runs_at_import and module.name in sys.modules:
                wrong = compile(task.mutant.tree(), module.file, "exec")
                swaps[task.at] = swapping.swaps(sys.modules[module.name], right, wrong)

        def play(task: Task, shown: player.Shown, folder: Path, mutant: str) -> int:
            for function, code in swaps.get(task.at, ()):
                function.__code__ = code
            return player.play_collected(
                [items[test] for test in task.tests], shown, folder, mutant
            )

        quick = [task for task in tasks if swaps.get(task.at)]
        try:
            if quick:
                _check_collected(module, quick, play)
                found.update(_play_all(module, quick, play))
        except WrongTestsError as error:  # pytest would take it for a trouble of its own
            wrong_tests.append(error)

    files = list(dict.fromkeys(_file(test) for test in _union(tasks)))
    if files:
        with _folder() as folder:
            player.play(files, player.Collected(serve), folder)
    for error in wrong_tests:
        raise error
    return found


def _check_collected(module: Module, tasks: Sequence[Task], play: _Play) -> None:
    shown = player.Shown()
    task = replace(tasks[0], tests=_union(tasks), limit_s=LOOK_S)
    status = _status_without(task, play, shown)
    if status not in player.PASSED:
        raise WrongTestsError(f"{module.path}: {shown.get()} fails by itself: status {status}")


def _status_without(task: Task, play: _Play, shown: player.Shown) -> int:
    """Return the exit status of a task's tests with right code."""
    right = replace(task, at=-1)
    with _folder() as folder:
        pid = sandbox.start_apart([folder], lambda: play(right, shown, folder, ""), task.limit_s)
        return sandbox.status_of(os.waitpid(pid, 0)[1])


def _is_slow_here(task: Task, play: _Play) -> bool:
    """Say whether right code does not end in the task's time either: the machine is busy."""
    is_bounded = task.limit_s < LOOK_S
    return is_bounded and _status_without(task, play, player.Shown()) == sandbox.TIMED_OUT


def _play_anew(task: Task, shown: player.Shown, folder: Path, mutant: str) -> int:
    files = list(dict.fromkeys(_file(test) for test in task.tests))
    return player.play(files, player.Chosen(task.tests, shown), folder, mutant)


def _play_all(module: Module, tasks: Sequence[Task], play: _Play) -> _Found:
    found: _Found = {}
    noticed: Counter[str] = Counter()
    waiting = list(tasks)
    with contextlib.ExitStack() as stack:
        benches = [_Run(module, stack.enter_context(_folder())) for _ in range(AT_ONCE)]
        running: dict[int, _Run] = {}
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                free = next(one for one in benches if one not in running.values())
                running[free.start(foremost(waiting.pop(0), noticed), play)] = free
            pid, wait_status = os.waitpid(-1, 0)
            run, status = running.pop(pid), sandbox.status_of(wait_status)
            ended = run.end(status)
            if status == sandbox.TIMED_OUT and _is_slow_here(run.task, play):
                waiting.append(replace(run.task, limit_s=TIMES * run.task.limit_s))
                continue
            found[run.task.at] = ended
            noticed[ended[0]] += 1
    return found


def foremost(task: Task, noticed: Counter[str]) -> Task:
    """Return a task whose tests begin with those that have noticed the most mutants."""
    tests = set(task.tests)
    first = [test for test, _ in noticed.most_common(FOREMOST) if test in tests]
    return replace(task, tests=list(dict.fromkeys([*first, *task.tests])))


class _Run:
    """A folder and what is played there now."""

    def __init__(self, module: Module, folder: Path) -> None:
        self._module = module
        self._folder = folder
        self._shown = player.Shown()
        self._begun_s = 0.0
        self._mutant = ""
        self.task: Task

    def start(self, task: Task, play: _Play) -> int:
        """Fork a process that plays a mutant, and return its pid."""
        self.task, self._begun_s = task, time.monotonic()
        code = self._folder / f"code-{task.at}"
        code.write_bytes(marshal.dumps(compile(task.mutant.tree(), self._module.file, "exec")))
        mutant = self._mutant = f"{self._module.name}:{code}"
        self._shown.put(_file(task.tests[0]))
        work = partial(play, task, self._shown, self._folder, mutant)
        return sandbox.start_apart([self._folder], work, task.limit_s)

    def end(self, status: int) -> tuple[str, float]:
        """Return what noticed the mutant, and after how many seconds; nothing of it is left."""
        if status == sandbox.BROKEN:
            raise WrongTestsError(f"{self._mutant}: no place to play it in")
        if not sandbox.is_apart():
            _end_strays(self._mutant)
        for left in self._folder.iterdir():
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink()
        said = self._shown.get() + (": its time was over" if status == sandbox.TIMED_OUT else "")
        return "" if status in player.PASSED else said, time.monotonic() - self._begun_s


def _in_a_fork(work: Callable[[], _Found]) -> _Found:
    """Return what this does in a process of its own; raises WrongTestsError as it does."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        with os.fdopen(writer, "wb") as out:
            try:
                outcome: Any = work()
            except WrongTestsError as error:
                outcome = error
            pickle.dump(outcome, out)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        raw = answer.read()
    os.waitpid(pid, 0)
    found = pickle.loads(raw) if raw else WrongTestsError("the process of a module has died")  # noqa: S301 - our own fork's
    if isinstance(found, WrongTestsError):
        raise found
    result: _Found = found
    return result


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="mutant-", dir=sandbox.PLACES))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _end_strays(mutant: str) -> None:
    """End what the tests of a mutant have left, where no namespace has ended it."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get("MUTANT") == mutant:
                process.kill()
