"""When a session is saved by itself, and which of its checkpoints go."""

import asyncio
import time

import pytest

from cmdc_runtime.checkpoints import Snapshot
from cmdc_runtime.events import AgentStart, ApprovalRequired, PluginEvent, ToolExecutionEnd
from cmdc_runtime.extensions.context import PluginCallError, PluginContext
from cmdc_runtime.extensions.hooks import AfterTurn, SessionEnd
from cmdc_runtime.extensions.plugin import PipelineRun
from cmdc_runtime.messages import TokenUsage
from workers.builtin.plugins.auto_checkpoint import REMOVED_MAX, AutoCheckpoint

ENDED = AfterTurn("finished", None, (), TokenUsage(), 1, 2, 1)
ASKED = ApprovalRequired(
    id="a-1", session_id="s-1", call_id="c-1", tool="shell", args={}, hint="", requested_at_ms=1
)
CALLED = ToolExecutionEnd(name="shell", call_id="c-1", ok=True, text="ok")
DAY_S = 86_400.0


class Shelf:
    """A session's checkpoints and what observers hear; ``error`` is what a save raises."""

    def __init__(self, *ages_s, error=None, made_by="auto_checkpoint"):
        self.error, self.reported = error, []
        self.kept = [self.one(f"old-{at}", age_s, made_by) for at, age_s in enumerate(ages_s)]

    @staticmethod
    def one(name, age_s, made_by):
        return Snapshot(
            checkpoint_id=name,
            session_id="s-1",
            label=None,
            saved_at_ms=round((time.time() - age_s) * 1000),
            schema_version=1,
            metadata={"made_by": made_by},
        )

    async def checkpoint(self, label=None, metadata=None):
        if self.error is not None:
            raise self.error
        made = self.one(f"new-{len(self.kept)}", 0.0, metadata["made_by"])
        self.kept.insert(0, made)
        return made

    async def checkpoints(self):
        return list(self.kept)

    async def delete_checkpoint(self, checkpoint_id):
        self.kept = [one for one in self.kept if one.checkpoint_id != checkpoint_id]

    async def emit(self, event):
        self.reported.append(event)

    @property
    def ids(self):
        return [one.checkpoint_id for one in self.kept]


def context(shelf, turn=0):
    return PluginContext(session_id="s-1", turn=turn, session=shelf)


def reported(emit):
    """Return the one event of an action."""
    ((name, payload),) = emit.events()
    assert name == "auto_checkpoint_saved"
    return payload


def test_it_saves_when_there_were_turns_enough():
    """Counted from the last time, however many cycles they were."""
    plugin, shelf = AutoCheckpoint(every_n_turns=3), Shelf()
    turns = (1, 2, 3, 4, 5, 6, 7, 9)
    answers = [asyncio.run(plugin.after_turn(ENDED, context(shelf, turn))) for turn in turns]

    assert [turn for turn, one in zip(turns, answers, strict=True) if one] == [3, 6, 9]
    assert plugin.state.saved_at_turn == 9
    assert reported(answers[2]) == {
        "checkpoint_id": shelf.ids[-1],
        "trigger": "turns",
        "removed": 0,
        "saved_at_ms": shelf.kept[-1].saved_at_ms,
    }


def test_no_turns_is_never():
    """The other triggers stay."""
    plugin, shelf = AutoCheckpoint(every_n_turns=0), Shelf()

    assert asyncio.run(plugin.after_turn(ENDED, context(shelf, 100))) is None
    assert asyncio.run(plugin.session_end(SessionEnd(), context(shelf))) is not None


@pytest.mark.parametrize(
    ("options", "event", "trigger"),
    [
        ({}, ASKED, "approval_required"),
        ({"on_events": ["agent_start"]}, AgentStart(command_id="p-1"), "agent_start"),
        ({"on_tools": ["shell"]}, CALLED, "tool:shell"),
        ({"on_tools": ["other"]}, CALLED, None),
        ({"on_events": []}, ASKED, None),
        ({"on_events": ["plugin_event"]}, PluginEvent(name="other", payload=1), "plugin_event"),
        (
            {"on_events": ["plugin_event"]},
            PluginEvent(name="auto_checkpoint_saved", payload={}),
            None,
        ),
        ({}, PipelineRun(hook="after_turn", duration_ms=1.0, plugins=1), None),
    ],
)
def test_it_saves_at_what_the_options_name(options, event, trigger):
    """And notifies observers, but is not set off by its own word."""
    plugin, shelf = AutoCheckpoint(**options), Shelf()
    asyncio.run(plugin.observe(event, context(shelf)))

    assert [reported(one)["trigger"] for one in shelf.reported] == ([trigger] if trigger else [])
    assert len(shelf.kept) == (1 if trigger else 0)


def test_the_end_of_a_session_is_an_event_like_others():
    """Where the options do not name it, nothing is saved."""
    plugin, shelf = AutoCheckpoint(on_events=["approval_required"]), Shelf()

    assert asyncio.run(plugin.session_end(SessionEnd(), context(shelf))) is None
    assert shelf.kept == []


def test_the_oldest_and_the_expired_go():
    """After the save, and only its own."""
    plugin = AutoCheckpoint(max_checkpoints=3, ttl_seconds=2 * DAY_S)
    shelf = Shelf(1.0, 10.0, 100.0, 3 * DAY_S)
    saved = asyncio.run(plugin.session_end(SessionEnd(), context(shelf)))

    assert shelf.ids == ["new-4", "old-0", "old-1"]
    assert reported(saved)["removed"] == 2


def test_what_others_saved_stays():
    """However old it is, and however many there are."""
    plugin = AutoCheckpoint(max_checkpoints=1, ttl_seconds=1.0)
    shelf = Shelf(DAY_S, DAY_S, made_by="me")
    asyncio.run(plugin.session_end(SessionEnd(), context(shelf)))

    assert shelf.ids == ["new-2", "old-0", "old-1"]


def test_so_many_go_at_one_save():
    """The rest goes at the next ones, the oldest first."""
    plugin = AutoCheckpoint(max_checkpoints=1)
    shelf = Shelf(*range(1, REMOVED_MAX + 6))
    asyncio.run(plugin.session_end(SessionEnd(), context(shelf)))

    assert shelf.ids == [f"new-{REMOVED_MAX + 5}", *(f"old-{at}" for at in range(5))]


def test_a_save_that_fails_is_nobodys_business():
    """No event, no error, and the next occasion is taken."""
    plugin, broken, fine = (
        AutoCheckpoint(every_n_turns=2),
        Shelf(error=PluginCallError("full")),
        Shelf(),
    )

    assert asyncio.run(plugin.after_turn(ENDED, context(broken, 2))) is None
    asyncio.run(plugin.observe(ASKED, context(broken)))
    assert broken.reported == []
    assert asyncio.run(plugin.after_turn(ENDED, context(fine, 3))) is not None


def test_without_a_session_nothing_is_saved():
    """As in a unit test of an application."""
    plugin = AutoCheckpoint()

    assert asyncio.run(plugin.session_end(SessionEnd(), context(None))) is None
    asyncio.run(plugin.observe(ASKED, context(None)))
