"""A session's packed code, opened: each is a step of rebuilding it, since its code runs then.

A tool that has killed the processes which opened it is left out, and the session goes on. It does
not run without anything else that its caller gave it: whether a plugin guards is known only once it
is open, and a saved state without ``redact`` would show what that takes out.

A plugin runs ``session_start`` when it is open, and that is a step, too. One
that kills so has failed at that hook, as if it had raised an error.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from cmdc_runtime import packed_code as named
from cmdc_runtime.extensions.checkpoint_backend import CheckpointBackend
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.extensions.provider import Provider
from cmdc_runtime.extensions.sandbox import Sandbox, SandboxPlace
from cmdc_runtime.heartbeats import greeting_step, packed_step
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.spec import AgentSpec, acting
from cmdc_runtime.subagent import HandoffSpec, transfer_tools
from workers.core import omissions
from workers.core.records import Record, SetAside
from workers.core.state import AgentFacts, Memory, ToolFacts
from workers.core.tags import invited_by
from workers.loader import (
    PLUGINS,
    SANDBOXES,
    Code,
    LoadError,
    load_checkpoint_backend,
    load_function,
    load_own_provider,
    load_plugins,
    load_tools,
    open_sandbox,
)
from workers.performers.guardrails import Guardrail
from workers.performers.histories import HistoryFilter
from workers.performers.model import system_of
from workers.performers.toolbox import LoadedTool, Reserve

LoadedPlugin: TypeAlias = tuple[Plugin, Packed]
"""A plugin, with its packed code."""

_Opened = TypeVar("_Opened")
_UNSAFE: Final = (
    "processes that opened it have died of it, and the session does not run without it;"
    " resume it with another one"
)


@dataclass(frozen=True, slots=True)
class OpenedAgent:
    """An agent that the session may be handed to, and its tools, those that hand over too."""

    facts: AgentFacts
    tools: tuple[LoadedTool, ...]


@dataclass(frozen=True, slots=True)
class FunctionCode:
    """The tools that wait for their agents, and the application's functions of a session.

    ``histories`` decide what an agent sees that is handed the session.
    """

    reserve: Reserve
    histories: Mapping[str, HistoryFilter]
    input_guardrails: tuple[Guardrail, ...]
    output_guardrails: tuple[Guardrail, ...]


@dataclass(slots=True)
class SessionCode:
    """Opens packed code; ``at`` is called before each is opened.

    ``killing`` are the steps that have killed, ``left_out`` the digests of the tools that were set
    aside before. ``news`` is what has still to be recorded of that.
    """

    at: Callable[[int], None] = lambda _step: None
    killing: frozenset[int] = frozenset()
    left_out: frozenset[str] = frozenset()
    news: list[SetAside] = field(default_factory=list)
    code: Code = field(default_factory=Code)

    def tools(self, all_packed: Iterable[Packed]) -> tuple[LoadedTool, ...]:
        """Return the tools of a definition but for those that are left out, each with its own.

        Raises:
            LoadError: one can't be opened.
        """
        kept = []
        for packed in all_packed:
            if named.digest_of(packed) in self.left_out:
                continue
            if omissions.kills(packed, self.killing):
                self.news.append(omissions.set_tool_aside(packed, packed.label, "the definition"))
            else:
                kept.append(packed)
        return self._opened(kept)

    def plugins(self, all_packed: Sequence[Packed]) -> tuple[LoadedPlugin, ...]:
        """Return the plugins of packed code, each with its own.

        Raises:
            LoadError: one can't be opened, or has killed who opened it.
        """
        wanted = [self.code.wanted(packed) for packed in all_packed]
        opened = load_plugins(self._needed(wanted, PLUGINS.noun))
        return tuple(zip(opened, map(self.code.take, wanted), strict=True))

    def function(self, packed: Packed, noun: str) -> Callable[..., Any]:  # Any: the caller knows
        """Return the function of packed code; ``noun`` is what error messages call it.

        Raises:
            LoadError: it can't be opened, or has killed who opened it.
        """
        return self._one(packed, noun, partial(load_function, noun=noun))

    def provider(self, packed: Packed) -> Provider:
        """Return the provider of packed code.

        Raises:
            LoadError: it can't be opened, is none, or has killed who opened it.
        """
        return self._one(packed, "provider", load_own_provider)

    def checkpoint_backend(
        self, packed: Packed | None
    ) -> CheckpointBackend | type[CheckpointBackend] | None:
        """Return the checkpoint backend of packed code, or the class that makes it.

        Raises:
            LoadError: it can't be opened, is none, or has killed who opened it.
        """
        if packed is None:
            return None
        return self._one(packed, "checkpoint backend", load_checkpoint_backend)

    def _one(self, packed: Packed, noun: str, load: Callable[[Packed], _Opened]) -> _Opened:
        (needed,) = self._needed([self.code.wanted(packed)], noun)
        opened = load(needed)
        self.code.take(needed)
        return opened

    def sandbox(self, packed: Packed | None, place: SandboxPlace) -> Sandbox:
        """Return the sandbox of packed code, ready; None is the built-in one of every session.

        Raises:
            LoadError: it can't be opened, or has killed who opened it.
            SandboxUnavailable: what it needs is not here.
        """
        if packed is None:
            return open_sandbox(None, place)
        (needed,) = self._needed([self.code.wanted(packed)], SANDBOXES.noun)
        sandbox = open_sandbox(needed, place)
        self.code.take(needed)
        return sandbox

    def agents(self, spec: AgentSpec) -> tuple[OpenedAgent, ...]:
        """Return the agents that the session may be handed to, the first of them its own.

        Raises:
            LoadError: a tool can't be opened, or has a name that another one has.
        """
        return tuple(self._agent(spec, handoff) for handoff in spec.handoffs)

    def _agent(self, spec: AgentSpec, handoff: HandoffSpec) -> OpenedAgent:
        agent = handoff.agent
        transfers = transfer_tools(spec.handoffs, agent.name)
        tools = self.tools((*(agent.tools or ()), *transfers))
        facts = [one.facts() for one in tools]
        own = tuple(one for one in facts if not one.is_transfer)
        prompt = system_of(acting(spec, agent.name))
        return OpenedAgent(
            AgentFacts(
                name=agent.name,
                is_own=handoff.is_own,
                tools=None if agent.tools is None else own,
                transfers=tuple(one for one in facts if one.is_transfer),
                model=agent.model,
                provider_opts=agent.provider_opts,
                sees_all=handoff.sees_all,
                has_filter=handoff.history is not None,
                system_chars=len(prompt),
                tags=invited_by(prompt),
            ),
            tools,
        )

    def function_code(
        self,
        spec: AgentSpec,
        memory: Memory,
        own: Sequence[LoadedTool],
        agents: Iterable[OpenedAgent],
    ) -> FunctionCode:
        """Return what handoffs and guardrails take; ``own`` are the tools of the definition.

        Raises:
            LoadError: a part can't be opened, or has killed who opened it.
        """
        of_agents = (*own, *(tool for one in agents for tool in one.tools))
        parts, acting_now = memory.own_parts, memory.acting
        put_by = () if parts is None else self._found(parts.tools, of_agents)
        histories = {
            one.agent.name: self.function(one.history, "history of a handoff")
            for one in spec.handoffs
            if one.history is not None
        }
        takes_servers = acting_now is None or acting_now.tools is None
        reserve = Reserve(of_agents, put_by, takes_servers=takes_servers)
        sides = map(self._guardrails, (spec.input_guardrails, spec.output_guardrails))
        return FunctionCode(reserve, histories, *sides)

    def _guardrails(self, all_packed: Iterable[Packed]) -> tuple[Guardrail, ...]:
        return tuple((one.label, self.function(one, "guardrail")) for one in all_packed)

    def newly_left_out(self, memory: Memory, records: Iterable[Record]) -> tuple[SetAside, ...]:
        """Return what is newly left out of the code that a memory has; ``records`` led to it."""
        tools = (
            omissions.set_tool_aside(
                tool.packed, tool.name, omissions.came_with(tool.packed, records)
            )
            for tool in _all_tools(memory)
            if tool.packed is not None and omissions.kills(tool.packed, self.killing)
        )
        return (*tools, *omissions.session_starts_set_aside(memory, self.killing))

    def session_start_problem(
        self, memory: Memory, plugins: Sequence[Plugin]
    ) -> Callable[[str], str | None]:
        """Return a function of the name of a plugin, to be called before its ``session_start``.

        It returns why that is not to run, or None.
        """
        digests = {
            plugin.name: named.digest_of(facts.packed)
            for plugin, facts in zip(plugins, memory.plugins, strict=True)
            if facts.packed is not None  # only tests make plugins without
        }

        def problem(name: str) -> str | None:
            if digests[name] in memory.left_out:
                return omissions.DIED_AT_SESSION_START
            self.at(greeting_step(digests[name]))
            return None

        return problem

    def tools_of(self, memory: Memory, own: Sequence[LoadedTool]) -> tuple[LoadedTool, ...]:
        """Return the tools of the memory: those of the definition, and what was attached since.

        Raises:
            LoadError: one can't be opened.
        """
        return self._found(memory.tools, own)

    def _found(
        self, all_facts: Iterable[ToolFacts], own: Sequence[LoadedTool]
    ) -> tuple[LoadedTool, ...]:
        known = {(one.tool.name, named.digest_of(one.packed)): one for one in own}
        found = []
        for facts in all_facts:
            assert facts.packed is not None  # noqa: S101 - only tests make tools without
            kept = known.get((facts.name, named.digest_of(facts.packed)))
            found.append(kept or self._opened([facts.packed])[0])
        return tuple(found)

    def plugins_of(self, memory: Memory, own: Sequence[LoadedPlugin]) -> tuple[Plugin, ...]:
        """Return the plugins of the memory: the definition's, and what was attached since.

        Raises:
            LoadError: one can't be opened, or has killed who opened it.
        """
        known = {(one.name, named.digest_of(packed)): one for one, packed in own}
        found = []
        for facts in memory.plugins:
            assert facts.packed is not None  # noqa: S101 - only tests make plugins without
            kept = known.get((facts.name, named.digest_of(facts.packed)))
            found.append(kept or self.plugins([facts.packed])[0][0])
        return tuple(found)

    def _opened(self, all_packed: Sequence[Packed]) -> tuple[LoadedTool, ...]:
        wanted = [self.code.wanted(packed) for packed in all_packed]
        tools = load_tools(self._steps(wanted))
        opened = zip(tools, map(self.code.take, wanted), strict=True)
        return tuple(LoadedTool(*pair) for pair in opened)

    def _needed(self, all_packed: Iterable[Packed], noun: str) -> Iterator[Packed]:
        for packed in self._steps(all_packed):
            if omissions.kills(packed, self.killing):
                raise LoadError(packed.label, _UNSAFE, noun)
            yield packed

    def _steps(self, all_packed: Iterable[Packed]) -> Iterator[Packed]:
        for packed in all_packed:
            self.at(packed_step(named.digest_of(packed)))
            yield packed


def _all_tools(memory: Memory) -> tuple[ToolFacts, ...]:
    """Return the tools of who acts, and those that the session's own agent has besides."""
    put_by = () if memory.own_parts is None else memory.own_parts.tools
    return (*memory.tools, *(one for one in put_by if one not in memory.tools))
