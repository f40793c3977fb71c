"""MCP servers of a session, decided: the life of one, and what its tools are called.

A server is started when a request needs it, and is connecting until its tools are listed. One that
is lost is started again after a delay; after ``RESTARTS_MAX`` losses within ``WINDOW_S`` it has
failed, and the first request behind that window tries again. Times are seconds of one clock.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum, auto
from typing import Final

RESTARTS_MAX: Final = 3
"""Within ``WINDOW_S``; one more loss, and the server has failed."""
WINDOW_S: Final = 60.0
DELAYS_S: Final = (0.2, 1.0, 4.0)
"""Before the first restart of a window, and those after it."""

PREFIX: Final = "mcp__"
NAME_CHARS_MAX: Final = 64
"""Of a tool, as models take it."""
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST_CHARS: Final = 8


# --- the life of a server -------------------------------------------------------------------------


class ServerState(StrEnum):
    """Where a server stands."""

    DECLARED = auto()  # nobody has needed it so far
    CONNECTING = auto()
    READY = auto()
    RESTARTING = auto()  # it was lost, and is started again after a delay
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class ServerLife:
    """One server: ``since_s`` is from when on requests wait for it, ``losses`` when it was lost."""

    state: ServerState = ServerState.DECLARED
    since_s: float = 0.0
    losses: tuple[float, ...] = ()
    problem: str = ""


def wanted(life: ServerLife, now_s: float) -> ServerLife:
    """Return the life of a server that a request needs: one that does not run is started."""
    is_rested = not _recent(life, now_s)
    if life.state is ServerState.DECLARED or (life.state is ServerState.FAILED and is_rested):
        return ServerLife(ServerState.CONNECTING, since_s=now_s)
    return life


def ready(life: ServerLife) -> ServerLife:
    """Return the life of a server whose tools are listed."""
    return replace(life, state=ServerState.READY, problem="")


def lost(life: ServerLife, now_s: float, problem: str, *, is_final: bool = False) -> ServerLife:
    """Return the life of a server that has ended, or never came up; ``is_final``: it never will."""
    losses = (*_recent(life, now_s), now_s)
    failed = is_final or len(losses) > RESTARTS_MAX
    state = ServerState.FAILED if failed else ServerState.RESTARTING
    since_s = now_s if life.state is ServerState.READY else life.since_s
    return ServerLife(state, since_s, losses, problem)


def restarted(life: ServerLife) -> ServerLife:
    """Return the life of a server whose delay is over."""
    return replace(life, state=ServerState.CONNECTING)


def delay_s(life: ServerLife) -> float:
    """Return how long a server that was lost waits for its next start."""
    return DELAYS_S[min(len(life.losses), len(DELAYS_S)) - 1]


def due_s(life: ServerLife, timeout_s: float) -> float | None:
    """Return until when a request waits for a server; None: it does not."""
    is_coming = life.state in {ServerState.CONNECTING, ServerState.RESTARTING}
    return life.since_s + timeout_s if is_coming else None


def _recent(life: ServerLife, now_s: float) -> tuple[float, ...]:
    return tuple(at_s for at_s in life.losses if now_s - at_s < WINDOW_S)


# --- names ----------------------------------------------------------------------------------------


def tool_name(server: str, tool: str) -> str:
    """Return what a model calls a server's tool: sanitised, and of at most 64 characters.

    A name that is too long ends with a digest of the whole, the same in every process.
    """
    name = f"{PREFIX}{server}__{_OTHER.sub('_', tool)}"
    if len(name) <= NAME_CHARS_MAX:
        return name
    digest = hashlib.blake2b(tool.encode(), digest_size=_DIGEST_CHARS // 2).hexdigest()
    return f"{name[: NAME_CHARS_MAX - _DIGEST_CHARS - 1]}_{digest}"


@dataclass(frozen=True, slots=True)
class Names:
    """What the tools of all servers are called, by server and tool, and what is refused."""

    given: Mapping[tuple[str, str], str] = field(default_factory=dict)
    problems: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By server: a line for each tool that has no name of its own."""


def named(listed: Iterable[tuple[str, str]], taken: Collection[str]) -> Names:
    """Give each server's tool its name; ``taken`` are the names of the session's other tools.

    Of those that would be called alike none is: which one is meant would depend on their order.
    """
    owners: dict[str, list[tuple[str, str]]] = {}
    for server, tool in listed:
        owners.setdefault(tool_name(server, tool), []).append((server, tool))
    given: dict[tuple[str, str], str] = {}
    problems: dict[str, tuple[str, ...]] = {}
    for name, tools in owners.items():
        if len(tools) == 1 and name not in taken:
            given[tools[0]] = name
            continue
        for server, tool in dict.fromkeys(tools):
            line = f"tool {tool!r} is left out: {_likeness((server, tool), tools, name)}"
            problems[server] = (*problems.get(server, ()), line)
    return Names(given, problems)


def _likeness(own: tuple[str, str], tools: Collection[tuple[str, str]], name: str) -> str:
    """Return what else is called ``name``: tools of servers, or else one of the session."""
    others = [f"{tool!r} of {server!r}" for server, tool in tools if (server, tool) != own]
    if len(tools) - len(others) > 1:
        others.insert(0, "another one of this name")
    who = ", ".join(dict.fromkeys(others)) or "a tool of the session"
    return f"{who} would be called {name} too"
