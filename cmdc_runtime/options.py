"""What ``create_agent`` takes: every option with its default, its unit and its bound.

To add an option: one field of ``Options`` with its bound in the annotation, and its place in
``AgentSpec`` (``spec.py``) or in ``Supervision`` (``requests.py``). What an annotation cannot say
about a field is a row of ``_OWN_CHECKS``. ``parse`` names every wrong field at once; nothing
is coerced, so ``"5"`` is not a number of turns.

A blueprint's options lie below those that are given: keywords, then the ``Options`` struct, then
the blueprint, then the config. A field of a struct that has its default counts as not given.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    Protocol,
    cast,
    get_type_hints,
    runtime_checkable,
)

import msgspec
from msgspec import Meta, field

from cmdc_runtime.checked_struct import (
    Checked,
    Cores,
    Cost,
    Count,
    Depth,
    Loops,
    Moment,
    OpenFiles,
    Positive,
    Processes,
    RingEvents,
    Seconds,
    Share,
    Silence,
)
from cmdc_runtime.commands import IMMUNE_TOOLS
from cmdc_runtime.config import Config, check_config, config_options
from cmdc_runtime.errors import PROBLEMS_MAX, InvalidOptions
from cmdc_runtime.foreign import summary_of, text_of
from cmdc_runtime.guardrail import check_guardrails
from cmdc_runtime.handoff import NAME_CHARS_MAX, Handoff, check_handoffs, own_agent, target_of
from cmdc_runtime.ids import TOOL_NAME_RULE, ToolName, is_tool_name
from cmdc_runtime.mcp_servers import McpServer
from cmdc_runtime.messages import Message, without_system
from cmdc_runtime.option_checks import (
    HISTORY_MESSAGES_MAX,
    TEXT_CHARS_MAX,
    Unfit,
    check_api_key,
    check_checkpoint_backend,
    check_group_id,
    check_mcp_servers,
    check_memory,
    check_memory_limit,
    check_messages,
    check_plugins,
    check_provider,
    check_provider_opts,
    check_redact,
    check_response_format,
    check_sandbox,
    check_session_id,
    check_skills_dirs,
    check_strategy,
    check_subagents,
    check_text,
    check_tools,
    check_user_data,
    check_working_dir,
    refusal,
    unknown_name,
)
from cmdc_runtime.plain import is_a, own, short, text_problem
from cmdc_runtime.provider_options import model_problem
from cmdc_runtime.redaction import printed, printed_fields
from cmdc_runtime.requests import RestartType
from cmdc_runtime.subagent import SubAgent
from cmdc_runtime.tool_environment import VariableNames

ExitCondition = Literal["max_turns_exceeded", "provider_timeout", "plugin_aborted"]
ExitConditions = Annotated[list[ExitCondition], Meta(max_length=16)]
Code = Literal["pinned", "latest"]
PromptMode = Literal["full", "task", "minimal", "none"]
ToolNames = Annotated[list[ToolName], Meta(max_length=512)]

BLUEPRINTS_MAX: Final = 8
"""So many blueprints may stand on each other before they are taken for a circle."""


@runtime_checkable
class ModelSource(Protocol):
    """An object usable as ``model=``: it knows the model's name and how to reach it."""

    def model_source(self) -> tuple[str, dict[str, Any]]:  # Any: litellm's own arguments
        """Return the model's name and the provider options that reach it."""


@runtime_checkable
class OptionsSource(Protocol):
    """An object usable as ``blueprint=``, such as a ``Blueprint``."""

    def to_options(self) -> "Options":
        """Return the options that it describes."""


@runtime_checkable
class Builder(Protocol):
    """A class or an object usable as ``blueprint=``; a class is made without arguments.

    Where ``build`` is a class method or a static one, nothing is made. ``name`` and ``purpose``,
    if they are there and text, say to the model who it is.
    """

    def build(self, opts: dict[str, Any], /) -> "Options | OptionsSource":
        """Return the options; ``opts`` has what was given beside the blueprint, unchecked.

        It runs in the caller's thread, in each call of ``create_agent``. What it raises becomes
        ``InvalidOptions``.
        """


class Options(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """Options of one agent. Times are seconds; costs are US dollars."""

    __repr__ = printed
    __rich_repr__ = printed_fields

    # --- agent ---
    model: Any = None  # "provider:model_id", a dict with provider and id, or a ModelSource
    session_id: str | None = None  # made up if None
    system_prompt: str | None = None  # before the runtime's own; None: what messages has of one
    tools: list[Any] = []  # tools, decorated functions, classes or "module:name"
    plugins: list[Any] = []  # plugins, classes, (class, options) or "module:Class"
    mcp_servers: list[McpServer] = []  # whose tools the model may call; started when needed
    working_dir: str = "."  # where tools work; relative paths start there
    sandbox: Any = None  # where tools reach files and run commands; None: cmdc.sandbox.Local()
    require_sandbox: bool = False  # only one that commands can't leave will do
    provider_opts: dict[str, Any] = {}  # for the model: api_base, temperature, via …
    provider: Any = None  # of one's own: a class, object, function or "module:Class" that streams
    api_key: Any = None  # of the model's provider, or a dict by provider; it is not journaled
    send_keys: bool = True  # give the session this process's keys of its models' providers
    prompt_mode: PromptMode = "full"  # how much the runtime adds to the system prompt
    messages: Annotated[list[Message], Meta(max_length=HISTORY_MESSAGES_MAX)] = []  # history
    blueprint: Any = None  # a Blueprint class or struct: what is given here outranks it
    config: Any = None  # a Config: model, tools and provider_opts where nothing else gives them
    subagents: list[Any] = []  # SubAgent: what the task tool may start
    handoffs: list[Any] = []  # Handoff: agents that the model may give the session over to
    memory: list[Any] = []  # memory files, shown in the system prompt; those of folders come along
    skills_dirs: list[Any] = []  # folders of skills, or (word, folder); the last one outranks
    response_format: Any = None  # a JSON Schema, or a msgspec or pydantic type
    reasoning_strategy: Any = None  # thinks in the model's place: a name, class, instance or pair
    code: Code = (
        "pinned"  # of tools and plugins named by module: changed, it parks; latest: it runs
    )
    input_guardrails: list[Any] = []  # functions that look at a prompt beside its first request
    output_guardrails: list[Any] = []  # functions that look at the answer that ends a cycle
    redact: Any = None  # a function of a state, or "module:name": what a checkpoint keeps of it
    checkpoint_backend: Any = None  # keeps checkpoints: a class, object or "module:Class"
    user_data: dict[str, Any] = {}  # the application's own, for tools, plugins and subagents
    group_id: str | None = None  # sessions that are followed together; subagents inherit it
    max_turns: Positive = 100  # requests in one cycle
    max_tokens: Positive | None = None  # of one answer; None: the provider decides
    max_cost_usd: Cost | None = None  # of the session and its subagents, over its life
    max_total_tokens: Positive | None = None  # the same, in tokens
    max_queued_prompts: Count = 100  # that wait for the running cycle; QueueFull beyond
    max_steering_queue: Count = 3  # that wait until a turn is over; QueueFull beyond
    interrupt_immune_tools: ToolNames = field(default_factory=lambda: [*IMMUNE_TOOLS])  # run on
    max_parallel_tools: Positive = 8  # calls of one answer at a time
    tool_timeout: Moment = 300.0  # of one call, unless its tool says otherwise
    cycle_timeout: Moment | None = None  # of one cycle, all its waits included; it is aborted
    tool_env: VariableNames = []  # environment variables that calls in processes get, too
    tool_max_retries: Count = 2  # tools with effects "read" or "idempotent" only
    max_retries: Count = 3  # of one request to the model
    retry_base_delay: Seconds = 2.0  # before the first retry; it doubles from there
    retry_max_delay: Seconds = 60.0  # no retry waits longer
    retry_jitter: Share = 0.0  # share of the delay added at random
    stall_after: Moment = 30.0  # without a piece of the answer: stream_stalled, and again
    stall_timeout: Moment = 120.0  # the same, longer: the request is given up and retried
    loop_threshold: Loops = 3  # equal calls in a row, or pairs: the model is warned
    loop_abort: Loops = 5  # the cycle is aborted
    loop_exempt_tools: ToolNames = []  # that may be called over and over
    exit_on: ExitConditions = []  # what ends the process, and so the session, for good
    max_children: Positive = 8  # subagents at a time
    max_spawns: Positive = 64  # subagents over the session's life
    max_depth: Depth = 1  # levels of subagents below this session
    # --- supervision ---
    restart: RestartType = "transient"  # transient: only after a crash
    max_restarts: Count = 3  # within max_seconds; one more ends the session
    max_seconds: Moment = 5.0  # the window of max_restarts
    restart_delay: tuple[Seconds, Seconds] = (0.1, 5.0)  # first and longest
    shutdown: Seconds | None = 5.0  # to end politely before SIGKILL; None: no limit
    start_timeout: Moment = 30.0  # until the agent must be up
    max_cycle_crashes: Positive = 2  # a cycle that kills its process so often is given up
    hibernate_after: Moment | None = None  # idle seconds until the process is given up
    unresponsive_after: Silence = 30.0  # without a sign of life: the process is killed
    memory_limit: int | str | None = None  # of all its processes together; more ends it
    cpu_limit: Cores | None = None  # cores, as 0.5
    max_processes: Processes | None = None  # threads count too
    max_open_files: OpenFiles | None = None  # of one process
    event_buffer_size: RingEvents = 1000  # for replay; 0: none


_TYPES: Final[Mapping[str, Any]] = get_type_hints(Options, include_extras=True)
FIELDS: Final[tuple[str, ...]] = Options.__struct_fields__
_DEFAULTS: Final = Options()
_AS_GIVEN: Final = frozenset({"user_data"})
"""What arrives as it was given: a value of a class of its own is refused."""


def parse(
    options: Options | None,
    given: Mapping[str, object],
    others: Callable[[Options], list[str]] = lambda _options: [],
) -> Options:
    """Return ``options`` with ``given`` on top and their blueprint below, checked.

    ``response_format`` comes back as a JSON Schema, and ``blueprint`` as the one that says who the
    agent is. Where something is wrong, ``others`` says of the options that are right, the wrong
    ones left out, what a later check would refuse of them: all of it is one error.

    Raises:
        InvalidOptions: ``problems`` has one line for each wrong field.
    """
    merged: dict[str, Any] = {**({} if options is None else _said(options)), **given}
    problems: list[str] = []
    failure: Exception | None = None
    try:
        merged = _with_blueprints(merged)
    except Exception as error:  # noqa: BLE001 - a blueprint is the application's code
        failure = error
        problems.append(f"blueprint: {short(merged['blueprint'])}: {_reason(error)}")
    merged = _with_config(_with_named_model(merged))
    merged = {
        name: value if name in _AS_GIVEN else own(value)  # without the code of its class
        for name, value in merged.items()
    }
    strangers = islice((name for name in merged if name not in _TYPES), PROBLEMS_MAX)
    problems += [unknown_name(name, FIELDS) for name in strangers]
    values: dict[str, Any] = {}
    for name in merged.keys() & _TYPES.keys():
        try:
            values[name] = _checked(name, merged[name])
        except Exception as error:  # noqa: BLE001 - a value may have code of its own
            problems += _lines(name, name, error, merged[name])
    if merged.get("model") is None and failure is None and merged.get("config") is None:
        problems.append("model: required, for example model='openai:gpt-4o-mini'")
    if wrong := _subagent_problems(values.get("subagents", [])):
        problems += wrong
        del values["subagents"]
    if wrong := _handoff_problems(values):
        problems += wrong
        del values["handoffs"]
    if values.get("api_key") is not None and "api_key" in values.get("provider_opts", {}):
        problems.append("api_key: provider_opts has one, too: give one of them")
    problems += _orders(values, wrong=merged.keys() - values.keys())
    if problems:
        problems += others(Options(**values))
        raise InvalidOptions(sorted(problems)) from failure
    history, prompt = without_system(values.get("messages", []), values.get("system_prompt"))
    return Options(**{**values, "messages": history, "system_prompt": prompt})


# --- blueprints ---------------------------------------------------------------------------------


def _with_blueprints(given: dict[str, Any]) -> dict[str, Any]:
    """Return what is given, and below it what its blueprint says, and that one's blueprint."""
    merged, blueprint = given, given.get("blueprint")
    if blueprint is None:
        return given
    identity: object = None
    for _ in range(BLUEPRINTS_MAX):
        opts = {name: value for name, value in merged.items() if name != "blueprint"}
        built, source = _built(blueprint, opts)
        merged = {**_said(built), **merged}
        identity = next(filter(_is_somebody, (identity, blueprint, source)), None)
        # What a source says about itself is complete; only another blueprint has more to say.
        if any(built.blueprint is known for known in (None, blueprint, source)):
            return {**merged, "blueprint": identity}
        blueprint = built.blueprint
    raise TypeError(f"more than {BLUEPRINTS_MAX} blueprints stand on each other")


def _built(blueprint: object, opts: dict[str, Any]) -> tuple[Options, object]:
    """Return what a blueprint says, and the object that said it in the end."""
    source = blueprint
    if isinstance(source, type):
        build = inspect.getattr_static(source, "build", None)
        source = source if isinstance(build, classmethod | staticmethod) else source()
    if isinstance(source, Builder):
        source = source.build(opts)
    built = source.to_options() if isinstance(source, OptionsSource) else source
    if not isinstance(built, Options):
        raise TypeError(
            "expected a cmdc.Blueprint, or a class with build(opts) that returns one or"
            f" cmdc.Options, got {short(built)}"
        )
    return built, source


def _is_somebody(blueprint: object) -> bool:
    identity = (getattr(blueprint, name, None) for name in ("name", "purpose"))
    return any(isinstance(text, str) and text.strip() for text in identity)


def _with_named_model(given: dict[str, Any]) -> dict[str, Any]:
    """Return what is given with a model that is a dict taken apart; a wrong one is left as it is.

    What a dict has beside ``provider`` and ``id`` are options of requests.
    """
    model = given.get("model")
    if not is_a(model, dict):
        return given
    parts = dict(own(model))
    provider, model_id = parts.pop("provider", None), parts.pop("id", None)
    if not isinstance(provider, str) or not isinstance(model_id, str):
        return given
    key, opts = parts.pop("api_key", None), given.get("provider_opts", {})
    named = {**given, "model": f"{provider}:{model_id}"}
    if key is not None:
        named.setdefault("api_key", key)
    if parts and isinstance(opts, dict):
        named["provider_opts"] = {**parts, **opts}
    return named


def _with_config(given: dict[str, Any]) -> dict[str, Any]:
    """Return what is given, and below it what a config says that has nothing wrong in it."""
    config = given.get("config")
    if not is_a(config, Config):  # one that is no config is refused by its check
        return given
    try:
        check_config(config)
    except TypeError:  # the check of the field reports it
        return given
    return config_options(cast(Config, config), given)


def _said(options: Options) -> dict[str, Any]:
    fields = {name: (getattr(options, name), getattr(_DEFAULTS, name)) for name in FIELDS}
    return {
        name: value
        for name, (value, default) in fields.items()
        if type(value) is not type(default) or not _is_same(value, default)
    }


def _is_same(value: object, default: object) -> bool:
    try:
        return bool(value == default)
    except Exception:  # noqa: BLE001 - a part of it has code of its own: it is looked at later
        return False


# --- checks of one field ------------------------------------------------------------------------


def _checked(name: str, value: object) -> object:
    check = _OWN_CHECKS.get(name)
    return msgspec.convert(value, _TYPES[name]) if check is None else check(value)


def _blueprint(value: object) -> object:
    return value  # what it builds is checked


def _model(value: object) -> object:
    if is_a(value, dict):
        raise Unfit(": a dict that names a model has provider and id, both texts")
    if value is not None and not isinstance(value, str | ModelSource):
        raise TypeError("expected a str or a ModelSource")
    if isinstance(value, str) and (problem := model_problem(value)) is not None:
        raise Unfit(f": {problem}")
    return value


_OWN_CHECKS: Final[Mapping[str, Callable[[object], object]]] = {
    "api_key": check_api_key,
    "blueprint": _blueprint,
    "checkpoint_backend": check_checkpoint_backend,
    "config": check_config,
    "group_id": check_group_id,
    "handoffs": check_handoffs,
    "input_guardrails": check_guardrails,
    "mcp_servers": check_mcp_servers,
    "memory": check_memory,
    "memory_limit": check_memory_limit,
    "messages": check_messages,
    "model": _model,
    "output_guardrails": check_guardrails,
    "plugins": check_plugins,
    "provider": check_provider,
    "provider_opts": check_provider_opts,
    "redact": check_redact,
    "reasoning_strategy": check_strategy,
    "response_format": check_response_format,
    "sandbox": check_sandbox,
    "session_id": check_session_id,
    "skills_dirs": check_skills_dirs,
    "subagents": check_subagents,
    "system_prompt": check_text,
    "tools": check_tools,
    "user_data": check_user_data,
    "working_dir": check_working_dir,
}


# --- checks across fields -----------------------------------------------------------------------


def _subagent_problems(subagents: Iterable[SubAgent]) -> list[str]:
    problems: list[str] = []
    places: dict[str, int] = {}
    for at, subagent in enumerate(subagents):
        label = f"subagents[{at}]"
        problems += _problems_of(subagent, label)
        first = places.setdefault(text_of(subagent.name), at)
        if first != at:
            problems.append(f"{label}.name: {short(subagent.name)} is taken by subagents[{first}]")
    return problems


def _problems_of(subagent: SubAgent, label: str) -> list[str]:
    problems = []
    name: object = subagent.name
    if not is_tool_name(name):
        problems.append(f"{label}.name: expected {TOOL_NAME_RULE}, got {short(name)}")
    text: object = subagent.description
    if not isinstance(text, str) or not text.strip():
        problems.append(f"{label}.description: expected what it is good for, got {short(text)}")
    elif (problem := text_problem(text, chars_max=TEXT_CHARS_MAX)) is not None:
        problems.append(f"{label}.description: {problem}")
    for shared in set(SubAgent.__struct_fields__) & _TYPES.keys():
        value = getattr(subagent, shared)
        if value is not None:  # None is the parent's
            problems += _problem_of(shared, value, f"{label}.{shared}")
    return problems


def _handoff_problems(values: Mapping[str, Any]) -> list[str]:
    problems: list[str] = []
    handoffs: list[Handoff] = values.get("handoffs", [])
    places = {own_agent(values.get("blueprint")).name: "the session's own agent"}
    for at, handoff in enumerate(handoffs):
        label = f"handoffs[{at}]"
        try:
            agent = target_of(handoff, values.get("subagents", [])).agent
        except Unfit as error:
            problems += [f"{label}{problem}" for problem in error.args]
            continue
        problems += _problems_of(agent, label)
        name = text_of(agent.name)
        if len(name) > NAME_CHARS_MAX:
            problems.append(f"{label}.name: expected at most {NAME_CHARS_MAX} characters")
        first = places.setdefault(name, label)
        if first != label:
            problems.append(f"{label}.name: {short(name)} is taken by {first}")
    return problems


def _problem_of(shared: str, value: object, label: str) -> list[str]:
    try:
        _checked(shared, value)
    except Exception as error:  # noqa: BLE001 - a value may have code of its own
        return _lines(label, shared, error, value)
    return []


def _orders(values: Mapping[str, Any], *, wrong: Collection[str]) -> list[str]:
    pairs = (
        ("retry_base_delay", "retry_max_delay"),
        ("stall_after", "stall_timeout"),
        ("loop_threshold", "loop_abort"),
    )
    problems = []
    for low, high in pairs:
        if low in wrong or high in wrong:
            continue
        lower = values.get(low, getattr(_DEFAULTS, low))
        upper = values.get(high, getattr(_DEFAULTS, high))
        if lower > upper:
            problems.append(f"{low}: {lower:g} is more than {high} {upper:g}")
    return problems


# --- words --------------------------------------------------------------------------------------


def _lines(label: str, name: str, error: Exception, value: object) -> list[str]:
    if isinstance(error, Unfit):
        return [f"{label}{problem}" for problem in error.args]
    return [f"{label}: {refusal(error, _TYPES[name], value, name)}"]


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, InvalidOptions) else summary_of(error)
