"""What a call sends: a command made of the caller's arguments, checked and packed before it goes.

Each function makes the command of one call. What only the agent can know, such as a tool's name
that is taken, is the agent's to refuse. To add one: its function here, and whoever calls it in
``guidance``.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec

from cmdc_runtime.checkpoints import checkpoint_facts
from cmdc_runtime.client.edge import parts_of
from cmdc_runtime.client.subjects import checked_name
from cmdc_runtime.commands import (
    PROMPT_CHARS_MAX,
    REASON_BYTES_MAX,
    TOOLS_MAX,
    Abort,
    Approve,
    AttachPlugin,
    AttachTools,
    Command,
    DetachPlugin,
    DetachTools,
    Prompt,
    Reject,
    ReplaceTools,
    SaveCheckpoint,
    Steer,
    SwitchModel,
    UserRespond,
    names_provider,
)
from cmdc_runtime.errors import (
    InvalidOptions,
    InvalidText,
    InvalidTool,
    ToolValidationFailed,
    UsageError,
)
from cmdc_runtime.extensions.tool import as_tool
from cmdc_runtime.foreign import told
from cmdc_runtime.header_values import header_problem
from cmdc_runtime.messages import OpeningCall
from cmdc_runtime.options import ModelSource
from cmdc_runtime.packing import Packed, pack, pack_plugin
from cmdc_runtime.plain import copied, is_a, own, problem_of, short, text_problem

C = TypeVar("C", bound=Command)
A = TypeVar("A", Approve, Reject)

UNPACKABLE: Final = (TypeError, ValueError, OverflowError, RecursionError)
"""What MessagePack says of a value that it does not take."""


def prompt(text: str, call: OpeningCall | None = None) -> Prompt:
    """Return the prompt, with the call that its cycle opens with, if any.

    Raises:
        InvalidText: ``text`` is not a non-empty str, or too long.

    """
    return Prompt(text=_text(text, "prompt"), call=call)


def checkpoint(label: object, metadata: object) -> SaveCheckpoint:
    """Return the order for a checkpoint.

    Raises:
        UsageError: ``label`` or ``metadata`` cannot be kept.

    """
    wish = checkpoint_facts(label, metadata)
    return SaveCheckpoint(label=wish.label, metadata=wish.metadata)


def abort(**fields: Any) -> Abort:  # Any: the fields of the command
    """Return the abort.

    Raises:
        UsageError: a field is not what it may be.

    """
    try:
        reason = copied(fields.pop("reason", None), REASON_BYTES_MAX)
    except ValueError as error:
        raise UsageError(f"abort: reason: {error}") from error
    return _checked(Abort(reason=reason, **fields))


def steer(text: str, scope: str) -> Steer:
    """Return the steering.

    Raises:
        InvalidText: ``text`` is not a non-empty str, or too long.
        UsageError: there is no such scope.

    """
    given: Any = scope  # Any: checked below
    return _checked(Steer(text=_text(text, "steering"), scope=given))


def approve(**fields: Any) -> Approve:  # Any: the fields of the command
    """Return the approval.

    Raises:
        UsageError: a field is not what it may be.

    """
    return _about_approval(Approve(**fields))


def reject(**fields: Any) -> Reject:  # Any: the fields of the command
    """Return the rejection.

    Raises:
        UsageError: a field is not what it may be.

    """
    return _about_approval(Reject(**fields))


def user_respond(ref: str, response: object) -> UserRespond:
    """Return the answer to a question.

    Raises:
        UsageError: the answer cannot travel, or ``ref`` is no str.

    """
    if not isinstance(ref, str):
        raise UsageError(f"the reference of a question is a str, got {type(ref).__name__}")
    checked_name(ref, "ref")
    if (problem := problem_of(response)) is not None:
        raise UsageError(
            f"a response is whatever MessagePack takes, such as a str, a list or a dict; got "
            f"{type(response).__name__}: {problem}"
        )
    return UserRespond(ref=ref, response=response)


def attach_tool(tool: object) -> AttachTools:
    """Return the order to add one tool.

    Raises:
        InvalidTool: it is no tool, or cannot travel.

    """
    return AttachTools(tools=(pack(tool, label="tool"),), single=True)


def attach_tools(tools: Iterable[object]) -> AttachTools:
    """Return the order to add tools.

    Raises:
        ToolValidationFailed: not all of them are tools that can travel.
        UsageError: ``tools`` is no list.

    """
    return AttachTools(tools=_packed(tools))


def replace_tools(tools: Iterable[object]) -> ReplaceTools:
    """Return the order to have these tools and no others; raises as ``attach_tools``."""
    return ReplaceTools(tools=_packed(tools))


def attach_plugin(plugin: object) -> AttachPlugin:
    """Return the order to add a plugin.

    Raises:
        InvalidOptions: it is no plugin, its options are wrong, or it cannot travel.

    """
    return AttachPlugin(plugin=pack_plugin(plugin, label="plugin"))


def update_plugin(plugin: object) -> AttachPlugin:
    """Return the order to put a plugin in the place of the one of its name.

    Raises:
        InvalidOptions: it is no plugin, its options are wrong, or it cannot travel.

    """
    return AttachPlugin(plugin=pack_plugin(plugin, label="plugin"), is_update=True)


def detach_plugin(name: str) -> DetachPlugin:
    """Return the order to remove a plugin.

    Raises:
        UsageError: ``name`` is no str.

    """
    if not isinstance(name, str):
        raise UsageError(f"the name of a plugin is a str, got {type(name).__name__}")
    checked_name(name, "name")
    return DetachPlugin(name=name)


def detach_tool(name: str) -> DetachTools:
    """Return the order to remove one tool.

    Raises:
        UsageError: ``name`` is no str.

    """
    return DetachTools(names=_names([name]), single=True)


def detach_tools(names: Iterable[str]) -> DetachTools:
    """Return the order to remove tools.

    Raises:
        UsageError: ``names`` is no list of str.

    """
    return DetachTools(names=_names(names))


def switch_model(
    model: str | ModelSource,
    provider_opts: dict[str, Any] | None,  # Any: litellm's own arguments
) -> SwitchModel:
    """Return the order to use another model; the options of a ModelSource go along with it.

    Raises:
        InvalidOptions: ``model`` names none, or the options cannot travel.

    """
    try:
        if isinstance(model, ModelSource):
            model, own_opts = model.model_source()
            provider_opts = own_opts if provider_opts is None else provider_opts
    except Exception as error:  # its own code
        raise InvalidOptions([f"model: {short(model)} failed: {told(error)}"]) from error
    problems = [*_model_problems(model), *_opts_problems(provider_opts)]
    if problems:
        raise InvalidOptions(problems)
    return SwitchModel(model=model, provider_opts=provider_opts)


def _text(text: object, what: str) -> str:
    if not isinstance(text, str):
        raise InvalidText(f"a {what} is a str, got {type(text).__name__}")
    if not text.strip():
        raise InvalidText(f"a {what} is more than blanks")
    if (problem := text_problem(text, chars_max=len(text))) is not None:
        raise InvalidText(f"a {what} cannot be sent: {problem}")
    if len(text) > PROMPT_CHARS_MAX:
        raise InvalidText(
            f"a {what} has at most {PROMPT_CHARS_MAX} characters, got {len(text)}: put it into a "
            "file and let a tool read it"
        )
    return text


def _checked(command: C) -> C:
    """Return the command, which a caller's own values may have made into none."""
    for field in msgspec.structs.fields(command):
        value = getattr(command, field.name)
        choices = get_args(field.type) if get_origin(field.type) is Literal else ()
        try:
            if choices and is_a(value, str) and own(value) not in choices:
                raise ValueError(f"expected one of {', '.join(choices)}")
            msgspec.convert(value, field.type)
        except (msgspec.ValidationError, *UNPACKABLE) as error:
            call = type(command).__name__.lower()
            raise UsageError(f"{call}: {field.name}: {error}; given was {short(value)}") from None
    return command


def _about_approval(command: A) -> A:
    checked_name(_checked(command).approval_id, "approval_id")
    return command


def _packed(tools: Iterable[object]) -> tuple[Packed, ...]:
    packed: list[Packed] = []
    refused: list[tuple[str, InvalidTool]] = []
    for at, tool in enumerate(_listed(tools, "tools")):
        label = f"tools[{at}]"
        try:
            packed.append(pack(tool, label=label))
        except InvalidTool as error:
            refused.append((_name_of(tool) or label, error))
    if refused:
        failure = ToolValidationFailed([(name, InvalidTool.code) for name, _ in refused])
        for _, reason in refused:
            failure.add_note(str(reason))
        raise failure
    return tuple(packed)


def _name_of(tool: object) -> str | None:
    if isinstance(tool, str):  # not looked up here: only the agent imports it
        return tool
    try:
        return as_tool(tool).name
    except Exception:  # noqa: BLE001 - it is refused, by whatever its code does
        return None


def _names(names: Iterable[str]) -> tuple[str, ...]:
    listed = _listed(names, "names")
    for name in listed:
        if not isinstance(name, str):
            raise UsageError(f"a tool is detached by its name, a str; got {type(name).__name__}")
        checked_name(name, "name")
    return tuple(listed)


def _listed(things: Iterable[Any], what: str) -> list[Any]:  # Any: looked at one by one
    if isinstance(things, str | bytes | Mapping) or not isinstance(things, Iterable):
        raise UsageError(f"{what}: expected a list, got {short(things)}")
    return parts_of(things, what, TOOLS_MAX)


def _model_problems(model: object) -> list[str]:
    if isinstance(model, str) and names_provider(model):
        return []
    return [f"model: expected 'provider:model_id' or a ModelSource, got {short(model)}"]


def _opts_problems(opts: object) -> list[str]:
    if opts is None:
        return []
    if not isinstance(opts, dict) or not all(isinstance(name, str) for name in opts):
        return [f"provider_opts: expected a dict with names as keys, got {type(opts).__name__}"]
    problem = problem_of(opts) or header_problem(opts)
    return [] if problem is None else [f"provider_opts{problem}"]
