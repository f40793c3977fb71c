"""An agent from its definition: tools loaded, memory rebuilt, parts wired. No logic.

Its process knows credentials, and no failure that is reported here shows one of them. They are the
options of the session's provider, those of earlier models too, what has a secret's name or lies in
headers among the options of plugins and tools and in ``user_data``, and the variables of the
environment that say so. They are looked for when something has failed, as they are then.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from cmdc_runtime import foreign, redaction
from cmdc_runtime.errors import CheckpointUnreadable, InvalidTool, SandboxUnavailable
from cmdc_runtime.extensions.plugin import Plugin, hooks_of
from cmdc_runtime.extensions.provider import (
    Provider,
    answer_tokens_of,
    context_window_of,
    media_of,
    price_usd_of,
)
from cmdc_runtime.extensions.sandbox import UNCONFINED, Sandbox, SandboxPlace
from cmdc_runtime.heartbeats import SNAPSHOT_STEP
from cmdc_runtime.mcp_logins import Login, LoginFile, LoginUnreadable, secrets_of
from cmdc_runtime.mcp_servers import McpServer
from cmdc_runtime.packed_code import Packed, digest_of
from cmdc_runtime.redaction import ALIKE_CHARS_MIN
from cmdc_runtime.runtime_dir import default_state_dir
from cmdc_runtime.spec import AgentSpec
from cmdc_runtime.tool_environment import chosen, passed_on
from cmdc_runtime.user_values import UnreadableValueError, unpacked
from cmdc_runtime.wire.frames import Assign, SdkImported
from workers.agent import Agent, Saver
from workers.builtin.providers.default import needs_litellm
from workers.builtin.wires.vendor_names import vendor_problem
from workers.core import omissions
from workers.core.budget import Budget
from workers.core.evolve import rebuild
from workers.core.records import CodeTaken, Continued, Record
from workers.core.retry import Backoff
from workers.core.snapshot import SessionHistory, continued, restore
from workers.core.state import Memory, PluginFacts, Policy, no_problem
from workers.core.tags import invited_by
from workers.link import Link
from workers.loader import Code, CodeChangedError, LoadError, load_provider
from workers.mcp.servers import McpServers, ServerSurroundings
from workers.mcp.shared import ServerFinder
from workers.performers.blobs import BlobProvider, Blobs
from workers.performers.checkpoint_backend import OwnBackend
from workers.performers.checkpoints import Checkpoints, Forks, Redact, Saved
from workers.performers.deadlines import IdleTimer
from workers.performers.guardrails import Guardrails, Guards
from workers.performers.histories import HistoryFilters
from workers.performers.model import (
    Asker,
    CallSettings,
    ModelCallbacks,
    ModelCaller,
    Patience,
    Requests,
    Summarizer,
    system_of,
)
from workers.performers.plugin_port import PluginLoader, PluginPorts
from workers.performers.provider_edge import KeyedProvider
from workers.performers.publish import Publisher
from workers.performers.replies import Replies
from workers.performers.subagents import Subagents
from workers.performers.table import ExitCallbacks, PerformerParts, Performers
from workers.performers.toolbox import CodeOpener, Toolbox, schema_of
from workers.performers.tools import LoadedTool, ToolRunner, ToolSettings
from workers.pipeline import Pipeline, PluginServices
from workers.session_code import FunctionCode, LoadedPlugin, OpenedAgent, SessionCode

# --- credentials ----------------------------------------------------------------------------------

_READABLE: Final = "ref"
"""The kind of packed code whose options anybody can read; the others are code by value."""


def keep(
    spec: AgentSpec,
    memory: Memory | Callable[[], Memory] | None = None,
    keys: Iterable[str] = (),
) -> None:
    """Hide the credentials of a session in all failures that this process reports from now on.

    ``memory`` is what is known of it so far, or returns what is known later on; ``keys`` came
    beside the definition.
    """

    def hide(text: str) -> str:
        now = memory() if callable(memory) else memory
        return redaction.hidden(text, known(spec, now, keys))

    foreign.hide_by(hide)


def known(spec: AgentSpec, memory: Memory | None, keys: Iterable[str] = ()) -> frozenset[str]:
    """Return what is hidden now, in every form; ``memory`` is None before there is one."""
    model, opts = spec.model, [spec.provider_opts, *({"api_key": one} for one in keys)]
    all_packed = [*spec.tools, *spec.plugins]
    for one in spec.subagents:
        opts.append(one.provider_opts or {})
        all_packed += (*(one.tools or ()), *(one.plugins or ()))
    for handoff in spec.handoffs:
        opts.append(handoff.agent.provider_opts or {})
        all_packed += handoff.agent.tools or ()
    if memory is not None:
        model = memory.model
        opts += [memory.provider_opts, *memory.former_opts]
        of_memory = [tool.packed for tool in memory.tools]
        of_memory += [plugin.packed for plugin in memory.plugins]
        if (put_by := memory.own_parts) is not None:
            opts.append(put_by.provider_opts)
            of_memory += [tool.packed for tool in put_by.tools]
        all_packed += filter(None, of_memory)
    declared = spec.mcp_servers if memory is None else memory.mcp_servers
    servers: list[object] = [{"env": one.env, "headers": one.headers} for one in declared]
    servers += (secrets_of(_login_of(one)) for one in declared if one.oauth is not None)
    named = redaction.secrets_by_name((spec.user_data, *servers, *_options_of(all_packed)))
    given = redaction.secrets_of_options(opts) | named
    variables = {
        value for value in redaction.secrets_of_environment(os.environ) if not _is_path(value)
    }
    return redaction.forms_of(
        one
        for one in given | variables
        if one == redaction.ALL or not (one in model or _is_word(one))
    )


def _state_dir() -> Path:
    return default_state_dir(os.environ, home=Path.home())


def _login_of(server: McpServer) -> Login | None:
    with suppress(LoginUnreadable):
        return LoginFile(_state_dir(), server.url or "", server.oauth or "").read()
    return None


def _options_of(all_packed: Iterable[Packed]) -> Iterator[object]:
    for one in all_packed:
        if one.kind == _READABLE and one.data is not None:
            yield msgspec.msgpack.decode(one.data)


def _is_word(value: str) -> bool:
    """Say whether it is what stands for a key where none is needed, such as ``local`` or ``123``.

    Failures of tools and plugins are prose, which would not be readable without such words.
    """
    is_plain = value.isdecimal() or (value.isalpha() and value.islower())
    return is_plain and len(value) < ALIKE_CHARS_MIN


def _is_path(value: str) -> bool:
    """Say whether a variable names a file with a key in it: each traceback has parts of paths."""
    try:
        return value.startswith("/") and Path(value).exists()
    except (OSError, ValueError):
        return False


# --- the agent ------------------------------------------------------------------------------------

PROVIDER = "default"


class LitellmNeeded(Exception):
    """The session's model is asked by litellm, which is not in this process."""


class BuildError(Exception):
    """The definition can't be made into an agent, now or later."""


class ChangedError(BuildError):
    """It could, but of other code than the session took."""


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What an agent is built into: its connection, its daemon's folder, its exit callbacks."""

    link: Link
    runtime_dir: Path
    exit_callbacks: ExitCallbacks
    at: Callable[[int | None], None] = lambda _step: None
    """Called before each step of rebuilding, and with None when there is no other."""
    report_code_step: Callable[[int], None] = lambda _step: None
    """Called before each step that opens packed code of a command, and with 0 behind it."""
    is_lean: bool = False
    """The process does not have litellm, and can be exchanged for one that has."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was loaded for one agent."""

    provider: Provider
    tools: tuple[LoadedTool, ...]
    plugins: tuple[Plugin, ...]
    redact: Redact | None
    backend: OwnBackend | None
    sandbox: Sandbox
    user_data: dict[str, Any]  # Any: the application's own
    session_start_problem: Callable[[str], str | None]
    context: BuildContext
    functions: FunctionCode


def build_agent(
    assign: Assign, spec: AgentSpec, past: SessionHistory, context: BuildContext
) -> Agent:
    """Return the agent that ``spec`` and ``past`` make, at rest.

    Raises:
        BuildError: a tool, a plugin or ``redact`` can't be loaded; the message names it.
        ChangedError: the code of one is not the code that the session took.
        CheckpointUnreadable: the snapshot is of a newer program, or damaged and all that there is.
        LitellmNeeded: so it is.
        SandboxUnavailable: the session's sandbox can't be had here.
    """
    context.at(None)
    keys = tuple(assign.keys.values())
    keep(spec, keys=keys)
    session_code = _session_code(assign, past, context)
    try:
        provider = load_provider(PROVIDER)
        if past.snapshot:
            context.at(SNAPSHOT_STEP)
        start, past = _start(Memory(policy=policy_of(assign, spec, provider)), assign, past)
        session_code.left_out |= start.left_out
        session_code.code = _code(assign, spec, start, past)
        if spec.provider is not None:
            provider = session_code.provider(spec.provider)
            start = msgspec.structs.replace(start, policy=policy_of(assign, spec, provider))
        own, opened = session_code.tools(spec.tools), session_code.plugins(spec.plugins)
        start = with_agents(start, agents := session_code.agents(spec))
        first = first_memory(start.policy, spec, opened, own)
        start = start if past.snapshot else first
        memory, leaning = omissions.fold(start, past.records, context.at)
        news = (*past.left_out, *leaning, *session_code.news, *_news(spec, first, memory))
        memory = rebuild(memory, news)
        lost = session_code.newly_left_out(memory, past.records)
        news, memory = (*news, *lost), rebuild(memory, lost)
        keep(spec, memory, keys)
        functions = session_code.function_code(spec, memory, own, agents)
        tools = session_code.tools_of(memory, functions.reserve.of_agents)
        _check_models(assign, spec, memory)
        if spec.provider is None and context.is_lean and _needs_litellm(memory, tools):
            raise LitellmNeeded
        plugins = session_code.plugins_of(memory, opened)
        redact, backend = _checkpoint_code(assign, spec, session_code)
        sandbox = _sandbox(assign, spec, session_code)
        context.at(None)
        if session_code.code.news:
            taken = CodeTaken(code=session_code.code.news)
            news, memory = (*news, taken), rebuild(memory, [taken])
        user_data = unpacked(spec.user_data)
    except CodeChangedError as error:
        raise ChangedError(str(error)) from error
    except (LoadError, InvalidTool, UnreadableValueError) as error:
        raise BuildError(str(error)) from error
    session_start_problem = session_code.session_start_problem(memory, plugins)
    code = (provider, tools, plugins, redact, backend, sandbox)
    loaded = Loaded(*code, user_data, session_start_problem, context, functions)
    agent = _wire(assign, spec, memory, loaded)
    keep(spec, agent.memory, keys)
    agent.continue_from(Saver(past.unsaved()), news)
    return agent


def _check_models(assign: Assign, spec: AgentSpec, memory: Memory) -> None:
    """Refuse a mistyped vendor before litellm is loaded for it; a session that has begun goes on.

    Raises:
        BuildError: a model of the session, or of an agent that it may start, has one.
    """
    if assign.incarnation > 1 or assign.looks:
        return
    asked = {"model": (memory.model, memory.provider_opts)}
    for one in spec.subagents:
        if one.model:
            asked[f"subagent {one.name!r}"] = (one.model, one.provider_opts or {})
    for where, (model, opts) in asked.items():
        if (problem := memory.policy.vendor_problem_of(model, opts)) is not None:
            raise BuildError(f"{where}: {problem}")


def _needs_litellm(memory: Memory, tools: Iterable[LoadedTool]) -> bool:
    schemas = tuple(map(schema_of, tools))
    return needs_litellm(memory.model, memory.provider_opts, schemas)


def _checkpoint_code(
    assign: Assign, spec: AgentSpec, session_code: SessionCode
) -> tuple[Redact | None, OwnBackend | None]:
    """Return the code that changes checkpoints before they are kept, and that which keeps them."""
    redact = None if spec.redact is None else session_code.function(spec.redact, "redact")
    thing = session_code.checkpoint_backend(spec.checkpoint_backend)
    return redact, None if thing is None else OwnBackend(thing, assign.session_id)


def _sandbox(assign: Assign, spec: AgentSpec, session_code: SessionCode) -> Sandbox:
    """Return the session's sandbox, which is none less than what is required."""
    place = SandboxPlace(
        session_id=assign.session_id, working_dir=spec.working_dir, real_dir=str(Path.cwd())
    )
    sandbox = session_code.sandbox(spec.sandbox, place)
    if spec.require_sandbox and not sandbox.confines:
        raise SandboxUnavailable(sandbox.name, UNCONFINED)
    return sandbox


def _start(empty: Memory, assign: Assign, past: SessionHistory) -> tuple[Memory, SessionHistory]:
    """Return the memory of the snapshot, and the past without one that cannot be read.

    A session that begins with nothing but a state does not start when that cannot be read: there
    is nothing to go on with.

    Raises:
        CheckpointUnreadable: so it is, or it is a newer program's.
    """
    try:
        return restore(empty, past.snapshot), past
    except CheckpointUnreadable as error:
        if assign.incarnation == 1 and not past.records:
            raise
        left_out = (omissions.damage_of(past.snapshot, error), *past.left_out)
        return empty, replace(past, snapshot=b"", left_out=left_out)


def _code(assign: Assign, spec: AgentSpec, start: Memory, past: SessionHistory) -> Code:
    """Return what code the session took: not of what it is resumed with for the first time."""
    known, resumptions = dict(start.code), {start.resumption}
    for record in past.records:
        if isinstance(record, CodeTaken):
            known |= record.code
        elif isinstance(record, Continued):
            resumptions.add(record.resumption)
    resumed = spec.resumed
    if resumed is not None and resumed.id not in resumptions:
        given = [*spec.tools] if "tools" in resumed.changes else []
        given += spec.plugins if "plugins" in resumed.changes else ()
        given += filter(None, [spec.redact]) if "redact" in resumed.changes else ()
        kept_by = [spec.checkpoint_backend]
        given += filter(None, kept_by) if "checkpoint_backend" in resumed.changes else ()
        given += filter(None, [spec.provider]) if "provider" in resumed.changes else ()
        for side in ("input_guardrails", "output_guardrails"):
            given += getattr(spec, side) if side in resumed.changes else ()
        given += filter(None, [spec.sandbox]) if "sandbox" in resumed.changes else ()
        anew = {digest_of(packed) for packed in given}
        known = {name: modules for name, modules in known.items() if name not in anew}
    # Who only looks runs nothing for the session.
    return Code({**known}, is_latest=assign.looks or spec.code == "latest")


def _news(spec: AgentSpec, first: Memory, memory: Memory) -> Iterable[Record]:
    """Yield what is to be recorded first: the options that the session was resumed with, once."""
    resumed = spec.resumed
    if resumed is not None and memory.resumption != resumed.id:
        yield continued(first, resumed.id, resumed.changes)


def _session_code(assign: Assign, past: SessionHistory, context: BuildContext) -> SessionCode:
    """Return what opens packed code; of a session that only begins all of it is needed."""
    if assign.incarnation == 1 and not past.snapshot and not past.records:
        return SessionCode()
    return SessionCode(
        context.at, frozenset(assign.set_aside), left_out=omissions.tools_left_out(past.records)
    )


def first_memory(
    policy: Policy,
    spec: AgentSpec,
    plugins: Sequence[LoadedPlugin],
    tools: Sequence[LoadedTool],
) -> Memory:
    """Return the memory that the session was created with."""
    return Memory(
        policy=policy,
        plugins=tuple(PluginFacts(one.name, hooks_of(one), packed) for one, packed in plugins),
        model=spec.model,
        provider_opts=spec.provider_opts,
        tools=tuple(one.facts() for one in tools),
        mcp_servers=spec.mcp_servers,
        messages=spec.messages,
    )


def with_agents(memory: Memory, agents: Iterable[OpenedAgent]) -> Memory:
    """Return a memory whose session may be handed to these agents."""
    facts = tuple(one.facts for one in agents)
    return msgspec.structs.replace(
        memory, policy=msgspec.structs.replace(memory.policy, agents=facts)
    )


def policy_of(assign: Assign, spec: AgentSpec, provider: Provider) -> Policy:
    """Return what the tables need of the options."""
    prompt = system_of(spec)
    return Policy(
        session_id=assign.session_id,
        max_turns=spec.max_turns,
        max_queued_prompts=spec.max_queued_prompts,
        max_steering_queue=spec.max_steering_queue,
        max_retries=spec.max_retries,
        max_cycle_crashes=spec.max_cycle_crashes,
        max_tokens=spec.max_tokens,
        system_chars=len(prompt),
        tags=invited_by(prompt),
        backoff=_backoff(spec),
        stall_timeout_s=spec.stall_timeout,
        cycle_timeout_s=spec.cycle_timeout,
        immune=frozenset(spec.interrupt_immune_tools),
        loop_threshold=spec.loop_threshold,
        loop_abort=spec.loop_abort,
        loop_exempt=frozenset(spec.loop_exempt_tools),
        budget=Budget(spec.max_total_tokens, spec.max_cost_usd),
        exit_on=frozenset(spec.exit_on),
        response_format=spec.response_format,
        max_children=spec.max_children,
        max_spawns=spec.max_spawns,
        subagents=frozenset(one.name for one in spec.subagents),
        guards_input=bool(spec.input_guardrails),
        guards_output=bool(spec.output_guardrails),
        opening_call=spec.opening_call,
        window_of=lambda model: context_window_of(provider, model),
        answer_max_of=lambda model: answer_tokens_of(provider, model),
        media_of=lambda model: media_of(provider, model),
        price_of=lambda model, prompt, completion: price_usd_of(
            provider, model, prompt, completion
        ),
        vendor_problem_of=vendor_problem if spec.provider is None else no_problem,
    )


def _wire(assign: Assign, spec: AgentSpec, memory: Memory, loaded: Loaded) -> Agent:
    context, link = loaded.context, loaded.context.link
    publisher = Publisher(assign.next_index, link.publish)
    agent = Agent(assign, memory, link, publisher)
    replies = Replies(link, publisher, agent.status)
    patience = Patience(spec.max_retries, _backoff(spec), spec.stall_timeout)
    saved = Saved(assign.session_id, assign.group_id, spec, loaded.redact, loaded.backend)
    checkpoints = Checkpoints(str(context.runtime_dir), saved, agent.memory, replies.reply)
    blobs = Blobs(assign.session_id, checkpoints.ask)
    provider = BlobProvider(KeyedProvider(loaded.provider, assign.keys), blobs)
    asker = Asker(provider, patience, agent.has_answered)
    ports = PluginPorts(asker, agent.post, agent.memory, checkpoints, loaded.user_data)
    services = PluginServices(
        ports.of, ports.of_observer, agent.plugin_crashed, loaded.session_start_problem
    )
    pipeline = Pipeline(loaded.plugins, agent.plugin_context, services)
    pipeline.restore(dict(memory.plugin_states))
    agent.set_hooks(pipeline.hooks_by_plugin())
    opener = CodeOpener(context.report_code_step)
    subagents = Subagents(str(context.runtime_dir), agent.post)
    steps = partial(subagents.past.steps, assign.session_id)
    servers = _mcp_servers(assign, spec, agent, loaded)
    settings = replace(_tool_settings(assign, spec, loaded, servers), recall=steps, opener=opener)
    runner = ToolRunner(loaded.tools, settings, agent.post, link, pipeline)
    summarizer = Summarizer(
        asker, agent.post, session_id=assign.session_id, working_dir=spec.working_dir
    )
    parts = PerformerParts(
        spec=spec,
        session_id=assign.session_id,
        incarnation=assign.incarnation,
        group_id=assign.group_id,
        keys=assign.keys,
        requests=Requests(spec, runner.toolbox, servers),
        model=ModelCaller(
            provider,
            CallSettings(spec.stall_after, spec.stall_timeout),
            ModelCallbacks(agent.post, link.room),
            lambda: pipeline.filters(agent.memory().tags),
        ),
        summarizer=summarizer,
        runner=runner,
        subagents=subagents,
        plugins=pipeline,
        ports=ports,
        plugin_loader=PluginLoader(pipeline, agent.post, opener),
        checkpoints=checkpoints,
        forks=Forks(checkpoints),
        replies=replies,
        servers=servers,
        guards=_guards(agent, loaded.functions),
        histories=HistoryFilters(loaded.functions.histories),
    )
    is_lean = context.is_lean and spec.provider is None
    performers = Performers(parts, agent.post, context.exit_callbacks)
    idle_timer = _idle_timer(
        agent, performers, spec.hibernate_after, _Place(agent, runner.toolbox, is_lean=is_lean)
    )
    agent.wire(performers, idle_timer, msgspec.structs.replace(spec, user_data=loaded.user_data))
    return agent


def _guards(agent: Agent, code: FunctionCode) -> Guards:
    sides = map(Guardrails, (code.input_guardrails, code.output_guardrails))
    return Guards(agent.plugin_context, *sides)


class _Place:
    """Whether a session's process has what its model needs, which may have been switched."""

    def __init__(self, agent: Agent, toolbox: Toolbox, *, is_lean: bool) -> None:
        self._agent, self._toolbox, self._is_lean = agent, toolbox, is_lean
        self._asked: tuple[object, ...] = ()
        self._is_wrong = False

    def is_wrong(self) -> bool:
        """Say whether another process would be better; asked anew where model or tools differ."""
        memory = self._agent.memory()
        asked = memory.model, memory.provider_opts, memory.tools
        if self._is_lean and asked != self._asked:
            self._asked = asked
            self._is_wrong = needs_litellm(
                memory.model, memory.provider_opts, self._toolbox.schemas
            )
        return self._is_wrong


def _idle_timer(
    agent: Agent, performers: Performers, after_s: float | None, place: _Place
) -> IdleTimer:
    def on_idle() -> None:
        agent.report_idle(is_misplaced=place.is_wrong())

    return IdleTimer(after_s, lambda: performers.is_idle, on_idle, place.is_wrong)


def _backoff(spec: AgentSpec) -> Backoff:
    return Backoff(spec.retry_base_delay, spec.retry_max_delay, spec.retry_jitter)


def _mcp_servers(assign: Assign, spec: AgentSpec, agent: Agent, loaded: Loaded) -> McpServers:
    marks = {"CMDC_SESSION_ID": assign.session_id, "CMDC_INCARNATION": str(assign.incarnation)}
    environment = {**passed_on(os.environ), **chosen(os.environ, spec.tool_env), **marks}
    environment["PWD"] = spec.working_dir
    context = loaded.context
    surroundings = ServerSurroundings(
        spec.working_dir,
        environment,
        _state_dir(),
        loaded.sandbox,
        ServerFinder(context.link),
    )
    on_crash = context.exit_callbacks.on_crash

    def on_import() -> None:
        context.link.send(SdkImported())

    return McpServers(agent.memory, surroundings, agent.post, on_crash, on_import)


def _tool_settings(
    assign: Assign, spec: AgentSpec, loaded: Loaded, servers: McpServers
) -> ToolSettings:
    return ToolSettings(
        session_id=assign.session_id,
        incarnation=assign.incarnation,
        group_id=assign.group_id,
        working_dir=spec.working_dir,
        user_data=loaded.user_data,
        config_facts=spec.config_facts,
        parallel_max=spec.max_parallel_tools,
        timeout_s=spec.tool_timeout,
        retries_max=spec.tool_max_retries,
        runtime_dir=loaded.context.runtime_dir,
        environment=chosen(os.environ, spec.tool_env),
        servers=servers,
        sandbox=loaded.sandbox,
        packed_sandbox=spec.sandbox,
        reserve=loaded.functions.reserve,
        is_subagent=assign.parent_id is not None,
    )
