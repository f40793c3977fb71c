"""An agent's definition as it travels and is journaled: ``AgentSpec``, made from ``Options``.

The daemon never opens it. A restarted agent is built from the same bytes, code included.
"""

import os
from typing import Any

import msgspec

from cmdc_runtime.messages import Message
from cmdc_runtime.options import ModelSource, Options
from cmdc_runtime.packing import Packed, pack
from cmdc_runtime.requests import Supervision


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an agent is built from; the fields are those of ``Options``."""

    model: str
    system_prompt: str | None
    tools: tuple[Packed, ...]
    working_dir: str
    provider_opts: dict[str, Any]  # Any: litellm's own arguments
    prompt_mode: str
    messages: tuple[Message, ...]
    user_data: dict[str, Any]  # Any: the application's own
    max_turns: int
    max_tokens: int | None
    max_queued_prompts: int
    max_parallel_tools: int
    tool_timeout: float
    tool_max_retries: int
    max_retries: int
    retry_base_delay: float
    retry_max_delay: float
    retry_jitter: float
    stall_after: float
    stall_timeout: float
    max_cycle_crashes: int


_CONVERTED = frozenset({"model", "tools", "working_dir", "provider_opts", "messages"})


def agent_spec(options: Options) -> AgentSpec:
    """Return the definition that ``options`` describe, with its tools packed.

    Raises:
        InvalidTool: a tool cannot travel; the message names it.
    """
    model, provider_opts = _model(options)
    copied = {
        name: getattr(options, name)
        for name in AgentSpec.__struct_fields__
        if name not in _CONVERTED
    }
    return AgentSpec(
        model=model,
        tools=tuple(pack(tool, label=f"tools[{at}]") for at, tool in enumerate(options.tools)),
        working_dir=os.path.abspath(options.working_dir),  # noqa: PTH100 - no link is resolved
        provider_opts=provider_opts,
        messages=tuple(options.messages),
        **copied,
    )


def supervision(options: Options) -> Supervision:
    """Return how the daemon is to keep the session that ``options`` describe."""
    return Supervision(**{name: getattr(options, name) for name in Supervision.__struct_fields__})


def _model(options: Options) -> tuple[str, dict[str, Any]]:
    if isinstance(options.model, ModelSource):
        name, opts = options.model.model_source()
        return name, {**opts, **options.provider_opts}
    return str(options.model), dict(options.provider_opts)
