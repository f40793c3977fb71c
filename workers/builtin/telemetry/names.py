"""Names of OpenTelemetry's semantic conventions for generative AI, and of what we add to them.

They stand here as words, since the package that has them calls them incubating and may move them; a
test compares them with it. Ours begin with ``cmdc.``.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from cmdc_runtime.reasons import AnyReason

# --- operations: https://opentelemetry.io/docs/specs/semconv/gen-ai/ ----------------------------
INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"
# ours:
REASON: Final = "reason"
BRANCH: Final = "branch"

# --- attributes ---------------------------------------------------------------------------------
CONVERSATION_ID: Final = "gen_ai.conversation.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OPERATION: Final = "gen_ai.operation.name"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105 - these tokens are no secrets
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
TOOL_TYPE: Final = "gen_ai.tool.type"
USAGE_CACHED: Final = "gen_ai.usage.cache_read.input_tokens"
USAGE_INPUT: Final = "gen_ai.usage.input_tokens"
USAGE_OUTPUT: Final = "gen_ai.usage.output_tokens"
ERROR_TYPE: Final = "error.type"
OTHER_ERROR: Final = "_OTHER"
"""The type of an error that has no name."""

# --- events of spans: the names that CMDC gives to its telemetry --------------------------------
AGENT_TURN: Final = "agent.turn"
COMPACTOR_RUN: Final = "compactor.run"
LLM_REQUEST: Final = "llm.request"
PLUGIN_CRASH: Final = "plugin.crash"
PLUGIN_PIPELINE: Final = "plugin.pipeline"
SESSION_RESTART: Final = "session.restart"
SUBAGENT_RUN: Final = "subagent.run"
TOOL_EXEC: Final = "tool.exec"
# --- and ours -----------------------------------------------------------------------------------
LLM_RETRY: Final = "llm.retry"
LOOP_DETECTED: Final = "loop.detected"
REASONING_PRUNE: Final = "reasoning.prune"
REASONING_SCORE: Final = "reasoning.score"
REASONING_THOUGHT: Final = "reasoning.thought"

# --- metrics ------------------------------------------------------------------------------------
OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
OPERATION_TIME_TO_FIRST_CHUNK: Final = "gen_ai.client.operation.time_to_first_chunk"
TOKEN_USAGE: Final = "gen_ai.client.token.usage"  # noqa: S105 - these tokens are no secrets
COST: Final = "cmdc.cost"
AGENT_TURN_DURATION: Final = "cmdc.agent.turn.duration"
COMPACTOR_RUNS: Final = "cmdc.compactor.runs"
PLUGIN_ACTIONS_IGNORED: Final = "cmdc.plugin.actions.ignored"
PLUGIN_CRASHES: Final = "cmdc.plugin.crashes"
PLUGIN_PIPELINE_DURATION: Final = "cmdc.plugin.pipeline.duration"
REASONING_RUN_DURATION: Final = "cmdc.reasoning.run.duration"
SESSION_RESTARTS: Final = "cmdc.session.restarts"
SUBAGENT_RUNS: Final = "cmdc.subagent.runs"
TOOL_EXEC_DURATION: Final = "cmdc.tool.exec.duration"


class Instrument(NamedTuple):
    """How one metric is kept."""

    kind: Literal["counter", "histogram"]
    unit: str
    description: str
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram."""


# The conventions advise both: powers of two from 10 ms, powers of four from one token.
_SECONDS: Final = tuple(round(0.01 * 2**power, 2) for power in range(14))
_MINUTES: Final = tuple(round(0.01 * 2**power, 2) for power in range(19))
_TOKENS: Final = tuple(float(4**power) for power in range(14))
_QUICK: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)

# fmt: off
_INSTRUMENTS: Final = {
    OPERATION_DURATION: Instrument(
        "histogram", "s", "Time of a request to a model.", _SECONDS),
    OPERATION_TIME_TO_FIRST_CHUNK: Instrument(
        "histogram", "s", "Time until a model's answer begins.", _SECONDS),
    TOKEN_USAGE: Instrument(
        "histogram", "{token}", "Tokens of a request to a model.", _TOKENS),
    COST: Instrument("counter", "USD", "Price of requests, where it is known."),
    AGENT_TURN_DURATION: Instrument(
        "histogram", "s", "Time of a cycle, from its prompt to its end.", _MINUTES),
    COMPACTOR_RUNS: Instrument("counter", "{run}", "Compactions of conversations."),
    PLUGIN_ACTIONS_IGNORED: Instrument(
        "counter", "{action}", "Actions that their hooks do not take."),
    PLUGIN_CRASHES: Instrument("counter", "{crash}", "Crashes of plugins."),
    PLUGIN_PIPELINE_DURATION: Instrument(
        "histogram", "s", "Time that all plugins took at one hook.", _QUICK),
    REASONING_RUN_DURATION: Instrument(
        "histogram", "s", "Time of a run of a reasoning strategy.", _MINUTES),
    SESSION_RESTARTS: Instrument("counter", "{restart}", "New processes after a crash."),
    SUBAGENT_RUNS: Instrument("counter", "{run}", "Subagents that are done."),
    TOOL_EXEC_DURATION: Instrument("histogram", "s", "Time of a tool call.", _MINUTES),
}
# fmt: on
INSTRUMENTS: Final[Mapping[str, Instrument]] = MappingProxyType(_INSTRUMENTS)
"""Every metric by its name."""

_PROVIDERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "azure": "azure.ai.openai",
        "azure_ai": "azure.ai.inference",
        "bedrock": "aws.bedrock",
        "gemini": "gcp.gemini",
        "mistral": "mistral_ai",
        "vertex_ai": "gcp.vertex_ai",
        "watsonx": "ibm.watsonx.ai",
        "xai": "x_ai",
    }
)
"""litellm's names of providers, where the conventions have others."""
_MODEL: Final = re.compile(r"(?P<provider>[^:/]+)[:/](?P<model>.+)", re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z_]\w{0,63}(?=: |\(|$)", re.ASCII)
_LIMITS: Final = frozenset(
    {
        "context_overflow",
        "crashed",
        "loop_detected",
        "max_cost_usd_exceeded",
        "max_total_tokens_exceeded",
        "max_turns_exceeded",
        "provider_timeout",
    }
)


def provider_of(model: str) -> str:
    """Return the provider in the words of the conventions, "_OTHER" where none is named."""
    found = _MODEL.fullmatch(model)
    return _PROVIDERS.get(found["provider"], found["provider"]) if found else OTHER_ERROR


def model_id_of(model: str) -> str:
    """Return the model without its provider."""
    found = _MODEL.fullmatch(model)
    return found["model"] if found else model


def word_of(reason: object) -> str | None:
    """Return the one word that a reason is or begins with, as in ``"Timeout: after 3 s"``.

    Texts of errors may quote a prompt or a result, so only this much of them is shown; None is a
    reason that is a sentence, or data.
    """
    found = _WORD.match(reason) if isinstance(reason, str) else None
    return found[0] if found else None


def is_failure(reason: object) -> bool:
    """Say whether a cycle was aborted because of a limit, and not by a person or a program."""
    return word_of(reason) in _LIMITS


def kind_of(reason: AnyReason) -> str:
    """Return what kind of end a process had, without any text of an exception."""
    return str(reason.__struct_config__.tag)
