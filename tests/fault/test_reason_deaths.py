"""A run of a strategy comes to the same, whoever dies at whichever write, and pays nothing twice.

What the session keeps and reports of a call is tried in ``test_branch_deaths``; here the real tool
plays its run again with it.
"""

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.reasoning import ReasoningResult
from cmdc_runtime.testing import Hold, ToolUse
from scripts.soak.model import Mind
from scripts.soak.waves import BRANCHES, WAVES, WIDTH, Waves
from supervisor.processes.worker import BOTH, DAEMON
from tests.fault.lived import Lived, answered
from tests.fault.reviving import reviving

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

COUNT = 3
AGENT_DIES = [
    *(
        f"agent.*tool_told*.{moment}:{number}=agent"
        for moment, number in (
            ("before", 1),
            ("after", 3),
            ("before", 4),
            ("after", 5),
            ("before", 6),
            ("after", 9),
        )
    ),
    *(
        f"agent.*subagent_spent*.{moment}:{number}=agent"
        for moment, number in (("before", 1), ("after", 2), ("before", 4))
    ),
    *(
        f"agent.*subagent_spawned*.{moment}:{number}=agent"
        for moment, number in (("before", 2), ("after", 4))
    ),
]
DAEMON_DIES = [
    f"append.*{kind}*.{moment}:{number}={victim}"
    for kind, moment, number in (
        ("subagent_spawned", "after", 2),
        ("subagent_spent", "before", 1),
        ("tool_told", "after", 5),
    )
    for victim in (DAEMON, BOTH)
]
ENDED = "said+turn_spent+cycle_ended"
BRANCH_WRITES = (
    "accept",
    "agent.cycle_started+outcome",
    "append.cycle_started+outcome",
    f"agent.{ENDED}",
    f"append.{ENDED}",
)
"""All that a branch passes which answers without a tool: as it hands a write over, and as that is
written."""
REBUILT = "agent.rebuild.*"
BRANCH_DIES = [REBUILT] + [
    f"{write}.{moment}" for write in BRANCH_WRITES for moment in ("before", "after")
]
ANSWERED = (f"append.{ENDED}.before", f"append.{ENDED}.after")
"""The daemon has the answer, and writes it down whoever is dead."""
OPEN = (REBUILT, f"agent.{ENDED}.after")
"""Whether it has an answer depends on who is quicker: another process takes the place of one that
dies before it is up, and what an agent has sent may have left it when it dies."""


class Join(cmdc.ReasoningStrategy):
    """Asks three at once, scores them by chance, prunes the last, and has the others joined."""

    name = "join"

    def init(self, opts, context):
        return context.random.random()

    def step(self, state, context):
        return [cmdc.Branch(f"Question {n}?", id=f"q{n}") for n in range(COUNT)]

    def aggregate(self, thoughts, state):
        if len(thoughts) == 1:
            return cmdc.Done(thoughts[0].content)
        scored = [
            cmdc.Thought(one.id, one.content, score=state + place)
            for place, one in enumerate(thoughts)
        ]
        self.scored(scored)
        self.prune(thoughts[-1:], "enough")
        texts = " ".join(one.content for one in thoughts[:-1])
        return cmdc.Branch(f"Question {texts}?", id="whole"), state


class First(cmdc.ReasoningStrategy):
    """Is content with whoever is first: which one that was is seen in the result."""

    name = "first"

    def step(self, state, context):
        return [cmdc.Branch(f"Question {n}?", id=f"q{n}") for n in range(COUNT)]

    def early(self, thoughts, state):
        return cmdc.Done(thoughts[0].content)


class Reasoned(Lived):
    """A session whose tool runs a strategy."""

    def __init__(self, *where, strategy=Join, **more):
        tool = cmdc.tools.Reason(strategies=[strategy])
        use = ToolUse("reason", {"question": "Well?"})
        super().__init__(*where, calls=(tool, use), **more)

    @property
    def result(self):
        return ReasoningResult.of(self.events)

    def is_whole(self, step):
        """Check that all is as without a death: answer, tree, what was reported and paid."""
        names = [one.thought_id for one in self.reported()]
        assert self.answer == "0 1", step
        assert self.result.status == "done", step
        assert [one.content for one in self.result.thoughts] == ["0", "1", "2", "0 1"], step
        assert sorted(names[:COUNT]) == ["q0", "q1", "q2"], step
        assert names[COUNT:] == ["whole"], step
        assert [one.branch_id for one in self.of(events.ReasoningBranch)] == [
            *("q0", "q1", "q2", "whole")
        ], step
        assert len(self.of(events.ReasoningScore)) == COUNT, step
        assert len(self.of(events.ReasoningPrune)) == 1, step
        assert len(self.of(events.ReasoningDone)) == 1, step
        assert self.paid() == ["0", "0 1", "1", "2"], step
        assert self.sessions == [self.name], step
        return True


def test_a_death_of_the_agent_changes_nothing(own_daemon, armed, scripted):
    """Before and after writes of every kind that a run makes."""
    own_daemon.start()
    for number, step in enumerate(AGENT_DIES):
        lived = Reasoned(own_daemon, scripted, armed, f"run-{number}", step)

        assert lived.is_whole(step)
        assert len(lived.of(events.AgentRecovered)) == 1, step


def test_deaths_between_which_thoughts_come_end_no_run(own_daemon, armed, scripted):
    """One more than a cycle may cost; none of them is counted that is followed by a thought."""
    own_daemon.start()
    steps = [f"agent.*tool_told*.after:{number}=agent" for number in (4, 1, 1)]
    lived = Reasoned(own_daemon, scripted, armed, "run", *steps)

    assert len(lived.of(events.AgentRecovered)) == len(steps)
    assert lived.is_whole(steps)


@pytest.mark.parametrize("step", DAEMON_DIES)
def test_a_death_of_the_daemon_changes_nothing(own_daemon, armed, scripted, step):
    """Whether the agent goes on with the next one or dies as well."""
    own_daemon.start()
    lived, deaths = reviving(own_daemon, lambda: Reasoned(own_daemon, scripted, armed, "run", step))

    assert deaths == 1
    assert lived.is_whole(step)


@pytest.mark.parametrize("moment", ["before:5", "after:4", "after:6"])
def test_who_came_first_stays_the_first(own_daemon, armed, scripted, moment):
    """The run is decided as it was; those that were ended stay so, and are not asked again."""
    own_daemon.start()
    when, number = moment.split(":")
    step = f"agent.*tool_told*.{when}:{number}=agent"
    late = scripted(answered, (Hold(), "late"), (Hold(), "late"), default=answered)
    lived = Reasoned(own_daemon, scripted, armed, "run", step, strategy=First, below=late)
    first = lived.reported()[0]

    assert lived.answer == lived.result.answer == first.content
    assert lived.result.status == "done"
    assert sorted(one.thought_id for one in lived.reported()) == [*("q0", "q1", "q2")]
    assert len(lived.of(events.ReasoningDone)) == 1
    assert lived.sessions == ["run"]


class Waved(Lived):
    """A session whose tool asks nine in three waves; ``dies`` is where the first of them does."""

    def __init__(self, own_daemon, scripted, armed, name, *dies):
        tool = cmdc.tools.Reason(strategies=[Waves])
        use = ToolUse("reason", {"question": "Well?"})
        self.mind = Mind()
        below = scripted(default=self.mind)
        super().__init__(
            own_daemon, scripted, armed, name, calls=(tool, use), below=below, child=dies
        )

    @property
    def branches(self):
        """The places of the branches' sessions below this one, in the order of their start."""
        begun = self.of(events.SubagentStart)
        return [one.child_session_id.removeprefix(f"{self.name}.") for one in begun]


@pytest.mark.parametrize("point", BRANCH_DIES)
def test_a_death_of_a_branch_is_one_thought_of_nine(own_daemon, armed, scripted, tmp_path, point):
    """Wherever it dies the answer is that of the others, and none of them is asked again."""
    own_daemon.start()
    lived = Waved(own_daemon, scripted, armed, "run", f"{point}:1=agent")
    thoughts = lived.reported()
    failed = [one for one in thoughts if one.error is not None]

    assert (tmp_path / "plans" / "run.1.plan").read_text() == ""  # it has died there
    assert lived.answer == " ".join(
        f"That is all there is to say about wave{number}." for number in range(WAVES)
    )
    assert sorted(one.thought_id for one in thoughts) == [
        f"w{wave}.{number}" for wave in range(WAVES) for number in range(WIDTH)
    ]
    if point not in OPEN:
        assert [one.thought_id for one in failed] == ([] if point in ANSWERED else ["w0.0"])
    assert {one.thought_id for one in failed} <= {"w0.0"}
    assert len(lived.paid()) == BRANCHES - len(failed)
    assert lived.branches == [str(number) for number in range(1, BRANCHES + 1)]
    assert sum(lived.mind.requests.values()) <= BRANCHES
    assert len(lived.of(events.ReasoningDone)) == 1
    assert lived.sessions == ["run"]
    assert not lived.of(events.AgentRecovered)
