"""Runs targets over many inputs and says what went wrong: crashes, hangs, memory that grows."""

import contextlib
import resource
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from scripts.fuzz.entropy import Entropy, Seeded

HANG_S: Final = 10.0
"""What one input may take, on a machine that does other things, too."""
GROWTH_BYTES_MAX: Final = 48 * 2**20
"""Of a target's process from the first quarter of its inputs to the end."""
_PAGE: Final = resource.getpagesize()

TryOne = Callable[[Entropy], None]
"""Takes one input; what it raises is a finding, but for what the product raises on purpose."""


class HangError(Exception):
    """One input took longer than ``HANG_S``."""


@dataclass(frozen=True, slots=True)
class Target:
    """One decoder of the product; ``share`` of 1,000 inputs are its own.

    ``open`` yields what takes an input; what only shows at the end it raises when it closes.
    """

    name: str
    share: int
    open: Callable[[], AbstractContextManager[TryOne]]
    batch: int = 1
    """Inputs that one call makes by itself."""
    is_guidable: bool = True
    """Whether an engine that follows the coverage can drive it: all of it is in this process."""


@dataclass(slots=True)
class Found:
    """What came of one target's inputs."""

    name: str
    inputs: int = 0
    seconds: float = 0.0
    growth_bytes: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    """By problem: the seed of its first input, and how it ended."""

    @property
    def is_flat(self) -> bool:
        """Whether memory stayed as it was."""
        return self.growth_bytes <= GROWTH_BYTES_MAX

    def add(self, problem: str, seed: str, shown: str) -> None:
        """Count a problem, and keep the first example of its kind."""
        self.problems[problem] += 1
        self.examples.setdefault(problem, f"seed {seed}\n{shown}")


def play(target: Target, inputs: int, seed: str) -> Found:
    """Give ``inputs`` inputs to a target, each by a seed of its own, ``<seed>.<number>``."""
    found = Found(target.name)
    started_s = time.monotonic()
    calm_bytes = 0
    try:
        with target.open() as try_one:
            calls = -(-inputs // target.batch)
            for number in range(calls):
                try_seed(try_one, f"{seed}.{number}", found)
                if number == calls // 4:
                    calm_bytes = _resident_bytes()
            found.growth_bytes = max(0, _resident_bytes() - calm_bytes)
    except AssertionError as error:  # what a target finds when it closes
        found.add("at the end", seed, str(error))
    found.inputs *= target.batch
    found.seconds = round(time.monotonic() - started_s, 1)
    return found


def try_seed(try_one: TryOne, seed: str, found: Found) -> None:
    """Give a target the input of ``seed``."""
    found.inputs += 1
    try:
        with _bounded():
            try_one(Seeded(seed))
    except Exception as error:  # noqa: BLE001 - whatever comes out is what is looked for
        found.add(_kind(error), seed, "".join(traceback.format_exception(error)[-6:]))


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, _hang)
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _hang(_number: int, _frame: FrameType | None) -> NoReturn:
    raise HangError(f"one input took over {HANG_S:g} s")


def _kind(error: Exception) -> str:
    """Return the class of an error and the last place of ours that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if "site-packages" not in one.filename] or frames
    at = own[-1] if own else None
    place = "" if at is None else f" at {Path(at.filename).name}:{at.lineno}"
    return f"{type(error).__name__}{place}"


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * _PAGE
