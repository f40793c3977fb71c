"""An input again from the records of its step: ``INPUTS`` says how, input by input.

What the world answered (models, tools, people, plugins, subagents) is taken as it was recorded;
what the machine made of it is not looked at here. Text that only observers saw, as chunks, hints
and questions, is not in the journal: inputs are made without it, and no record depends on it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from cmdc_runtime.commands import (
    AttachPlugin,
    AttachTools,
    Command,
    Prompt,
    ReplaceTools,
    Steer,
    SwitchModel,
    UserRespond,
)
from cmdc_runtime.events import PluginEvent
from cmdc_runtime.extensions.kernel_emits import DecideApproval, RequireApproval
from cmdc_runtime.extensions.provider import FailureKind
from cmdc_runtime.ids import CallId, CommandId, SessionId
from cmdc_runtime.reasons import AnyReason, snake
from workers.core import inputs, runs
from workers.core.assemble import Reply
from workers.core.budget import Grant
from workers.core.causes import Given, Recovery, name_of, unquote
from workers.core.conversation import UNCERTAIN
from workers.core.inputs import Order
from workers.core.records import (
    ApprovalAsked,
    ApprovalDecided,
    Cause,
    Compacted,
    CycleStarted,
    ModelChanged,
    Noted,
    PluginOrdered,
    PluginsChanged,
    PluginSetChanged,
    PluginSpent,
    PromptQueued,
    Record,
    Said,
    Steered,
    SubagentSpawned,
    SubagentSpent,
    TodosChanged,
    ToolEnded,
    ToolsChanged,
    ToolTold,
    TurnSpent,
    UserAnswered,
    UserAsked,
)
from workers.core.state import Memory, PluginFacts, State, ToolFacts
from workers.core.verdict import Aborted, Verdict

R = TypeVar("R", bound=Record)
C = TypeVar("C")

_DECIDE: Final = snake(DecideApproval.__name__)
_MS: Final = 1000


class NotDerivableError(Exception):
    """The records of a step do not give its input again; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A recorded step, and the memory that its input is about to meet.

    ``commands`` are those that the journal still has, by their ids.
    """

    cause: Cause
    records: tuple[Record, ...]
    memory: Memory
    commands: Mapping[CommandId, Command]

    @property
    def work(self) -> int:
        """What a result must name in order not to be late."""
        return self.memory.work

    def first(self, kind: type[R]) -> R:
        """Return the step's first record of this kind.

        Raises:
            NotDerivableError: it has none.
        """
        found = self.find(kind)
        if found is None:
            raise NotDerivableError(
                f"its step has no {snake(kind.__name__)}, which {self.cause.input} is known by"
            )
        return found

    def find(self, kind: type[R]) -> R | None:
        """Return the step's first record of this kind, or None."""
        return next((one for one in self.records if isinstance(one, kind)), None)

    def fact(self, name: str) -> Any:  # Any: a fact of its own input
        """Return what the cause tells besides.

        Raises:
            NotDerivableError: it does not.
        """
        if name not in self.cause.facts:
            raise NotDerivableError(f"its cause does not tell {name!r} of {self.cause.input}")
        return self.cause.facts[name]

    def command(self, kind: type[C]) -> C:
        """Return the command that the cause names.

        Raises:
            NotDerivableError: the journal has it no more, or it is another one.
        """
        command_id = self.cause.ref
        found = self.commands.get(CommandId(command_id))
        if found is None:
            raise NotDerivableError(f"the journal does not keep command {command_id}, or no more")
        if not isinstance(found, kind):
            raise NotDerivableError(f"command {command_id} is no command for {self.cause.input}")
        return found


def inputs_of(scene: Scene) -> tuple[Given, ...]:
    """Return what to feed the machine so that it takes the step again; the last one is the input.

    Raises:
        NotDerivableError: the records do not tell.
    """
    make = INPUTS.get(scene.cause.input)
    if make is None:
        raise NotDerivableError(f"this program knows no input {scene.cause.input!r}")
    try:
        return (*_partial(scene), make(scene))
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise NotDerivableError(
            f"what its cause tells of {scene.cause.input} is odd: {error}"
        ) from error


def _partial(scene: Scene) -> tuple[Given, ...]:
    """Return the text that an answer had when it was broken off; what is whole has its own."""
    said = scene.find(Said)
    if said is None or scene.cause.where.state != State.STREAMING:
        return ()
    text = said.message.content
    return (inputs.TextArrived(scene.work, text, ()),) if text else ()


def _recovered(scene: Scene) -> Given:
    # mypy does not take a union for the type that it is
    reason: Any = msgspec.convert(scene.fact("reason"), AnyReason)
    return Recovery(reason, scene.cause.at_ms)


def _order(scene: Scene) -> Given:
    command = _retold(scene) or scene.command(Command)
    return Order(CommandId(scene.cause.ref), command, scene.cause.at_ms)


def _retold(scene: Scene) -> Command | None:
    """Return a command that the journal has dropped, where its first record tells all of it."""
    if scene.cause.ref in scene.commands:
        return None
    match scene.records[0]:
        case (
            CycleStarted(text=text, metadata=more, call=call)
            | PromptQueued(text=text, metadata=more, call=call)
        ):
            return None if more else Prompt(text=text, call=call)
        case Steered(text=text) if scene.cause.where.state != State.EXECUTING_TOOLS:
            return Steer(text=text)
        case ModelChanged(model=model, provider_opts=opts):
            return SwitchModel(model=model, provider_opts=opts)
        case UserAnswered(ref=ref, response=response):
            return UserRespond(ref=ref, response=response)
        case _:
            return None


# --- of the model -------------------------------------------------------------------------------


def _answered(scene: Scene) -> Given:
    said, spent = scene.first(Said).message, scene.first(TurnSpent)
    reply = Reply(
        text=said.content,
        thinking=said.thinking,
        tool_calls=said.tool_calls,
        usage=spent.usage,
        finish_reason=str(said.metadata.get("finish_reason", "")),
    )
    return inputs.StreamEnded(scene.work, reply, scene.cause.at_ms)


def _failed(scene: Scene) -> Given:
    kind, reason = FailureKind(scene.fact("kind")), str(scene.fact("reason"))
    return inputs.StreamFailed(scene.work, kind, reason, scene.cause.at_ms)


def _summarized(scene: Scene) -> Given:
    made = scene.first(Compacted)
    text = unquote(scene.fact("text"), made.summary.content)
    file = made.summary.metadata.get("history_file")
    history_file = None if file is None else str(file)
    return inputs.Summarized(scene.work, text, made.usage, history_file, scene.cause.at_ms)


def _not_summarized(scene: Scene) -> Given:
    return inputs.SummaryFailed(scene.work, str(scene.fact("reason")), scene.cause.at_ms)


# --- of tools and subagents ---------------------------------------------------------------------


def _begun(scene: Scene) -> Given:
    return inputs.ToolBegun(scene.work, CallId(scene.cause.ref), scene.cause.at_ms)


def _told(scene: Scene) -> Given:
    step = scene.first(ToolTold).step
    event = PluginEvent(name="", payload=None) if step is None else runs.event_of(step)
    return inputs.ToolTold(scene.work, CallId(scene.cause.ref), event)


def _to_approve(scene: Scene) -> Given:
    asked = scene.first(ApprovalAsked)
    patience_ms = None if asked.due_ms is None else asked.due_ms - asked.at_ms
    wanted = RequireApproval(
        family=asked.family,
        hold=asked.ref is not None,
        timeout_s=None if patience_ms is None else patience_ms / _MS,
        options=asked.options,
    )
    call_id = CallId(scene.cause.ref)
    return inputs.ApprovalNeeded(scene.work, call_id, wanted, scene.cause.at_ms, ref=asked.ref)


def _returned(scene: Scene) -> Given:
    ended, todos = scene.first(ToolEnded).message, scene.find(TodosChanged)
    return inputs.ToolReturned(
        scene.work,
        CallId(scene.cause.ref),
        ok=not ended.is_error,
        text=unquote(scene.fact("text"), ended.content),
        at_ms=scene.cause.at_ms,
        effect=None if todos is None else ("update_todos", {"todos": todos.todos}),
        is_cut=UNCERTAIN in ended.metadata,
    )


def _refused(scene: Scene) -> Given:
    why = unquote(scene.fact("why"), scene.first(ToolEnded).message.content)
    return inputs.ToolRefused(scene.work, CallId(scene.cause.ref), why, scene.cause.at_ms)


def _asked(scene: Scene) -> Given:
    asked = scene.first(UserAsked)
    return inputs.QuestionAsked(scene.work, CallId(scene.cause.ref), asked.ref, "", ())


def _wanted(scene: Scene) -> Given:
    ref, kind = scene.first(SubagentSpawned).ref, str(scene.fact("type"))
    return inputs.SubagentWanted(scene.work, CallId(scene.cause.ref), ref, kind, "")


def _branched(scene: Scene) -> Given:
    spawned, limit = scene.first(SubagentSpawned), Grant(*scene.fact("limit"))
    task, shares = inputs.BranchTask(""), int(scene.fact("shares"))
    return inputs.BranchWanted(
        scene.work, CallId(scene.cause.ref), spawned.ref, task, spawned.digest, limit, shares
    )


def _delegated(scene: Scene) -> Given:
    ref, kind = scene.first(SubagentSpawned).ref, str(scene.fact("type"))
    return inputs.PluginDelegated(scene.cause.ref, ref, kind, "")


def _done(scene: Scene) -> Given:
    spent = scene.first(SubagentSpent)
    return inputs.SubagentDone(
        SessionId(scene.cause.ref),
        ok=spent.ok is not False,
        text=spent.text,
        usage=spent.usage,
        is_lost=spent.ok is None,
    )


def _undecided(scene: Scene) -> Given:
    return inputs.ApprovalExpired(scene.cause.ref, scene.cause.at_ms)


def _out_of_time(scene: Scene) -> Given:
    return inputs.CycleExpired(CommandId(scene.cause.ref), scene.cause.at_ms)


def _session_stopped(scene: Scene) -> Given:
    return inputs.Stopped(scene.cause.at_ms)


def _tools_loaded(scene: Scene) -> Given:
    command: Command = scene.command(Command)
    if not isinstance(command, AttachTools | ReplaceTools):
        raise NotDerivableError(f"command {scene.cause.ref} brings no tools")
    changed = scene.first(ToolsChanged)
    new = [
        ToolFacts(one.name, one.is_repeatable, one.isolation, one.packed, one.chars)
        for one in changed.attached
    ]
    # A whole new table names those again that stay as they are.
    stays = [one for one in scene.memory.tools if one.name not in changed.detached]
    table = (*stays, *new) if isinstance(command, ReplaceTools) else tuple(new)
    found = tuple(inputs.Found(one.name, one) for one in table)
    return inputs.ToolsLoaded(CommandId(scene.cause.ref), command, found)


# --- of plugins ---------------------------------------------------------------------------------


def _plugin_loaded(scene: Scene) -> Given:
    command, changed = scene.command(AttachPlugin), scene.first(PluginSetChanged)
    if not changed.attached:
        raise NotDerivableError("its plugin_set_changed names no plugin that was attached")
    new = changed.attached[0]
    facts = PluginFacts(new.name, new.hooks, new.packed)
    verdict = _verdict(scene.records[1:])
    return inputs.PluginLoaded(CommandId(scene.cause.ref), command, facts, verdict)


def _consulted(scene: Scene) -> Given:
    verdict = _verdict(scene.records, abort=_abort(scene), skipped=scene.cause.facts.get("skipped"))
    return inputs.Consulted(scene.work, verdict, scene.cause.at_ms)


def _spoke(scene: Scene) -> Given:
    return inputs.PluginsSpoke(_verdict(scene.records))


def _charged(scene: Scene) -> Given:
    usage = scene.first(PluginSpent).usage
    return inputs.PluginAskedModel(scene.cause.ref, scene.memory.model, usage)


def _stopped(scene: Scene) -> Given:
    abort = _abort(scene)
    if abort is None:
        raise NotDerivableError("its cause does not tell which plugin ended the cycle")
    return inputs.PluginsAborted(scene.work, abort, scene.cause.at_ms)


def _judged(scene: Scene) -> Given:
    command = scene.command(Steer)
    order = Order(CommandId(scene.cause.ref), command, scene.cause.at_ms)
    said = tuple(map(str, scene.cause.facts.get("said", ())))
    verdict = _verdict(scene.records, abort=_abort(scene), interventions=said)
    return inputs.SteeringJudged(order, command, verdict)


def _abort(scene: Scene) -> Aborted | None:
    told = scene.cause.facts.get("abort")
    return None if told is None else Aborted(*told)


def _verdict(kept: Sequence[Record], **besides: Any) -> Verdict:  # Any: fields of Verdict
    """Return what plugins said, by the records that ``apply_verdict`` records of it.

    ``besides``: what these do not tell.
    """
    told: dict[str, Any] = {"emitted": ()}
    for one in kept:
        match one:
            case PluginsChanged(states=states):
                told["states"] = tuple(states.items())
            case PluginOrdered(name=name, payload=payload):
                told["emitted"] += ((name, payload),)
            case ApprovalDecided(approval_id=approval_id, decision=decision):
                order = {"approval_id": approval_id, "decision": decision}
                told["emitted"] += ((_DECIDE, order),)
            case ModelChanged(model=model, provider_opts=opts):
                told["model"] = (model, opts)
            case Noted(notes=notes):
                told["interventions"] = notes
            case _:
                pass
    return Verdict(**{**told, **besides})


# fmt: off
INPUTS: Final[Mapping[str, Callable[[Scene], Given]]] = {
    name_of(kind): make
    for kind, make in (
        (Order,                   _order),
        (Recovery,                _recovered),
        (inputs.StreamEnded,      _answered),
        (inputs.StreamFailed,     _failed),
        (inputs.Summarized,       _summarized),
        (inputs.SummaryFailed,    _not_summarized),
        (inputs.ToolBegun,        _begun),
        (inputs.ApprovalNeeded,   _to_approve),
        (inputs.ToolTold,         _told),
        (inputs.ToolReturned,     _returned),
        (inputs.ToolRefused,      _refused),
        (inputs.QuestionAsked,    _asked),
        (inputs.SubagentWanted,   _wanted),
        (inputs.BranchWanted,     _branched),
        (inputs.PluginDelegated,  _delegated),
        (inputs.SubagentDone,     _done),
        (inputs.ApprovalExpired,  _undecided),
        (inputs.CycleExpired,     _out_of_time),
        (inputs.Stopped,          _session_stopped),
        (inputs.ToolsLoaded,      _tools_loaded),
        (inputs.PluginLoaded,     _plugin_loaded),
        (inputs.Consulted,        _consulted),
        (inputs.PluginsSpoke,     _spoke),
        (inputs.PluginAskedModel, _charged),
        (inputs.PluginsAborted,   _stopped),
        (inputs.SteeringJudged,   _judged),
    )
}
# fmt: on
"""How each input is made again; those of ``causes.py`` and no others."""
