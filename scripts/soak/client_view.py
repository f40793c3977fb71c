"""What was published to a session's client, added up: how the session must stand when it rests.

A model of its own: it knows what the events promise, and nothing of the kernel or of its journal.
To add a fact: a method for its event with its row in ``_ROWS``, and its line in ``_facts``.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final

import msgspec

from cmdc_runtime import events
from cmdc_runtime.commands import Status
from cmdc_runtime.events import Event
from cmdc_runtime.messages import TokenUsage
from scripts.soak.recall import Recalled

OUTCOMES_MAX: Final = 64
"""Ended cycles that a session remembers."""


class ClientView:
    """How the session stands, by its events."""

    def __init__(self, model: str, tools: Iterable[str], plugins: Iterable[str]) -> None:
        """Begin with what the session was created with."""
        self.model = model
        self.tools = set(tools)
        self.plugins = set(plugins)
        self.todos: tuple[dict[str, str], ...] = ()
        self.approvals: set[str] = set()
        self.usage = TokenUsage()
        self.turns = 0
        self.spawned = 0
        self.outcomes: list[tuple[str, str]] = []
        self._held: dict[str, str] = {}
        """Approvals of calls that are held, by the call: its end is theirs."""

    def go_on_from(self, saved: Status, command_id: str) -> None:
        """Begin with what a session has saved, which finished the cycle of this prompt."""
        self.usage, self.turns = saved.token_usage, saved.turns
        self.outcomes.append((command_id, "finished"))

    def feed(self, event: Event) -> None:
        """Take the next event."""
        note = self._ROWS.get(type(event))
        if note is not None:
            note(self, event)

    def problems(self, found: Recalled) -> list[str]:
        """Return where the session stands otherwise than its events say."""
        return [
            f"{name} is {value!r}, and the client has heard {heard!r}"
            for name, (value, heard) in self._facts(found).items()
            if value != heard
        ]

    # Any: each fact has its own type.
    def _facts(self, found: Recalled) -> Mapping[str, tuple[Any, Any]]:
        memory, status = found.memory, found.status
        outcomes = [(one["command_id"], one["outcome"]) for one in memory["outcomes"]]
        loaded = sorted(self.plugins)
        return {
            "the model": (memory["model"], self.model),
            "the status's model": (status.model, self.model),
            "the set of tools": (memory["tools_loaded"], sorted(self.tools)),
            "the set of plugins": (sorted(memory["plugins_loaded"]), loaded),
            "the list of todos": (memory["todos"], list(self.todos)),
            "the set of approvals": (sorted(status.pending_approvals), sorted(self.approvals)),
            "the usage": (_tokens(status.token_usage), _tokens(self.usage)),
            "the count of turns": (status.turns, self.turns),
            "the count of subagents": (memory["spawns"], self.spawned),
            # In no order: an abort is published before what it drops, and ends its cycle behind it.
            "the ends of cycles": (sorted(outcomes), sorted(self.outcomes[-OUTCOMES_MAX:])),
            "the queue": (status.queued_prompts + status.queued_steering, 0),
            "the subagents under way": (memory["children"], []),
        }

    # --- what happens -----------------------------------------------------------------------------

    def _spend(self, event: Any) -> None:  # Any: each event that has a usage
        self.usage = self.usage + event.usage

    def _answer(self, event: events.ResponseComplete) -> None:
        self._spend(event)
        self.turns += 1

    def _switch(self, event: events.ModelSwitched) -> None:
        self.model = event.to

    def _attach(self, event: events.ToolAttached) -> None:
        self.tools.add(event.name)

    def _detach(self, event: events.ToolDetached) -> None:
        self.tools.discard(event.name)

    def _plug(self, event: events.PluginAttached) -> None:
        self.plugins.add(event.name)

    def _unplug(self, event: events.PluginDetached) -> None:
        self.plugins.discard(event.name)

    def _leave_out(self, event: events.RecordSetAside) -> None:
        """Two deaths at the step that opens it, both by plans, are reported as its doing."""
        if event.what == "tool":
            self.tools.discard(event.name)
        elif event.what == "plugin":
            self.plugins.discard(event.name)

    def _plan(self, event: events.TodoChange) -> None:
        self.todos = event.todos

    def _require(self, event: events.ApprovalRequired) -> None:
        self.approvals.add(event.id)
        if event.hold:
            self._held[event.call_id] = event.id

    def _decide(self, event: events.ToolApproved | events.ToolRejected) -> None:
        self.approvals.discard(event.approval_id)

    def _end_call(self, event: events.ToolExecutionEnd) -> None:
        self.approvals.discard(self._held.pop(event.call_id, ""))

    def _spawn(self, _event: events.SubagentStart) -> None:
        self.spawned += 1

    def _finish(self, event: events.AgentEnd) -> None:
        self.outcomes.append((event.command_id, "finished"))

    def _abort(self, event: events.AgentAbort) -> None:
        if event.command_id is not None:
            self.outcomes.append((event.command_id, "aborted"))

    def _fail(self, event: events.AgentError) -> None:
        self.outcomes.append((event.command_id, "failed"))

    def _drop(self, event: events.PromptDropped) -> None:
        self.outcomes.append((event.command_id, "dropped"))

    # Any: each method takes the event of its own row.
    _ROWS: ClassVar[Mapping[type[Event], Callable[[Any, Any], None]]] = {
        events.ResponseComplete: _answer,
        events.ConversationCompacted: _spend,
        events.RequestCut: _spend,
        events.PluginModelCall: _spend,
        events.SubagentEnd: _spend,
        events.ModelSwitched: _switch,
        events.ToolAttached: _attach,
        events.RecordSetAside: _leave_out,
        events.ToolDetached: _detach,
        events.PluginAttached: _plug,
        events.PluginDetached: _unplug,
        events.TodoChange: _plan,
        events.ApprovalRequired: _require,
        events.ToolApproved: _decide,
        events.ToolRejected: _decide,
        events.ToolExecutionEnd: _end_call,
        events.SubagentStart: _spawn,
        events.AgentEnd: _finish,
        events.AgentAbort: _abort,
        events.AgentError: _fail,
        events.PromptDropped: _drop,
    }


def _tokens(usage: TokenUsage) -> dict[str, Any]:  # Any: numbers
    """Return a usage without its cost: a sum of prices is another one in another order."""
    return {**msgspec.structs.asdict(usage), "cost_usd": None}
