"""Whether the daemon really works: asked of its parts, reported to the log and the service manager.

Two observers, because a loop that hangs cannot report that it hangs:

- ``SelfCheck`` runs in the loop. Round after round it asks every part, each within a bound, and
  feeds the service manager's watchdog only after a round in which all of them have answered.
- ``LoopWatch`` is a thread. It looks whether the loop still turns, and where it does not, writes
  down the stack of the main thread, which names what holds it up.

Nothing here ends or restarts anything: the watchdog does, when the feeding stays away.
"""

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from cmdc_runtime.errors import CmdcError
from supervisor.core.limits import (
    LOOP_LOOK_S,
    PAUSE_S,
    SELF_CHECK_INTERVAL_S,
    SELF_CHECK_RETRY_S,
    STACK_LINES_MAX,
)
from supervisor.core.self_check import Findings, Gap, PartStates, gap_of

log = structlog.get_logger(__name__)

Question = Callable[[], Awaitable[None]]
ROUNDS_PER_WATCHDOG: Final = 4
"""A round takes an interval at most and the next one starts an interval later: the watchdog is fed
twice in its time, as sd_watchdog_enabled(3) advises, even where every answer takes its bound."""


class SelfCheck:
    """Asks every part in turn; ``feed`` is called after each round in which all have answered."""

    def __init__(
        self,
        questions: Mapping[str, Question],
        feed: Callable[[], None],
        watchdog_s: float | None = None,
    ) -> None:
        """Prepare; ``keep`` asks. ``watchdog_s`` is how long the feeding may stay away."""
        self._questions = questions
        self._feed = feed
        rounds_s = SELF_CHECK_INTERVAL_S if watchdog_s is None else watchdog_s / ROUNDS_PER_WATCHDOG
        self.interval_s = min(SELF_CHECK_INTERVAL_S, rounds_s)

    async def keep(self) -> None:
        """Ask for ever, in the loop that the answers speak for. Cancel it to end."""
        loop = asyncio.get_running_loop()
        parts = PartStates(self._questions, loop.time())
        with LoopWatch(loop):
            while True:
                findings = parts.judge(await self._silent(), loop.time())
                _report(findings)
                if findings.is_well:
                    self._feed()
                await asyncio.sleep(self.interval_s)

    async def _silent(self) -> frozenset[str]:
        """Return the parts that have not answered within the interval.

        A round that outlasts its bound says nothing about the parts: the loop or the process was
        held up, which ``LoopWatch`` reports, and they are asked anew.
        """
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            asked = [self._has_answered(question) for question in self._questions.values()]
            heard = await asyncio.gather(*asked)
            if loop.time() - began_s < self.interval_s + PAUSE_S:
                answers = zip(self._questions, heard, strict=True)
                return frozenset(part for part, answered in answers if not answered)

    async def _has_answered(self, question: Question) -> bool:
        try:
            async with asyncio.timeout(self.interval_s):
                while True:
                    try:
                        await question()
                    except CmdcError:  # too busy to be asked is not dead: it is asked again
                        await asyncio.sleep(min(SELF_CHECK_RETRY_S, self.interval_s / 4))
                    else:
                        return True
        except TimeoutError:
            return False
        except Exception:
            log.exception("self_check.failed")
            return False


class LoopWatch:
    """A thread that looks twice a second whether the loop still turns; a context manager."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Prepare to watch ``loop``, which runs in the thread that enters."""
        self._loop = loop
        self._beat_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = threading.Event()
        self._loop_thread = 0
        self._thread = threading.Thread(target=self._watch, name="loop-watch", daemon=True)

    def __enter__(self) -> None:
        """Begin to watch."""
        self._loop_thread = threading.get_ident()
        self._sign()
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        """End the thread."""
        self._is_over.set()
        if self._timer is not None:
            self._timer.cancel()
        self._thread.join(LOOP_LOOK_S)

    def _sign(self) -> None:
        self._beat_s = time.monotonic()
        self._timer = self._loop.call_later(LOOP_LOOK_S, self._sign)

    # Everything below runs on the thread.

    def _watch(self) -> None:
        looked_s = excused_s = time.monotonic()
        blocked_s: float | None = None  # the loop's last beat before it was found to hang
        while not self._is_over.wait(LOOP_LOOK_S):
            now_s, beat_s = time.monotonic(), self._beat_s
            if blocked_s is not None and beat_s > blocked_s:
                log.warning("self_check.recovered", part="loop", after_s=_short(beat_s - blocked_s))
                blocked_s = None
            loop_age_s = now_s - max(beat_s, excused_s)
            match gap_of(loop_age_s=loop_age_s, look_age_s=now_s - looked_s):
                case Gap.PAUSED:
                    log.warning("process.paused", for_s=_short(now_s - looked_s))
                    excused_s = now_s  # the loop could not turn either
                case Gap.BLOCKED if blocked_s is None:
                    blocked_s = beat_s
                    self._report_stalled(now_s - beat_s)
            looked_s = now_s

    def _report_stalled(self, for_s: float) -> None:
        stack = _stack_of(self._loop_thread)
        log.error("self_check.stalled", part="loop", for_s=_short(for_s), stack=stack)


def _report(findings: Findings) -> None:
    for silence in findings.stalled:
        log.error("self_check.stalled", part=silence.part, for_s=_short(silence.for_s))
    for silence in findings.recovered:
        log.warning("self_check.recovered", part=silence.part, after_s=_short(silence.for_s))


def _stack_of(thread: int) -> str:
    """Return where a thread is, innermost call last; names and lines only, no values."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - the only way to see another thread
    found = traceback.extract_stack(frame) if frame is not None else []
    calls = (f"{one.filename}:{one.lineno} {one.name}" for one in found[-STACK_LINES_MAX:])
    return "\n".join(calls)


def _short(seconds: float) -> float:
    return round(seconds, 3)
