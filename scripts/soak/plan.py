"""One scenario: a session's small life, and who is killed when; all drawn by the scenario's seed.

Only the plan is repeated by a seed; which move meets which moment of a cycle is the machine's. A
move is a call of the client's by its name, or one of the life's own. To add a move: a function and
its row in ``_MOVES``, and in ``life.py`` what it may be refused with.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from cmdc_runtime.faults import AGENT, MOMENTS, FaultStep
from scripts.soak.chance import dice
from scripts.soak.model import Call, prompt_text
from scripts.soak.tools import CHOICES, EXTRAS
from scripts.soak.waves import BRANCHES
from workers.core.records import RECORDS

QUICK: Final[Mapping[str, Any]] = {  # Any: options
    "retry_base_delay": 0.01,
    "retry_max_delay": 0.1,
    "restart_delay": (0.0, 0.05),
    "max_restarts": 10_000,
    "event_buffer_size": 2_000,
}
NOTE: Final = "noted"
"""The record of what plugins have to say, which waits for the other calls of a batch."""
STEP: Final = "tool_told"
"""The record of a step that a running call has published, as a run of branches does."""
PROMPTS: Final = (0, 6, 3, 1)
"""How often a life has one, two and three prompts, in parts."""
BESIDE: Final = (6, 3, 1)
"""The same of other moves after a prompt, from none."""
ROUNDS: Final = (3, 5, 2)
"""How often a prompt has none, one and two rounds of calls, in parts."""
CALLS: Final = (0, 7, 3)
"""The same of the calls of a round."""
LATE_SHARE: Final = 0.3
LATE_S_MAX: Final = 0.1
PASSES_MAX: Final = 14
"""The latest pass that a step of a plan waits for; a short life has some twenty."""
KILL_S_MAX: Final = 0.4
"""The latest moment of a kill after the first prompt, about the length of a life."""
SOUGHT_SHARE: Final = 0.8
"""Of deaths behind a record that are behind one which is written for them; the others are drawn of
all, so that a new kind is among them."""
REST_SHARE: Final = 0.4
"""Of prompts whose end is awaited before the next one is sent."""
COMPANION_SHARE: Final = 0.2
"""Of sessions with a plugin that does what plugins can do."""
CONTINUED_SHARE: Final = 0.06
"""Of sessions that begin with what another one has saved."""
HELD_SHARE: Final = 0.1
"""Of sessions in which a plugin holds calls until a person allows them."""
BEFORE_START_SHARE: Final = 0.1
"""Of plans that hold while the session is started."""


@dataclass(frozen=True, slots=True)
class Move:
    """One thing that is done; with a delay in seconds it is done beside the next ones."""

    verb: str
    arguments: Mapping[str, Any] = field(default_factory=dict)  # Any: of that call
    delay_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One session: what it is made of, what is done to it, and who is killed at which points."""

    name: str
    tools: tuple[str, ...]
    moves: tuple[Move, ...]
    options: Mapping[str, Any] = field(default_factory=lambda: dict(QUICK))  # Any: options
    faults: tuple[str, ...] = ()
    """Lines of a plan of ``cmdc_runtime.faults``."""
    is_armed_early: bool = False
    """The plan of faults holds while the session is started, too."""
    is_armed_late: bool = False
    """It holds while the session is stopped, and not before."""
    is_continued: bool = False
    """The session begins with what another one has saved."""
    plugins: tuple[str, ...] = ()
    """By their names in ``PLUGINS``."""
    people: Mapping[tuple[str, bool], float] = field(default_factory=lambda: dict(PEOPLE))


PEOPLE: Final[Mapping[tuple[str, bool], float]] = {
    ("approve", True): 5,
    ("approve", False): 1,
    ("reject", False): 2,
    ("reject", True): 1,
    ("ignore", False): 1,
}
"""What a person decides about a call, and whether the session goes on at once; in parts."""


def name_of(seed: int, number: int) -> str:
    """Return the seed of one scenario, which is the name of its session too."""
    return f"{seed}-{number}"


def plan(name: str) -> Plan:
    """Return the scenario of this seed."""
    draw = dice(name, "plan")
    moves: list[Move] = []
    for turn in range(_count(draw, PROMPTS)):
        prompt = Move("prompt", {"text": _text(draw, f"{name}.{turn}")})
        beside = (_chosen(draw)(draw) for _ in range(_count(draw, BESIDE)))
        moves += (prompt, *beside)
        if draw.random() < REST_SHARE:
            moves.append(Move("rest"))
    faults, kills = draw.choices([make for make, _ in _KILLS], [share for _, share in _KILLS])[0](
        draw
    )
    is_armed_early = draw.random() < BEFORE_START_SHARE
    is_continued = draw.random() < CONTINUED_SHARE
    return Plan(
        name=name,
        tools=tuple(CHOICES),
        moves=(*kills, *moves),
        faults=tuple(map(str, faults)),
        is_armed_early=is_armed_early,
        is_continued=is_continued,
        plugins=tuple(
            name
            for name, share in _PLUGINS.items()
            if draw.random() < share or (name == "companion" and NOTE in str(faults))
        ),
    )


_PLUGINS: Final = {"holding": HELD_SHARE, "companion": COMPANION_SHARE}


# --- what the model is asked to do ----------------------------------------------------------------


def _text(draw: Random, serial: str) -> str:
    rounds = tuple(
        tuple(_call(draw, f"{serial}.{number}.{place}") for place in range(_count(draw, CALLS)))
        for number in range(_count(draw, ROUNDS))
    )
    late_s = draw.uniform(0.0, LATE_S_MAX) if draw.random() < LATE_SHARE else 0.0
    pace_s = draw.choice([0.0, 0.0, 0.01])
    return prompt_text(serial, rounds, late_s=round(late_s, 3), pace_s=pace_s)


def _count(draw: Random, parts: tuple[float, ...]) -> int:
    return draw.choices(range(len(parts)), parts)[0]


def _call(draw: Random, serial: str) -> Call:
    name = draw.choices(list(_CALLS), [share for share, _ in _CALLS.values()])[0]
    return name, _CALLS[name][1](serial)


Arguments = dict[str, Any]  # Any: JSON


def _serially(serial: str) -> Arguments:
    return {"serial": serial}


_CALLS: Final[Mapping[str, tuple[float, Callable[[str], Arguments]]]] = {
    "look_up": (5, lambda serial: {"key": serial}),
    "reckon": (0.5, lambda _serial: {"number": 1000}),
    "put": (3, _serially),
    "note_down": (1.5, _serially),
    "file_away": (7, _serially),
    "launch": (2, _serially),
    "pay": (2, _serially),
    "write_todos": (
        1,
        lambda serial: {"todos": [{"id": "1", "content": serial, "status": "pending"}]},
    ),
    "ask_user": (0.7, lambda serial: {"question": f"What about {serial}?"}),
    "compact_conversation": (0.7, lambda serial: {"reason": serial}),
    "task": (
        0.5,
        lambda serial: {"description": f"See to {serial}.", "subagent_type": "general-purpose"},
    ),
    "reason": (0.1, lambda serial: {"question": f"What about {serial}?"}),
}
"""How often each tool is called, in parts, and with what."""


_BESIDE_TOOLS: Final = (
    "agent.*tool_ended*.before",
    "append.*tool_*.before",
    "*tool_started*.after",
)


# --- who is killed --------------------------------------------------------------------------------


Killing = tuple[tuple[FaultStep, ...], tuple[Move, ...]]


_OUTSIDE_REBUILDING: Final = ("append.*", "agent.[!r]*", "agent.resumed*")
"""Two deaths at one step of rebuilding leave that step out, as they should: of two deaths of a plan
one is at such a point."""


def _at_a_point(draw: Random) -> Killing:
    return (_somewhere(draw, "*"),), ()


def _somewhere(draw: Random, *points: str) -> FaultStep:
    return FaultStep(draw.choice(points), draw.randint(1, PASSES_MAX), AGENT)


def _beside_a_tool(draw: Random) -> Killing:
    """Where it counts what a tool has done: between its start, its effect and its result."""
    return (FaultStep(draw.choice(_BESIDE_TOOLS), draw.randint(1, 2), AGENT),), ()


_WRITTEN_BY: Final = {
    "approval_asked": ("launch",),
    "approval_decided": ("launch",),
    "compacted": ("compact_conversation",),
    NOTE: ("look_up", "put"),
    "subagent_spawned": ("task",),
    "subagent_spent": ("task",),
    "todos_changed": ("write_todos",),
    "tool_ended": ("file_away",),
    "tool_started": ("note_down",),
    STEP: ("reason",),
    "user_answered": ("ask_user",),
    "user_asked": ("ask_user",),
}
"""Calls that have a record written which few lives write."""


_SOON_OVER: Final = (
    *("approval_asked", NOTE, "subagent_spawned", "tool_started", STEP),
    *("user_answered", "user_asked"),
)
"""Of them, those that say nothing any more when the session rests: only a death right behind shows
that one is missing, so there are three times as many."""


def _behind_a_record(draw: Random) -> Killing:
    """Die where the next process has only what is just written, or just sent."""
    kinds = [str(record.__struct_config__.tag) for record in RECORDS]
    sought = [*_WRITTEN_BY, *_SOON_OVER, *_SOON_OVER]
    kind = draw.choice(sought if draw.random() < SOUGHT_SHARE else kinds)
    moves: tuple[Move, ...] = ()
    if kind in _WRITTEN_BY:
        serial = f"r{draw.randrange(10**9)}"
        calls = tuple(
            (tool, _CALLS[tool][1](f"{serial}.{place}"))
            for place, tool in enumerate(_WRITTEN_BY[kind])
        )
        moves = (Move("prompt", {"text": prompt_text(serial, (calls,))}),)
    process, moment = draw.choice(["append", AGENT]), draw.choice(MOMENTS)
    passes = 2 if kind == NOTE else 1  # the first one is sent at once, with the prompt
    if kind == STEP:
        passes = draw.randint(1, BRANCHES)
    return (FaultStep(f"{process}.*{kind}*.{moment}", passes, AGENT),), moves


def _at_two_points(draw: Random) -> Killing:
    return (_somewhere(draw, "*"), _somewhere(draw, *_OUTSIDE_REBUILDING)), ()


def _in_recovery(draw: Random) -> Killing:
    again = draw.choice(["began.*", "agent.*", "append.*resumed*", "append.*ended*", "*"])
    first = _somewhere(draw, *_OUTSIDE_REBUILDING)
    return (first, FaultStep(again, draw.randint(1, 2), AGENT)), ()


def _host(draw: Random) -> Killing:
    return (FaultStep("append.*", draw.randint(1, PASSES_MAX), "host"),), ()


def _at_a_moment(draw: Random) -> Killing:
    return (), (_kill(draw),)


def _at_two_moments(draw: Random) -> Killing:
    return (), (_kill(draw), _kill(draw))


def _kill(draw: Random) -> Move:
    return Move("kill", delay_s=round(draw.uniform(0.0, KILL_S_MAX), 3))


_KILLS: Final[tuple[tuple[Callable[[Random], Killing], float], ...]] = (
    (_at_a_point, 7),
    (_beside_a_tool, 3),
    (_behind_a_record, 10),
    (_at_two_points, 3),
    (_in_recovery, 3),
    (_host, 1),
    (_at_a_moment, 4),
    (_at_two_moments, 1),
)
"""How often each is drawn, in parts."""


# --- moves ----------------------------------------------------------------------------------------


def _chosen(draw: Random) -> Callable[[Random], Move]:
    return draw.choices(list(_MOVES), list(_MOVES.values()))[0]


def _steer(draw: Random) -> Move:
    return Move("steer", {"text": f"Rather {draw.randrange(1000)}."}, _delay(draw))


def _abort(draw: Random) -> Move:
    options = {"reason": "enough", "clear_queue": draw.choice([True, False])}
    return Move("abort", options, _delay(draw))


def _attach(draw: Random) -> Move:
    return Move("attach_tools", {"tools": tuple(EXTRAS)}, _delay(draw))


def _detach(draw: Random) -> Move:
    return Move("detach_tool", {"name": draw.choice(sorted(EXTRAS))}, _delay(draw))


def _switch(draw: Random) -> Move:
    return Move("switch_model", {"model": draw.randrange(2)}, _delay(draw))


def _pause(draw: Random) -> Move:
    return Move("pause", {"seconds": round(draw.uniform(0.0, 0.1), 3)})


def _delay(draw: Random) -> float | None:
    return None if draw.random() < 0.5 else round(draw.uniform(0.0, 0.2), 3)  # noqa: PLR2004 - a share


_MOVES: Final[Mapping[Callable[[Random], Move], float]] = {
    _pause: 4,
    _steer: 5,
    _abort: 2,
    _attach: 1,
    _detach: 0.5,
    _switch: 1,
    lambda draw: Move("attach_plugin", {"plugin": "companion"}, _delay(draw)): 0.7,
    lambda draw: Move("detach_plugin", {"name": "companion"}, _delay(draw)): 0.3,
    lambda draw: Move("messages", {}, _delay(draw)): 1,
}
"""How often each is drawn, in parts."""
