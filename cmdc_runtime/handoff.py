"""Handoffs: to which agents a session may give itself over, as an application says it.

The model of a session has a tool ``transfer_to_<name>`` for each agent but the one that acts, and
for the session's own, which is the way back. A call of it swaps prompt, tools and model at once. To
let a handoff swap more, name it in ``_SWAPPED``, give it a field of ``SubagentSpec``, and take it
where ``workers.core.handoffs`` makes the record.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cmdc_runtime.callables import yield_problem
from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.foreign import summary_of
from cmdc_runtime.option_checks import Unfit, is_function
from cmdc_runtime.plain import nearest, short
from cmdc_runtime.redaction import printed, printed_fields
from cmdc_runtime.subagent import TRANSFER_PREFIX, SubAgent

HANDOFFS_MAX: Final = 32
"""Of one session: each is a tool of every agent but its own."""
NAME_CHARS_MAX: Final = 64 - len(TRANSFER_PREFIX)
"""Of an agent's name: models take tools with names of 64 characters."""
OWN_AGENT: Final = "main"
"""The name of a session's own agent, unless its blueprint has one."""
WHOLE, NOTHING = "all", "none"
_SWAPPED: Final = frozenset({"system_prompt", "model", "provider_opts", "tools", "prompt_mode"})
_NAMING: Final = frozenset({"name", "description", "blueprint"})
_TASK_MODE: Final = "task"
"""What ``SubAgent.prompt_mode`` is by default: it is for tasks, and here as None."""
_ODD: Final = re.compile(r"[^A-Za-z0-9_-]+")
_BACK: Final = "The agent that this conversation began with; it takes the conversation back."


class Handoff(msgspec.Struct, frozen=True, metaclass=Checked):
    """An agent that a session may be given over to by its model.

    ``to`` is a ``SubAgent``, a ``Blueprint``, or the name of one of the session's ``subagents``. Of
    it the prompt, the tools and the model count; None there means: as the session itself has it.
    ``history`` decides what the next agent sees of the conversation: "all"; "none", which is what
    the user has said in this cycle; or a function, sync or async, from the list of messages to the
    list that takes its place, or ``"module:name"`` of one. It is called once for each handoff.
    """

    __repr__ = printed
    __rich_repr__ = printed_fields

    to: Any
    name: str | None = None  # as the tool says it; None: that of ``to``
    description: str | None = None  # for the model that may hand over; None: that of ``to``
    history: Any = WHOLE


@dataclass(frozen=True, slots=True)
class Target:
    """An agent as a handoff takes it; ``source`` says who it is, ``history`` what it sees."""

    agent: SubAgent
    source: object
    history: Any  # Any: as ``Handoff.history``


def check_handoffs(value: object) -> list[Handoff]:
    """Return a list of ``Handoff``; an agent by itself is one, and so is a name of a subagent."""
    if not isinstance(value, list | tuple):
        raise TypeError("expected a list of cmdc.Handoff")
    if len(value) > HANDOFFS_MAX:
        raise TypeError(f"expected at most {HANDOFFS_MAX} handoffs")
    return [one if isinstance(one, Handoff) else Handoff(to=one) for one in value]


def own_agent(blueprint: object) -> SubAgent:
    """Return the agent that a session of this blueprint begins with, as others hand back to it."""
    name = _ODD.sub("_", _text(blueprint, "name")).strip("_")[:NAME_CHARS_MAX]
    return SubAgent(
        name=name or OWN_AGENT,
        description=_text(blueprint, "purpose") or _BACK,
        prompt_mode=None,
    )


def target_of(handoff: Handoff, subagents: Sequence[SubAgent]) -> Target:
    """Return the agent of a handoff, with the name and description that count.

    Raises:
        Unfit: it is none, is not among ``subagents``, or has what a handoff does not swap.
    """
    agent, source = _agent_of(handoff.to, subagents)
    given = {"name": handoff.name, "description": handoff.description}
    agent = msgspec.structs.replace(
        agent, **{name: value for name, value in given.items() if value is not None}
    )
    _check_history(handoff.history)
    return Target(agent, source, handoff.history)


def _agent_of(to: Any, subagents: Sequence[SubAgent]) -> tuple[SubAgent, object]:
    """Return what is given as an agent, and the object that says who it is."""
    if isinstance(to, str):
        found = next((one for one in subagents if one.name == to), None)
        if found is None:
            near = nearest(to, [one.name for one in subagents])
            hint = "" if near is None else f"; did you mean {near!r}?"
            raise Unfit(f".to: no subagent is called {short(to)}{hint}")
        return _of_subagent(found), None
    if isinstance(to, SubAgent):
        return _of_subagent(to), None
    if isinstance(to, type) or not callable(_attribute(to, "to_options")):
        expected = "expected a cmdc.SubAgent, a cmdc.Blueprint or the name of a subagent"
        raise Unfit(f".to: {expected}, got {short(to)}")
    return _of_blueprint(to), to


def _of_subagent(given: SubAgent) -> SubAgent:
    others = [name for name in given.__struct_fields__ if name not in _SWAPPED | _NAMING]
    _refuse(name for name in others if getattr(given, name) is not None)
    mode = None if given.prompt_mode == _TASK_MODE else given.prompt_mode
    return msgspec.structs.replace(given, prompt_mode=mode)


def _of_blueprint(given: Any) -> SubAgent:  # Any: whatever describes options
    try:
        options = given.to_options()
        default = type(options)()
        others = [name for name in options.__struct_fields__ if name not in _SWAPPED | _NAMING]
        said = [name for name in others if getattr(options, name) != getattr(default, name)]
        swapped = {name: getattr(options, name) for name in _SWAPPED}
    except Exception as error:  # it may be the application's own code
        raise Unfit(f".to: {short(given)} failed: {summary_of(error)}") from error
    _refuse(said)
    opts = swapped["provider_opts"] or None
    mode = None if swapped["prompt_mode"] == default.prompt_mode else swapped["prompt_mode"]
    name = _ODD.sub("_", _text(given, "name")).strip("_")
    swapped |= {"provider_opts": opts, "prompt_mode": mode}
    return SubAgent(name=name, description=_text(given, "purpose"), **swapped)


def _refuse(names: Any) -> None:  # Any: names in any form
    problems = [
        f".to.{name}: a handoff swaps prompt, tools and model; give {name} to the session itself"
        for name in names
    ]
    if problems:
        raise Unfit(*problems)


def _check_history(history: object) -> None:
    is_word = isinstance(history, str) and history in {WHOLE, NOTHING}
    if not is_word and not is_function(history):
        expected = 'expected "all", "none", a function, or "module:name" of one'
        raise Unfit(f".history: {expected}, got {short(history)}")
    if (problem := yield_problem(history)) is not None:
        raise Unfit(f".history: {short(history)}: {problem}")


def _text(source: object, name: str) -> str:
    found = _attribute(source, name)
    return str(found).strip() if isinstance(found, str) else ""


def _attribute(source: object, name: str) -> object:
    """Return an attribute of a stranger, None where it can't be had; he is refused elsewhere."""
    try:
        return getattr(source, name, None)
    except Exception:  # noqa: BLE001 - the application's own code
        return None
