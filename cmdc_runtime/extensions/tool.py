"""Tools: what a model can ask a session to do.

``@tool`` makes one from a function, ``class X(Tool)`` is the full contract, and ``as_tool`` turns
whatever an application gave into a checked ``Tool``. A tool answers with a str, or with an
``Effect`` where the kernel or observers shall get more than the text; it raises ``ToolError``
for a failure that the model should read and may correct.

To add a rule for all tools, add it to ``_problems``.
"""

import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    ParamSpec,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
    overload,
)

import msgspec

from cmdc_runtime.callables import yield_problem
from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.errors import InvalidTool
from cmdc_runtime.extensions.context import Context, ToolContext
from cmdc_runtime.extensions.provider import ToolSpec
from cmdc_runtime.extensions.schema import (
    Fields,
    arguments_struct,
    check_schema,
    problems_of,
    read_docstring,
    schema_of,
    signature_of,
    unsendable,
)
from cmdc_runtime.extensions.tool_error import OtherBranchError as OtherBranchError  # noqa: PLC0414
from cmdc_runtime.extensions.tool_error import ToolError as ToolError  # noqa: PLC0414 - handed on
from cmdc_runtime.foreign_types import dec_hook
from cmdc_runtime.ids import TOOL_NAME_RULE, is_tool_name
from cmdc_runtime.plain import nearest, short

P = ParamSpec("P")
R = TypeVar("R")

Isolation = Literal["process", "thread", "task"]
"""Where a call runs, and so how it ends when it has to: a process is killed with all that it
started, a thread is left alone and what it returns is discarded, a task is cancelled. Programs that
a thread or a task (an ``async def``) has started run on until the session's process ends, whatever
ends the call: where they must end with it, choose "process", which takes an ``async def`` too.

A thread shares the interpreter with its agent: one that computes without a pause slows down all
that the session does, the answer to an abort included. It is for calls that wait.

What Python code prints goes to the daemon's log line by line as ``tool.wrote``, with session and
call, and with an embedded daemon to the program's standard error too; a line that has no end yet
goes there when the call ends. What programs and C code
write is ``worker.wrote``, and no call is named with it; nor is it of a thread that the tool has
started outside a process of its own."""
Where = Literal["agent", "client"]
"""Whose process makes the calls: a session's, to which the tool's code travels, or ("client") the
program that attaches the tool, where its code stays. The latter is for handles, pools and state of
the application: a call comes over the client's connection, and its result goes back. The tool is
there while that client is; a call that nobody takes is an error that says so."""
Effects = Literal["read", "idempotent", "write"]
"""Whether a call may run again after a crash that hid its outcome: "write" may not."""

_ANYWHERE: Final = ToolContext()


def _fitting_of(function: object) -> tuple[Isolation, ...]:
    """Return the isolations that a function can have, the default first."""
    if inspect.iscoroutinefunction(function):
        return ("task", "process")
    return ("process", "thread")


# Positional too, since a tool writes ``return Effect("update_todos", {...})``.
class Effect(msgspec.Struct, frozen=True, metaclass=Checked):
    """What a tool may return in place of a str: ``text`` for the model, the rest for the session.

    ``payload`` is anything that MessagePack takes, up to 1 MiB. A name that the kernel knows
    ("update_todos") changes the session; observers get any as ``PluginEvent(name, payload)``.
    """

    name: str
    payload: Any = None  # Any: the tool's own
    text: str = "[effect applied]"


Answer = str | Effect
"""What a tool returns."""
NeedsApproval = bool | Callable[[dict[str, Any]], bool]
"""Whether a person must allow a call: always, never, or as the checked arguments say."""


class Tool(ABC):
    """One thing that a model can ask for; subclass it where ``@tool`` is not enough.

    A subclass sets ``name``, ``description`` and ``parameters`` and writes ``execute``. One
    instance serves every call of a session, several at a time.
    """

    name: str = ""
    """1 to 64 of ``A-Z a-z 0-9 _ -``, unique within a session."""
    description: str = ""
    parameters: dict[str, Any] = {"type": "object", "properties": {}}  # noqa: RUF012 - read only
    isolation: Isolation = "process"
    """Follows ``execute`` unless set: "task" for ``async def``, "process" otherwise."""
    effects: Effects = "write"
    where: Where = "agent"
    """With "client", ``isolation`` and ``max_retries`` do not count: sync code has a thread of the
    program, an ``async def`` runs in the loop of its ``AsyncClient``."""
    timeout: float | None = None
    """Seconds for one call; None means the session's ``tool_timeout``."""
    max_retries: int | None = None
    """After an unexpected exception; None means ``tool_max_retries``, or 0 for "write"."""
    needs_approval: NeedsApproval = False
    """Ask a person before each call; a method ``needs_approval(self, args)`` decides for each."""
    run_strategy: str = ""
    """Of a tool whose calls are runs of reasoning, published by ``context.session``: the strategy
    of a call whose argument ``strategy`` names none. A call that ends before it has published
    anything gets a ``reasoning_done`` of it by the session."""

    def __init_subclass__(cls, **arguments: Any) -> None:  # Any: whatever a base class takes
        """Let ``isolation`` follow a new ``execute``."""
        super().__init_subclass__(**arguments)
        if "execute" in vars(cls) and "isolation" not in vars(cls):
            cls.isolation = _fitting_of(vars(cls)["execute"])[0]

    @abstractmethod
    def execute(self, args: dict[str, Any], context: Context) -> Answer | Awaitable[Answer]:
        """Do it and return what the model reads; ``args`` are what ``check`` returned.

        Raises:
            ToolError: the failure is one that the model should see and may correct.
        """

    def describe(self, tool_context: ToolContext) -> str:  # noqa: ARG002 - for those who override
        """Return what the model reads about the tool."""
        return self.description or self.name

    def meta(self, args: dict[str, Any]) -> str:  # noqa: ARG002 - for those who override
        """Return a few words for people on what a call with ``args`` does."""
        return self.name

    def wants_approval(self, args: dict[str, Any]) -> bool:
        """Say whether a person must allow a call with ``args``, which are what ``check`` returned.

        Whatever ``needs_approval`` raises comes out of here; a caller takes it for a yes.
        """
        needed = self.needs_approval
        return bool(needed(args)) if callable(needed) else needed

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as ``execute`` takes them.

        Raises:
            ToolError: they do not fit; the text says what is wrong, and where.
        """
        problems = problems_of(self.parameters, arguments)
        if problems:
            raise _bad_arguments(self.name, "; ".join(problems))
        return arguments

    def spec(self, tool_context: ToolContext = _ANYWHERE) -> ToolSpec:
        """Return what a provider gets."""
        return ToolSpec(
            name=self.name,
            description=self.describe(tool_context),
            parameters=self.parameters,
        )


class ToolOptions(TypedDict, total=False):
    """What ``@tool`` takes; see the attributes of ``Tool``."""

    name: str
    description: str
    isolation: Isolation
    effects: Effects
    where: Where
    timeout: float | None
    max_retries: int | None
    meta: Callable[[dict[str, Any]], str]
    needs_approval: NeedsApproval


_CALLING: Final = (
    "write a function that calls it, decorated with @cmdc.tool, or a cmdc.Tool class with `execute`"
)
"""The way out where something is called that is no function."""


class FunctionTool(Tool, Generic[P, R]):
    """A function as a tool; calling it is calling the function."""

    def __init__(self, function: Callable[P, R], options: ToolOptions) -> None:
        """Read the signature and the docstring.

        Raises:
            InvalidTool: this function, or an option, cannot make a tool.
        """
        name = options.get("name", getattr(function, "__name__", repr(function)))
        known = ToolOptions.__annotations__
        if unknown := sorted(options.keys() - known.keys()):
            near = nearest(unknown[0], known)
            way_out = f"it takes {', '.join(known)}" if near is None else f"do you mean {near}?"
            raise InvalidTool(f"tool {name!r}: @tool takes no {', '.join(unknown)}: {way_out}")
        if not inspect.isfunction(function):
            raise InvalidTool(f"@tool takes a function, got {short(function)}: {_CALLING}")
        if (problem := yield_problem(function)) is not None:
            raise InvalidTool(f"tool {name!r}: {problem}, or hand progress to context.emit()")
        summary, self._described = read_docstring(function.__doc__)
        self.name = name
        self.description = options.get("description", summary)
        self.isolation = options.get("isolation", _fitting_of(function)[0])
        self.effects = options.get("effects", "write")
        self.where = options.get("where", "agent")
        self.timeout = options.get("timeout")
        self.max_retries = options.get("max_retries")
        self.needs_approval = options.get("needs_approval", False)
        self._meta = options.get("meta")
        self._struct: type[msgspec.Struct] | None = None
        self._become(function)
        try:
            signature = signature_of(function)
            self._fields: Fields = signature.fields
            self._context_names = signature.context_names
            self.parameters = schema_of(self.prepare(), self._described)
        except InvalidTool as error:
            raise InvalidTool(f"tool {name!r}: {error}") from error
        _refuse_of_client(name, options)
        _refuse(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function as it was written, unchecked."""
        return self.__wrapped__(*args, **kwargs)

    def execute(self, args: dict[str, Any], context: Context) -> Answer | Awaitable[Answer]:
        """Call the function with checked arguments and, where it asks for it, the context."""
        function: Callable[..., Any] = (
            self.__wrapped__
        )  # Any: the contract says str, the user may not
        answer: Answer | Awaitable[Answer] = function(
            **args, **dict.fromkeys(self._context_names, context)
        )
        return answer

    def meta(self, args: dict[str, Any]) -> str:
        """Return what the ``meta`` option says, or the name."""
        return self._meta(args) if self._meta else self.name

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as the annotations say, defaults filled in."""
        try:
            # Keys of JSON are text, whatever they are here.
            decoded = msgspec.convert(arguments, self.prepare(), str_keys=True, dec_hook=dec_hook)
        except msgspec.ValidationError as error:
            raise _bad_arguments(self.name, str(error)) from error
        return {name: getattr(decoded, name) for name, _, _ in self._fields}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the struct, which is made again from the fields where this is loaded."""
        return vars(self) | {"_struct": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Leave the struct for later: the classes that it names may not be whole yet."""
        vars(self).update(state | {"_struct": None})

    def _become(self, function: Callable[P, R]) -> None:
        # The names by which a function is found, so that an installed tool travels by name.
        self.__wrapped__ = function
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__

    def prepare(self) -> type[msgspec.Struct]:
        """Return the class that decodes arguments, made at the first time.

        Raises:
            InvalidTool: a parameter has no JSON Schema; the message names it.
        """
        if self._struct is None:
            self._struct = arguments_struct(self._fields)
        return self._struct


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    **options: Unpack[ToolOptions],
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None, /, **options: Unpack[ToolOptions]
) -> FunctionTool[P, R] | Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """Make a tool from a function: ``@tool``, or ``@tool(effects="read", timeout=10)``.

    Parameters become a JSON Schema, ``Annotated[int, msgspec.Meta(ge=1)]`` with its bounds; a
    dataclass, TypedDict, NamedTuple, Struct, Enum or pydantic model arrives as itself, and so do
    the keys of a ``dict[int, str]``; keys that no text can become, as ``bool``, are refused. The
    docstring's first paragraph describes the tool and a Google-style ``Args:`` section its
    arguments. A parameter annotated ``Context`` is filled in and hidden from the model. What JSON
    has no form for, as a default of ``nan``, is refused wherever it stands in the schema. The
    check of a call's arguments gets 1 s of CPU time, and the model reads so where a ``pattern``
    takes longer on its text: write patterns that have no repetition inside of a repetition.

    Raises:
        InvalidTool: this function, or an option, cannot make a tool.
    """
    if function is not None:
        return FunctionTool(function, options)
    return lambda decorated: FunctionTool(decorated, options)


def as_tool(candidate: object) -> Tool:
    """Return the tool that ``candidate`` is, has as a class, or names as ``"module:name"``.

    Raises:
        InvalidTool: it is none, or breaks the contract; the message says what to change.
    """
    if isinstance(candidate, Tool):
        _refuse(candidate)
        return candidate
    if isinstance(candidate, type) and issubclass(candidate, Tool):
        return as_tool(_instance(candidate))
    if isinstance(candidate, str):
        return as_tool(_named(candidate))
    if inspect.isroutine(candidate):
        name = getattr(candidate, "__qualname__", repr(candidate))
        if not inspect.isfunction(candidate):
            kind = "method" if inspect.ismethod(candidate) else "function"
            raise InvalidTool(f"{kind} {name!r} is no tool: {_CALLING}")
        raise InvalidTool(f"function {name!r} is no tool: decorate it with @cmdc.tool")
    raise InvalidTool(
        f"{short(candidate)} is no tool: give a function decorated with @cmdc.tool, a cmdc.Tool"
        ' class or instance, or "module:name"'
    )


def resolve(reference: str) -> object:
    """Return what ``module:qualname`` names, importing the module.

    Raises:
        ImportError: no such module, or it cannot be imported.
        AttributeError: the module has no such name.
    """
    module, _, qualname = reference.partition(":")
    found: object = importlib.import_module(module)
    for name in qualname.split("."):
        found = getattr(found, name)
    return found


def _named(reference: str) -> object:
    if not all(reference.partition(":")):
        raise InvalidTool(f'{short(reference)} is no tool: a tool by name is "module:name"')
    try:
        found = resolve(reference)
    except (ImportError, AttributeError) as error:
        raise InvalidTool(f"tool {short(reference)}: {error}") from error
    if isinstance(found, str):
        raise InvalidTool(f"tool {short(reference)} is a str, not a tool")
    return found


def _instance(tool_class: type[Tool]) -> Tool:
    name = tool_class.__qualname__
    if missing := sorted(getattr(tool_class, "__abstractmethods__", ())):
        raise InvalidTool(f"class {name!r} has no {', '.join(missing)}: define it")
    try:
        return tool_class()
    except Exception as error:
        raise InvalidTool(
            f"class {name!r} cannot be made without arguments ({error}): give an instance"
        ) from error


def _refuse(candidate: Tool) -> None:
    problems = _problems(candidate)
    if problems:
        name = candidate.name or type(candidate).__qualname__
        raise InvalidTool(f"tool {short(name)}: {'; '.join(problems)}")


def _refuse_of_client(name: str, options: ToolOptions) -> None:
    """Refuse options that would do nothing, since the agent does not run the code."""
    if options.get("where") != "client":
        return
    idle = [one for one in ("isolation", "max_retries", "meta") if one in options]
    if idle:
        raise InvalidTool(
            f'tool {name!r}: {", ".join(idle)}: of no use with where="client", leave it out'
        )


def _problems(candidate: Tool) -> list[str]:
    """Return every way in which a tool breaks the contract."""
    given: Any = candidate  # Any: its attributes are what a stranger wrote
    problems = []
    if not is_tool_name(given.name):
        problems.append(f"name must be {TOOL_NAME_RULE}, got {short(given.name)}")
    if not isinstance(given.description, str):
        problems.append(f"description must be a str, got {short(given.description)}")
    if given.effects not in get_args(Effects):
        problems.append(f"effects must be one of {get_args(Effects)}, got {short(given.effects)}")
    if given.where not in get_args(Where):
        problems.append(f"where must be one of {get_args(Where)}, got {short(given.where)}")
    if given.where == "client" and callable(given.needs_approval):
        problems.append(
            'needs_approval must be a bool of a tool with where="client": it is asked for where'
            " the tool's code is not"
        )
    if given.timeout is not None and not _is_above(given.timeout, 0, int | float):
        problems.append(f"timeout must be seconds above 0 or None, got {short(given.timeout)}")
    if given.max_retries is not None and not _is_above(given.max_retries, -1, int):
        problems.append(f"max_retries must be 0, 1, 2 … or None, got {short(given.max_retries)}")
    if not isinstance(given.needs_approval, bool) and not callable(given.needs_approval):
        problems.append(
            f"needs_approval must be a bool or a function of the arguments,"
            f" got {short(given.needs_approval)}"
        )
    problems.extend(filter(None, [_isolation_problem(candidate), _schema_problem(candidate)]))
    return problems


def _isolation_problem(candidate: Tool) -> str | None:
    function = candidate.__wrapped__ if isinstance(candidate, FunctionTool) else candidate.execute
    if (problem := yield_problem(function)) is not None:
        return f"execute: {problem}"
    fitting = _fitting_of(function)
    if candidate.isolation not in fitting:
        given = short(candidate.isolation)
        return f"isolation must be one of {fitting} for this function, got {given}"
    return None


def _schema_problem(candidate: Tool) -> str | None:
    if isinstance(candidate, FunctionTool):  # msgspec's work, and right but for its values
        candidate.prepare()
        return unsendable(candidate.parameters)
    return unsendable(candidate.parameters) or check_schema(candidate.parameters)


def _is_above(value: Any, bound: int, kind: Any) -> bool:  # Any: a value and a type of any kind
    return isinstance(value, kind) and not isinstance(value, bool) and value > bound


def _bad_arguments(name: str, what: str) -> ToolError:
    return ToolError(f"Invalid arguments for {name}: {what}")
