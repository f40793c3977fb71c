"""What a request to the model holds besides the conversation, as it stands at that moment.

Tools and options may change while a session lives, so the system prompt and the schemas are made
anew for each request.
"""

from cmdc_runtime.extensions.context import ToolContext
from cmdc_runtime.extensions.kernel_emits import SYSTEM_MESSAGE_ID
from cmdc_runtime.extensions.provider import ModelRequest, ToolSpec
from cmdc_runtime.messages import OWN_PROMPT_CHARS, Message
from cmdc_runtime.spec import AgentSpec
from workers.core.budget import estimate_tokens
from workers.core.compaction import SUMMARY_SYSTEM, chars, summary_request
from workers.core.expense import answer_tokens_max, side_answer_max
from workers.core.state import Memory
from workers.core.step import CallModel, Summarize
from workers.core.system_prompt import PromptMode, PromptParts, system_prompt
from workers.effects.tools import ToolRunner


def system_of(
    spec: AgentSpec, tools: tuple[ToolSpec, ...] = (), memory: Memory | None = None
) -> str:
    """Return the system prompt of a session with these tools; empty with nothing to say."""
    parts = PromptParts(
        user=spec.system_prompt or "",
        tools=tools,
        identity=spec.identity,
        memory=() if memory is None else memory.memory_contents,
        sections=() if memory is None else memory.sections,
    )
    return system_prompt(PromptMode(spec.prompt_mode), parts)


class Requests:
    """Makes the requests of one session."""

    def __init__(self, spec: AgentSpec, tools: ToolRunner) -> None:
        """Make them of what ``spec`` says and of the tools that there are."""
        self._spec = spec
        self._tools = tools
        subagents = tuple((one.name, one.description) for one in spec.subagents)
        self._where = ToolContext(working_dir=spec.working_dir, subagents=subagents)

    def system_message(self, memory: Memory) -> Message:
        """Return the system prompt as of now; its text is empty where there is nothing to say."""
        own = (self._spec.system_prompt or "").strip()
        return Message(
            id=SYSTEM_MESSAGE_ID,
            role="system",
            content=system_of(self._spec, self._tools.specs(self._where), memory),
            metadata={**memory.system_metadata, OWN_PROMPT_CHARS: len(own)},
        )

    def answer(self, call: CallModel, memory: Memory) -> ModelRequest:
        """Return the request for the next answer."""
        tools = self._tools.specs(self._where)
        return ModelRequest(
            model=call.model,
            system=system_of(self._spec, tools, memory),
            system_metadata=memory.system_metadata,
            messages=call.messages,
            tools=tools,
            max_tokens=answer_tokens_max(memory),
            response_format=self._spec.response_format,
            provider_opts=memory.provider_opts,
            former_opts=memory.former_opts,
        )

    def summary(self, wanted: Summarize, memory: Memory) -> ModelRequest:
        """Return the request for a summary of the messages that are to go."""
        window = memory.policy.window_of(wanted.model)
        messages: tuple[Message, ...] = summary_request(wanted.messages, window)
        tokens = estimate_tokens(len(SUMMARY_SYSTEM) + sum(map(chars, messages)))
        return ModelRequest(
            model=wanted.model,
            system=SUMMARY_SYSTEM,
            messages=messages,
            max_tokens=side_answer_max(memory, wanted.model, tokens),
            provider_opts=memory.provider_opts,
            former_opts=memory.former_opts,
        )
