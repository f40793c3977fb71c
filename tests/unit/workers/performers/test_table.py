"""An agent's performers at work for plugins and timers, and that no effect is nobody's."""

import asyncio
import collections
from types import SimpleNamespace
from typing import get_args

import pytest

from cmdc_runtime.commands import AttachTools, Steer
from cmdc_runtime.errors import CmdcError
from cmdc_runtime.extensions.actions import Emit, Intervene
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import (
    AfterTurn,
    BeforePrompt,
    SessionEnd,
)
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.options import Options
from cmdc_runtime.spec import AgentSpec, agent_spec
from cmdc_runtime.subagent import SubAgent
from cmdc_runtime.wire.codec import decode_as
from workers.core.budget import Grant
from workers.core.inputs import (
    ANY_WORK,
    Order,
    PluginsAnswered,
    PluginsReported,
    RetryDue,
    SteeringAnswered,
)
from workers.core.state import Memory
from workers.core.step import (
    Answer,
    AnswerMessages,
    AnswerPage,
    AnswerStatus,
    AnswerTool,
    AskAboutSteering,
    AskPlugins,
    CallModel,
    CancelCalls,
    CancelModel,
    ChangePlugins,
    ChangeServers,
    ChangeTools,
    Complete,
    CountSubagents,
    Effect,
    EndSubagents,
    ExitProcess,
    LoadTools,
    MakeCheckpoint,
    Publish,
    Refuse,
    RunSubagent,
    RunTools,
    Sleep,
    Summarize,
    WriteRecord,
)
from workers.core.verdict import Verdict
from workers.performers.table import PerformerParts, Performers
from workers.pipeline import Pipeline

PATIENCE_S = 10.0
PROMPT = AskPlugins(3, BeforePrompt("go"))
TURN = AskPlugins(
    ANY_WORK,
    AfterTurn("finished", None, (), TokenUsage(), started_at_ms=1, ended_at_ms=2, duration_ms=1),
)
STEER = Steer(text="left")
JUDGE = AskAboutSteering(Order("s-1", STEER, 5), STEER)


class Gated(Plugin):
    """Answers each hook when its gate is open; remembers the order in which it was asked."""

    def __init__(self, answer):
        super().__init__()
        self.answer, self.heard, self.gates = answer, [], {}
        self.asked = collections.defaultdict(asyncio.Event)

    async def handle_event(self, event, _context):
        self.heard.append(event.kind)
        self.asked[event.kind].set()
        if event.kind in self.gates:
            await self.gates[event.kind].wait()
        return self.answer


def exits(watch=lambda _task: None, on_exit=None):
    """Return exit callbacks that end no process."""
    return SimpleNamespace(watch=watch, on_exit=on_exit)


class Workshop:
    """Performers that hold nothing but plugins, what they posted, and the tasks they started."""

    def __init__(self, answer=None, shut=()):
        self.posted, self.tasks = [], []
        self.plugin = Gated(answer)
        self.plugin.gates = {kind: asyncio.Event() for kind in shut}
        nothing = SimpleNamespace(cancel=lambda: None, is_idle=True, closed=done, close=done)
        parts = PerformerParts(
            **dict.fromkeys(
                (
                    *("spec", "session_id", "incarnation", "group_id", "requests"),
                    *("ports", "plugin_loader", "checkpoints", "forks", "replies"),
                ),
                None,
            ),
            model=nothing,
            summarizer=nothing,
            runner=nothing,
            subagents=nothing,
            servers=nothing,
            plugins=Pipeline([self.plugin], lambda: PluginContext(session_id="s")),
        )
        self.performers = Performers(parts, self.posted.append, exits(self.tasks.append))

    def perform(self, *effects):
        for effect in effects:
            self.performers.perform(effect, Memory())

    def open(self, kind):
        self.plugin.gates[kind].set()

    async def settled(self):
        """Return when every task is done."""
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self.tasks, return_exceptions=True)

    async def asked(self, kind):
        """Return when the plugin was asked."""
        async with asyncio.timeout(PATIENCE_S):
            await self.plugin.asked[kind].wait()


async def done():
    """Be done."""


async def until(time_s):
    """Return when the clock shows this time."""
    loop = asyncio.get_running_loop()
    due = loop.create_future()
    loop.call_at(time_s, due.set_result, None)
    await due


def test_every_effect_is_carried_out_by_somebody():
    """By the performers, by the agent itself, or with the step as a whole."""

    async def performers():
        return Workshop().performers

    able = asyncio.run(performers())
    missing = [
        effect
        for effect in get_args(Effect)
        if effect not in able._table and effect not in {WriteRecord, Publish, Complete}
    ]

    assert missing == [], f"{missing} -> add a row in performers.py or agent.py"


def test_what_plugins_answer_is_posted_for_the_work_that_waits():
    """Also where they have nothing to say."""

    async def scenario():
        shop = Workshop(Intervene("mind"))
        shop.perform(PROMPT)
        await shop.settled()
        return shop.posted

    (posted,) = asyncio.run(scenario())

    assert (type(posted), posted.work) == (PluginsAnswered, 3)
    assert posted.verdict == Verdict(interventions=("mind",))


@pytest.mark.parametrize(("answer", "count"), [(None, 0), (Emit("found"), 1)])
def test_what_they_say_where_nothing_waits_is_posted_if_it_is_something(answer, count):
    """As long as they think the performers are not idle."""

    async def scenario():
        shop = Workshop(answer, shut=["after_turn"])
        shop.perform(TURN)
        await shop.asked("after_turn")
        was_idle = shop.performers.is_idle
        shop.open("after_turn")
        await shop.performers.notified()
        return was_idle, shop

    was_idle, shop = asyncio.run(scenario())

    assert (was_idle, shop.performers.is_idle) == (False, True)
    assert [type(one) for one in shop.posted] == [PluginsReported] * count


def test_the_end_of_a_cycle_is_reported_before_the_next_one_is_asked_about():
    """However long that takes."""

    async def scenario():
        shop = Workshop(shut=["after_turn"])
        shop.perform(TURN, PROMPT)
        await shop.asked("after_turn")
        shop.open("after_turn")
        await shop.settled()
        return shop.plugin.heard

    assert asyncio.run(scenario()) == ["after_turn", "before_prompt"]


@pytest.mark.parametrize("shut", ["after_turn", "before_prompt"])
def test_a_cycle_that_is_ended_waits_for_no_plugin(shut):
    """Neither for its own ones nor for those of the cycle before, which go on."""

    async def scenario():
        shop = Workshop(Emit("found"), shut=[shut])
        shop.perform(TURN, PROMPT)
        await shop.asked(shut)
        shop.perform(CancelModel())
        shop.open(shut)
        await shop.settled()
        return shop.posted

    assert [type(one) for one in asyncio.run(scenario())] == [PluginsReported]


def test_steering_is_judged_beside_the_cycle():
    """Its end does not end that: the sender waits for the decision."""

    async def scenario():
        shop = Workshop(Intervene("slowly"), shut=["before_steering"])
        shop.perform(JUDGE)
        await shop.asked("before_steering")
        was_idle = shop.performers.is_idle
        shop.perform(CancelModel())
        shop.open("before_steering")
        await shop.settled()
        return was_idle, shop

    was_idle, shop = asyncio.run(scenario())

    assert (was_idle, shop.performers.is_idle) == (False, True)
    verdict = Verdict(interventions=("slowly",))
    assert shop.posted == [SteeringAnswered(JUDGE.order, STEER, verdict)]


def test_a_stop_ends_all_but_what_plugins_hear():
    """The end of the last cycle, and of the session, is still for them to hear."""

    async def scenario():
        shop = Workshop(Emit("found"), shut=["after_turn", "before_steering"])
        shop.perform(TURN, PROMPT, JUDGE)
        await shop.asked("after_turn")
        await shop.performers.stop()
        shop.open("after_turn")
        await shop.performers.notified()
        await shop.performers.notify_plugins(SessionEnd())
        await shop.settled()
        return shop

    shop = asyncio.run(scenario())

    assert [type(one) for one in shop.posted] == [PluginsReported] * 2
    assert shop.plugin.heard[-1] == "session_end"
    assert "before_prompt" not in shop.plugin.heard


def test_a_delay_is_posted_when_it_is_over_unless_it_is_ended(run):
    """On time."""

    async def scenario(*more):
        shop = Workshop()
        shop.perform(Sleep(4, 30.0), *more)
        await asyncio.sleep(29.0)  # tidy: by the clock that jumps
        early = list(shop.posted)
        await asyncio.sleep(2.0)  # tidy: by the clock that jumps
        return early, [(type(one), one.work) for one in shop.posted]

    assert run(scenario()) == ([], [(RetryDue, 4)])
    assert run(scenario(CancelModel())) == ([], [])


# --- what is handed on --------------------------------------------------------------------------


class Recorder:
    """Stands for everything the performers work with; notes which part was asked for what."""

    def __init__(self):
        self.asked = []

    def part(self, name):
        return SimpleNamespace(
            **{
                verb: lambda *_, verb=verb: self.asked.append(f"{name}.{verb}") or ()
                for verb in VERBS[name].split()
            }
        )


VERBS = {
    "requests": "answer summary system_message",
    "model": "call cancel",
    "summarizer": "start cancel",
    "runner": "run cancel_calls answer load change host_lost",
    "subagents": "start end count",
    "plugins": "run",
    "ports": "answer",
    "plugin_loader": "change",
    "checkpoints": "make",
    "forks": "sweep",
    "replies": "answer refuse answer_status answer_messages answer_page",
}


@pytest.mark.parametrize(
    ("effect", "asked"),
    [
        (CallModel(1, "m", ()), ["requests.answer", "model.call"]),
        (Summarize(1, "m", ()), ["requests.summary", "summarizer.start"]),
        (CancelModel(), ["model.cancel", "summarizer.cancel"]),
        (RunTools(1, 1, "m", ()), ["runner.run"]),
        (CancelCalls(("a",)), ["runner.cancel_calls"]),
        (AnswerTool("a:ask-1", 1), ["runner.answer", "ports.answer"]),
        (LoadTools("c", AttachTools(tools=())), ["runner.load"]),
        (ChangeServers(()), ["servers.change"]),
        (ChangeTools("c", (), ()), ["runner.change"]),
        (ChangePlugins("c", False, ()), ["plugin_loader.change"]),
        (EndSubagents(("s.1",)), ["subagents.end"]),
        (MakeCheckpoint("c", None, {}), ["checkpoints.make"]),
        (CountSubagents(("s.1",)), ["subagents.count", "forks.sweep"]),
        (Answer("q", 1), ["replies.answer"]),
        (Refuse("q", CmdcError("no")), ["replies.refuse"]),
        (AnswerStatus("q"), ["replies.answer_status"]),
        (AnswerMessages("q"), ["requests.system_message", "replies.answer_messages"]),
        (AnswerPage("q", "p", 1), ["replies.answer_page"]),
        (ExitProcess("over"), ["exit over"]),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else "",
)
def test_work_is_handed_to_who_can_do_it(effect, asked):
    """Nothing else is touched."""
    recorder = Recorder()
    spec = agent_spec(Options(model="x:m"))
    given = {"spec": spec, **dict.fromkeys(("session_id", "incarnation", "group_id"))}
    servers = SimpleNamespace(
        must_wait=False, change=lambda _servers: recorder.asked.append("servers.change")
    )
    performing = {name: recorder.part(name) for name in VERBS}
    parts = PerformerParts(**given, **performing, servers=servers)
    performers = Performers(
        parts,
        recorder.asked.append,
        exits(on_exit=lambda why: recorder.asked.append(f"exit {why}")),
    )
    performers.perform(effect, Memory())

    assert recorder.asked == asked


def test_a_child_is_started_with_what_its_call_may_spend():
    """As a child of this process: a start that comes after it serves no other one."""
    started = []
    spec = agent_spec(Options(model="x:m", subagents=[SubAgent("digger", "Digs.")]))
    parts = PerformerParts(
        spec=spec,
        session_id="s",
        incarnation=3,
        group_id="g",
        **dict.fromkeys(("requests", "model", "summarizer", "runner")),
        **dict.fromkeys(("plugins", "ports", "plugin_loader", "checkpoints", "forks", "replies")),
        servers=None,
        subagents=SimpleNamespace(start=lambda *given: started.append(given)),
    )
    performers = Performers(parts, started.append, exits())
    run = RunSubagent("s.1", "digger", "Dig.", Grant(100, 1.5))
    performers.perform(run, Memory(model="x:other"))
    ((request, text, past),) = started
    child = decode_as(AgentSpec, request.agent)

    assert (request.session_id, request.parent_id, request.parent_incarnation) == ("s.1", "s", 3)
    assert (text, past, request.group_id) == ("Dig.", None, "g")
    assert (child.model, child.max_total_tokens, child.max_cost_usd) == ("x:other", 100, 1.5)
