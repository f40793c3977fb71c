"""A handoff is made once and as a whole, whoever dies before or after its record."""

from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.testing import ToolCalls, ToolUse
from supervisor.processes.worker import BOTH, DAEMON
from tests.fault.reviving import reviving

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 120.0
ASKED = {
    ("agent", "tool_ended", "before"): 1,
    ("agent", "tool_ended", "after"): 1,
    ("agent", "handed_off", "before"): 2,
    ("append", "handed_off", "after"): 1,
}
"""Where the agent dies, and how often the function is asked that decides on the history.

Behind the record it dies when that is committed: what it has only sent may be lost with it."""
FAILED = {("agent", "handoff_failed", "before"): 2, ("append", "handoff_failed", "after"): 1}
"""The same where that function fails."""
DAEMON_DIES = [
    f"append.*handed_off*.{moment}:1={victim}"
    for moment, victim in (("before", BOTH), ("after", DAEMON), ("after", BOTH))
]


@cmdc.tool(effects="read")
def pay() -> str:
    """Pay."""
    return "paid"


class Handed:
    """The events of a cycle in which a session is handed over, and who acts behind it."""

    def __init__(self, where, name, step, log, *, fails=False):
        own_daemon, scripted, plan = where

        def noted(messages):
            with Path(log).open("a") as file:
                file.write("x")
            return [] if fails else messages[:1]

        def front(request):
            said = request["messages"][-1]["role"]
            return ToolCalls(ToolUse("transfer_to_desk", {})) if said == "user" else "lost"

        def at_desk(_request):
            plan.wait_taken(name)  # else the cycle may be over before the record is committed
            return "paid"

        desk = cmdc.SubAgent(
            "desk", "Pays.", system_prompt="Pay.", tools=[pay], model=scripted(default=at_desk)
        )
        self.name, self.log, self.events = name, Path(log), []
        with own_daemon.client() as client:
            session = client.create_agent(
                model=scripted(default=front),
                session_id=name,
                handoffs=[cmdc.Handoff(desk, history=noted)],
                restart_delay=(0.0, 0.05),
            )
            stream = session.subscribe()
            plan(name, step)
            session.prompt("Go.")
            while not (self.events and isinstance(self.events[-1], events.AgentEnd)):
                self.events.append(stream.get(TURN_S).event)
            self.status = session.status()
            self.messages = session.messages()
            session.stop()

    def of(self, kind):
        return [one for one in self.events if isinstance(one, kind)]

    def asked(self):
        """Return how often the function was asked."""
        return len(self.log.read_text())

    def is_whole(self):
        """Check that who acts has its prompt, its history and its model, by one handoff."""
        said = [(one.role, one.content) for one in self.messages]
        assert [(one.from_, one.to, one.tools) for one in self.of(events.HandedOff)] == [
            ("main", "desk", ("pay", "transfer_to_main"))
        ]
        assert said[0][1].startswith("Pay.")
        assert said[1:] == [("user", "Go."), ("assistant", "paid")]
        assert self.status.agent == "desk"
        return True


def steps(asked):
    """Yield a name, the step of a plan, and how often the function is asked."""
    for number, ((write, kind, moment), times) in enumerate(asked.items()):
        yield f"run-{number}", f"{write}.*{kind}*.{moment}:1=agent", times


def test_a_death_of_the_agent_changes_nothing(own_daemon, armed, scripted, tmp_path):
    """Before and after each write: one death each; behind its record nothing is asked again."""
    own_daemon.start()
    for name, step, asked in steps(ASKED):
        handed = Handed((own_daemon, scripted, armed), name, step, tmp_path / name)

        assert handed.is_whole(), step
        assert handed.asked() == asked, step
        assert len(handed.of(events.AgentRecovered)) == 1, step


def test_a_handoff_that_fails_is_reported_once(own_daemon, armed, scripted, tmp_path):
    """Who acted goes on, with the failure as the result of its call."""
    own_daemon.start()
    for name, step, asked in steps(FAILED):
        handed = Handed((own_daemon, scripted, armed), name, step, tmp_path / name, fails=True)
        results = [one for one in handed.messages if one.role == "tool_result"]

        assert [one.is_error for one in results] == [True], step
        assert (len(handed.of(events.HandoffFailed)), handed.status.agent) == (1, "main"), step
        assert handed.asked() == asked, step


@pytest.mark.parametrize("step", DAEMON_DIES)
def test_a_death_of_the_daemon_changes_nothing(own_daemon, armed, scripted, tmp_path, step):
    """Whether the agent goes on with the next one or dies as well."""
    own_daemon.start()
    where, log = (own_daemon, scripted, armed), tmp_path / "log"
    handed, deaths = reviving(own_daemon, lambda: Handed(where, "run", step, log))

    assert deaths == 1
    assert handed.is_whole()
