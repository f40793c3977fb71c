"""Hot tools and models: what is attached, detached, replaced and switched while the session lives.

Parcels are opened by the shell: the command asks for it, and ``use_loaded`` decides when they are
open. A batch is changed as a whole or not at all.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from cmdc_runtime.commands import (
    TOOLS_MAX,
    AttachTools,
    DetachTools,
    ReplaceTools,
    SwitchModel,
    ToolsDiff,
)
from cmdc_runtime.errors import (
    AlreadyAttached,
    CmdcError,
    InvalidTool,
    ToolNotFound,
    ToolValidationFailed,
    UsageError,
)
from cmdc_runtime.events import ToolAttached, ToolDetached, ToolsUpdated
from cmdc_runtime.model_names import model_problem
from workers.core.changes import attached_tool, change_tools
from workers.core.consult import switch_model
from workers.core.effects import ChangeTools, Effect, Keep, LoadTools, Publish, Settle, Step
from workers.core.inputs import Found, Order, ToolsLoaded
from workers.core.records import ToolsChanged
from workers.core.state import Memory, State, ToolFacts

Problems = list[tuple[str, str]]
"""Tool name or label, and what is wrong with it."""


def load(state: State, memory: Memory, order: Order, command: AttachTools | ReplaceTools) -> Step:
    """Have the parcels opened; ``use_loaded`` goes on."""
    return Step(state, memory, (LoadTools(order.id, command),))


def use_loaded(state: State, memory: Memory, loaded: ToolsLoaded) -> Step:
    """Attach what was opened, or refuse all of it and say what is wrong."""
    command = loaded.command
    is_new_table = isinstance(command, ReplaceTools)
    opened = [found.tool for found in loaded.found if found.tool is not None]
    is_one = isinstance(command, AttachTools) and command.single
    times = Counter(tool.name for tool in opened)
    problems = _problems(memory, loaded.found, times, is_new_table=is_new_table)
    if problems:
        error = _single_error(loaded.found, problems) if is_one else ToolValidationFailed(problems)
        dropped = ChangeTools(loaded.id, (), ())
        return Step(state, memory, (Settle(loaded.id, error), dropped))
    given = {tool.name: tool for tool in opened}
    present = {tool.name for tool in memory.tools}
    # What opens each cycle was no part of the table: it is an option of the session.
    opening = memory.policy.opening_call
    kept = given.keys() | ({opening.name} if opening is not None else set())
    gone = tuple(tool.name for tool in memory.tools if tool.name not in kept)
    detached = gone if is_new_table else ()
    attached = tuple(tool for name, tool in given.items() if name not in present)
    names = tuple(tool.name for tool in attached)
    answer = ToolsDiff(attached=names, detached=detached) if is_new_table else names
    memory, effects = _change(memory, attached, detached, is_batch=not is_one)
    change = ChangeTools(loaded.id, names, detached)
    return Step(state, memory, (*effects, Settle(loaded.id, answer), change))


def detach(state: State, memory: Memory, order: Order, command: DetachTools) -> Step:
    """Remove tools, all or none; calls that run go on to their ends."""
    present = {tool.name for tool in memory.tools}
    names = tuple(dict.fromkeys(command.names))
    missing: Problems = [(name, "not_found") for name in names if name not in present]
    if missing:
        known = ", ".join(sorted(present)) or "none"
        error: CmdcError = ToolValidationFailed(missing)
        if command.single:
            error = ToolNotFound(f"there is no tool {missing[0][0]!r}; tools: {known}")
        return Step(state, memory, (Settle(order.id, error),))
    memory, effects = _change(memory, (), names, is_batch=not command.single)
    change = ChangeTools(order.id, (), names)
    return Step(state, memory, (*effects, Settle(order.id, names), change))


def switch(state: State, memory: Memory, order: Order, command: SwitchModel) -> Step:
    """Send the next request elsewhere; the one under way ends where it began."""
    if problem := model_problem(command.model):
        error = UsageError(f"model: {problem}")
        return Step(state, memory, (Settle(order.id, error),))
    memory, effects = switch_model(memory, command.model, command.provider_opts)
    return Step(state, memory, (*effects, Settle(order.id, None)))


def _change(
    memory: Memory, attached: Sequence[ToolFacts], detached: tuple[str, ...], *, is_batch: bool
) -> tuple[Memory, tuple[Effect, ...]]:
    """Change the tools and tell of each; of a batch as a whole, too."""
    if not attached and not detached:
        return memory, ()
    kept = tuple(map(attached_tool, attached))
    names = tuple(tool.name for tool in attached)
    effects: tuple[Effect, ...] = (
        Keep(ToolsChanged(attached=kept, detached=detached)),
        *(Publish(ToolDetached(name=name)) for name in detached),
        *(Publish(ToolAttached(name=name)) for name in names),
        *([Publish(ToolsUpdated(attached=names, detached=detached))] if is_batch else []),
    )
    return change_tools(memory, kept, detached), effects


def _problems(
    memory: Memory, found: Sequence[Found], times: Mapping[str, int], *, is_new_table: bool
) -> Problems:
    present = {tool.name for tool in memory.tools}
    problems: Problems = []
    for one in found:
        if one.tool is None:
            problems.append((one.label, "invalid_tool"))
        elif times[one.tool.name] > 1:
            problems.append((one.tool.name, "duplicate_in_list"))
        elif one.tool.name in present and not is_new_table:
            problems.append((one.tool.name, "already_attached"))
    total = len(found) + (0 if is_new_table else len(present))
    if found and not problems and total > TOOLS_MAX:
        problems.append((found[-1].label, f"more than {TOOLS_MAX} tools"))
    return list(dict.fromkeys(problems))


def _single_error(found: Sequence[Found], problems: Problems) -> CmdcError:
    name, reason = problems[0]
    if reason == "already_attached":
        return AlreadyAttached(f"a tool named {name!r} is attached; detach it first")
    return InvalidTool(next((one.problem for one in found if one.problem), f"{name}: {reason}"))
