"""Where the agent's machine can go: its tables are played from rest until nothing new turns up.

Every sample of every command and result is put to every situation that was reached, under several
policies. Situations that look alike count as one, so there are few of them; ``_likeness`` says what
makes them differ. A limit that leads somewhere new is a policy in ``_POLICIES``.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, TypeAlias

from msgspec import structs

from cmdc_runtime.commands import Abort, Command, Prompt, Reject
from cmdc_runtime.extensions.hooks import HOOKS
from cmdc_runtime.ids import CallId
from scripts.reference.scenes import (
    AGENTS,
    COMMANDS,
    GENERAL,
    POLICY,
    RESULTS,
    TOOLS,
    WAY,
    Scene,
    approval_of,
    guarded,
    new,
)
from workers.core import loops
from workers.core.budget import Budget
from workers.core.commands import HANDLERS
from workers.core.inputs import FirstChunk, Result, SubagentWanted
from workers.core.results import TRANSITIONS
from workers.core.state import Guarding, HandingOver, Memory, Policy, State
from workers.core.step import CallModel, RunTools, Sleep

Edge: TypeAlias = tuple[State, type, State]
"""A state, an input and where it leads."""
Row: TypeAlias = tuple[State, type]

SITUATIONS_MAX: Final = 10_000
"""More than this means that ``_likeness`` distinguishes too much."""
_NONE: Final[frozenset[str]] = frozenset()
_ASKING: Final = (State.RUNNING, State.STREAMING)
_MESSAGES_KEPT: Final = 3
"""Of so few messages a compaction can make nothing shorter."""
_SMALL: Final = structs.replace(
    POLICY,
    max_queued_prompts=1,
    max_steering_queue=1,
    max_retries=1,
    loop_exempt=frozenset(tool.name for tool in TOOLS),
)
_SHORT: Final = structs.replace(_SMALL, max_turns=2)
_SESSIONS: Final[tuple[tuple[Policy, frozenset[str]], ...]] = (
    (
        structs.replace(
            _SMALL, max_turns=3, loop_threshold=2, loop_abort=3, loop_exempt=frozenset()
        ),
        _NONE,
    ),
    (
        structs.replace(_SHORT, response_format={"type": "object"}, window_of=lambda _model: 1),
        _NONE,
    ),
    (_SHORT, frozenset(HOOKS)),
    (structs.replace(_SHORT, budget=Budget(max_total_tokens=300)), _NONE),
    (structs.replace(_SHORT, agents=AGENTS), _NONE),
    (structs.replace(_SHORT, guards_input=True, guards_output=True), _NONE),
)
"""Each with the hooks that a plugin hears."""
_STARTS: Final = CallModel | RunTools | Sleep
"""Work that an input may start without a change of the state."""


@dataclass(frozen=True, slots=True)
class Exploration:
    """``edges`` change the state or start work; ``rows`` are those of the tables that ran."""

    edges: frozenset[Edge]
    rows: frozenset[Row]


@cache
def explore() -> Exploration:
    """Return where every input leads, from everywhere that can be reached."""
    edges: set[Edge] = set()
    rows: set[Row] = set()
    for policy, hooks in _SESSIONS:
        for before, given, after in _moves(_rested(policy, hooks)):
            rows.add((before.state, given))
            if after.state is not before.state or _starts_work(after):
                edges.add((before.state, given, after.state))
    return Exploration(frozenset(edges), frozenset(rows))


def _moves(first: Scene) -> Iterator[tuple[Scene, type, Scene]]:
    """Yield every input in every situation that ``first`` leads to, with what comes of it."""
    seen: set[object] = set()
    waiting = deque([first])
    while waiting:
        before = waiting.popleft()
        for given, after in _next(before):
            yield before, given, after
            likeness = _likeness(after)
            if likeness not in seen:
                seen.add(likeness)
                waiting.append(after)
        assert len(seen) <= SITUATIONS_MAX, "distinguish fewer situations"  # noqa: S101 - ours


def _rested(policy: Policy, hooks: frozenset[str]) -> Scene:
    """Return a session at rest, with a subagent of an earlier cycle that still runs."""
    calling = new().give(Prompt(text="Look around."), "c-0")
    calling = calling.post(FirstChunk(calling.memory.work)).call("task")
    wanted = SubagentWanted(calling.memory.work, CallId("task"), "task", GENERAL, "Look.")
    rested = calling.post(wanted).give(Abort(children=False), "c-0")
    tools = (*TOOLS, WAY) if policy.agents else TOOLS
    memory = structs.replace(rested.memory, policy=policy, plugins=guarded(hooks), tools=tools)
    return replace(rested, memory=memory)


def _next(before: Scene) -> Iterator[tuple[type, Scene]]:
    for command in _commands(before.memory):
        if (before.state, type(command)) in HANDLERS:
            yield type(command), before.give(command, f"c-{before.memory.work}")
    for result in _results(before.memory):
        if (before.state, type(result)) in TRANSITIONS:
            yield type(result), before.post(result)


def _starts_work(after: Scene) -> bool:
    return any(isinstance(effect, _STARTS) for effect in after.effects)


def _commands(memory: Memory) -> Iterator[Command]:
    yield from (make(memory) for make in COMMANDS.values())
    yield Abort(clear_queue=False)
    yield Reject(approval_id=approval_of(memory), auto_resume=True)


def _results(memory: Memory) -> Iterator[Result]:
    samples = (make(memory) for makers in RESULTS.values() for make in makers)
    yield from (sample for sample in samples if sample is not None)


def _likeness(scene: Scene) -> tuple[object, ...]:
    """Return what of a situation can matter to where an input leads."""
    memory, cycle, answering = scene.memory, scene.memory.cycle, scene.memory.answering
    loop = loops.detect(memory.call_hashes)
    left = sum(one.result is None for one in memory.calls)
    return (
        scene.state,
        cycle and (cycle.turns, cycle.repairs, cycle.is_blocked and bool(memory.calls)),
        "steering" if memory.steering else "queue" if memory.queue else None,
        scene.state is State.IDLE and bool(memory.approvals),
        any(one.is_held for one in memory.approvals),
        left if scene.state is State.EXECUTING_TOOLS else bool(left),
        memory.compacting and memory.compacting.trigger,
        memory.point,
        isinstance(memory.activity, HandingOver),
        isinstance(memory.activity, Guarding),
        any(one.call.name == WAY.name for one in memory.calls),
        (answering.retries, answering.is_compacted) if scene.state in _ASKING else (),
        loop and min(loop[1], memory.policy.loop_abort),
        len(memory.messages) > _MESSAGES_KEPT,
    )
