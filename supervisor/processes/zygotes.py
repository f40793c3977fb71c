"""The two zygotes of a daemon, and what each has in memory beyond what every process needs.

The lean one forks spares, tool hosts and most agents. The full one, which has litellm, is warmed
when the first process wants that, or while the machine idles. Both learn the SDK of MCP when
sessions use it: ``IMPORTS_UNTIL_LEARNED`` processes have imported it for themselves by then, so
that a script with one session is spared the work. Rule: whatever fails here beyond a fork costs
nobody more than the import itself.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import structlog

from supervisor.adapters.zygote import (
    Boot,
    Child,
    Zygote,
    ZygoteFailed,
    ZygoteLost,
    ZygoteOptions,
)
from supervisor.core.limits import FULL_IDLE_S, IMPORTS_UNTIL_LEARNED

log = structlog.get_logger()

SDK: Final = "mcp"


def _with_litellm() -> Zygote:
    return Zygote(ZygoteOptions(needs=("litellm",)))


@dataclass(slots=True, eq=False)
class Zygotes:
    """Forks the workers of one daemon."""

    lean: Zygote
    full: Zygote = field(default_factory=_with_litellm)
    _forks: int = 0
    _imports: int = 0

    @property
    def pids(self) -> frozenset[int]:
        """Children of the daemon that only these wait for."""
        return self.lean.pids | self.full.pids

    async def fork(self, boot: Boot, *, has_litellm: bool) -> Child:
        """Return a new worker process; raises as ``Zygote.fork``."""
        self._forks += 1
        zygote = self.full if has_litellm else self.lean
        return await zygote.fork({**boot, "is_lean": int(not has_litellm)})

    async def warm_full(self) -> None:
        """Warm the full one when no worker was forked for ``FULL_IDLE_S``, once.

        A session that needs it before that has it warmed, or waits for it meanwhile.
        """
        while not self.full.is_warm:
            forks = self._forks
            await asyncio.sleep(FULL_IDLE_S)
            if forks == self._forks and self.lean.is_warm:
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

    async def close(self) -> None:
        """End both."""
        await asyncio.gather(self.lean.close(), self.full.close())
