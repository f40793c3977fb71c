"""The rows of the crash matrix: what a session is at when somebody dies.

A situation is a short life of a session without any chance in it. It is played once to see which
fault points it passes, then once for each of them, with the death there. To add a row: a
``Situation`` in ``SITUATIONS``. Every kind of record, and every method of the journal that writes,
must be passed in some row; ``tests/architecture/test_fault_points.py`` says which one is not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cmdc_runtime.faults import AGENT
from scripts.soak.model import Call, prompt_text
from scripts.soak.plan import QUICK, Move, Plan
from scripts.soak.tools import CHOICES
from scripts.soak.waves import BRANCHES
from supervisor.core.exits import DEATHS_MAX
from supervisor.processes.worker import (
    ALL,
    BOTH,
    BRANCH,
    CHILDREN_AND_DAEMON,
    DAEMON,
    FAMILY,
    HOST,
    HOST_AND_DAEMON,
    WITH_HOST,
    WITH_ZYGOTE,
    ZYGOTE,
)
from workers.core.snapshot import SNAPSHOT_RECORDS

DYING: Final = (DAEMON, BOTH, ALL, HOST_AND_DAEMON, CHILDREN_AND_DAEMON)
"""Victims with whom the daemon dies."""
LATE_S: Final = 0.08
"""How long an answer takes to begin where something is to come before it."""
ABORTED_S: Final = 30.0
"""Before an answer that an abort is to cut: the abort comes first, however busy the machine is."""
PACE_S: Final = 0.01
SURE: Final = {("approve", True): 1.0}
"""People who allow everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One row; ``before`` and ``then`` are steps of the plan around that of the cell."""

    name: str
    moves: tuple[Move, ...]
    before: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    victims: tuple[str, ...] = (AGENT, DAEMON)
    plugins: tuple[str, ...] = ()
    people: Mapping[tuple[str, bool], float] = field(default_factory=lambda: SURE)
    options: Mapping[str, Any] = field(default_factory=dict)  # Any: options
    is_early: bool = False
    """The points count from before the session is started."""
    is_continued: bool = False
    """The session begins with what another one has saved."""
    is_late: bool = False
    """The points count from when it is asked to end."""
    tools: tuple[str, ...] = tuple(CHOICES)
    branches: int = 0
    """How many branches its run has, whoever dies; each pass of each write has its cell then. 0: it
    has no run."""
    comes_to_the_same: bool = True
    """Whoever dies where, the conversation is the same in the end."""

    def plan(self, name: str, *lines: str) -> Plan:
        """Return the life of the session of this name, with the steps of a cell."""
        return Plan(
            name=name,
            tools=self.tools,
            moves=self.moves,
            options={**QUICK, **self.options},
            faults=(*self.before, *lines),
            is_armed_early=self.is_early,
            is_armed_late=self.is_late,
            is_continued=self.is_continued,
            plugins=self.plugins,
            people=self.people,
        )


def _prompt(serial: str, *calls: Call, late_s: float = 0.0, pace_s: float = 0.0) -> Move:
    rounds = (calls,) if calls else ()
    return Move("prompt", {"text": prompt_text(serial, rounds, late_s=late_s, pace_s=pace_s)})


def _write(tool: str, serial: str) -> Call:
    return tool, {"serial": serial}


_LASTING: Final = ("reckon", {"number": 10**8})
"""A call of seconds, and of more on a busy machine, which takes longer to kill who makes it."""
_REST: Final = Move("rest")
_HELD: Final = (_prompt("p", _write("pay", "p1")),)
_WRITE: Final = (_prompt("p", _write("file_away", "p1"), _write("note_down", "p2")),)
_READ: Final = (_prompt("p", ("look_up", {"key": "k"}), ("reckon", {"number": 9})),)
_IN_A_HOST: Final = (_prompt("p", _write("note_down", "p1"), ("reckon", {"number": 9})),)
_TODOS: Final = {"todos": [{"id": "1", "content": "this", "status": "pending"}]}
_TASK: Final = {"description": "See to it.", "subagent_type": "general-purpose"}
_BESIDE: Final = (
    _prompt("p", ("task", {**_TASK, "description": prompt_text("c", late_s=1.5)})),
    Move("below"),
    _prompt("q"),
)
"""Something is written while a subagent is at work."""
_PATIENT: Final = {"max_cycle_crashes": 5}
"""For those that die on purpose more often than a cycle may."""

SITUATIONS: Final[tuple[Situation, ...]] = (
    Situation(name="starting", moves=(_prompt("p"),), is_early=True),
    Situation(
        name="continued from a saved state",
        moves=(_prompt("p"),),
        is_early=True,
        is_continued=True,
    ),
    Situation(
        name="idle",
        moves=(
            Move("switch_model", {"model": 1}),
            Move("attach_tools", {"tools": ("extra",)}),
            Move("detach_tool", {"name": "extra"}),
            Move("attach_plugin", {"plugin": "companion"}),
            Move("detach_plugin", {"name": "companion"}),
        ),
    ),
    Situation(
        name="saving its state",
        moves=tuple(Move("switch_model", {"model": n % 2}) for n in range(1, SNAPSHOT_RECORDS + 1)),
    ),
    Situation(
        name="checkpointed",
        moves=(
            _prompt("p"),
            _REST,
            Move("checkpoint", {"label": "here"}),
            Move("delete_checkpoint"),
        ),
    ),
    Situation(name="running", moves=(_prompt("p", late_s=LATE_S),)),
    Situation(name="prompt queued", moves=(_prompt("p", late_s=LATE_S), _prompt("q"))),
    Situation(name="streaming", moves=(_prompt("p", pace_s=PACE_S),)),
    Situation(
        name="steering",
        moves=(
            _prompt("p", ("look_up", {"key": "k"}), late_s=LATE_S),
            Move("steer", {"text": "Go."}),
        ),
        comes_to_the_same=False,
    ),
    Situation(
        name="aborting",
        moves=(
            _prompt("p", late_s=ABORTED_S),
            _prompt("q"),
            Move("abort", {"reason": "enough", "clear_queue": True}),
        ),
        comes_to_the_same=False,
    ),
    Situation(name="executing tools: read", moves=_READ),
    Situation(name="executing tools: idempotent", moves=(_prompt("p", _write("put", "p1")),)),
    Situation(name="executing tools: write", moves=_WRITE, comes_to_the_same=False),
    Situation(
        name="awaiting approval: block",
        moves=(_prompt("p", _write("launch", "p1")),),
        comes_to_the_same=False,
    ),
    Situation(
        name="awaiting approval: hold",
        moves=_HELD,
        plugins=("holding",),
        comes_to_the_same=False,
    ),
    Situation(name="awaiting user", moves=(_prompt("p", ("ask_user", {"question": "What?"})),)),
    Situation(
        name="compacting",
        moves=(
            _prompt("o"),
            _REST,
            _prompt("p", ("write_todos", _TODOS), ("compact_conversation", {"reason": "long"})),
        ),
        comes_to_the_same=False,
    ),
    Situation(
        name="plugins at work",
        moves=(_prompt("p", ("look_up", {"key": "k"})),),
        plugins=("companion",),
        comes_to_the_same=False,
    ),
    Situation(
        name="subagent running", moves=(_prompt("p", ("task", _TASK)),), comes_to_the_same=False
    ),
    Situation(name="ending", moves=(_prompt("p"),), is_late=True),
    Situation(
        name="recovering",
        moves=_READ,
        before=("append.*tool_started*.after:1=agent",),
        options=_PATIENT,
    ),
    Situation(
        name="setting a record aside",
        moves=(_prompt("p", late_s=LATE_S),),
        # Two processes die of the second record: it says that one has gone on before them. That
        # one dies with its answer in hand: it has left the step of going on, which isn't to blame.
        before=(
            "append.cycle_started*.after:1=agent",
            "agent.said*.before:1=agent",
            *("agent.rebuild.2:1=agent",) * DEATHS_MAX,
        ),
        options=_PATIENT,
    ),
    Situation(
        name="killed twice by its cycle",
        # Late, so that the second prompt is queued by then; and by a call that outlasts both of its
        # processes, so that its end is not written yet: the third always writes the same.
        moves=(_prompt("p", _LASTING, late_s=LATE_S), _prompt("q")),
        before=("append.*tool_started*.after:1=agent", "append.*resumed*.after:1=agent"),
        comes_to_the_same=False,
    ),
    Situation(
        name="tool host down",
        moves=_IN_A_HOST,
        victims=(HOST,),
        comes_to_the_same=False,
    ),
    Situation(
        name="zygote down",
        moves=(_prompt("p", ("look_up", {"key": "k"})),),
        victims=(ZYGOTE,),
        then=("*:1=agent",),
        options=_PATIENT,
    ),
    Situation(
        name="daemon down",
        moves=_READ,
        victims=(DAEMON,),
        then=("agent.*:1=agent",),
        options=_PATIENT,
    ),
    Situation(
        name="agent and daemon down",
        moves=(_prompt("p", ("look_up", {"key": "k"})),),
        victims=(BOTH,),
        options=_PATIENT,
    ),
    Situation(
        name="agent and daemon down: write",
        moves=_WRITE,
        victims=(BOTH,),
        options=_PATIENT,
        comes_to_the_same=False,
    ),
    Situation(
        name="agent and zygote down",
        moves=(_prompt("p", _write("put", "p1")),),
        victims=(WITH_ZYGOTE,),
        options=_PATIENT,
    ),
    Situation(
        name="agent and subagent down",
        moves=_BESIDE,
        victims=(FAMILY,),
        options=_PATIENT,
        comes_to_the_same=False,
    ),
    Situation(
        name="agent, subagent and daemon down",
        moves=_BESIDE,
        victims=(ALL,),
        options=_PATIENT,
        comes_to_the_same=False,
    ),
    Situation(
        name="subagent and daemon down",
        moves=_BESIDE,
        victims=(CHILDREN_AND_DAEMON,),
        options=_PATIENT,
        comes_to_the_same=False,
    ),
    Situation(
        name="reasoning with nine branches",
        moves=(_prompt("p", ("reason", {"question": "Well?"})),),
        victims=(AGENT, BRANCH, DAEMON),
        options=_PATIENT,
        tools=("reason",),
        branches=BRANCHES,
    ),
    Situation(
        name="agent and tool host down",
        moves=_IN_A_HOST,
        victims=(WITH_HOST,),
        options=_PATIENT,
        comes_to_the_same=False,
    ),
    Situation(
        name="tool host and daemon down",
        moves=_IN_A_HOST,
        victims=(HOST_AND_DAEMON,),
        options=_PATIENT,
        comes_to_the_same=False,
    ),
)
