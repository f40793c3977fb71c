"""An agent from its definition: tools loaded, prompt assembled, parts wired. No logic."""

from collections.abc import Callable
from dataclasses import dataclass

from cmdc_runtime.errors import InvalidTool
from cmdc_runtime.extensions.context import ToolContext
from cmdc_runtime.extensions.provider import Provider
from cmdc_runtime.extensions.tool import Tool
from cmdc_runtime.frames import Assign
from cmdc_runtime.spec import AgentSpec
from workers.agent import Agent
from workers.core.retry import Backoff
from workers.core.state import Memory, Policy
from workers.core.system_prompt import PromptMode, system_prompt
from workers.effects.model import CallSettings, ModelCaller
from workers.effects.publish import Publisher
from workers.effects.tools import REPEATABLE, ToolRunner, ToolSettings
from workers.link import Link
from workers.loader import LoadError, load_provider, load_tools

PROVIDER = "litellm"


class BuildError(Exception):
    """The definition can't be made into an agent, now or later."""


@dataclass(frozen=True, slots=True)
class Built:
    """What an agent needs besides its memory."""

    assign: Assign
    spec: AgentSpec
    policy: Policy
    tools: tuple[Tool, ...]
    provider: Provider
    link: Link
    on_crash: Callable[[BaseException], None]

    def with_memory(self, memory: Memory) -> Agent:
        """Return the agent, wired and at rest."""
        link, publisher = (
            self.link,
            Publisher(self.assign.next_index, self.link.publish),
        )
        agent = Agent(self.assign, memory, link, publisher)
        model = ModelCaller(self.provider, self._call_settings(), agent.post, link.room)
        runner = ToolRunner(self.tools, self._tool_settings(), agent.post, link.synced)
        agent.equip(model, runner, self.on_crash)
        return agent

    def _call_settings(self) -> CallSettings:
        spec = self.spec
        where = ToolContext(working_dir=spec.working_dir)
        return CallSettings(
            system_prompt=self.policy.system_prompt,
            tools=tuple(tool.spec(where) for tool in self.tools),
            provider_opts=spec.provider_opts,
            max_tokens=spec.max_tokens,
            stall_after_s=spec.stall_after,
            stall_timeout_s=spec.stall_timeout,
        )

    def _tool_settings(self) -> ToolSettings:
        spec, assign = self.spec, self.assign
        return ToolSettings(
            session_id=assign.session_id,
            incarnation=assign.incarnation,
            group_id=assign.group_id,
            working_dir=spec.working_dir,
            user_data=spec.user_data,
            parallel_max=spec.max_parallel_tools,
            timeout_s=spec.tool_timeout,
            retries_max=spec.tool_max_retries,
        )


def build_agent(
    assign: Assign, spec: AgentSpec, link: Link, *, on_crash: Callable[[BaseException], None]
) -> Built:
    """Load what ``spec`` names.

    Raises:
        BuildError: a tool can't be loaded; the message names it.
    """
    try:
        tools = load_tools(list(spec.tools))
        provider = load_provider(PROVIDER)
    except (LoadError, InvalidTool) as error:
        raise BuildError(str(error)) from error
    return Built(
        assign=assign,
        spec=spec,
        policy=policy_of(spec, tools),
        tools=tools,
        provider=provider,
        link=link,
        on_crash=on_crash,
    )


def first_memory(spec: AgentSpec, policy: Policy) -> Memory:
    """Return the memory that the session was created with."""
    return Memory(policy=policy, model=spec.model, messages=spec.messages)


def policy_of(spec: AgentSpec, tools: tuple[Tool, ...]) -> Policy:
    """Return what the tables need of the options."""
    where = ToolContext(working_dir=spec.working_dir)
    prompt = system_prompt(
        PromptMode(spec.prompt_mode), spec.system_prompt, [tool.spec(where) for tool in tools]
    )
    return Policy(
        max_turns=spec.max_turns,
        max_queued_prompts=spec.max_queued_prompts,
        max_retries=spec.max_retries,
        max_cycle_crashes=spec.max_cycle_crashes,
        backoff=Backoff(spec.retry_base_delay, spec.retry_max_delay, spec.retry_jitter),
        system_prompt=prompt,
        repeatable=frozenset(tool.name for tool in tools if tool.effects in REPEATABLE),
    )
