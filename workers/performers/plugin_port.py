"""The session's plugins while it lives: what they may ask of it, and how a new one comes in.

They may ask for a model, a subagent, a checkpoint. A plugin's wait ends with its hook, so an abort
ends it too. What a model call took is counted; a subagent ends with the wait for it, or with the
cycle. Who observes asks for checkpoints and publishes events, no more.

``PluginLoader`` carries out ``LoadPlugin`` and ``ChangePlugins``. The plugin is opened in a thread,
since foreign code runs then, and runs ``session_start`` as at the start of a session.
"""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cmdc_runtime.answer_schema import schema_problem
from cmdc_runtime.checkpoints import Snapshot, checkpoint_facts
from cmdc_runtime.commands import AttachPlugin
from cmdc_runtime.errors import CmdcError
from cmdc_runtime.extensions.actions import KERNEL_EMITS, BadActionError, Emit
from cmdc_runtime.extensions.context import Completion, PluginCallError
from cmdc_runtime.extensions.plugin import Plugin, hooks_of
from cmdc_runtime.extensions.provider import ModelRequest, ProviderError
from cmdc_runtime.extensions.tool import ToolError
from cmdc_runtime.ids import CommandId
from cmdc_runtime.messages import Message
from cmdc_runtime.option_checks import Unfit, check_provider_opts
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.plain import mended
from cmdc_runtime.provider_options import model_problem
from workers.core.budget import estimate_tokens
from workers.core.compaction import chars
from workers.core.expense import over_budget, side_answer_max
from workers.core.inputs import (
    DelegationDropped,
    PluginAskedModel,
    PluginDelegated,
    PluginLoaded,
    PluginsReported,
    Result,
)
from workers.core.state import Memory, PluginFacts
from workers.core.step import ChangePlugins
from workers.core.verdict import Verdict, with_user_data
from workers.loader import LoadError, load_plugins, with_code
from workers.performers.checkpoints import Checkpoints
from workers.performers.model import Asker
from workers.performers.tool_port import Answers
from workers.performers.toolbox import CodeOpener
from workers.pipeline import Pipeline
from workers.plugin_slot import Slot

# --- plugins that come ----------------------------------------------------------------------------

LOAD_S: Final = 30.0
"""For what a plugin's modules and its constructor do."""


class PluginLoader:
    """Opens plugins of one session and puts them into its pipeline."""

    def __init__(
        self,
        plugins: Pipeline,
        post: Callable[[Result], None],
        opener: CodeOpener | None = None,
    ) -> None:
        """Post ``PluginLoaded`` by ``post``; ``opener`` is the session's."""
        self._plugins = plugins
        self._post = post
        self._opener = opener or CodeOpener()
        self._loaded: dict[CommandId, Slot] = {}

    async def load(self, command_id: CommandId, command: AttachPlugin) -> None:
        """Open what a command brings and post it; it is there for the ``change`` that follows."""
        async with self._opener.turn():
            with self._opener.step(command.plugin):
                opened = await self._opened(command)
                started = None if isinstance(opened, str) else await self._plugins.start(opened[0])
        if isinstance(opened, str) or started is None:
            self._post(PluginLoaded(command_id, command, None, Verdict(), str(opened)))
            return
        (plugin, packed), (slot, verdict) = opened, started
        self._loaded[command_id] = slot
        facts = PluginFacts(plugin.name, hooks_of(plugin), packed)
        try:
            self._post(PluginLoaded(command_id, command, facts, verdict))
        finally:
            self._loaded.pop(command_id, None)

    def change(self, change: ChangePlugins) -> None:
        """Exchange plugins, from the next hook on."""
        for name in change.detached:
            self._plugins.detach(name)
        slot = self._loaded.pop(change.load_id, None)
        if slot is not None and change.attached:
            self._plugins.attach(slot)

    async def _opened(self, command: AttachPlugin) -> tuple[Plugin, Packed] | str:
        def work() -> tuple[Plugin, Packed] | str:
            try:
                (plugin,) = load_plugins([command.plugin])
            except LoadError as error:
                return str(error)
            return plugin, with_code(command.plugin)

        try:
            async with asyncio.timeout(LOAD_S):
                return await self._opener.run(work)
        except TimeoutError:
            return f"{command.plugin.label}: not loaded within {LOAD_S:g} s"


# --- what they may ask ----------------------------------------------------------------------------

CALLS_MAX: Final = 100
"""Model calls and subagents of one plugin at one hook."""


@dataclass(slots=True)
class PluginPorts:
    """Makes the ports of one session's plugins."""

    asker: Asker
    post: Callable[[Result], None]
    memory: Callable[[], Memory]
    checkpoints: Checkpoints
    user_data: Mapping[str, Any] = field(default_factory=dict)  # Any: the application's own
    answers: Answers = field(default_factory=Answers)
    _refs: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def of(self, plugin: str) -> "Port":
        """Return a port for one plugin at one hook."""
        return Port(self, plugin)

    def of_observer(self, plugin: str) -> "Port":
        """Return a port for one plugin that observes published events."""
        return Port(self, plugin, is_asked=False)

    def answer(self, ref: str, value: Any, error: str | None) -> None:
        """Answer the wait of ``ref`` (Any: what was asked for), or have it raise an error."""
        self.answers.answer(ref, value, error)

    def next_ref(self, plugin: str) -> str:
        """Return a reference that no other wait of this process has."""
        return f"plugin:{plugin}-{next(self._refs)}"


class Port:
    """See ``PluginPort`` for what the methods promise."""

    def __init__(self, ports: PluginPorts, plugin: str, *, is_asked: bool = True) -> None:
        """Belong to the running loop; ``is_asked``: at a hook, where the session waits."""
        self._ports, self._plugin, self._is_asked = ports, plugin, is_asked
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
        self._count(at_hook=True)
        memory = self._ports.memory()
        if reason := over_budget(memory):
            raise PluginCallError(f"no model was asked: {reason}")
        if model is not None and (problem := model_problem(model)) is not None:
            raise PluginCallError(f"model: {problem}")
        try:
            check_provider_opts(provider_opts or {})
        except Unfit as error:
            raise PluginCallError(f"provider_opts{error}") from None
        if response_format is not None and (problem := schema_problem(response_format)):
            raise PluginCallError(f"response_format: {problem}")
        own = memory.provider_opts if model is None else {}
        asked = [Message.user(prompt)] if isinstance(prompt, str) else prompt
        tokens = estimate_tokens(len(system) + sum(map(chars, asked)))
        request = ModelRequest(
            model=model or memory.model,
            max_tokens=side_answer_max(memory, model or memory.model, tokens),
            messages=tuple(asked),
            system=system,
            response_format=response_format,
            provider_opts={**own, **(provider_opts or {})},
            former_opts=(*memory.former_opts, memory.provider_opts),
        )
        try:
            text, usage = await self._ports.asker.ask(request, "answer")
        except ProviderError as error:
            raise PluginCallError(mended(error.reason)) from error
        self._ports.post(PluginAskedModel(self._plugin, request.model, usage))
        return Completion(text=text, usage=usage)

    async def delegate(self, description: str, subagent_type: str) -> str:
        """Let a subagent do a task."""
        self._count(at_hook=True)
        ports, ref = self._ports, self._ports.next_ref(self._plugin)
        wanted = PluginDelegated(
            self._plugin, ref, mended(str(subagent_type)), mended(str(description))
        )
        try:
            return str(await ports.answers.of(ref, lambda: ports.post(wanted)))
        except ToolError as error:
            raise PluginCallError(str(error)) from error
        except asyncio.CancelledError:
            ports.post(DelegationDropped(ref))
            raise

    async def emit(self, event: Emit) -> None:
        """Publish an event."""
        self._count()
        try:
            events = event.sealed().events()
        except BadActionError as error:
            raise PluginCallError(mended(str(error))) from error
        if kernel_emits := [name for name, _ in events if name in KERNEL_EMITS]:
            raise PluginCallError(f"{kernel_emits[0]} is a kernel emit: return it from a hook")
        emitted = with_user_data(events, self._ports.user_data)
        self._ports.post(PluginsReported(Verdict(emitted=emitted)))

    async def checkpoint(
        self,
        label: str | None = None,
        metadata: dict[str, Any] | None = None,  # Any: whatever MessagePack takes
    ) -> Snapshot:
        """Save the state of the session."""
        self._count()
        try:
            checked = checkpoint_facts(label, metadata)
            return await self._ports.checkpoints.save(checked.label, checked.metadata)
        except CmdcError as error:
            raise PluginCallError(mended(str(error))) from error

    async def checkpoints(self) -> list[Snapshot]:
        """Return the checkpoints of the session."""
        self._count()
        try:
            return await self._ports.checkpoints.known()
        except CmdcError as error:
            raise PluginCallError(mended(str(error))) from error

    async def delete_checkpoint(self, checkpoint_id: str) -> None:
        """Delete a checkpoint of the session."""
        self._count()
        try:
            await self._ports.checkpoints.delete(checkpoint_id)
        except CmdcError as error:
            raise PluginCallError(mended(str(error))) from error

    def _count(self, *, at_hook: bool = False) -> None:
        try:
            is_own_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:  # a thread without a loop
            is_own_loop = False
        if not is_own_loop:
            raise PluginCallError('only "async def" methods can ask their session')
        if at_hook and not self._is_asked:
            raise PluginCallError("an observer may ask its session for no model and no subagent")
        self._calls += 1
        if self._calls > CALLS_MAX:
            raise PluginCallError(f"a plugin may ask its session {CALLS_MAX} times at one hook")
