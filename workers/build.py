"""An agent from its definition: tools loaded, memory rebuilt, parts wired. No logic.

Its process knows credentials, and no failure that is told here shows one of them. They are the
options of the session's provider, those of earlier models too, what has a telling name or lies in
headers among the options of plugins and tools and in ``user_data``, and the variables of the
environment that say so. They are looked for when something has failed, as they are then.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from cmdc_runtime import foreign, hiding
from cmdc_runtime.board import SNAPSHOT_STEP
from cmdc_runtime.errors import CheckpointUnreadable, InvalidTool
from cmdc_runtime.extensions.plugin import Plugin, hooks_of
from cmdc_runtime.extensions.provider import (
    Provider,
    answer_tokens_of,
    context_window_of,
    price_usd_of,
)
from cmdc_runtime.frames import Assign
from cmdc_runtime.hiding import ALIKE_CHARS_MIN
from cmdc_runtime.parcels import Packed, digest_of
from cmdc_runtime.reasons import PlainReason
from cmdc_runtime.spec import AgentSpec
from cmdc_runtime.tool_environment import chosen
from cmdc_runtime.user_values import UnreadableValueError, unpacked
from workers.agent import Agent, Ways
from workers.core import aside
from workers.core.budget import Budget
from workers.core.evolve import replay
from workers.core.records import CodeTaken, Continued, Record
from workers.core.retry import Backoff
from workers.core.snapshot import Past, continued, restore
from workers.core.state import Memory, PluginFacts, Policy
from workers.core.tags import invited_by
from workers.effects.checkpoints import Checkpoints, Forks, Redact, Saved
from workers.effects.deadlines import Rest
from workers.effects.hands import Hands, Tools
from workers.effects.model import (
    Asker,
    CallSettings,
    ModelCaller,
    ModelWays,
    Patience,
    Requests,
    system_of,
)
from workers.effects.plugin_port import PluginBox, PluginPorts
from workers.effects.publish import Publisher
from workers.effects.subagents import Subagents
from workers.effects.summary import Summarizer
from workers.effects.toolbox import Opener
from workers.effects.tools import LoadedTool, ToolRunner, ToolSettings
from workers.link import Link
from workers.loader import Code, CodeChangedError, LoadError, load_provider
from workers.opening import LoadedPlugin, Opening
from workers.pipeline import Home, Pipeline
from workers.saving import Saver

# --- credentials ----------------------------------------------------------------------------------

_READABLE: Final = "ref"
"""The kind of parcels whose options anybody can read; the others are code."""


def keep(spec: AgentSpec, memory: Memory | Callable[[], Memory] | None = None) -> None:
    """Hide the credentials of a session in all failures that this process tells from now on.

    ``memory`` is what is known of it so far, or returns what is known later on.
    """

    def hide(text: str) -> str:
        now = memory() if callable(memory) else memory
        return hiding.hidden(text, known(spec, now))

    foreign.hide_by(hide)


def known(spec: AgentSpec, memory: Memory | None) -> frozenset[str]:
    """Return what is hidden now, in every form; ``memory`` is None before there is one."""
    model, opts = spec.model, [spec.provider_opts]
    parcels = [*spec.tools, *spec.plugins]
    for one in spec.subagents:
        opts.append(one.provider_opts or {})
        parcels += (*(one.tools or ()), *(one.plugins or ()))
    if memory is not None:
        model = memory.model
        opts += [memory.provider_opts, *memory.former_opts]
        known_parcels = [tool.packed for tool in memory.tools]
        known_parcels += [plugin.packed for plugin in memory.plugins]
        parcels += filter(None, known_parcels)
    named = hiding.secrets_by_name((spec.user_data, *_options_of(parcels)))
    given = hiding.secrets_of_options(opts) | named
    variables = {
        value for value in hiding.secrets_of_environment(os.environ) if not _is_path(value)
    }
    return hiding.forms_of(
        one for one in given | variables if one == hiding.ALL or not (one in model or _is_word(one))
    )


def _options_of(parcels: Iterable[Packed]) -> Iterator[object]:
    for one in parcels:
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


class BuildError(Exception):
    """The definition can't be made into an agent, now or later."""


class ChangedError(BuildError):
    """It could, but of other code than the session took."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an agent is built into: its connection, its daemon's folder, its ways to end."""

    link: Link
    runtime_dir: Path
    on_crash: Callable[[BaseException], None]
    on_exit: Callable[[PlainReason], None]
    at: Callable[[int | None], None] = lambda _step: None
    """Told of each step of rebuilding before it is taken, and with None when there is no other."""
    opening_at: Callable[[int], None] = lambda _step: None
    """Told of the step of each parcel that a command brings, before and, with 0, behind it."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What was loaded for one agent."""

    provider: Provider
    tools: tuple[LoadedTool, ...]
    plugins: tuple[Plugin, ...]
    redact: Redact | None
    user_data: dict[str, Any]  # Any: the application's own
    greeting: Callable[[str], str | None]
    around: Surroundings


def build_agent(assign: Assign, spec: AgentSpec, past: Past, around: Surroundings) -> Agent:
    """Return the agent that ``spec`` and ``past`` make, at rest.

    Raises:
        BuildError: a tool, a plugin or ``redact`` can't be loaded; the message names it.
        ChangedError: the code of one is not the code that the session took.
        CheckpointUnreadable: the snapshot is of a newer program, or damaged and all that there is.
    """
    around.at(None)
    keep(spec)
    opening = _opening(assign, past, around)
    try:
        provider = load_provider(PROVIDER)
        if past.snapshot:
            around.at(SNAPSHOT_STEP)
        start, past = _start(Memory(policy=policy_of(assign, spec, provider)), assign, past)
        opening.left_out |= start.left_out
        opening.code = _code(assign, spec, start, past)
        own, opened = opening.tools(spec.tools), opening.plugins(spec.plugins)
        first = first_memory(start.policy, spec, opened, own)
        start = start if past.snapshot else first
        memory, leaning = aside.fold(start, past.records, around.at)
        news = (*past.left_out, *leaning, *opening.news, *_news(spec, first, memory))
        memory = replay(memory, news)
        lost = opening.without_doomed(memory, past.records)
        news, memory = (*news, *lost), replay(memory, lost)
        keep(spec, memory)
        tools, plugins = opening.tools_of(memory, own), opening.plugins_of(memory, opened)
        redact = None if spec.redact is None else opening.function(spec.redact, "redact")
        around.at(None)
        if opening.code.news:
            taken = CodeTaken(code=opening.code.news)
            news, memory = (*news, taken), replay(memory, [taken])
        user_data = unpacked(spec.user_data)
    except CodeChangedError as error:
        raise ChangedError(str(error)) from error
    except (LoadError, InvalidTool, UnreadableValueError) as error:
        raise BuildError(str(error)) from error
    greeting = opening.greeting(memory, plugins)
    parts = Parts(provider, tools, plugins, redact, user_data, greeting, around)
    agent = _wire(assign, spec, memory, parts)
    keep(spec, agent.memory)
    agent.take_up(Saver(past.unsaved()), news)
    return agent


def _start(empty: Memory, assign: Assign, past: Past) -> tuple[Memory, Past]:
    """Return the memory of the snapshot, and the past without one that cannot be read.

    Who begins a session with nothing but a state is told that it cannot be read: without it there
    is nothing to go on with.

    Raises:
        CheckpointUnreadable: so it is, or it is a newer program's.
    """
    try:
        return restore(empty, past.snapshot), past
    except CheckpointUnreadable as error:
        if assign.incarnation == 1 and not past.records:
            raise
        left_out = (aside.damage_of(past.snapshot, error), *past.left_out)
        return empty, replace(past, snapshot=b"", left_out=left_out)


def _code(assign: Assign, spec: AgentSpec, start: Memory, past: Past) -> Code:
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
        anew = {digest_of(packed) for packed in given}
        known = {name: modules for name, modules in known.items() if name not in anew}
    # Who only looks runs nothing for the session.
    return Code({**known}, is_latest=assign.looks or spec.code == "latest")


def _news(spec: AgentSpec, first: Memory, memory: Memory) -> Iterable[Record]:
    """Yield what is to be recorded first: the options that the session was resumed with, once."""
    resumed = spec.resumed
    if resumed is not None and memory.resumption != resumed.id:
        yield continued(first, resumed.id, resumed.changes)


def _opening(assign: Assign, past: Past, around: Surroundings) -> Opening:
    """Return what opens the parcels; of a session that only begins they are all needed."""
    if assign.incarnation == 1 and not past.snapshot and not past.records:
        return Opening()
    return Opening(
        around.at, frozenset(assign.set_aside), left_out=aside.tools_left_out(past.records)
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
        messages=spec.messages,
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
        opening_call=spec.opening_call,
        window_of=lambda model: context_window_of(provider, model),
        answer_max_of=lambda model: answer_tokens_of(provider, model),
        price_of=lambda model, prompt, completion: price_usd_of(
            provider, model, prompt, completion
        ),
    )


def _wire(
    assign: Assign,
    spec: AgentSpec,
    memory: Memory,
    parts: Parts,
) -> Agent:
    provider, around = parts.provider, parts.around
    link = around.link
    agent = Agent(assign, memory, link, Publisher(assign.next_index, link.publish))
    patience = Patience(spec.max_retries, _backoff(spec), spec.stall_timeout)
    asker = Asker(provider, patience, agent.has_answered)
    saved = Saved(assign.session_id, assign.group_id, spec, parts.redact)
    checkpoints = Checkpoints(str(around.runtime_dir), saved, agent.memory, agent.reply)
    ports = PluginPorts(asker, agent.post, agent.memory, checkpoints, parts.user_data)
    home = Home(ports.of, ports.of_observer, agent.plugin_crashed, parts.greeting)
    pipeline = Pipeline(parts.plugins, agent.plugin_context, home)
    pipeline.restore(dict(memory.plugin_states))
    agent.know_hooks(pipeline.hooks_by_plugin())
    opener = Opener(around.opening_at)
    subagents = Subagents(str(around.runtime_dir), agent.post)
    steps = partial(subagents.past.steps, assign.session_id)
    tool_settings = replace(_tool_settings(assign, spec, parts, opener), recall=steps)
    runner = ToolRunner(parts.tools, tool_settings, agent.post, link, pipeline)
    settings = CallSettings(spec.stall_after, spec.stall_timeout)
    summarizer = Summarizer(
        asker, agent.post, session_id=assign.session_id, working_dir=spec.working_dir
    )
    kit = Tools(
        spec=spec,
        session_id=assign.session_id,
        incarnation=assign.incarnation,
        group_id=assign.group_id,
        requests=Requests(spec, runner),
        model=ModelCaller(
            provider,
            settings,
            ModelWays(agent.post, link.room),
            lambda: pipeline.filters(memory.policy.tags),
        ),
        summarizer=summarizer,
        runner=runner,
        subagents=subagents,
        plugins=pipeline,
        ports=ports,
        plugin_box=PluginBox(pipeline, agent.post, opener),
        checkpoints=checkpoints,
        forks=Forks(checkpoints),
    )
    hands = Hands(kit, agent.post, agent.watch)
    agent.equip(
        hands,
        Rest(spec.hibernate_after, lambda: hands.are_idle, agent.doze),
        Ways(around.on_crash, around.on_exit),
        msgspec.structs.replace(spec, user_data=parts.user_data),
    )
    return agent


def _backoff(spec: AgentSpec) -> Backoff:
    return Backoff(spec.retry_base_delay, spec.retry_max_delay, spec.retry_jitter)


def _tool_settings(assign: Assign, spec: AgentSpec, parts: Parts, opener: Opener) -> ToolSettings:
    return ToolSettings(
        session_id=assign.session_id,
        incarnation=assign.incarnation,
        group_id=assign.group_id,
        working_dir=spec.working_dir,
        user_data=parts.user_data,
        parallel_max=spec.max_parallel_tools,
        timeout_s=spec.tool_timeout,
        retries_max=spec.tool_max_retries,
        runtime_dir=parts.around.runtime_dir,
        environment=chosen(os.environ, spec.tool_env),
        opener=opener,
        is_subagent=assign.parent_id is not None,
    )
