# Made by `make sync` of cmdc_runtime/client/parallel.py: change that, not this.
"""``cmdc_runtime.client.parallel`` for threads."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from cmdc_runtime.client.arguments import (
    SessionLike,
    checked_id,
    checked_kind,
    checked_pairs,
    named,
)
from cmdc_runtime.client.callers import Pool
from cmdc_runtime.client.default import client as default_client
from cmdc_runtime.client.exchange import Reply
from cmdc_runtime.client.sync.session import Client, Session
from cmdc_runtime.errors import CmdcError
from cmdc_runtime.options import Options

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
        owner = default_client if client is None else checked_kind(client, Client, "client")
        pairs = checked_pairs(question, agents, max_parallel)

        def ask(pair: tuple[str, Agent]) -> Reply | CmdcError:
            text, agent = pair
            try:
                if isinstance(agent, Options | Mapping):
                    base = agent if isinstance(agent, Options) else None
                    given = {} if isinstance(agent, Options) else named(agent)
                    with owner.create_agent(base, **given) as made:
                        return made.run(text, timeout=timeout)
                if isinstance(agent, Session):
                    return agent.run(text, timeout=timeout)
                return owner.run(checked_id(agent), text, timeout=timeout)
            except CmdcError as error:
                return error

        return Pool.map(ask, pairs, max_parallel)
