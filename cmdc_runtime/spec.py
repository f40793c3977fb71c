"""An agent's definition as it travels and is journaled: ``AgentSpec``.

It is made from ``Options``, or for a subagent from its parent's. The daemon never opens it. A
restarted agent is built from the same bytes, code included. To add an option, add it to
``AgentSpec``: ``agent_spec`` takes it over from ``Options``, and a subagent has
its parent's unless ``child_spec.py`` says otherwise.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from cmdc_runtime.answer_schema import answer_schema
from cmdc_runtime.blueprint import identity_of
from cmdc_runtime.config import config_facts
from cmdc_runtime.errors import InvalidOptions, InvalidTool, SandboxUnavailable
from cmdc_runtime.extensions.checkpoint_backend import check_is_backend
from cmdc_runtime.extensions.provider import as_provider
from cmdc_runtime.extensions.sandbox import CONFINING, LOCAL_SANDBOX, UNCONFINED
from cmdc_runtime.foreign import summary_of
from cmdc_runtime.handoff import NOTHING, WHOLE, own_agent, target_of
from cmdc_runtime.knowledge import memory_parts, skills_parts, subagent_skills
from cmdc_runtime.mcp_servers import McpServer, unshared
from cmdc_runtime.messages import Message, OpeningCall
from cmdc_runtime.option_checks import Unfit, absolute, check_provider_opts
from cmdc_runtime.options import Code, ModelSource, Options
from cmdc_runtime.packing import Packed, brings_code, pack, pack_function, pack_plugin, pack_sandbox
from cmdc_runtime.packing.client_tools import refuse_below
from cmdc_runtime.plain import short
from cmdc_runtime.provider_options import model_problem
from cmdc_runtime.reasoning.limits import Reason
from cmdc_runtime.reasoning.strategies import CHAIN_PLUGIN, LABEL_CHARS_MAX, OWN, chain_of
from cmdc_runtime.reasons import snake
from cmdc_runtime.redaction import printed, printed_fields
from cmdc_runtime.requests import Supervision
from cmdc_runtime.subagent import (
    GENERAL_PURPOSE,
    STARTERS,
    STRATEGY_TOOL,
    TASK_TOOL,
    TRANSFER_PREFIX,
    HandoffSpec,
    SubAgent,
    SubagentSpec,
    transfer_tools,
)
from cmdc_runtime.user_values import packed

T = TypeVar("T")


class Resumption(msgspec.Struct, frozen=True, kw_only=True):
    """That a session goes on from a saved state; ``changes`` are the options given anew."""

    id: str
    changes: tuple[str, ...] = ()


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an agent is built from; fields with the names of ``Options`` mean the same."""

    __repr__ = printed
    __rich_repr__ = printed_fields
    called: ClassVar[str] = "the session's definition"
    """By who is summary_of of bytes that are none."""

    model: str
    system_prompt: str | None
    identity: str  # who the agent is, as its blueprint says; empty without one
    tools: tuple[Packed, ...]
    plugins: tuple[Packed, ...]
    subagents: tuple[SubagentSpec, ...]  # what it may start; empty where it may start none
    working_dir: str
    provider_opts: dict[str, Any]  # Any: litellm's own arguments
    prompt_mode: str
    messages: tuple[Message, ...]
    response_format: dict[str, Any] | None  # Any: a JSON Schema
    user_data: dict[str, Any]  # Any: ``user_values.packed``
    max_turns: int
    max_tokens: int | None
    max_cost_usd: float | None
    max_total_tokens: int | None
    max_queued_prompts: int
    max_steering_queue: int
    interrupt_immune_tools: tuple[str, ...]
    max_parallel_tools: int
    tool_timeout: float
    cycle_timeout: float | None = None
    tool_max_retries: int
    max_retries: int
    retry_base_delay: float
    retry_max_delay: float
    retry_jitter: float
    stall_after: float
    stall_timeout: float
    loop_threshold: int
    loop_abort: int
    loop_exempt_tools: tuple[str, ...]
    exit_on: tuple[str, ...]
    max_children: int
    max_spawns: int
    max_depth: int  # levels below the topmost session
    depth: int  # levels above this one
    max_cycle_crashes: int
    hibernate_after: float | None
    supervision: Supervision  # what subagents are kept by
    redact: Packed | None = None  # a function of a state, before a checkpoint leaves the agent
    resumed: Resumption | None = None
    tool_env: tuple[str, ...] = ()
    code: Code = "pinned"
    opening_call: OpeningCall | None = None  # what a cycle makes whose prompt carries no call
    trace_parent: str | None = None  # the span of what started it, as W3C's traceparent
    mcp_servers: tuple[McpServer, ...] = ()
    provider: Packed | None = None  # of the application's own
    config_facts: dict[str, Any] | None = None  # Any: what tools and plugins see of a Config
    sandbox: Packed | None = None  # None: the built-in "local"
    require_sandbox: bool = False
    input_guardrails: tuple[Packed, ...] = ()
    output_guardrails: tuple[Packed, ...] = ()
    handoffs: tuple[HandoffSpec, ...] = ()  # the session's own agent is the first of them
    checkpoint_backend: Packed | None = None  # None: the journal keeps checkpoints


_NAMES: Final = ("interrupt_immune_tools", "loop_exempt_tools", "exit_on", "tool_env")
_MADE: Final = frozenset(
    {
        *_NAMES,
        *("model", "identity", "tools", "plugins", "subagents", "working_dir", "config_facts"),
        *("provider", "provider_opts", "messages", "mcp_servers", "user_data", "response_format"),
        *(
            "handoffs",
            "depth",
            "supervision",
            "redact",
            "checkpoint_backend",
            "input_guardrails",
            "output_guardrails",
            "sandbox",
            "resumed",
            "opening_call",
            "trace_parent",
        ),
    }
)


def agent_spec(options: Options) -> AgentSpec:
    """Return the definition that ``options`` describe, with its tools packed.

    Where subagents are given, the task tool comes along.

    Raises:
        InvalidOptions: plugins or other parts are wrong or cannot travel; it names each.
        InvalidTool: a tool cannot travel; the message names it.
    """
    refused = _Refused()
    parts = _parts_of(options, refused)
    refused.check()
    return _spec_of(options, parts)


def refused_parts(options: Options) -> list[str]:
    """Return a line for each part of ``options`` that ``agent_spec`` would refuse."""
    refused = _Refused()
    _parts_of(options, refused)
    return [*refused.problems, *refused.tools]


def _spec_of(options: Options, parts: "_Parts") -> AgentSpec:
    model, provider_opts = parts.model
    tools, strategy = parts.tools, parts.strategy
    if options.subagents and not any(tool.label == TASK_TOOL for tool in tools):
        tools = (*tools, Packed(kind="ref", label=TASK_TOOL, ref=TASK_TOOL))
    response_format = options.response_format
    call = None if strategy is None else OpeningCall(name=STRATEGY_TOOL, text_as="question")
    tools = tools if strategy is None else (*tools, strategy)
    tools = (*tools, *parts.skills[1:])
    if parts.handoffs:
        tools = (*tools, *transfer_tools(parts.handoffs, parts.handoffs[0].agent.name))
    return AgentSpec(
        model=model,
        identity=identity_of(options.blueprint),
        opening_call=call,
        tools=tools,
        plugins=(*parts.plugins, *filter(None, (parts.chain,)), *parts.skills[:1], *parts.memory),
        subagents=parts.subagents,
        handoffs=parts.handoffs,
        working_dir=parts.working_dir,
        provider_opts=provider_opts,
        messages=tuple(options.messages),
        mcp_servers=tuple(options.mcp_servers),
        user_data=packed(options.user_data),
        response_format=None if response_format is None else answer_schema(response_format),
        depth=0,
        supervision=supervision(options),
        redact=parts.redact,
        checkpoint_backend=parts.checkpoint_backend,
        input_guardrails=parts.input_guardrails,
        output_guardrails=parts.output_guardrails,
        provider=parts.provider,
        config_facts=config_facts(options.config),
        sandbox=parts.sandbox,
        **_copied(options),
    )


def check_sandbox(spec: AgentSpec) -> None:
    """Refuse a definition whose sandbox is known to be none for it.

    What another sandbox can do is seen where the session's process starts.

    Raises:
        SandboxUnavailable: one that confines is required, and commands can leave it.
        InvalidOptions: it confines, and an MCP server is declared that other sessions share.
    """
    name = LOCAL_SANDBOX if spec.sandbox is None else spec.sandbox.ref
    if spec.require_sandbox and name == LOCAL_SANDBOX:
        raise SandboxUnavailable(LOCAL_SANDBOX, UNCONFINED)
    if name in CONFINING:
        shared = [at for at, one in enumerate(spec.mcp_servers) if one.share == "daemon"]
        if shared:
            raise InvalidOptions([f"mcp_servers[{at}].{unshared(name)}" for at in shared])


def supervision(options: Options) -> Supervision:
    """Return how the daemon is to keep the session that ``options`` describe."""
    return Supervision(**{name: getattr(options, name) for name in Supervision.__struct_fields__})


def carries_code(spec: AgentSpec) -> bool:
    """Say whether a part of the agent, or of one that it may start or become, is code by value."""
    own = (spec.redact, spec.provider, spec.sandbox, spec.checkpoint_backend)
    packed = [*spec.tools, *spec.plugins, *filter(None, own)]
    packed += (*spec.input_guardrails, *spec.output_guardrails)
    for one in spec.subagents:
        packed += [*(one.tools or ()), *(one.plugins or ())]
    for handoff in spec.handoffs:
        packed += [*(handoff.agent.tools or ()), *filter(None, (handoff.history,))]
    return any(map(brings_code, packed))


# --- parts --------------------------------------------------------------------------------------


_NO_SKILLS: Final[tuple[Packed, ...]] = ()
_NO_HANDOFFS: Final[tuple[HandoffSpec, ...]] = ()
_NO_MODEL: Final[tuple[str, dict[str, Any]]] = ("", {})  # Any: litellm's own arguments


class _Refused:
    """What cannot be made of the options, all of it, before anything is refused."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.tools: list[str] = []
        self._errors: list[InvalidOptions | InvalidTool] = []

    def made(self, make: Callable[[], T], other: T) -> T:
        """Return what ``make`` returns, or ``other`` where it refuses."""
        try:
            return make()
        except InvalidOptions as error:
            self.problems += error.problems
            self._errors.append(error)
        except InvalidTool as error:
            self.tools.append(str(error))
            self._errors.append(error)
        return other

    def check(self) -> None:
        """Raise what was refused, as one error."""
        if len(self._errors) == 1:
            raise self._errors[0]
        if self.problems:
            raise InvalidOptions([*self.problems, *self.tools]) from self._errors[0]
        if self.tools:
            raise InvalidTool("; ".join(self.tools)) from self._errors[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What of a definition has a form of its own there."""

    model: tuple[str, dict[str, Any]]  # Any: litellm's own arguments
    tools: tuple[Packed, ...]
    plugins: tuple[Packed, ...]
    chain: Packed | None
    strategy: Packed | None
    subagents: tuple[SubagentSpec, ...]
    working_dir: str
    redact: Packed | None
    checkpoint_backend: Packed | None
    input_guardrails: tuple[Packed, ...]
    output_guardrails: tuple[Packed, ...]
    provider: Packed | None
    sandbox: Packed | None
    skills: tuple[Packed, ...]
    """The plugin and the tool, none without skills."""
    memory: tuple[Packed, ...]
    handoffs: tuple[HandoffSpec, ...]


def _parts_of(options: Options, refused: _Refused) -> _Parts:
    made, redact, provider = refused.made, options.redact, options.provider
    sandbox = options.sandbox
    plugins = _each_packed(options.plugins, "plugins", pack_plugin, refused)
    chain = made(lambda: _chain_plugin(options, plugins), None)
    tools = _each_packed(options.tools, "tools", _tool_packer(options.max_depth), refused)
    given = None if _is_chain(options) else options.reasoning_strategy
    handoffs = made(lambda: _handoffs(options, refused), _NO_HANDOFFS)
    made(lambda: _check_transfers(options, handoffs, (*tools, *plugins)), None)
    return _Parts(
        model=made(lambda: _own_model(options), _NO_MODEL),
        tools=tools,
        plugins=plugins,
        chain=chain,
        strategy=made(lambda: _strategy_tool(given, may_branch=options.max_depth > 0), None),
        subagents=made(lambda: _subagents(options, refused), ()),
        working_dir=made(lambda: absolute(options.working_dir), ""),
        redact=None if redact is None else made(lambda: pack_function(redact, "redact"), None),
        checkpoint_backend=made(lambda: _backend(options.checkpoint_backend), None),
        input_guardrails=_guardrails(options, "input_guardrails", refused),
        output_guardrails=_guardrails(options, "output_guardrails", refused),
        provider=None if provider is None else made(lambda: _provider(provider), None),
        sandbox=None if sandbox is None else made(lambda: pack_sandbox(sandbox, "sandbox"), None),
        memory=made(lambda: memory_parts(options.memory, plugins), ()),
        skills=made(lambda: skills_parts(options.skills_dirs, (*tools, *plugins)), ()),
        handoffs=handoffs,
    )


def _guardrails(options: Options, name: str, refused: _Refused) -> tuple[Packed, ...]:
    def packed(thing: object, label: str) -> Packed:
        return pack_function(thing, label, "guardrail")

    return _each_packed(getattr(options, name), name, packed, refused)


def _provider(given: object) -> Packed:
    """Return a provider as it travels.

    Raises:
        InvalidOptions: it is none, or cannot travel.
    """
    if not isinstance(given, str | type):  # what is made where it is needed is looked at there
        try:
            as_provider(given)
        except TypeError as error:
            raise InvalidOptions([f"provider: {error}"]) from None
    return pack_function(given, "provider", "provider")


def _backend(given: object) -> Packed | None:
    """Return a checkpoint backend as it travels.

    Raises:
        InvalidOptions: it is none, or cannot travel.
    """
    if given is None:
        return None
    if not isinstance(given, str):
        try:
            check_is_backend(given)
        except TypeError as error:
            raise InvalidOptions([f"checkpoint_backend: {error}"]) from None
    return pack_function(given, "checkpoint_backend", "checkpoint backend")


def _each_packed(
    things: Iterable[object],
    label: str,
    packed_as: Callable[[object, str], Packed],
    refused: _Refused,
) -> tuple[Packed, ...]:
    """Return the things that can travel, each packed."""
    found = (
        refused.made(partial(packed_as, thing, f"{label}[{at}]"), None)
        for at, thing in enumerate(things)
    )
    return tuple(filter(None, found))


def _copied(options: Options) -> dict[str, Any]:  # Any: values of options
    names = {name: tuple(sorted(set(getattr(options, name)))) for name in _NAMES}
    rest = (name for name in AgentSpec.__struct_fields__ if name not in _MADE)
    return {**names, **{name: getattr(options, name) for name in rest}}


def _tool_packer(max_depth: int, where: str = "") -> Callable[[object, str], Packed]:
    """Return what packs a tool and refuses it where it would have no level to start sessions in.

    ``where`` is what stands one level down.
    """

    def packed_tool(thing: object, label: str) -> Packed:
        tool = pack(thing, label)
        if where:
            refuse_below(tool, label)
        needed = 2 if where else 1
        if tool.ref in STARTERS and max_depth < needed:
            why = f"{tool.label!r} starts sessions{where}, and max_depth={max_depth} allows none"
            raise InvalidOptions(
                [f"{label}: {why}: give max_depth={needed} or more, or leave it out"]
            )
        return tool

    return packed_tool


def _subagents(options: Options, refused: _Refused) -> tuple[SubagentSpec, ...]:
    if options.max_depth == 0:
        if options.subagents:
            raise InvalidOptions(
                ["subagents: max_depth=0 allows none: give max_depth=1 or more, or leave them out"]
            )
        return ()
    packer = _tool_packer(options.max_depth, " below the subagent")
    packed = [
        _subagent(one, f"subagents[{at}]", refused, packer)
        for at, one in enumerate(options.subagents)
    ]
    if all(one.name != GENERAL_PURPOSE.name for one in packed):
        packed.append(GENERAL_PURPOSE)
    return tuple(packed)


def _subagent(
    given: SubAgent, label: str, refused: _Refused, packer: Callable[[object, str], Packed]
) -> SubagentSpec:
    model, provider_opts = given.model, given.provider_opts
    if isinstance(model, ModelSource):
        source, opts = model, provider_opts or {}
        model, provider_opts = refused.made(lambda: _model(source, opts), _NO_MODEL)
    return SubagentSpec(
        name=given.name,
        description=given.description,
        system_prompt=given.system_prompt,
        model=model,
        provider_opts=provider_opts,
        tools=None
        if given.tools is None
        else _each_packed(given.tools, f"{label}.tools", packer, refused),
        plugins=None
        if given.plugins is None
        else _each_packed(given.plugins, f"{label}.plugins", pack_plugin, refused),
        user_data=None if given.user_data is None else packed(given.user_data),
        prompt_mode=given.prompt_mode,
        group_id=given.group_id,
        max_turns=given.max_turns,
        skills=None
        if given.skills_dirs is None
        else refused.made(lambda: subagent_skills(given, label), _NO_SKILLS),
    )


def _handoffs(options: Options, refused: _Refused) -> tuple[HandoffSpec, ...]:
    if not options.handoffs:
        return ()
    packer = _tool_packer(options.max_depth)
    own = _subagent(own_agent(options.blueprint), "blueprint", refused, packer)
    found = [HandoffSpec(agent=own, is_own=True)]
    for at, given in enumerate(options.handoffs):
        target, label = target_of(given, options.subagents), f"handoffs[{at}]"
        history, where = target.history, f"{label}.history"
        is_word = isinstance(history, str) and history in {WHOLE, NOTHING}
        found.append(
            HandoffSpec(
                agent=_subagent(target.agent, f"{label}.to", refused, packer),
                identity=identity_of(target.source),
                sees_all=history != NOTHING,
                history=None
                if is_word
                else refused.made(partial(pack_function, history, where), None),
            )
        )
    return tuple(found)


def _check_transfers(
    options: Options, handoffs: Iterable[HandoffSpec], tools: Iterable[Packed]
) -> None:
    """Refuse what a session with handoffs cannot have besides."""
    if not handoffs:
        return
    problems = []
    if options.reasoning_strategy is not None and not _is_chain(options):
        problems.append("handoffs: reasoning_strategy answers in the model's place: give one")
    tools = [*tools, *(tool for one in handoffs for tool in one.agent.tools or ())]
    problems += [
        f"handoffs: a tool is called {tool.label!r}, as those that hand over are: rename it"
        for tool in tools
        if tool.label.startswith(TRANSFER_PREFIX)
    ]
    if problems:
        raise InvalidOptions(problems)


def acting(spec: AgentSpec, agent: str) -> AgentSpec:
    """Return the definition with the prompt of the agent that acts; "" is the session's own."""
    found = (one for one in spec.handoffs if one.agent.name == agent and not one.is_own)
    handoff = next(found, None)
    if handoff is None:
        return spec
    own_prompt = handoff.agent.system_prompt is not None or bool(handoff.identity)
    return msgspec.structs.replace(
        spec,
        system_prompt=handoff.agent.system_prompt if own_prompt else spec.system_prompt,
        identity=handoff.identity if own_prompt else spec.identity,
        prompt_mode=handoff.agent.prompt_mode or spec.prompt_mode,
    )


def _is_chain(options: Options) -> bool:
    """Say whether the session's own strategy is a chain, be its options right or wrong."""
    try:
        return chain_of(options.reasoning_strategy) is not None
    except InvalidOptions:
        return True


def _chain_plugin(options: Options, plugins: Iterable[Packed]) -> Packed | None:
    """Return the plugin that runs the session's own strategy where that is a chain."""
    try:
        chain = chain_of(options.reasoning_strategy)
    except InvalidOptions as error:
        raise InvalidOptions([f"reasoning_strategy: {one}" for one in error.problems]) from error
    if chain is None:
        return None
    asked = {"strategy": chain.chain, "templates": chain.templates}
    if not chain.chain:
        label = snake(type(chain).__name__)[:LABEL_CHARS_MAX]
        asked = {"strategy": OWN, "templates": chain.phases, "label": label}
    packed = pack_plugin((CHAIN_PLUGIN, asked), "reasoning_strategy")
    if any(one.ref == packed.ref for one in plugins):
        raise InvalidOptions(
            ["reasoning_strategy: the plugin Reasoning is there: give one of them"]
        )
    return msgspec.structs.replace(packed, label=STRATEGY_TOOL)


def _strategy_tool(given: object, *, may_branch: bool) -> Packed | None:
    """Return the tool that runs the session's own strategy."""
    if given is None:
        return None
    tool = given if isinstance(given, Reason) else Reason(strategies=[given])
    if len(tool.strategies) != 1:
        raise InvalidOptions([f"reasoning_strategy: expected one, got {len(tool.strategies)}"])
    if not may_branch:
        raise InvalidOptions(["reasoning_strategy: its branches are subagents; max_depth is 0"])
    own = msgspec.structs.replace(tool, name=STRATEGY_TOOL, fork=tool.fork is not False)
    try:
        packed = pack(own, "reasoning_strategy")
    except InvalidTool as error:
        _check_each(own)
        raise InvalidOptions([str(error)]) from error
    return msgspec.structs.replace(packed, label=STRATEGY_TOOL)


def _check_each(tool: Reason) -> None:
    """Refuse a session's own strategy with a line for each problem."""
    try:
        tool.to_options()
    except InvalidOptions as error:
        lines = (one.replace("strategies[0]: ", "", 1) for one in error.problems)
        raise InvalidOptions([f"reasoning_strategy: {one}" for one in lines]) from error


def _own_model(options: Options) -> tuple[str, dict[str, Any]]:
    """Return the session's model and its options; its own key outranks that of a ModelSource."""
    model, opts = _model(options.model, options.provider_opts)
    if options.api_key is not None:
        opts = {name: value for name, value in opts.items() if name != "api_key"}
    return model, opts


def _model(model: object, provider_opts: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(model, ModelSource):
        try:
            name, own = model.model_source()
            opts = {**own, **provider_opts}
        except Exception as error:  # its own code
            raise InvalidOptions([f"model: {short(model)} failed: {summary_of(error)}"]) from error
        if problem := model_problem(name):
            raise InvalidOptions([f"model: {short(model)} names none: {problem}"])
        try:
            check_provider_opts(opts)
        except Unfit as error:
            raise InvalidOptions([f"model: {short(model)} gives provider_opts{error}"]) from None
        return name, opts
    return str(model), dict(provider_opts)
