"""One session whose model calls one tool once, in which somebody dies: what came of it."""

from cmdc_runtime import SubAgent, events
from cmdc_runtime.testing import ToolCalls

TURN_S = 120.0


def answered(request):
    """Answer ``Question <n>?`` with ``n``."""
    text = request["messages"][-1]["content"]
    return text.removeprefix("Question ").removesuffix("?")


class Lived:
    """The events of a cycle, and what the model was given, by whom, and who was paid.

    ``calls`` is the tool, and the use of it; ``steps`` is where the session's process or the daemon
    dies, ``child`` where that of its first subagent does, whose model answers a question with what
    is asked for.
    """

    def __init__(self, own_daemon, scripted, plan, name, *steps, calls, **more):
        self.name = name
        tool, use = calls

        def model(request):
            """Call, unless that is done: who dies before the call is written asks once more."""
            return ToolCalls(use) if request["messages"][-1]["role"] == "user" else "done"

        self.model = scripted(default=model)
        self.below = more.get("below") or scripted(default=answered)
        kind = SubAgent("general-purpose", "Thinks.", model=self.below, plugins=more.get("plugins"))
        with own_daemon.client() as client:
            session = client.create_agent(
                model=self.model,
                session_id=name,
                tools=[tool],
                subagents=[kind],
                restart_delay=(0.0, 0.05),
            )
            stream = session.subscribe()
            plan(name, *steps)
            plan(f"{name}.1", *more.get("child", ()))
            session.prompt("Go.")
            self.events = []
            while not isinstance(self.latest, events.AgentEnd | events.AgentAbort):
                self.events.append(stream.get(TURN_S).event)
            self.sessions = [one.session_id for one in client.list_sessions()]
            session.stop()

    @property
    def latest(self):
        return self.events[-1] if self.events else None

    @property
    def answer(self):
        """What the model read of the call."""
        return self.model.requests[-1]["messages"][-1]["content"]

    def of(self, kind):
        return [one for one in self.events if isinstance(one, kind)]

    def reported(self):
        """Return the thoughts that were reported, in their order."""
        return self.of(events.ReasoningThought)

    def paid(self):
        """Return the answers that were paid for, each for each time."""
        return sorted(one.text for one in self.of(events.SubagentEnd) if one.ok)
