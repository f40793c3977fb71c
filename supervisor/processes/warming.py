"""What the zygotes have in memory beyond what every process needs, and since when.

The full one, which has litellm, is warmed while the machine idles. All of them learn the SDK of MCP
when sessions use it: ``IMPORTS_UNTIL_LEARNED`` processes have imported it for themselves by then,
so that a script with one session is spared the work. Rule: whatever fails here costs nobody more
than the import itself.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from supervisor.adapters.zygote import Zygote, ZygoteFailed, ZygoteLost
from supervisor.core.limits import FULL_IDLE_S, IMPORTS_UNTIL_LEARNED

log = structlog.get_logger()

SDK: Final = "mcp"


@dataclass(slots=True, eq=False)
class Warming:
    """Warms the zygotes of one pool; ``forked`` is how many processes were forked so far."""

    lean: Zygote
    full: Zygote
    forked: Callable[[], int]
    _imports: int = 0

    async def warm_full(self) -> None:
        """Warm the zygote that has litellm when no process was forked for ``FULL_IDLE_S``, once.

        A session that needs it before that has it warmed, or waits for it meanwhile.
        """
        while not self.full.is_warm:
            forked = self.forked()
            await asyncio.sleep(FULL_IDLE_S)
            if forked == self.forked() and self.lean.is_warm:
                try:
                    await self.full.warm()
                except (ZygoteFailed, ZygoteLost) as error:
                    log.warning("zygote.not_warmed", problem=str(error))
                return

    async def sdk_imported(self) -> None:
        """Count a process that had to import the SDK; at the last of some, have it learned."""
        self._imports += 1
        if self._imports != IMPORTS_UNTIL_LEARNED:
            return
        try:
            await self.lean.learn(SDK)
            await self.full.learn(SDK)
        except (ZygoteFailed, ZygoteLost) as error:
            log.warning("zygote.not_learned", module=SDK, problem=str(error))
