"""What is going to be done to each session, drawn beforehand: the same seed makes the same plan.

Only the plan is repeated by a seed; which move meets which moment of a cycle is the machine's.
A move is a call of the client's by its name, or one of the driver's own. To add a move: a function
and its row in ``_MOVES``, and in the driver what it may be refused with.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from scripts.soak.chance import dice
from scripts.soak.tools import CHOICES, EXTRAS, IMMUNE

REST_SHARE: Final = 0.4
"""Of prompts whose end is awaited before the next one is sent."""
BESIDE_SHARE: Final = 0.5
"""Of moves that meet a cycle somewhere in its middle, and not the answer to the move before."""
DELAY_S_MAX: Final = 1.0
"""Of these; about as long as a cycle takes. Some have none at all."""
MEDDLED_SHARE: Final = 0.25
"""Of sessions with a plugin that meddles."""
CARELESS_SHARE: Final = 0.2
"""Of sessions whose model uses the ids of its calls again."""
MOVES_MAX: Final = 3
"""Between two prompts."""
QUICK: Final[Mapping[str, Any]] = {  # Any: options
    "retry_base_delay": 0.02,
    "retry_max_delay": 0.2,
    "max_retries": 2,
    "stall_after": 1.0,
    "stall_timeout": 3.0,
    "restart_delay": (0.0, 0.1),
    "max_restarts": 10_000,
    "interrupt_immune_tools": [IMMUNE, "write_file", "write_todos", "compact_conversation"],
}
_SOMETIMES: Final[tuple[tuple[float, Mapping[str, Any]], ...]] = (
    (0.2, {"max_turns": 3}),
    (0.2, {"max_queued_prompts": 1}),
    (0.2, {"max_steering_queue": 1}),
    (0.15, {"hibernate_after": 0.05}),
    (0.15, {"response_format": {"type": "integer"}}),
    (0.1, {"max_parallel_tools": 1}),
    (0.1, {"max_total_tokens": 20_000}),
    (0.2, {"event_buffer_size": 50}),
)
"""How often a session has options like these."""


@dataclass(frozen=True, slots=True)
class Move:
    """One thing that is done; with a delay in seconds it is done beside the next ones."""

    verb: str
    arguments: Mapping[str, Any] = field(default_factory=dict)  # Any: of that call
    delay_s: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """One session: what it is made of, and what is done to it."""

    name: str
    options: Mapping[str, Any]  # Any: of ``create_agent``
    tools: tuple[str, ...]
    is_meddled: bool
    is_careless: bool
    moves: tuple[Move, ...]


def plan(seed: int, number: int, prompts: int) -> Plan:
    """Return the plan of session ``number``."""
    name = f"soak-{number:04}"
    draw = dice(seed, name, "plan")
    options = dict(QUICK)
    for share, some in _SOMETIMES:
        if draw.random() < share:
            options |= some
    moves: list[Move] = []
    for turn in range(prompts):
        drawn = (_chosen(draw)(draw) for _ in range(draw.randint(0, MOVES_MAX)))
        prompt = Move("prompt", {"text": f"Do {turn}."})
        moves += (_beside(draw, move) for move in (prompt, *drawn))
        if draw.random() < REST_SHARE:
            moves.append(Move(draw.choice(["rest", "collect_reply"])))
    return Plan(
        name=name,
        options=options,
        tools=tuple(draw.sample(sorted(CHOICES), draw.randint(0, len(CHOICES)))),
        is_meddled=draw.random() < MEDDLED_SHARE,
        is_careless=draw.random() < CARELESS_SHARE,
        moves=tuple(moves),
    )


def _beside(draw: Random, move: Move) -> Move:
    if move.verb == "pause" or draw.random() > BESIDE_SHARE:
        return move
    return Move(move.verb, move.arguments, round(max(0.0, draw.uniform(-0.2, DELAY_S_MAX)), 3))


def _chosen(draw: Random) -> Callable[[Random], Move]:
    return draw.choices(list(_MOVES), list(_MOVES.values()))[0]


# --- moves ----------------------------------------------------------------------------------------


def _steer(draw: Random) -> Move:
    text = f"Rather {draw.randrange(1000)}."
    return Move("steer", {"text": text, "scope": draw.choice(["session", "tree"])})


def _abort(draw: Random) -> Move:
    options = {
        "reason": draw.choice([None, "enough"]),
        "clear_queue": draw.random() < 0.6,  # noqa: PLR2004 - a share
        "kill_tools": draw.choice(["all", "killable", "none"]),
        "children": draw.choice([True, False]),
    }
    return Move("abort", options)


def _attach(draw: Random) -> Move:
    return Move("attach_tools", {"tools": _extras(draw)})


def _attach_one(draw: Random) -> Move:
    return Move("attach_tool", {"tool": draw.choice(sorted(EXTRAS))})


def _detach(draw: Random) -> Move:
    return Move("detach_tools", {"names": _extras(draw)})


def _detach_one(draw: Random) -> Move:
    return Move("detach_tool", {"name": draw.choice(sorted({**CHOICES, **EXTRAS}))})


def _replace(draw: Random) -> Move:
    known = sorted({**CHOICES, **EXTRAS})
    return Move("replace_tools", {"tools": tuple(draw.sample(known, draw.randrange(len(known))))})


def _extras(draw: Random) -> tuple[str, ...]:
    return tuple(draw.sample(sorted(EXTRAS), draw.randint(1, 2)))


def _switch(draw: Random) -> Move:
    return Move("switch_model", {"model": draw.randrange(2)})


def _pause(draw: Random) -> Move:
    return Move("pause", {"seconds": round(draw.uniform(0.0, 0.4), 3)})


_MOVES: Final[Mapping[Callable[[Random], Move], float]] = {
    _pause: 8,
    _steer: 6,
    _abort: 3,
    _attach: 1.5,
    _attach_one: 1,
    _detach: 1.5,
    _detach_one: 1,
    _replace: 1,
    _switch: 2,
    lambda _draw: Move("status"): 1.5,
    lambda _draw: Move("messages"): 1.5,
    lambda _draw: Move("kill"): 1.2,
}
"""How often each is drawn, in parts."""
