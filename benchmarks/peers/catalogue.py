"""Who does the work: this project and its peers, and what each of them does beside that work.

To add one, write its module with ``open_fleet``, add its row here, and pin its distributions in
``requirements.txt``.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of those who are compared."""

    name: str
    module: str
    needs: tuple[str, ...]
    """Distributions without which it is left out; none: it runs in the project's environment."""
    form: str
    """What an agent is."""
    isolation: str
    restart: str
    memory: str
    """What the conversation is after the agent's process has died."""
    journal: str
    others: str
    """Whether other programs than its maker can speak with the agent."""


CMDC: Final = "cmdc-runtime"
CANDIDATES: Final = (
    Candidate(
        name=CMDC,
        module="benchmarks.peers.cmdc_sessions",
        needs=(),
        form="a session of a daemon, which forks its process from a warm one",
        isolation="a process each",
        restart="the daemon, with limits",
        memory="replayed from the journal; the interrupted prompt goes on by itself",
        journal="yes",
        others="yes, by its id",
    ),
    Candidate(
        name="ray",
        module="benchmarks.peers.ray_actors",
        needs=("openai", "ray"),
        form="an actor of a local cluster with `max_restarts=-1`",
        isolation="a process each",
        restart="the cluster, by `max_restarts`",
        memory="empty: the actor's `__init__` runs again, and the script asks again",
        journal="no",
        others="yes, if the actor is named",
    ),
    Candidate(
        name="thespian",
        module="benchmarks.peers.thespian_actors",
        needs=("openai", "thespian"),
        form="an actor of `multiprocTCPBase` under a keeper of ours",
        isolation="a process each",
        restart="code of one's own, which gets the exit",
        memory="empty: a new actor, and the script asks again",
        journal="no",
        others="yes, by a global name",
    ),
    Candidate(
        name="forkserver",
        module="benchmarks.peers.forkserver_processes",
        needs=("openai",),
        form="a process of `multiprocessing`, forked from one with openai preloaded",
        isolation="a process each",
        restart="none",
        memory="gone",
        journal="no",
        others="no",
    ),
    Candidate(
        name="spawn",
        module="benchmarks.peers.spawn_processes",
        needs=("openai",),
        form="a process of `multiprocessing`, a new interpreter",
        isolation="a process each",
        restart="none",
        memory="gone",
        journal="no",
        others="no",
    ),
    Candidate(
        name="asyncio",
        module="benchmarks.peers.asyncio_agents",
        needs=("openai",),
        form="a coroutine in the user's script",
        isolation="none",
        restart="none",
        memory="gone, with the script and all other agents",
        journal="no",
        others="no",
    ),
)
