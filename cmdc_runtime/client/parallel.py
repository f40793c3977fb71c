"""One question for several agents, or several questions, so many at a time: ``Parallel.map``."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias

from cmdc_runtime.client.arguments import SessionLike, checked_id
from cmdc_runtime.client.default import async_client
from cmdc_runtime.client.default import client as default_client
from cmdc_runtime.client.exchange import Reply
from cmdc_runtime.client.session import AsyncClient, AsyncSession
from cmdc_runtime.client.sync.session import Client, Session
from cmdc_runtime.errors import CmdcError, UsageError
from cmdc_runtime.options import Options
from cmdc_runtime.plain import whole_problem

PARALLEL_MAX: Final = 1_000

Agent: TypeAlias = SessionLike | Options | Mapping[str, Any]  # Any: see ``Options``
"""A session that is there, or what one is made of that ends when it has answered."""


class Parallel:
    """Asks several agents at once, for threads."""

    @staticmethod
    def map(
        question: str | Sequence[str],
        agents: Sequence[Agent],
        *,
        max_parallel: int = 4,
        timeout: float | None = None,
        client: Client | None = None,
    ) -> list[Reply | CmdcError]:
        """Return what each agent answers, in their order; one that fails is there as its error.

        ``question`` is one for all, or as many as there are agents. ``timeout`` is in seconds, for
        each answer.

        Raises:
            UsageError: there are not as many questions as agents, or ``max_parallel`` is no number.

        """
        owner = client or default_client
        pairs = _pairs(question, agents, max_parallel)

        def ask(pair: tuple[str, Agent]) -> Reply | CmdcError:
            text, agent = pair
            try:
                if isinstance(agent, Options | Mapping):
                    base, given = _parted(agent)
                    with owner.create_agent(base, **given) as made:
                        return made.run(text, timeout=timeout)
                if isinstance(agent, Session):
                    return agent.run(text, timeout=timeout)
                return owner.run(checked_id(agent), text, timeout=timeout)
            except CmdcError as error:
                return error

        with ThreadPoolExecutor(max_workers=max_parallel, thread_name_prefix="parallel") as pool:
            return list(pool.map(ask, pairs))


class AsyncParallel:
    """Asks several agents at once, for coroutines."""

    @classmethod
    async def map(
        cls,
        question: str | Sequence[str],
        agents: Sequence[Agent],
        *,
        max_parallel: int = 4,
        timeout: float | None = None,  # noqa: ASYNC109 - the contract's name
        client: AsyncClient | None = None,
    ) -> list[Reply | CmdcError]:
        """Return what each agent answers, in their order; see ``Parallel.map``."""
        owner = client or async_client
        pairs = _pairs(question, agents, max_parallel)
        gate = asyncio.Semaphore(max_parallel)

        async def ask(text: str, agent: Agent) -> Reply | CmdcError:
            async with gate:
                try:
                    if isinstance(agent, Options | Mapping):
                        base, given = _parted(agent)
                        async with await owner.create_agent(base, **given) as made:
                            return await made.run(text, timeout=timeout)
                    if isinstance(agent, AsyncSession):
                        return await agent.run(text, timeout=timeout)
                    return await owner.run(checked_id(agent), text, timeout=timeout)
                except CmdcError as error:
                    return error

        return list(await asyncio.gather(*(ask(text, agent) for text, agent in pairs)))


def _pairs(
    question: str | Sequence[str], agents: Sequence[Agent], max_parallel: int
) -> list[tuple[str, Agent]]:
    if (problem := whole_problem(max_parallel, 1, PARALLEL_MAX)) is not None:
        raise UsageError(f"max_parallel: {problem}")
    texts = [question] * len(agents) if isinstance(question, str) else list(question)
    if len(texts) != len(agents):
        raise UsageError(
            f"question: {len(texts)} for {len(agents)} agents; give one, or one for each agent"
        )
    return list(zip(texts, agents, strict=True))


# Any: see ``Options``.
def _parted(agent: Options | Mapping[str, Any]) -> tuple[Options | None, dict[str, Any]]:
    return (agent, {}) if isinstance(agent, Options) else (None, dict(agent))
