"""What plugins may ask of their session while they are being asked: a model, a subagent.

A plugin's wait ends with its hook, so an abort ends it too. What a model call took is counted; a
subagent ends with the wait for it, or with the cycle.
"""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cmdc_runtime.extensions.plugin_context import Completion, PluginCallError
from cmdc_runtime.extensions.provider import ModelRequest, ProviderError
from cmdc_runtime.extensions.tool import ToolError
from cmdc_runtime.messages import Message
from workers.core.expense import over_budget
from workers.core.inputs import DelegationDropped, PluginAskedModel, PluginDelegated, Result
from workers.core.state import Memory
from workers.effects.asking import Asker
from workers.effects.tool_port import Answers
from workers.intake import fit

CALLS_MAX: Final = 100
"""Model calls and subagents of one plugin at one hook."""


@dataclass(slots=True)
class PluginPorts:
    """Makes the ports of one session's plugins."""

    asker: Asker
    post: Callable[[Result], None]
    memory: Callable[[], Memory]
    answers: Answers = field(default_factory=Answers)
    _refs: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def of(self, plugin: str) -> "Port":
        """Return a port for one plugin at one hook."""
        return Port(self, plugin)

    def give(self, ref: str, value: Any, error: str | None) -> None:
        """Answer the wait of ``ref`` (Any: what was asked for), or have it raise an error."""
        self.answers.give(ref, value, error)

    def next_ref(self, plugin: str) -> str:
        """Return a reference that no other wait of this process has."""
        return f"plugin:{plugin}-{next(self._refs)}"


class Port:
    """See ``PluginPort`` for what the methods promise."""

    def __init__(self, ports: PluginPorts, plugin: str) -> None:
        """Belong to the running loop."""
        self._ports, self._plugin = ports, plugin
        self._loop = asyncio.get_running_loop()
        self._calls = 0

    async def complete(
        self,
        prompt: str | Sequence[Message],
        *,
        system: str = "",
        model: str | None = None,
        provider_opts: dict[str, Any] | None = None,  # Any: litellm's own arguments
        response_format: dict[str, Any] | None = None,  # Any: a JSON Schema
    ) -> Completion:
        """Ask a model once."""
        self._count()
        memory = self._ports.memory()
        if reason := over_budget(memory):
            raise PluginCallError(f"no model was asked: {reason}")
        own = memory.provider_opts if model is None else {}
        asked = [Message.user(prompt)] if isinstance(prompt, str) else prompt
        request = ModelRequest(
            model=model or memory.model,
            messages=tuple(asked),
            system=system,
            response_format=response_format,
            provider_opts={**own, **(provider_opts or {})},
        )
        try:
            text, usage = await self._ports.asker.ask(request, "answer")
        except ProviderError as error:
            raise PluginCallError(fit(error.reason)) from error
        self._ports.post(PluginAskedModel(self._plugin, request.model, usage))
        return Completion(text=text, usage=usage)

    async def delegate(self, description: str, subagent_type: str) -> str:
        """Let a subagent do a task."""
        self._count()
        ports, ref = self._ports, self._ports.next_ref(self._plugin)
        wanted = PluginDelegated(self._plugin, ref, fit(str(subagent_type)), fit(str(description)))
        try:
            return str(await ports.answers.of(ref, lambda: ports.post(wanted)))
        except ToolError as error:
            raise PluginCallError(str(error)) from error
        except asyncio.CancelledError:
            ports.post(DelegationDropped(ref))
            raise

    def _count(self) -> None:
        try:
            is_home = asyncio.get_running_loop() is self._loop
        except RuntimeError:  # a thread without a loop
            is_home = False
        if not is_home:
            raise PluginCallError('only "async def" methods can ask their session')
        self._calls += 1
        if self._calls > CALLS_MAX:
            raise PluginCallError(f"a plugin may ask its session {CALLS_MAX} times at one hook")
