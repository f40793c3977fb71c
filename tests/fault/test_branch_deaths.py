"""A call that branches and reports its steps comes to the same, whoever dies at whichever write."""

import asyncio
import os
import signal
from pathlib import Path

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.testing import ToolUse
from supervisor.processes.worker import BOTH, DAEMON
from tests.fault.lived import Lived
from tests.fault.reviving import reviving

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

GRACE_S = 30.0
COUNT = 3
WRITES = ("tool_started", "subagent_spawned", "subagent_spent", "tool_told")
AGENT_DIES = [
    f"agent.*{kind}*.{moment}:{number}=agent"
    for kind in WRITES
    for moment in ("before", "after")
    for number in (1, 2)
    if (kind, number) != ("tool_started", 2)
]
DAEMON_DIES = [
    f"append.*{kind}*.{moment}:1={victim}"
    for kind, moment in (
        ("subagent_spawned", "after"),
        ("subagent_spent", "before"),
        ("tool_told", "after"),
    )
    for victim in (DAEMON, BOTH)
]


def thought(thought_id, content):
    return events.ReasoningThought(run_id="r", strategy="s", thought_id=thought_id, content=content)


class Run(cmdc.Tool):
    """Branches over three questions at once, and reports a step for each answer, in their order."""

    name = "run"
    description = "Asks three."
    parameters = {  # noqa: RUF012 - as the contract has it
        "type": "object",
        "properties": {"count": {"type": "integer"}},
    }
    isolation = "task"
    effects = "idempotent"

    async def execute(self, args, context):
        session, count = context.session, args.get("count", COUNT)
        asked = [session.branch(f"b{n}", f"Question {n}?", shares=count - n) for n in range(count)]
        found = await asyncio.gather(*asked)
        for number, one in enumerate(found):
            if number >= session.published:
                await session.publish(thought(f"b{number}", one.text))
        return ", ".join(one.text if one.ok else f"({one.text})" for one in found)


class Fanned(Lived):
    """A session whose tool branches."""

    def __init__(self, *where, count=COUNT, **more):
        super().__init__(*where, calls=(Run, ToolUse("run", {"count": count})), **more)

    def is_whole(self):
        """Check that each branch is paid once, each step reported once, and nothing left below."""
        assert self.answer == "0, 1, 2"
        assert [one.content for one in self.reported()] == ["0", "1", "2"]
        assert self.paid() == ["0", "1", "2"]
        assert self.sessions == [self.name]
        return True


def test_a_death_of_the_agent_changes_nothing(own_daemon, armed, scripted):
    """Before and after each write of the call: one death each, and all of it comes to the same."""
    own_daemon.start()
    for number, step in enumerate(AGENT_DIES):
        lived = Fanned(own_daemon, scripted, armed, f"run-{number}", step)

        assert lived.is_whole(), step
        assert len(lived.of(events.AgentRecovered)) == 1, step


def test_an_answer_that_nobody_has_written_down_is_found_in_the_branch(own_daemon, armed, scripted):
    """Its own journal has the end of its cycle: the model is not asked again."""
    own_daemon.start()
    step = "agent.*subagent_spent*.before:1=agent"
    lived = Fanned(own_daemon, scripted, armed, "run", step, count=1)

    assert (lived.answer, lived.paid()) == ("0", ["0"])
    assert len(lived.below.requests) == 1


@pytest.mark.parametrize("step", DAEMON_DIES)
def test_a_death_of_the_daemon_changes_nothing(own_daemon, armed, scripted, step):
    """Whether the agent goes on with the next one or dies as well."""
    own_daemon.start()
    lived, deaths = reviving(own_daemon, lambda: Fanned(own_daemon, scripted, armed, "run", step))

    assert deaths == 1
    assert lived.is_whole()


def test_a_death_of_a_branch_is_an_answer_with_its_error(own_daemon, armed, scripted):
    """The others are what they would have been."""
    own_daemon.start()
    lived = Fanned(
        own_daemon, scripted, armed, "run", child=["agent.said+turn_spent*.before:1=agent"]
    )

    assert lived.answer.startswith("(the subagent crashed: ")
    assert lived.answer.endswith(", 1, 2")
    assert lived.paid() == ["1", "2"]
    assert lived.sessions == ["run"]


class Killer(cmdc.Plugin):
    """Kills the daemon when the agent is there, and the answer to who wants it is not."""

    name = "killer"

    class Config(msgspec.Struct):
        """Which process, and the file that says that it was done."""

        pid: int
        mark: str

    def session_start(self, event, context):
        if not Path(self.config.mark).exists():
            Path(self.config.mark).touch()
            os.kill(self.config.pid, signal.SIGKILL)


@pytest.mark.parametrize("point", ["create.before", "create.after", "up"])
def test_a_daemon_that_dies_while_a_branch_starts_changes_nothing(
    own_daemon, armed, scripted, point
):
    """Who is asked for the start again knows the branch, with or without a process."""
    own_daemon.grace = GRACE_S
    own_daemon.start()
    begins = {"child": [f"{point}:1=daemon"]}
    if point == "up":
        options = {"pid": own_daemon.process.pid, "mark": str(own_daemon.place / "mark")}
        begins = {"plugins": [(Killer, options)]}
    lived, deaths = reviving(
        own_daemon, lambda: Fanned(own_daemon, scripted, armed, "run", **begins)
    )

    assert deaths == 1
    assert lived.is_whole()
