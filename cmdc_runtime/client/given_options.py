# Made by `make sync` of cmdc_runtime/options.py: change that, not this.
"""What ``create_agent`` and ``resume_session`` take, for type checkers."""

from os import PathLike
from typing import Any, TypedDict

from cmdc_runtime.checked_struct import (
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
from cmdc_runtime.client.option_types import (
    AnyBlueprint,
    AnyGuardrail,
    AnyMessage,
    AnyModel,
    AnyPlugin,
    AnyRedaction,
    AnyStrategy,
    AnyTool,
    Several,
)
from cmdc_runtime.config import Config
from cmdc_runtime.handoff import Handoff
from cmdc_runtime.mcp_servers import McpServer
from cmdc_runtime.options import (
    Code,
    ExitCondition,
    PromptMode,
)
from cmdc_runtime.requests import RestartType
from cmdc_runtime.subagent import SubAgent


class ChangedOptions(TypedDict, total=False):
    """What ``resume_session`` may change. Times are seconds; costs are US dollars."""

    # "provider:model_id", a dict with provider and id, or a ModelSource
    model: AnyModel | None
    # before the runtime's own; None: what messages has of one
    system_prompt: str | None
    # tools, decorated functions, classes or "module:name"
    tools: Several[AnyTool]
    # plugins, classes, (class, options) or "module:Class"
    plugins: Several[AnyPlugin]
    # whose tools the model may call; started when needed
    mcp_servers: list[McpServer]
    # where tools work; relative paths start there
    working_dir: str | PathLike[str]
    # where tools reach files and run commands; None: cmdc.sandbox.Local()
    sandbox: Any
    # only one that commands can't leave will do
    require_sandbox: bool
    # for the model: api_base, temperature, via …
    provider_opts: dict[str, Any]
    # of one's own: a class, object, function or "module:Class" that streams
    provider: Any
    # of the model's provider, or a dict by provider; it is not journaled
    api_key: Any
    # give the session this process's keys of its models' providers
    send_keys: bool
    # how much the runtime adds to the system prompt
    prompt_mode: PromptMode
    # a Config: model, tools and provider_opts where nothing else gives them
    config: Config | None
    # SubAgent: what the task tool may start
    subagents: Several[SubAgent]
    # a JSON Schema, or a msgspec or pydantic type
    response_format: Any
    # of tools and plugins named by module: changed, it parks; latest: it runs
    code: Code
    # functions that look at a prompt beside its first request
    input_guardrails: Several[AnyGuardrail]
    # functions that look at the answer that ends a cycle
    output_guardrails: Several[AnyGuardrail]
    # a function of a state, or "module:name": what a checkpoint keeps of it
    redact: AnyRedaction | None
    # keeps checkpoints: a class, object or "module:Class"
    checkpoint_backend: Any
    # the application's own, for tools, plugins and subagents
    user_data: dict[str, Any]
    # sessions that are followed together; subagents inherit it
    group_id: str | None
    # requests in one cycle
    max_turns: Positive
    # of one answer; None: the provider decides
    max_tokens: Positive | None
    # of the session and its subagents, over its life
    max_cost_usd: Cost | None
    # the same, in tokens
    max_total_tokens: Positive | None
    # that wait for the running cycle; QueueFull beyond
    max_queued_prompts: Count
    # that wait until a turn is over; QueueFull beyond
    max_steering_queue: Count
    # run on
    interrupt_immune_tools: Several[str]
    # calls of one answer at a time
    max_parallel_tools: Positive
    # of one call, unless its tool says otherwise
    tool_timeout: Moment
    # of one cycle, all its waits included; it is aborted
    cycle_timeout: Moment | None
    # environment variables that calls in processes get, too
    tool_env: Several[str]
    # tools with effects "read" or "idempotent" only
    tool_max_retries: Count
    # of one request to the model
    max_retries: Count
    # before the first retry; it doubles from there
    retry_base_delay: Seconds
    # no retry waits longer
    retry_max_delay: Seconds
    # share of the delay added at random
    retry_jitter: Share
    # without a piece of the answer: stream_stalled, and again
    stall_after: Moment
    # the same, longer: the request is given up and retried
    stall_timeout: Moment
    # equal calls in a row, or pairs: the model is warned
    loop_threshold: Loops
    # the cycle is aborted
    loop_abort: Loops
    # that may be called over and over
    loop_exempt_tools: Several[str]
    # what ends the process, and so the session, for good
    exit_on: Several[ExitCondition]
    # subagents at a time
    max_children: Positive
    # subagents over the session's life
    max_spawns: Positive
    # levels of subagents below this session
    max_depth: Depth
    # transient: only after a crash
    restart: RestartType
    # within max_seconds; one more ends the session
    max_restarts: Count
    # the window of max_restarts
    max_seconds: Moment
    # first and longest
    restart_delay: tuple[float, float]
    # to end politely before SIGKILL; None: no limit
    shutdown: Seconds | None
    # until the agent must be up
    start_timeout: Moment
    # a cycle that kills its process so often is given up
    max_cycle_crashes: Positive
    # idle seconds until the process is given up
    hibernate_after: Moment | None
    # without a sign of life: the process is killed
    unresponsive_after: Silence
    # of all its processes together; more ends it
    memory_limit: int | str | None
    # cores, as 0.5
    cpu_limit: Cores | None
    # threads count too
    max_processes: Processes | None
    # of one process
    max_open_files: OpenFiles | None
    # for replay; 0: none
    event_buffer_size: RingEvents


class GivenOptions(ChangedOptions, total=False):
    """What ``create_agent`` takes. Times are seconds; costs are US dollars."""

    # made up if None
    session_id: str | None
    # history
    messages: Several[AnyMessage]
    # a Blueprint class or struct: what is given here outranks it
    blueprint: AnyBlueprint | None
    # Handoff: agents that the model may give the session over to
    handoffs: Several[Handoff | SubAgent | AnyBlueprint | str]
    # memory files, shown in the system prompt; those of folders come along
    memory: list[Any]
    # folders of skills, or (word, folder); the last one outranks
    skills_dirs: list[Any]
    # thinks in the model's place: a name, class, instance or pair
    reasoning_strategy: AnyStrategy | None
