"""A subagent's definition: what it says itself, and else what the session has that starts it.

``child_request`` makes both into the request that starts it. What of a parent's definition a
subagent does not have stands in ``_child_spec``; everything else it has.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from cmdc_runtime.ids import SessionId
from cmdc_runtime.knowledge import with_skills
from cmdc_runtime.mcp_servers import McpServer
from cmdc_runtime.packing import Packed
from cmdc_runtime.packing.client_tools import without
from cmdc_runtime.provider_options import model_parts
from cmdc_runtime.requests import StartSession
from cmdc_runtime.spec import AgentSpec, Resumption, carries_code
from cmdc_runtime.subagent import STARTERS, STRATEGY_TOOL, TRANSFER_TOOL, SubagentSpec
from cmdc_runtime.wire import codec

_FORKED: Final = Resumption(id="fork", changes=("model", "plugins", "provider_opts", "tools"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """A session that starts a subagent; model, tools, servers, plugins and group are as of now."""

    session_id: SessionId
    spec: AgentSpec
    model: str
    provider_opts: dict[str, Any]  # Any: litellm's own arguments
    tools: tuple[Packed, ...]
    plugins: tuple[Packed, ...]
    group_id: str | None
    mcp_servers: tuple[McpServer, ...] = ()
    trace_parent: str | None = None
    """The span of what starts it: a call's, a branch's or the cycle's."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys of providers that it was given, and gives on."""


@dataclass(frozen=True, slots=True)
class Branching:
    """What a branch of a call has otherwise than a subagent of its kind; None: as that has it."""

    model: str | None = None
    response_format: dict[str, Any] | None = None  # Any: a JSON Schema
    forks: bool = False
    """It begins with a saved conversation, and has everything else as any branch."""


def child_request(  # noqa: PLR0913 - what it may spend is two numbers
    parent: Parent,
    child_id: SessionId,
    subagent: SubagentSpec,
    *,
    max_total_tokens: int | None = None,
    max_cost_usd: float | None = None,
    branching: Branching | None = None,
) -> StartSession:
    """Return the request that starts a subagent: what it says, and else what its parent has.

    The conversation, the response format, the call that opens a cycle, the budgets and what may
    end the parent's process are not inherited. A subagent is never restarted, since its parent
    waits for it, or hibernated.
    """
    spec = _child_spec(parent, subagent)
    if branching is not None:
        spec = _branch_spec(parent, subagent, branching)
    limited = msgspec.structs.replace(
        spec, max_total_tokens=max_total_tokens, max_cost_usd=max_cost_usd
    )
    group_id = parent.group_id if subagent.group_id is None else subagent.group_id
    return StartSession(
        session_id=child_id,
        supervision=limited.supervision,
        agent=codec.raw(limited),
        carries_code=carries_code(limited),
        parent_id=parent.session_id,
        group_id=group_id,
        keys=dict(parent.keys),
        own_checkpoints=limited.checkpoint_backend is not None,
    )


def _child_spec(parent: Parent, subagent: SubagentSpec) -> AgentSpec:
    spec = parent.spec
    tools = parent.tools if subagent.tools is None else subagent.tools
    tools = tuple(one for one in without(tools) if not _is_own(one))
    plugins = parent.plugins if subagent.plugins is None else subagent.plugins
    tools, plugins = with_skills((*parent.plugins, *parent.tools), subagent, tools, plugins)
    may_delegate = spec.depth + 1 < spec.max_depth
    own_prompt = subagent.system_prompt is not None
    return msgspec.structs.replace(
        spec,
        model=subagent.model or parent.model,
        provider_opts=_child_opts(parent, subagent),
        system_prompt=subagent.system_prompt if own_prompt else spec.system_prompt,
        identity="" if own_prompt else spec.identity,
        tools=tools if may_delegate else _without_starters(tools),
        plugins=tuple(one for one in plugins if one.label != STRATEGY_TOOL),
        subagents=spec.subagents if may_delegate else (),
        user_data=spec.user_data if subagent.user_data is None else subagent.user_data,
        prompt_mode=subagent.prompt_mode or spec.prompt_mode,
        max_turns=subagent.max_turns or spec.max_turns,
        messages=(),
        mcp_servers=parent.mcp_servers if subagent.tools is None else (),
        response_format=None,
        handoffs=(),
        input_guardrails=(),
        output_guardrails=(),
        exit_on=(),
        depth=spec.depth + 1,
        resumed=None,
        opening_call=None,
        trace_parent=parent.trace_parent,
        hibernate_after=None,
        supervision=msgspec.structs.replace(spec.supervision, restart="temporary"),
    )


def _is_own(tool: Packed) -> bool:
    """Say whether a tool is of the session's own cycles: its strategy, a way to hand it over."""
    return tool.label == STRATEGY_TOOL or tool.ref == TRANSFER_TOOL


def _branch_spec(parent: Parent, subagent: SubagentSpec, branching: Branching) -> AgentSpec:
    """Return the definition of a branch, which starts no sessions of its own."""
    if branching.model is not None:
        subagent = msgspec.structs.replace(subagent, model=branching.model, provider_opts=None)
    spec = _child_spec(parent, subagent)
    tools = _without_starters(spec.tools)
    return msgspec.structs.replace(
        spec,
        tools=tools,
        subagents=(),
        response_format=branching.response_format,
        resumed=_FORKED if branching.forks else None,
    )


def _child_opts(parent: Parent, subagent: SubagentSpec) -> dict[str, Any]:
    if subagent.provider_opts is not None:
        return subagent.provider_opts
    model = subagent.model or parent.model
    # One provider's key must not be sent to another.
    return parent.provider_opts if model_parts(model)[0] == model_parts(parent.model)[0] else {}


def _without_starters(tools: Iterable[Packed]) -> tuple[Packed, ...]:
    """Return the tools without those that start sessions."""
    return tuple(tool for tool in tools if tool.ref not in STARTERS)
