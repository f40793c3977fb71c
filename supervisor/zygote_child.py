"""The zygote's child handler: the nursery is warmed, watched, and warmed anew when it is lost.

Agents live on without it, and a session that needs a process waits for the next one. The tree
charges each failure; when there were too many the root gives up, and with it the daemon.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from cmdc_runtime.reasons import NurseryLost as NurseryLostReason
from cmdc_runtime.reasons import PlainReason, Shutdown, StartFailed
from supervisor.adapters.nursery import Nursery, NurseryFailed, NurseryLost
from supervisor.core.tree.messages import Departed, Ending, Ref
from supervisor.runtime import TreeRuntime

log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class ZygoteChild:
    """The child handler of the nursery; ``on_warm`` is called each time that one is warm."""

    nursery: Nursery
    on_warm: Callable[[], None]
    runtime: TreeRuntime = field(init=False)
    problem: str = ""
    """Why there is no nursery, empty while there is one or the first is being warmed."""
    _ref: Ref | None = None
    _warming: asyncio.Task[None] | None = None

    @property
    def state(self) -> str:
        """How the nursery stands, in the words of ``DaemonFacts``."""
        if self.nursery.is_warm:
            return "ready"
        return f"lost: {self.problem}" if self.problem else "warming"

    def lost(self, error: NurseryLost) -> None:
        """Handle that a nursery that was warm is gone."""
        self._over(self._ref, str(error), NurseryLostReason())

    def launch(self, ref: Ref) -> None:
        """Warm a nursery."""
        self._ref = ref
        self._warming = asyncio.create_task(self._warm(ref), name="nursery")

    def ask(self, ref: Ref, reason: str) -> None:
        """Be without a nursery; the daemon closes it when the last worker is reaped."""
        if self._warming is not None:
            self._warming.cancel()
        self._ref = None
        self.runtime.exited(ref, Shutdown(detail=reason), Ending.NORMAL)

    def terminate(self, ref: Ref) -> None:
        """Do as ``ask`` does: that has ended the handler's work already."""

    def kill(self, ref: Ref, blamed: PlainReason | None) -> None:
        """End it at once."""
        self.ask(ref, "killed" if blamed is None else str(blamed))

    def is_over(self) -> bool:
        """Say no: whoever asks for its end is told at once."""
        return False

    def departed(self, departed: Departed) -> None:
        """Say in the log that there is none, and when the next one is tried."""
        log.warning(
            "nursery.ended",
            reason=str(departed.reason),
            restarting=departed.restarting,
            next_attempt_s=departed.delay_s,
        )

    async def _warm(self, ref: Ref) -> None:
        try:
            report = await self.nursery.warm()
        except (NurseryFailed, NurseryLost) as error:
            self._over(ref, str(error), StartFailed(stage="nursery", message=str(error)))
            return
        except Exception as error:  # a bug of ours: without a word the tree would wait for ever
            log.exception("nursery.not_warmed")
            problem = f"{type(error).__name__}: {error}"
            self._over(ref, problem, StartFailed(stage="nursery", message=problem))
            return
        if self._ref == ref:
            self.problem = ""
            self.runtime.up(ref, report.pid)
            self.on_warm()

    def _over(self, ref: Ref | None, problem: str, reason: PlainReason) -> None:
        if ref is not None and self._ref == ref:
            self.problem, self._ref = problem, None
            self.runtime.exited(ref, reason, Ending.CRASH)
