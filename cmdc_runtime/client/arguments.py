"""What a call is given: a session of either kind or its id, texts, names, tools; checked here.

It has passed the edge (``client/edge.py``): no method of an application's class is left in it. What
only the agent can know, such as a tool's name that is taken, is the agent's to refuse. What an
image or a file of a prompt is shows when it is read (``content.read``), which may take its time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar, cast, get_args, get_origin

import msgspec

from cmdc_runtime.checked_struct import INDEX_MAX, NAME_CHARS_MAX, SECONDS_MAX
from cmdc_runtime.checkpoints import checkpoint_id_problem
from cmdc_runtime.client.edge import parts_of
from cmdc_runtime.client.limits import AGENTS_MAX, PARALLEL_MAX
from cmdc_runtime.commands import (
    PROMPT_CHARS_MAX,
    REASON_BYTES_MAX,
    TOOLS_MAX,
    Command,
)
from cmdc_runtime.content import File, Image
from cmdc_runtime.errors import (
    PROBLEMS_MAX,
    InvalidOptions,
    InvalidPart,
    InvalidSession,
    InvalidText,
    InvalidTool,
    ToolValidationFailed,
    UsageError,
)
from cmdc_runtime.extensions.tool import as_tool
from cmdc_runtime.foreign import summary_of
from cmdc_runtime.ids import (
    SESSION_ID_RULE,
    SUPERVISOR,
    MonitorRef,
    SessionId,
    is_monitor_ref,
    is_session_id,
)
from cmdc_runtime.mcp_servers import McpServer, server_problems
from cmdc_runtime.message_parts import PROMPT_PARTS_MAX, parts_count_problem
from cmdc_runtime.option_checks import (
    Unfit,
    check_group_id,
    check_provider_opts,
    unknown_name,
)
from cmdc_runtime.options import ModelSource
from cmdc_runtime.packing import Packed, pack
from cmdc_runtime.plain import (
    copied,
    is_a,
    number_problem,
    own,
    problem_of,
    short,
    text_problem,
    whole_problem,
)
from cmdc_runtime.provider_options import EXPECTED, model_problem

# --- what each argument is ------------------------------------------------------------------------

C = TypeVar("C", bound=Command)
T = TypeVar("T")
Ours = TypeVar("Ours")
Item = TypeVar("Item")

UNPACKABLE: Final = (TypeError, ValueError, OverflowError, RecursionError)
"""What MessagePack says of a value that it does not take."""
CONTENT_MAX: Final = 1_000
"""Texts, images and files of one prompt, each counted."""


class Asked(NamedTuple):
    """A prompt as it was given: its text, and images and files with their places in it."""

    text: str
    given: tuple[tuple[int, Image | File], ...] = ()


class HasId(Protocol):
    """A session object of either kind."""

    @property
    def id(self) -> SessionId:
        """The session's id."""


SessionLike = str | HasId


def id_of(session: SessionLike) -> SessionId:
    """Return the id of a session object, or the str as it is.

    Raises:
        InvalidSession: it is neither.

    """
    try:
        found = own(session if is_a(session, str) else getattr(session, "id", None))
    except Exception as error:
        raise InvalidSession(
            f"a session's id: {short(session)} failed: {summary_of(error)}"
        ) from error
    if not isinstance(found, str):
        raise InvalidSession(f"expected a session or a session id, got {short(session)}")
    return SessionId(found)


def checked_id(session: SessionLike) -> SessionId:
    """Return the id of a session object or a str, also that of the supervision tree itself.

    Raises:
        InvalidSession: it is neither, or no id can look like this.

    """
    found = id_of(session)
    if not is_session_id(found) and found != SUPERVISOR:
        raise InvalidSession(f"not a session id: {short(found)}, expected {SESSION_ID_RULE}")
    return found


def checked_group(group_id: object) -> str:
    """Return the name of a group.

    Raises:
        UsageError: no session can have it.

    """
    if group_id is None:
        raise UsageError("group_id: expected a non-empty str, got None")
    try:
        return str(check_group_id(group_id))
    except TypeError as error:
        raise UsageError(f"group_id: {error}, got {short(group_id)}") from None


def checked_name(name: object, what: str) -> str:
    """Return what names a thing, such as an approval's id: one line of text.

    Raises:
        UsageError: nothing can be called so.

    """
    problem = text_problem(name, chars_max=NAME_CHARS_MAX, one_line=True)
    if problem is not None or not isinstance(name, str):
        raise UsageError(f"{what}: {problem}")
    if not name:
        raise UsageError(f"{what}: expected a non-empty str")
    return name


def checked_ref(ref: object) -> MonitorRef:
    """Return the reference of a monitor.

    Raises:
        UsageError: no monitor can have it.

    """
    if not isinstance(ref, str) or not is_monitor_ref(ref):
        raise UsageError(
            f"ref: expected a monitor or its ``ref``, as monitor() returns it, got {short(ref)}"
        )
    return MonitorRef(ref)


def checked_callback(callback: object) -> None:
    """Take what a monitor may call, or None.

    Raises:
        UsageError: nobody can call it.

    """
    if callback is not None and not callable(callback):
        raise UsageError(
            f"callback: expected a function of one argument, or None, got {short(callback)}"
        )


def checked_flag(flag: object, what: str) -> None:
    """Take True or False.

    Raises:
        UsageError: it is neither, which would count as one of them.

    """
    if not isinstance(flag, bool):
        raise UsageError(f"{what}: expected True or False, got {short(flag)}")


def checked_kind(given: Ours, kind: type[object], what: str) -> Ours:
    """Return an object of ours that a caller hands in, such as a session's client.

    Raises:
        UsageError: it is another thing.

    """
    try:
        is_ours = isinstance(given, kind)
    except Exception:  # noqa: BLE001 - it has code of its own, which ours has not
        is_ours = False
    if not is_ours:
        raise UsageError(f"{what}: expected one of cmdc_runtime's own, got {short(given)}")
    return given


def checked_checkpoint(checkpoint_id: object) -> str | None:
    """Return the id of a checkpoint, or None, which is the newest or all.

    Raises:
        UsageError: no checkpoint can be called so.

    """
    if checkpoint_id is None:
        return None
    if (problem := checkpoint_id_problem(checkpoint_id)) is not None:
        raise UsageError(problem)
    return str(checkpoint_id)


def checked_timeout(timeout: object) -> float | None:
    """Return a time to wait in seconds, or None: as long as it takes.

    Raises:
        UsageError: nobody can wait so long.

    """
    if timeout is None:
        return None
    problem = number_problem(timeout, 0, SECONDS_MAX)
    if problem is not None or not isinstance(timeout, int | float):
        raise UsageError(
            f"timeout: {problem}; it is in seconds, and None waits as long as it takes"
        )
    return timeout


def checked_since(since: object) -> int | None:
    """Return the index of an event, or None: from now on.

    Raises:
        UsageError: no event can have it.

    """
    if since is None:
        return None
    problem = whole_problem(since, 0, INDEX_MAX)
    if problem is not None or not isinstance(since, int):
        raise UsageError(
            f"since: expected the index of the last event seen, or 0 for all, got {short(since)}"
        )
    return since


def checked_text(text: object, what: str) -> str:
    """Return the text of a prompt or a steering.

    Raises:
        InvalidText: it is not a non-empty str, or too long.

    """
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


def checked_content(content: object, what: str) -> Asked:
    """Return a prompt: a text, or a list of texts, images and files.

    Raises:
        InvalidText: there is no text and nothing else, or too much of it.
        InvalidPart: there are too many images and files, or one of them is none.

    """
    if isinstance(content, Image | File):
        kind = type(content).__name__
        raise InvalidText(
            f"a {what} is a str, or a list with images and files: give [cmdc.{kind}(…)]"
        )
    if not isinstance(content, list | tuple):
        return Asked(checked_text(content, what))
    texts: list[str] = []
    given: list[tuple[int, Image | File]] = []
    for at, one in enumerate(parts_of(content, what, CONTENT_MAX)):
        if isinstance(one, Image | File):
            given.append((len(_joined(texts)), one))
        elif isinstance(one, str):
            texts.append(one)
        else:
            raise InvalidPart(
                f"{what}[{at}]: expected a str, a cmdc.Image or a cmdc.File, got {short(one)}"
            )
    if len(given) > PROMPT_PARTS_MAX:
        raise InvalidPart(parts_count_problem(len(given)))
    text = _joined(texts)
    return Asked(text if given and not text.strip() else checked_text(text, what), tuple(given))


def checked_reason(reason: Any) -> Any:  # Any: plain data
    """Return a copy of why a cycle is aborted.

    Raises:
        UsageError: it is no plain data, or too much.

    """
    try:
        return copied(reason, REASON_BYTES_MAX)
    except ValueError as error:
        raise UsageError(f"abort: reason: {error}") from error


def checked_question(ref: object) -> str:
    """Return the reference of a tool's question.

    Raises:
        UsageError: no question can have it.

    """
    if not isinstance(ref, str):
        raise UsageError(f"the reference of a question is a str, got {type(ref).__name__}")
    return checked_name(ref, "ref")


def checked_response(response: object) -> object:
    """Return the answer to a question.

    Raises:
        UsageError: it cannot travel.

    """
    if (problem := problem_of(response)) is not None:
        raise UsageError(
            f"a response is whatever MessagePack takes, such as a str, a list or a dict; got "
            f"{type(response).__name__}: {problem}"
        )
    return response


def checked_plugin(name: object) -> str:
    """Return the name of a plugin.

    Raises:
        UsageError: no plugin can have it.

    """
    if not isinstance(name, str):
        raise UsageError(f"the name of a plugin is a str, got {type(name).__name__}")
    return checked_name(name, "name")


def checked(command: C) -> C:
    """Return a command, which a caller's own values may have made into none.

    Raises:
        UsageError: a field is not what it may be.

    """
    for field in msgspec.structs.fields(command):
        value = getattr(command, field.name)
        choices = get_args(field.type) if get_origin(field.type) is Literal else ()
        try:
            if choices and is_a(value, str) and own(value) not in choices:
                raise ValueError(f"expected one of {', '.join(choices)}")
            msgspec.convert(value, field.type)
        except (msgspec.ValidationError, *UNPACKABLE) as error:
            call, given = type(command).__name__.lower(), short(value, (field.name,))
            raise UsageError(f"{call}: {field.name}: {error}; given was {given}") from None
    return command


def checked_pairs(
    question: str | Sequence[str], agents: Sequence[Item], max_parallel: int
) -> list[tuple[str, Item]]:
    """Return each agent with its question; one that is a str is for all of them.

    Raises:
        UsageError: there are not as many questions as agents, or ``max_parallel`` is no number.

    """
    if (problem := whole_problem(max_parallel, 1, PARALLEL_MAX)) is not None:
        raise UsageError(f"max_parallel: {problem}")
    asked = _listed(agents, "agents", AGENTS_MAX)
    texts = (
        [question] * len(asked)
        if is_a(question, str)
        else _listed(question, "question", AGENTS_MAX)
    )
    if len(texts) != len(asked):
        raise UsageError(
            f"question: {len(texts)} for {len(asked)} agents; give one, or one for each agent"
        )
    return list(zip(texts, asked, strict=True))


def named(options: Mapping[Any, Any]) -> dict[str, Any]:  # Any: options as they come
    """Return options that are given as a mapping, by their names.

    Raises:
        InvalidOptions: a name is no str.

    """
    given = dict(options)
    problems = [unknown_name(name, ()) for name in given if not isinstance(name, str)]
    if problems:
        raise InvalidOptions(problems[:PROBLEMS_MAX])
    return given


def packed_tools(tools: Iterable[object]) -> tuple[Packed, ...]:
    """Return tools as they travel.

    Raises:
        ToolValidationFailed: not all of them are tools that can travel.
        UsageError: ``tools`` is no list.

    """
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


def tool_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of tools.

    Raises:
        UsageError: ``names`` is no list of str.

    """
    listed = _listed(names, "names")
    for name in listed:
        if not isinstance(name, str):
            raise UsageError(f"a tool is detached by its name, a str; got {type(name).__name__}")
        checked_name(name, "name")
    return tuple(listed)


def checked_list(check: Callable[[object], list[T]], given: object, name: str) -> tuple[T, ...]:
    """Return a list as the check of an option returns it.

    Raises:
        UsageError: something in it is wrong, or there is too much.

    """
    listed = list(_listed(cast("Iterable[Any]", given), name))  # Any: the check looks at it
    try:
        return tuple(check(listed))
    except Unfit as error:
        raise UsageError("; ".join(f"{name}{one}" for one in error.args)) from None
    except (TypeError, msgspec.ValidationError) as error:
        raise UsageError(f"{name}: {error}") from None
    except Exception as error:  # noqa: BLE001 - a value may have code of its own
        raise UsageError(f"{name}: {summary_of(error)}") from None


def checked_server(server: object) -> McpServer:
    """Return an MCP server as it was declared.

    Raises:
        UsageError: it is none, or wrong.

    """
    if not isinstance(server, McpServer):
        raise UsageError(f"server: expected a cmdc.McpServer, got {short(server)}")
    if problems := [f"server{one}" for one in server_problems(server)]:
        raise UsageError("; ".join(problems))
    return server


def checked_model(
    model: str | ModelSource,
    provider_opts: dict[str, Any] | None,  # Any: litellm's own arguments
) -> tuple[str, dict[str, Any] | None]:  # Any: as there
    """Return a model's name and the options to reach it, which a ModelSource brings along.

    Raises:
        InvalidOptions: ``model`` names none, or the options cannot travel.

    """
    try:
        if isinstance(model, ModelSource):
            model, own_opts = model.model_source()
            provider_opts = own_opts if provider_opts is None else provider_opts
    except Exception as error:  # its own code
        raise InvalidOptions([f"model: {short(model)} failed: {summary_of(error)}"]) from error
    problems = [*_model_problems(model), *_opts_problems(provider_opts)]
    if problems:
        raise InvalidOptions(problems)
    return model, provider_opts


def _name_of(tool: object) -> str | None:
    if isinstance(tool, str):  # not looked up here: only the agent imports it
        return tool
    try:
        return as_tool(tool).name
    except Exception:  # noqa: BLE001 - it is refused, by whatever its code does
        return None


# Any: looked at one by one.
def _listed(things: Iterable[Any], what: str, most: int = TOOLS_MAX) -> list[Any]:
    if isinstance(things, str | bytes | Mapping) or not isinstance(things, Iterable):
        raise UsageError(f"{what}: expected a list, got {short(things)}")
    return parts_of(things, what, most)


def _model_problems(model: object) -> list[str]:
    if (problem := model_problem(model)) is None:
        return []
    return [f"model: {problem.replace(EXPECTED, f'{EXPECTED} or a ModelSource', 1)}"]


def _opts_problems(opts: object) -> list[str]:
    try:
        check_provider_opts({} if opts is None else own(opts))
    except Unfit as error:
        return [f"provider_opts{error}"]
    return []


def _joined(texts: Sequence[str]) -> str:
    return "\n\n".join(filter(None, texts))
