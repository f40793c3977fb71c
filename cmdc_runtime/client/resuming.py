"""The requests that begin a session: a new one from its options, or one that is resumed.

For a start options are checked and tools packed; nothing is sent yet. A session is resumed by its
old definition with the options that are given anew. What is given is checked as ``create_agent``
does, together with what stays. Code by value comes along as it was packed. The conversation is that
of the saved state, and so are tools, plugins and model, unless they are given.
"""

import os
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cmdc_runtime.config import Config
from cmdc_runtime.errors import InvalidOptions, SessionExists, UsageError
from cmdc_runtime.ids import (
    SESSION_ID_RULE,
    SessionId,
    is_session_id,
    new_command_id,
    new_session_id,
)
from cmdc_runtime.options import FIELDS, ModelSource, Options, parse
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.plain import VALUES_MAX, packed_problem, short
from cmdc_runtime.provider_keys import keys_of_environment
from cmdc_runtime.provider_options import model_parts
from cmdc_runtime.requests import Origin, StartSession, Supervision
from cmdc_runtime.spec import (
    AgentSpec,
    Resumption,
    agent_spec,
    carries_code,
    check_sandbox,
    refused_parts,
    supervision,
)
from cmdc_runtime.subagent import (
    GENERAL_PURPOSE,
    MEMORY_LABEL,
    OF_SKILLS,
    STRATEGY_TOOL,
    TASK_TOOL,
    TRANSFER_TOOL,
)
from cmdc_runtime.user_values import unpacked
from cmdc_runtime.wire import codec
from cmdc_runtime.wire.frames import ASKED_BYTES_MAX

# --- a start --------------------------------------------------------------------------------------

_FROM_OUTSIDE: Final = (
    *("provider_opts", "user_data", "messages", "response_format", "subagents", "handoffs"),
)
"""What holds values of the application's own."""
AGENT_BYTES_MAX: Final = ASKED_BYTES_MAX - 16 * 1024
"""Of a definition as it travels; what is beside it in the request is small and has bounds."""
_OPTION_OF: Final = {"identity": "blueprint"}
"""What a field of a definition is made from, where that has another name."""


def start_request(options: Options | None, given: Mapping[str, object]) -> StartSession:
    """Return the request that starts the agent that the options describe.

    Raises:
        InvalidOptions: ``problems`` has one line for each wrong field.
        InvalidTool: a tool cannot travel.
        SandboxUnavailable: one that confines is required, and none is given.

    """
    if options is not None and not isinstance(options, Options):
        raise InvalidOptions([f"options: expected Options, got {type(options).__name__}"])
    checked = parse(options, given, refused_parts)
    spec = agent_spec(checked)
    check_sandbox(spec)
    return StartSession(
        session_id=SessionId(checked.session_id) if checked.session_id else new_session_id(),
        supervision=supervision(checked),
        agent=agent_bytes(spec),
        carries_code=carries_code(spec),
        group_id=checked.group_id,
        start_id=new_command_id(),
        keys=session_keys(checked, spec),
        own_checkpoints=spec.checkpoint_backend is not None,
    )


def session_keys(options: Options, spec: AgentSpec) -> dict[str, str]:
    """Return the keys that a session is given, by provider or by model.

    They are those of ``api_key``, of the config, and of this process's environment, the first that
    there is, for the models of the definition whose options have none.

    Raises:
        InvalidOptions: a variable has what can be no key.
    """
    asked = [(spec.model, spec.provider_opts)]
    asked += ((one.model, one.provider_opts or {}) for one in spec.subagents if one.model)
    agents = [one.agent for one in spec.handoffs]
    asked += ((one.model, one.provider_opts or {}) for one in agents if one.model)
    models = [model for model, opts in asked if opts.get("api_key") is None]
    keys, given = dict[str, str](), options.api_key
    own = {model_parts(spec.model)[0]: given} if isinstance(given, str) else dict(given or {})
    if options.send_keys:
        providers = {model_parts(model)[0] for model in models} - own.keys()
        keys, problems = keys_of_environment(providers, os.environ)
        if problems:
            raise InvalidOptions(problems)
    for model in models if isinstance(options.config, Config) else ():
        if (key := options.config.key_of(model)) and model_parts(model)[0] not in own:
            keys[model] = key
    return {**keys, **own}


def agent_bytes(spec: AgentSpec) -> msgspec.Raw:
    """Return a definition as it travels.

    Raises:
        InvalidOptions: a value of the application's own cannot travel, or all is too large.

    """
    problems = []
    for name in _FROM_OUTSIDE:
        try:
            packed = codec.encode(getattr(spec, name))
        except UsageError as error:
            problems.append(f"{name}: cannot travel to the agent: {error}")
            continue
        if (problem := packed_problem(packed, values_max=VALUES_MAX)) is not None:
            problems.append(f"{name}: cannot travel to the agent: {problem}")
    if problems:
        raise InvalidOptions(problems)
    raw = codec.raw(spec)
    if (excess := len(bytes(raw)) - AGENT_BYTES_MAX) > 0:
        raise InvalidOptions(_too_large(spec, excess))
    return raw


def _too_large(spec: AgentSpec, excess: int) -> list[str]:
    """Return a line for each of the largest options, as many as make ``excess`` bytes."""
    sizes = {name: len(codec.encode(getattr(spec, name))) for name in AgentSpec.__struct_fields__}
    problems = []
    for name, size in sorted(sizes.items(), key=lambda one: one[1], reverse=True):
        if excess <= 0:
            break
        excess -= size
        problems.append(
            f"{_OPTION_OF.get(name, name)}: it has {size:,} bytes as it travels, and"
            f" {AGENT_BYTES_MAX:,} is the most for all options together: pass large content by"
            " file instead of by value"
        )
    return problems


# --- a resumption ---------------------------------------------------------------------------------

NOT_RESUMED: Final = {
    "session_id": "give new_id to resume under another id",
    "messages": "a resumed session has the conversation of its state",
    "reasoning_strategy": "a resumed session keeps its strategy, or has none; use cmdc.Runner.run",
    "memory": "a resumed session has its memory files; add_memory adds to them",
    "skills_dirs": "a resumed session has its skills; add_skills_dirs adds to them",
    "handoffs": "a resumed session has the agents that it began with",
    "blueprint": "a resumed session has its definition; give the options that are to change",
}
"""Options that ``resume_session`` takes none of, and why."""
_STAYS: Final = frozenset(
    {
        *NOT_RESUMED,
        *("model", "tools", "plugins", "subagents", "provider_opts", "response_format"),
        *("input_guardrails", "output_guardrails"),
        *(
            "working_dir",
            "redact",
            "checkpoint_backend",
            "provider",
            "sandbox",
            "group_id",
            "mcp_servers",
        ),
    }
)
"""Options that a definition holds in another form: given anew or left as they are."""
_HOLD_MORE: Final = frozenset({"tools", "plugins"})
"""Parts of a definition that hold what another option has brought along, too."""


def resume_request(
    origin: Origin,
    new_id: str | None,
    old: AgentSpec,
    group_id: str | None,
    given: dict[str, Any],  # Any: see ``Options``
) -> StartSession:
    """Return the request that starts a session from ``origin``.

    Raises:
        InvalidOptions: ``problems`` has one line for each wrong field.
        InvalidTool: a tool cannot travel.
        SandboxUnavailable: one that confines is required, and none is there.
    """
    refused = [f"{name}: {why}" for name, why in NOT_RESUMED.items() if name in given]
    if refused:
        raise InvalidOptions(refused)
    session_id = origin.session_id if new_id is None else new_id
    known = {name: value for name, value in _known(old).items() if name not in given}
    merged = {"model": old.model, **known, **given, "session_id": session_id}
    options = parse(None, merged, refused_parts)
    fresh = agent_spec(options)
    changes = _changes(given, options)
    kept = {
        name: getattr(fresh, name)
        for name in AgentSpec.__struct_fields__
        if name in changes or (name in FIELDS and name not in _STAYS)
    }
    if given.get("config") is not None:
        kept["config_facts"] = fresh.config_facts
    kept |= {name: _with_own(name, old, given, kept[name]) for name in _HOLD_MORE & kept.keys()}
    spec = msgspec.structs.replace(
        old,
        **kept,
        supervision=fresh.supervision,
        resumed=Resumption(id=new_command_id(), changes=tuple(sorted(changes))),
    )
    check_sandbox(spec)
    return StartSession(
        session_id=SessionId(session_id),
        supervision=spec.supervision,
        agent=agent_bytes(spec),
        carries_code=carries_code(spec),
        group_id=options.group_id if "group_id" in given else group_id,
        origin=origin,
        start_id=new_command_id(),
        keys=session_keys(options, spec),
        own_checkpoints=spec.checkpoint_backend is not None,
    )


def check_free(origin: Origin, new_id: str | None, *, is_alive: bool) -> None:
    """Refuse to have a live session twice.

    Raises:
        InvalidOptions: no session can be called ``new_id``.
        SessionExists: it is alive, and no other id was given.
    """
    given: object = new_id
    if given is not None and not (isinstance(given, str) and is_session_id(given)):
        raise InvalidOptions([f"new_id: expected {SESSION_ID_RULE}, got {short(given)}"])
    if is_alive and new_id in (None, origin.session_id):
        raise SessionExists(
            f"session {origin.session_id!r} is alive: give new_id to fork it, or stop it first"
        )


def definition_of(agent: bytes | msgspec.Raw) -> AgentSpec:
    """Return the definition of an agent.

    Raises:
        ProtocolError: it is that of another program.
    """
    spec: AgentSpec = codec.decode_as(AgentSpec, agent)
    return spec


def _known(old: AgentSpec) -> dict[str, Any]:
    """Return the options that a definition holds as they were given."""
    own = {name: getattr(old, name) for name in AgentSpec.__struct_fields__ if name in FIELDS}
    own["user_data"] = unpacked(old.user_data)
    kept_by = {name: getattr(old.supervision, name) for name in Supervision.__struct_fields__}
    plain = {name: value for name, value in {**own, **kept_by}.items() if name not in _STAYS}
    return {
        name: list(value) if isinstance(value, tuple) and name != "restart_delay" else value
        for name, value in plain.items()
    }


def _with_own(
    part: str,
    old: AgentSpec,
    given: dict[str, Any],  # Any: see ``Options``
    fresh: tuple[Packed, ...],
) -> tuple[Packed, ...]:
    """Return what was given anew of ``part``, with what options that stay have brought along.

    Raises:
        InvalidOptions: it takes the strategy's place.
    """
    own = [one for one in getattr(old, part) if one.label == STRATEGY_TOOL]
    others = {one.ref for one in fresh}
    brought = [
        one
        for one in getattr(old, part)
        if one.ref in (*OF_SKILLS, TRANSFER_TOOL) or one.label == MEMORY_LABEL
    ]
    kept = [one for one in brought if one.ref not in others]
    has_kinds = any(one.name != GENERAL_PURPOSE.name for one in old.subagents)
    if part == "tools" and has_kinds and "subagents" not in given:
        there = {one.ref for one in fresh}
        own += [one for one in old.tools if one.ref == TASK_TOOL and TASK_TOOL not in there]
    if part == "plugins" and {one.ref for one in own} & {one.ref for one in fresh}:
        raise InvalidOptions(
            ["plugins: the session has a strategy of its own: leave Reasoning out"]
        )
    return (*fresh, *own, *kept)


def _changes(given: dict[str, Any], options: Options) -> frozenset[str]:
    """Return which options of another form are changed."""
    changes = _STAYS & given.keys()
    says_how = given.get("config") is not None and bool(options.provider_opts)
    if says_how or isinstance(given.get("model"), ModelSource):  # it brings the way to reach it
        changes |= {"provider_opts"}
    return changes - {"group_id"}
